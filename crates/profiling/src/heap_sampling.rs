//! `HeapSampling`: whether the allocator samples allocations.

/// Whether the allocator samples allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapSampling {
    /// It cannot.
    Unavailable,
    /// Only while a profile is recorded.
    OnRequest,
    /// Since the start of the process: `_RJEM_MALLOC_CONF` contains `prof_active:true`.
    Always,
}
