//! A storage with a concurrent writer that writes before each write of the test. Its watches can be frozen, so that a
//! cache is as stale as the test needs.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use watchet_api::{ResourceVersion, StorageKey};
use watchet_storage::memory::Memory;
use watchet_storage::*;

/// A memory storage with a concurrent writer.
#[derive(Debug)]
pub struct ConcurrentWriter {
    inner: Arc<dyn Storage>,
    /// Writes of the concurrent writer: the first one is removed and performed unconditionally before each put or
    /// delete.
    pub before_writes: Mutex<VecDeque<Before>>,
    /// The number of next creates that fail as if the key existed.
    pub collisions: Mutex<usize>,
    /// The key whose next put is performed but never returns.
    pub unanswered: Mutex<Option<StorageKey>>,
    /// The key whose next put is not performed, and its error.
    pub failing: Mutex<Option<(StorageKey, StorageError)>>,
    /// The number of gets so far.
    pub gets: Mutex<usize>,
    /// The number of puts and deletes so far.
    pub writes: Mutex<usize>,
    /// The TTL of the last put.
    pub ttl: Mutex<Option<std::time::Duration>>,
    /// The prefix whose watches deliver nothing.
    frozen: watch::Sender<Option<&'static str>>,
    /// Random numbers of yields to other tasks before and after each get, put and delete.
    pub jitter: Mutex<Option<fastrand::Rng>>,
}

/// A write of the concurrent writer.
#[derive(Debug, Clone)]
pub enum Before {
    /// Stores a value at a key.
    Put(&'static str, serde_json::Value),
    /// Deletes a key, which must be there.
    Delete(&'static str),
}

impl ConcurrentWriter {
    /// Returns the storage `inner` with a concurrent writer that does nothing yet.
    pub fn new(inner: Arc<Memory>) -> Self {
        Self {
            inner,
            before_writes: Mutex::default(),
            collisions: Mutex::default(),
            unanswered: Mutex::default(),
            failing: Mutex::default(),
            gets: Mutex::default(),
            writes: Mutex::default(),
            ttl: Mutex::default(),
            frozen: watch::Sender::new(None),
            jitter: Mutex::default(),
        }
    }

    async fn let_others_run(&self) {
        let times = self.jitter.lock().as_mut().map_or(0, |rng| rng.u8(..4));
        for _ in 0..times {
            tokio::task::yield_now().await;
        }
    }

    /// Makes all watches deliver nothing if `frozen` is true, and resumes them if it is false.
    pub fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen.then_some("/"));
    }

    /// Makes only watches below `prefix` deliver nothing, until the next [`Self::freeze`].
    pub fn freeze_below(&self, prefix: &'static str) {
        self.frozen.send_replace(Some(prefix));
    }

    /// Writes as a concurrent writer; the write is not counted.
    pub async fn write_concurrently(&self, before: Before) {
        let (Before::Put(key, _) | Before::Delete(key)) = &before;
        let key = StorageKey::new(key).unwrap();
        let (stored, _) = self.inner.get(&key).await.unwrap();
        let outcome = match before {
            Before::Delete(_) => {
                let at = stored
                    .expect("another writer deletes what is there")
                    .mod_revision;
                self.inner.delete(&key, at).await
            }
            Before::Put(_, value) => {
                let expect = stored.map_or(Expect::Absent, |s| Expect::At(s.mod_revision));
                let value = value.to_string().into();
                self.inner
                    .put(Put {
                        key,
                        value,
                        expect,
                        ttl: None,
                    })
                    .await
            }
        };
        assert!(matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
    }

    async fn run_concurrent_write(&self) {
        *self.writes.lock() += 1;
        let before = self.before_writes.lock().pop_front();
        if let Some(before) = before {
            self.write_concurrently(before).await;
        }
    }
}

#[async_trait]
impl StorageLayer for ConcurrentWriter {
    fn inner(&self) -> &Arc<dyn Storage> {
        &self.inner
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        *self.gets.lock() += 1;
        self.let_others_run().await;
        let got = self.inner.get(key).await;
        self.let_others_run().await;
        got
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        *self.ttl.lock() = put.ttl;
        if put.expect == Expect::Absent {
            let mut collisions = self.collisions.lock();
            if *collisions > 0 {
                *collisions -= 1;
                return Ok(Outcome::Refused(None));
            }
        }
        let failing = self.failing.lock().take_if(|(key, _)| *key == put.key);
        if let Some((_, error)) = failing {
            return Err(error);
        }
        self.run_concurrent_write().await;
        let key = put.key.clone();
        self.let_others_run().await;
        let outcome = self.inner.put(put).await;
        self.let_others_run().await;
        let unanswered = self.unanswered.lock().take_if(|of| *of == key).is_some();
        if unanswered {
            std::future::pending::<()>().await;
        }
        outcome
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        self.run_concurrent_write().await;
        self.let_others_run().await;
        let outcome = self.inner.delete(key, expect).await;
        self.let_others_run().await;
        outcome
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        let watch = self.inner.watch(prefix, after).await?;
        let (frozen, prefix) = (self.frozen.subscribe(), prefix.as_str().to_owned());
        let batches = watch.batches.then(move |batch| {
            let (mut frozen, prefix) = (frozen.clone(), prefix.clone());
            async move {
                let is_thawed =
                    |frozen: &Option<&str>| frozen.is_none_or(|at| !prefix.starts_with(at));
                frozen.wait_for(is_thawed).await.unwrap();
                batch
            }
        });
        Ok(StorageWatch {
            batches: Box::pin(batches),
            progress: watch.progress,
        })
    }
}
