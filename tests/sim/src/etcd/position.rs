//! The position of a member in the log.

/// The position of a member in the log, and the state there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Applied {
    pub(super) index: u64,
    pub(super) revision: i64,
    pub(super) compacted: i64,
}

/// Returns the position of a member of a new cluster.
pub(super) fn initial() -> Applied {
    Applied {
        index: 4,
        revision: 1,
        compacted: -1,
    }
}
