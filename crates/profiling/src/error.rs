//! `ProfileError`: the error of a recording.

/// The error of a recording that returns no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Another profile is being recorded.
    #[error(
        "a {0} profile is being recorded, and only one profile can be recorded at a time: try again when it has ended"
    )]
    InProgress(&'static str),
    /// The program cannot record CPU profiles.
    #[error(
        "this program cannot record CPU profiles, because it is linked statically: use one that is built for glibc with \
         `cargo build --release`"
    )]
    NoCpuProfiles,
    /// The program cannot record heap profiles.
    #[error(
        "this program cannot record heap profiles: it must be built with the feature jemalloc and for glibc, and {variable} must not \
         contain prof:false",
        variable = "_RJEM_MALLOC_CONF"
    )]
    NoHeapProfiles,
    /// The profiler or the allocator returned an error.
    #[error("cannot record a {profile} profile: {detail}")]
    Failed {
        /// `CPU` or `heap`.
        profile: &'static str,
        /// What failed and what to do.
        detail: String,
    },
}
