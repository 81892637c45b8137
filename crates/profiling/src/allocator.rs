//! Controls jemalloc's heap profiling: starts and stops the sampling of allocations, and dumps the samples.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::AsRawFd as _;
use std::sync::LazyLock;

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, memfd_create};
use tikv_jemalloc_ctl::{Access as _, AsName as _, Error};

use crate::heap_sampling::HeapSampling;

/// When jemalloc samples allocations. The value is read before the first recording changes `prof.active`.
static SAMPLING: LazyLock<HeapSampling> = LazyLock::new(|| {
    let read = |name: &str| -> Result<bool, Error> { name.name().read() };
    // Reading `opt.prof` fails if jemalloc was built without profiling.
    match (read("opt.prof\0"), read("prof.active\0")) {
        (Ok(true), Ok(true)) => HeapSampling::Always,
        (Ok(true), Ok(false)) => HeapSampling::OnRequest,
        _ => HeapSampling::Unavailable,
    }
});

/// Returns when jemalloc samples allocations.
pub(crate) fn sampling() -> HeapSampling {
    *SAMPLING
}

/// Starts or stops the sampling of allocations.
pub(crate) fn set_active(is_active: bool) -> Result<(), Error> {
    "prof.active\0".name().write(is_active)
}

/// Returns the base-2 logarithm of [`sample_interval`].
fn log2_sample_interval() -> Result<usize, Error> {
    "prof.lg_sample\0".name().read()
}

/// Returns the mean number of allocated bytes between two samples.
pub(crate) fn sample_interval() -> Result<u32, Error> {
    Ok(1 << log2_sample_interval()?.min(31))
}

/// Deletes all samples.
pub(crate) fn reset() -> Result<(), Error> {
    "prof.reset\0".name().write(log2_sample_interval()?)
}

/// The file to which jemalloc writes dumps. It is in memory (`memfd_create`), because the server may have no writable directory. All
/// dumps use the same file, because its path must have the lifetime `'static`.
struct DumpFile {
    file: File,
    /// The path, terminated by a zero byte.
    path: &'static str,
}

static DUMP_FILE: Mutex<Option<DumpFile>> = Mutex::new(None);

/// Returns the samples of the allocations that were not freed, in the text format of jemalloc's dumps.
pub(crate) fn dump() -> io::Result<String> {
    let mut dump_file = DUMP_FILE.lock();
    let DumpFile { file, path } = match &mut *dump_file {
        Some(dump_file) => dump_file,
        None => dump_file.insert(create_dump_file()?),
    };
    let written = "prof.dump\0".name().write(*path);
    written.map_err(|error| io::Error::other(format!("prof.dump: {error}")))?;
    file.rewind()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    file.set_len(0)?;
    Ok(text)
}

fn create_dump_file() -> io::Result<DumpFile> {
    let file = File::from(memfd_create("heap-profile", MemfdFlags::CLOEXEC)?);
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    Ok(DumpFile {
        file,
        path: path.leak(),
    })
}
