//! Records heap profiles with jemalloc.

use std::time::SystemTime;

use crate::allocator;
use crate::encode::{Description, Sample, encode};
use crate::error::ProfileError;
use crate::heap_dump::{self, SampledStack};
use crate::heap_sampling::HeapSampling;
use crate::recording::Recording;
use crate::symbols::{Function, Symbols};

/// The maximum number of innermost stack frames among which those of the allocator are.
const ALLOCATOR_FRAMES_MAX: usize = 12;

/// A heap profile that is being recorded. Allocations are sampled until the recording stops.
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
        // Sampling must stop even if a later step fails.
        stop()?;
        let sample_interval = allocator::sample_interval().map_err(failed)?;
        let stacks = heap_dump::parse(&dump.map_err(failed)?).map_err(failed)?;
        let mut symbols = Symbols::new();
        let sample = |stack: &SampledStack| Sample {
            addresses: without_allocator(&stack.addresses, &mut symbols).to_vec(),
            values: heap_dump::estimate(stack, sample_interval),
            thread: None,
        };
        let samples: Vec<Sample> = stacks.iter().map(sample).collect();
        let description = Description {
            values: [("inuse_objects", "count"), ("inuse_space", "bytes")],
            default_value: "inuse_space",
            period: (("space", "bytes"), i64::from(sample_interval)),
            began: self.began,
            duration,
        };
        encode(&description, &samples, &mut symbols).map_err(failed)
    }

    fn abandon(self) {
        if let Err(error) = stop() {
            tracing::warn!(%error, "failed to stop the sampling of allocations");
        }
    }
}

/// Stops the sampling of allocations and deletes the samples, except with [`HeapSampling::Always`].
fn stop() -> Result<(), ProfileError> {
    match allocator::sampling() {
        HeapSampling::Always | HeapSampling::Unavailable => Ok(()),
        HeapSampling::OnRequest => {
            let stopped = allocator::set_active(false);
            stopped.and_then(|()| allocator::reset()).map_err(failed)
        }
    }
}

/// Returns the stack without the frames of the allocator: it begins with the function that allocates.
fn without_allocator<'a>(addresses: &'a [usize], symbols: &mut Symbols) -> &'a [usize] {
    let mut is_allocator = |address: &usize| {
        let functions = symbols.functions(*address);
        functions.iter().any(is_allocator_function)
    };
    let first = &addresses[..addresses.len().min(ALLOCATOR_FRAMES_MAX)];
    let last = first.iter().rposition(&mut is_allocator);
    last.map_or(addresses, |last| &addresses[last + 1..])
}

/// Returns true for jemalloc's exported functions and for the functions with which Rust calls the allocator.
fn is_allocator_function(function: &Function) -> bool {
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
