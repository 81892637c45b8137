//! The writes of custom resources that are on their way into storage, and what becomes of them when their
//! definition changes. A write is decided by one state of a definition: what its schema knows, which version is
//! stored, that anything new may come at all. It knows neither how that is decided nor who does it again.
//!
//! # Invariants
//!
//! 1. Once a definition is said to be followed at a version, and before its objects are cleaned up, nothing
//!    that was decided by an earlier state of it goes into storage from here.
//! 2. A write that is refused for that has not been stored, and can be decided once more.
//!
//! Upstream lets requests that are under way go on by the old state, and takes that down when they have ended
//! or their time is up; one that comes late can store what nobody cleans up any more (issue 99181). Here only
//! the put itself is waited for, which storage bounds in time.
//!
//! # What is not promised
//!
//! - Of several servers over one etcd each promises this for itself. Another one goes on by the old state until
//!   its watch of the definitions has told it of the new one: as late as etcd is with its events, usually
//!   milliseconds. A create that it takes in meanwhile can come after the last look of a clean-up that a faster
//!   server made; the object stays in storage, unseen, until a definition of that name is there again. While
//!   the clean-up lasts it is found, because every server looks once it knows.
//! - A put of which storage does not know whether it was done, because etcd was away, counts as ended when
//!   storage says so.

use std::future::Future;

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::registry::ApiError;

/// The writes by one state of a definition.
#[derive(Debug, Default)]
pub(super) struct WriteBarrier(TaskTracker);

impl WriteBarrier {
    /// Lets a write that was decided by this state go into storage, if the state is still that of the
    /// definition.
    ///
    /// # Errors
    /// [`ApiError::NotServed`]: what is to be done has to be decided by a newer one.
    pub(super) fn begin(&self) -> Result<TaskTrackerToken, ApiError> {
        // Counted first: either whoever ends this state sees the count, or it is seen here that it has ended.
        let token = self.0.token();
        match self.0.is_closed() {
            false => Ok(token),
            true => Err(ApiError::NotServed),
        }
    }

    /// Lets none begin any more. What comes next must be in the table by now: who is refused looks there.
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
    async fn who_has_begun_is_waited_for_and_nobody_else_begins() {
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
