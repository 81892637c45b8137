//! Freshness: waiting until the cache has reached a version. A waiter is woken when its own version
//! is reached and not before; one that is dropped leaves nothing behind.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::api::ResourceVersion;

/// The version that a cache has reached, and those who wait for a later one.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    reached: ResourceVersion,
    /// By wanted version, then by arrival. Bounded by the requests in flight.
    waiters: BTreeMap<(ResourceVersion, u64), oneshot::Sender<()>>,
    arrivals: u64,
}

/// The version was not reached in time; this one was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotReached(pub(super) ResourceVersion);

impl Freshness {
    /// The cache has reached `version`: wakes those who waited for it or less.
    pub(super) fn reached(&self, version: ResourceVersion) {
        let woken = {
            let mut inner = self.inner.lock();
            inner.reached = inner.reached.max(version);
            let later = inner.waiters.split_off(&(version.next(), 0));
            std::mem::replace(&mut inner.waiters, later)
        };
        // Unlocked first, so that a woken task does not run into the lock.
        for waiter in woken.into_values() {
            // A waiter that was dropped meanwhile is no news.
            waiter.send(()).ok();
        }
    }

    /// The cache begins a new history, which may be at an earlier version.
    pub(super) fn restart(&self) {
        self.inner.lock().reached = ResourceVersion::ZERO;
    }

    /// Waits until `version` is reached. `ask` asks the source to say how far it is; it is called
    /// now and every `ask_every` until somebody need not wait any longer.
    pub(super) async fn wait(
        &self,
        version: ResourceVersion,
        timeout: Duration,
        ask_every: Duration,
        ask: impl Fn(),
    ) -> Result<(), NotReached> {
        let Some((mut woken, _leave)) = self.enter(version) else {
            return Ok(());
        };
        let deadline = tokio::time::sleep(timeout);
        tokio::pin!(deadline);
        loop {
            ask();
            // Biased: being fresh at the last moment is being fresh.
            tokio::select! {
                biased;
                _ = &mut woken => return Ok(()),
                () = &mut deadline => return Err(NotReached(self.inner.lock().reached)),
                () = tokio::time::sleep(ask_every) => {}
            }
        }
    }

    fn enter(&self, version: ResourceVersion) -> Option<(oneshot::Receiver<()>, Leave<'_>)> {
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
            Leave {
                freshness: self,
                key,
            },
        ))
    }
}

/// Takes a waiter off the list when its wait is over or given up.
struct Leave<'a> {
    freshness: &'a Freshness,
    key: (ResourceVersion, u64),
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.freshness.inner.lock().waiters.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const ASK: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn a_waiter_is_woken_by_its_version_and_asks_only_while_it_waits() {
        let freshness = Freshness::default();
        freshness.reached(ResourceVersion::new(5));
        let asked = Cell::new(0);
        let ask = || asked.set(asked.get() + 1);
        freshness
            .wait(ResourceVersion::new(5), SECOND, ASK, ask)
            .await
            .unwrap();
        assert_eq!(asked.get(), 0, "nobody waited");
        let wait = freshness.wait(ResourceVersion::new(7), SECOND, ASK, ask);
        let writer = async {
            freshness.reached(ResourceVersion::new(6));
            tokio::time::sleep(Duration::from_millis(250)).await;
            freshness.reached(ResourceVersion::new(8));
        };
        let (waited, ()) = tokio::join!(wait, writer);
        waited.unwrap();
        assert_eq!(asked.get(), 3, "at once, then each 100 ms");
        assert!(freshness.inner.lock().waiters.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_or_dropped_waiter_leaves_nothing() {
        let freshness = Freshness::default();
        let wait = freshness.wait(ResourceVersion::new(7), SECOND, ASK, || {});
        assert_eq!(wait.await, Err(NotReached(ResourceVersion::ZERO)));
        let wait = freshness.wait(ResourceVersion::new(7), SECOND, ASK, || {});
        tokio::time::timeout(ASK, wait).await.unwrap_err();
        assert!(freshness.inner.lock().waiters.is_empty());
    }
}
