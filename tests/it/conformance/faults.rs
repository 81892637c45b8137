//! `Faults`: a wrapper of any back end that injects faults: watches that deliver nothing, a concurrent writer, calls
//! that fail. It also counts calls. Without faults it behaves like the back end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use watchet::api::{ResourceVersion, StorageKey};
use watchet::storage::{
    Expect, KeyValue, ListPage, ListRequest, ListVisitor, Outcome, Put, Storage, StorageError,
    StorageLayer, StorageWatch,
};

/// The page size of the first list of a cache, by which `refuse_loading` recognizes it.
const CACHE_PAGE: usize = 2_500;

#[derive(Debug)]
pub(crate) struct Faults {
    inner: Arc<dyn Storage>,
    frozen: watch::Sender<bool>,
    /// The number of calls of `cut_watches`.
    cut: watch::Sender<usize>,
    down: AtomicBool,
    loses_acknowledgements: AtomicBool,
    no_loading: AtomicBool,
    no_progress: AtomicBool,
    before_writes: Mutex<VecDeque<Before>>,
    /// The number of next creates that find their key present.
    pub(crate) collisions: AtomicUsize,
    /// The number of gets, lists and revision reads that reached storage.
    pub(crate) gets: AtomicUsize,
    pub(crate) lists: AtomicUsize,
    pub(crate) probes: AtomicUsize,
    /// The number of puts and deletes that reached storage.
    pub(crate) writes: AtomicUsize,
}

/// A write of a concurrent writer.
#[derive(Debug)]
pub(crate) enum Before {
    /// Writes this text at the key.
    Put(String, String),
    /// Deletes the key.
    Delete(String),
}

impl Faults {
    pub(crate) fn over(inner: Arc<dyn Storage>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            frozen: watch::Sender::new(false),
            cut: watch::Sender::new(0),
            down: AtomicBool::default(),
            loses_acknowledgements: AtomicBool::default(),
            no_loading: AtomicBool::default(),
            no_progress: AtomicBool::default(),
            before_writes: Mutex::default(),
            collisions: AtomicUsize::default(),
            gets: AtomicUsize::default(),
            lists: AtomicUsize::default(),
            probes: AtomicUsize::default(),
            writes: AtomicUsize::default(),
        })
    }

    /// Returns the back end.
    pub(crate) fn inner(&self) -> Arc<dyn Storage> {
        self.inner.clone()
    }

    /// Makes watches deliver nothing while `frozen` is true, so that caches are stale.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    /// Ends every open watch, as a lost connection does.
    pub(crate) fn cut_watches(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Makes every call fail while `down` is true.
    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// Executes writes, but responds that their outcome is unknown, while `loses` is true.
    pub(crate) fn lose_acknowledgements(&self, loses: bool) {
        self.loses_acknowledgements.store(loses, Ordering::SeqCst);
    }

    /// Makes the lists that fill caches fail while `refuse` is true; smaller lists succeed.
    pub(crate) fn refuse_loading(&self, refuse: bool) {
        self.no_loading.store(refuse, Ordering::SeqCst);
    }

    /// Reports that progress responses are not reliable, as for etcd before 3.5.13.
    pub(crate) fn distrust_progress(&self) {
        self.no_progress.store(true, Ordering::SeqCst);
    }

    /// Performs this write just before the next write.
    pub(crate) fn before_next_write(&self, before: Before) {
        self.before_writes.lock().push_back(before);
    }

    fn up(&self) -> Result<(), StorageError> {
        if self.down.load(Ordering::SeqCst) {
            return Err(StorageError::Unavailable("the case says so".into()));
        }
        Ok(())
    }

    fn acknowledge(&self, outcome: Outcome) -> Result<Outcome, StorageError> {
        match self.loses_acknowledgements.load(Ordering::SeqCst) {
            true => Err(StorageError::OutcomeUnknown("the case says so".into())),
            false => Ok(outcome),
        }
    }

    async fn write_concurrently(&self) -> Result<(), StorageError> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let Some(before) = self.before_writes.lock().pop_front() else {
            return Ok(());
        };
        let (Before::Put(key, _) | Before::Delete(key)) = &before;
        let key = StorageKey::new(key).expect("a key");
        let (stored, _) = self.inner.get(&key).await?;
        let outcome = match before {
            Before::Delete(_) => {
                let stored = stored.expect("another writer deletes what is there");
                self.inner.delete(&key, stored.mod_revision).await?
            }
            Before::Put(_, value) => {
                let put = Put {
                    key,
                    value: value.into(),
                    expect: stored.map_or(Expect::Absent, |s| Expect::At(s.mod_revision)),
                    ttl: None,
                };
                self.inner.put(put).await?
            }
        };
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        Ok(())
    }
}

#[async_trait]
impl StorageLayer for Faults {
    fn inner(&self) -> &Arc<dyn Storage> {
        &self.inner
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        self.up()?;
        self.inner.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.up()?;
        if self.no_loading.load(Ordering::SeqCst) && request.limit >= CACHE_PAGE {
            return Err(StorageError::Unavailable("the case refuses loading".into()));
        }
        self.inner.list(request).await
    }

    /// Returns `None`, so that caches fill by lists, which the cases count and refuse.
    async fn visit(
        &self,
        _: &StorageKey,
        _: Arc<dyn ListVisitor>,
    ) -> Option<Result<ResourceVersion, StorageError>> {
        None
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        self.up()?;
        let taken = |left: usize| left.checked_sub(1);
        if put.expect == Expect::Absent
            && self
                .collisions
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, taken)
                .is_ok()
        {
            return Ok(Outcome::Refused(None));
        }
        self.write_concurrently().await?;
        self.acknowledge(self.inner.put(put).await?)
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        self.up()?;
        self.write_concurrently().await?;
        self.acknowledge(self.inner.delete(key, expect).await?)
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        // Before the check: a cut while the watch opens must end it too.
        let mut cut = self.cut.subscribe();
        self.up()?;
        let watch = self.inner.watch(prefix, after).await?;
        let frozen = self.frozen.subscribe();
        let batches = watch.batches.then(move |batch| {
            let mut frozen = frozen.clone();
            async move {
                // An error means that the test has ended.
                frozen.wait_for(|frozen| !frozen).await.ok();
                batch
            }
        });
        let lost = StorageError::Unavailable("the case cuts the watch".into());
        let batches = batches
            .take_until(Box::pin(async move { cut.changed().await }))
            .chain(futures::stream::once(async { Err(lost) }));
        Ok(StorageWatch {
            batches: Box::pin(batches),
            progress: watch.progress,
        })
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.probes.fetch_add(1, Ordering::SeqCst);
        self.up()?;
        self.inner.current_revision().await
    }

    /// Returns `None`, so that each consistent read asks for the revision, which the cases count and let fail.
    fn known_revision(&self) -> Option<Result<ResourceVersion, StorageError>> {
        None
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.up()?;
        self.inner.compacted_revision().await
    }

    fn progress_supported(&self) -> bool {
        !self.no_progress.load(Ordering::SeqCst) && self.inner.progress_supported()
    }
}
