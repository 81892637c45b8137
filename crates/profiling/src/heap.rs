//! Records heap profiles, or returns an error if the program was built without jemalloc's profiling.

use std::time::Duration;

use watchet_tasks::Tasks;

use crate::error::ProfileError;
use crate::heap_sampling::HeapSampling;
#[cfg(all(feature = "jemalloc", target_env = "gnu"))]
use crate::{allocator, heap_recording::HeapRecording, recording::record};

/// Returns when the allocator samples allocations.
pub fn heap_sampling() -> HeapSampling {
    #[cfg(all(feature = "jemalloc", target_env = "gnu"))]
    return allocator::sampling();
    #[cfg(not(all(feature = "jemalloc", target_env = "gnu")))]
    return HeapSampling::Unavailable;
}

/// Records the allocations of the next `duration`, or until the tasks are cancelled, that are not freed by then. With
/// [`HeapSampling::Always`], the profile contains all allocations since the start of the process. Returns a pprof protobuf, compressed
/// with gzip. If the returned future is dropped, the recording stops.
///
/// # Errors
/// The program cannot record heap profiles, another profile is being recorded, or the allocator returns an error.
pub async fn record_heap_profile(
    tasks: &Tasks,
    duration: Duration,
) -> Result<Vec<u8>, ProfileError> {
    #[cfg(all(feature = "jemalloc", target_env = "gnu"))]
    return record::<HeapRecording>(tasks, duration).await;
    #[cfg(not(all(feature = "jemalloc", target_env = "gnu")))]
    {
        let _ = (tasks, duration);
        Err(ProfileError::NoHeapProfiles)
    }
}
