//! Records heap profiles with jemalloc.

use std::time::SystemTime;

use crate::allocator;
use crate::encode::{Description, Sample, encode};
use crate::error::ProfileError;
use crate::heap_dump::{self, SampledStack};
use crate::heap_sampling::HeapSampling;
use crate::recording::Recording;
use crate::symbols::{Function, Symbols};

/// The stack frames of the allocator are among the first ones.
const ALLOCATOR_FRAMES_MAX: usize = 12;

/// A recording, which has started to sample allocations, unless that is always done.
pub(crate) struct HeapRecording {
    began: SystemTime,
}

impl Recording for HeapRecording {
    const PROFILE: &'static str = "heap";

    fn start() -> Result<Self, ProfileError> {
        match allocator::sampling() {
            HeapSampling::Unavailable => return Err(ProfileError::NoHeapProfiles),
            HeapSampling::OnRequest => allocator::set_active(true).map_err(failed)?,
            HeapSampling::Always => {}
        }
        let began = SystemTime::now();
        Ok(Self { began })
    }

    fn finish(self) -> Result<Vec<u8>, ProfileError> {
        let dump = allocator::dump();
        let duration = self.began.elapsed().unwrap_or_default();
        // Before anything else can fail.
        stop()?;
        let sample_bytes = allocator::sample_bytes().map_err(failed)?;
        let stacks = heap_dump::parse(&dump.map_err(failed)?).map_err(failed)?;
        let mut symbols = Symbols::new();
        let sample = |stack: &SampledStack| Sample {
            addresses: without_allocator(&stack.addresses, &mut symbols).to_vec(),
            values: heap_dump::estimate(stack, sample_bytes),
            thread: None,
        };
        let samples: Vec<Sample> = stacks.iter().map(sample).collect();
        let description = Description {
            values: [("inuse_objects", "count"), ("inuse_space", "bytes")],
            default_value: "inuse_space",
            period: (("space", "bytes"), i64::from(sample_bytes)),
            began: self.began,
            duration,
        };
        encode(&description, &samples, &mut symbols).map_err(failed)
    }

    fn abandon(self) {
        if let Err(error) = stop() {
            tracing::warn!(%error, "sampling of allocations did not stop");
        }
    }
}

/// Stops sampling allocations, unless that is always done.
fn stop() -> Result<(), ProfileError> {
    match allocator::sampling() {
        HeapSampling::Always | HeapSampling::Unavailable => Ok(()),
        HeapSampling::OnRequest => {
            let stopped = allocator::set_active(false);
            stopped.and_then(|()| allocator::reset()).map_err(failed)
        }
    }
}

/// Returns the stack from the function that allocates.
fn without_allocator<'a>(addresses: &'a [usize], symbols: &mut Symbols) -> &'a [usize] {
    let mut is_allocator = |address: &usize| {
        let functions = symbols.functions(*address);
        functions.iter().any(is_of_allocator)
    };
    let first = &addresses[..addresses.len().min(ALLOCATOR_FRAMES_MAX)];
    let last = first.iter().rposition(&mut is_allocator);
    last.map_or(addresses, |last| &addresses[last + 1..])
}

/// Returns true for the functions of jemalloc with external names, and for those with which Rust calls it.
fn is_of_allocator(function: &Function) -> bool {
    let name = &function.name;
    name.starts_with("_rjem_")
        || name.contains("__rust_alloc")
        || name.contains("__rust_realloc")
        || name.contains("__rdl_")
        || name.contains("__rg_")
}

fn failed(error: impl std::fmt::Display) -> ProfileError {
    ProfileError::Failed {
        profile: HeapRecording::PROFILE,
        detail: error.to_string(),
    }
}
