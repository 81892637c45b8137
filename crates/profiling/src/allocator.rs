//! jemalloc's sampling of allocations: its state, and its dump.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::AsRawFd as _;
use std::sync::LazyLock;

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, memfd_create};
use tikv_jemalloc_ctl::{Access as _, AsName as _, Error};

use crate::heap_sampling::HeapSampling;

/// Whether allocations are sampled besides the recordings. Read before the first of them.
static SAMPLING: LazyLock<HeapSampling> = LazyLock::new(|| {
    let read = |name: &str| -> Result<bool, Error> { name.name().read() };
    // The first one is an error if jemalloc was built without profiling.
    match (read("opt.prof\0"), read("prof.active\0")) {
        (Ok(true), Ok(true)) => HeapSampling::Always,
        (Ok(true), Ok(false)) => HeapSampling::OnRequest,
        _ => HeapSampling::Unavailable,
    }
});

/// Returns whether allocations are sampled.
pub(crate) fn sampling() -> HeapSampling {
    *SAMPLING
}

/// Starts to sample allocations, or stops.
pub(crate) fn set_active(is_active: bool) -> Result<(), Error> {
    "prof.active\0".name().write(is_active)
}

/// Returns the mean distance of sampled bytes, as a power of two.
fn log2_sample_bytes() -> Result<usize, Error> {
    "prof.lg_sample\0".name().read()
}

/// Returns the mean distance of sampled bytes.
pub(crate) fn sample_bytes() -> Result<u32, Error> {
    Ok(1 << log2_sample_bytes()?.min(31))
}

/// Forgets all samples.
pub(crate) fn reset() -> Result<(), Error> {
    "prof.reset\0".name().write(log2_sample_bytes()?)
}

/// Where jemalloc writes dumps: a file in memory, because the server may have no directory that it can write to. jemalloc needs a
/// path that is valid forever, so there is one file for all dumps.
struct DumpFile {
    file: File,
    /// Ends with a zero byte.
    path: &'static str,
}

static DUMP_FILE: Mutex<Option<DumpFile>> = Mutex::new(None);

/// Returns the samples of the allocations that were not freed, as text.
pub(crate) fn dump() -> io::Result<String> {
    let mut dump_file = DUMP_FILE.lock();
    let DumpFile { file, path } = match &mut *dump_file {
        Some(dump_file) => dump_file,
        None => dump_file.insert(create()?),
    };
    let written = "prof.dump\0".name().write(*path);
    written.map_err(|error| io::Error::other(format!("prof.dump: {error}")))?;
    file.rewind()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    file.set_len(0)?;
    Ok(text)
}

fn create() -> io::Result<DumpFile> {
    let file = File::from(memfd_create("heap-profile", MemfdFlags::CLOEXEC)?);
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    Ok(DumpFile {
        file,
        path: path.leak(),
    })
}
