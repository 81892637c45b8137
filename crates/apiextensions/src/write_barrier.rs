//! A barrier between the writes of custom resources and changes of their definition. A write depends on one state of
//! the definition: its schema, its storage version, and whether it allows creates. The barrier counts the puts that
//! depend on that state, and waits for them when the definition changes.
//!
//! # Invariants
//!
//! 1. Once the server reports that it serves a definition as of a version, and before it cleans up the objects of a definition,
//!    this server stores no write that depends on an earlier state.
//! 2. A write that the barrier rejects was not stored, and can be repeated with the new state.
//!
//! Upstream lets pending requests continue with the old state until they end or time out; a late one can store an object that
//! is never cleaned up (kubernetes/kubernetes#99181). Here only the put itself is awaited, whose time storage limits.
//!
//! # Limits
//!
//! - Each of several servers over one etcd guarantees this for its own writes. Another server continues with the old state
//!   until its watch of the definitions has received the new one, usually milliseconds later. A create that it accepts in
//!   between can be stored after the last pass of another server's cleanup; the object then remains in storage, invisible,
//!   until a definition with that name exists again. During the cleanup it is found, because every server runs passes.
//! - A put whose result storage does not know, because etcd was unavailable, counts as ended when storage returns.

use std::future::Future;

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use watchet_registry::ApiError;

/// The puts that depend on one state of a definition.
#[derive(Debug, Default)]
pub(super) struct WriteBarrier(TaskTracker);

impl WriteBarrier {
    /// Begins a put, if the definition still has this state.
    ///
    /// # Errors
    /// [`ApiError::NotServed`]: the write must be repeated with the newer state.
    pub(super) fn begin(&self) -> Result<TaskTrackerToken, ApiError> {
        // The put is counted before the check: either `end` sees the count, or the check sees that the state has ended.
        let token = self.0.token();
        match self.0.is_closed() {
            false => Ok(token),
            true => Err(ApiError::NotServed),
        }
    }

    /// Rejects new puts and waits for those in progress. The new state must be in the table already, because a rejected
    /// write is repeated with the state in the table.
    pub(super) fn end(&self) -> impl Future<Output = ()> + '_ {
        self.0.close();
        self.0.wait()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn end_waits_for_begun_writes_and_rejects_new_ones() {
        let writes = WriteBarrier::default();
        let (one, other) = (writes.begin().unwrap(), writes.begin().unwrap());
        drop(other);
        let mut end = pin!(writes.end());
        assert!(poll!(&mut end).is_pending());
        let late = writes.begin();
        assert!(matches!(late, Err(ApiError::NotServed)), "{late:?}");
        assert!(poll!(&mut end).is_pending());
        drop(one);
        assert!(poll!(&mut end).is_ready());
    }
}
