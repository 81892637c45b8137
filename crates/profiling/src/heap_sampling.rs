//! `HeapSampling`: when the allocator samples allocations.

/// When the allocator samples allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapSampling {
    /// Never: the program was built without jemalloc's profiling, or `_RJEM_MALLOC_CONF` contains `prof:false`.
    Unavailable,
    /// Only while a profile is recorded.
    OnRequest,
    /// Since the start of the process: `_RJEM_MALLOC_CONF` contains `prof_active:true`.
    Always,
}
