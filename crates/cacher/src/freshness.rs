//! Freshness: waits until the cache has reached a version. Reaching a version wakes only its
//! waiters; a dropped waiter removes itself.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use watchet_api::ResourceVersion;

/// The version that a cache has reached, and the waiters for later ones.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    reached: ResourceVersion,
    /// By version, then by arrival. Bounded by the requests in flight.
    waiters: BTreeMap<(ResourceVersion, u64), oneshot::Sender<()>>,
    arrivals: u64,
}

/// The cache did not reach the version in time; it reached this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotReached(pub(super) ResourceVersion);

impl Freshness {
    /// Records that the cache has reached `version` and wakes the waiters for it.
    pub(super) fn reached(&self, version: ResourceVersion) {
        let woken = {
            let mut inner = self.inner.lock();
            inner.reached = inner.reached.max(version);
            let later = inner.waiters.split_off(&(version.next(), 0));
            std::mem::replace(&mut inner.waiters, later)
        };
        // Unlock before waking, so that a woken task does not contend for the lock.
        for waiter in woken.into_values() {
            // The receiver may have been dropped.
            waiter.send(()).ok();
        }
    }

    /// Starts a new history, which may be at an earlier version.
    pub(super) fn restart(&self) {
        self.inner.lock().reached = ResourceVersion::ZERO;
    }

    /// Waits until `version` is reached. Calls `request_progress` now and every `interval` while it
    /// waits.
    pub(super) async fn wait(
        &self,
        version: ResourceVersion,
        timeout: Duration,
        interval: Duration,
        request_progress: impl Fn(),
    ) -> Result<(), NotReached> {
        let Some((mut woken, _leave)) = self.enter(version) else {
            return Ok(());
        };
        let deadline = tokio::time::sleep(timeout);
        tokio::pin!(deadline);
        loop {
            request_progress();
            // Biased: reaching the version at the deadline counts.
            tokio::select! {
                biased;
                _ = &mut woken => return Ok(()),
                () = &mut deadline => return Err(NotReached(self.inner.lock().reached)),
                () = tokio::time::sleep(interval) => {}
            }
        }
    }

    fn enter(&self, version: ResourceVersion) -> Option<(oneshot::Receiver<()>, WaiterGuard<'_>)> {
        let mut inner = self.inner.lock();
        if inner.reached >= version {
            return None;
        }
        inner.arrivals += 1;
        let key = (version, inner.arrivals);
        let (send, receive) = oneshot::channel();
        inner.waiters.insert(key, send);
        Some((
            receive,
            WaiterGuard {
                freshness: self,
                key,
            },
        ))
    }
}

/// Removes a waiter when its wait ends or is dropped.
struct WaiterGuard<'a> {
    freshness: &'a Freshness,
    key: (ResourceVersion, u64),
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.freshness.inner.lock().waiters.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const INTERVAL: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn waiter_wakes_at_its_version_and_requests_progress_until_then() {
        let freshness = Freshness::default();
        freshness.reached(ResourceVersion::new(5));
        let requests = Cell::new(0);
        let request_progress = || requests.set(requests.get() + 1);
        freshness
            .wait(ResourceVersion::new(5), SECOND, INTERVAL, request_progress)
            .await
            .unwrap();
        assert_eq!(requests.get(), 0, "there was no waiter");
        let wait = freshness.wait(ResourceVersion::new(7), SECOND, INTERVAL, request_progress);
        let writer = async {
            freshness.reached(ResourceVersion::new(6));
            tokio::time::sleep(Duration::from_millis(250)).await;
            freshness.reached(ResourceVersion::new(8));
        };
        let (waited, ()) = tokio::join!(wait, writer);
        waited.unwrap();
        assert_eq!(requests.get(), 3, "immediately, then every 100 ms");
        assert!(freshness.inner.lock().waiters.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn late_and_dropped_waiters_are_removed() {
        let freshness = Freshness::default();
        let wait = freshness.wait(ResourceVersion::new(7), SECOND, INTERVAL, || {});
        assert_eq!(wait.await, Err(NotReached(ResourceVersion::ZERO)));
        let wait = freshness.wait(ResourceVersion::new(7), SECOND, INTERVAL, || {});
        tokio::time::timeout(INTERVAL, wait).await.unwrap_err();
        assert!(freshness.inner.lock().waiters.is_empty());
    }
}
