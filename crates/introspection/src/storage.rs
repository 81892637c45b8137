//! [`LiveStorage`]: the storage of objects that show the state of the server.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};
use tokio_util::sync::CancellationToken;

use watchet_api::{ResourceVersion, StorageKey};
use watchet_registry::Registry;
use watchet_storage::memory::Memory;
use watchet_storage::{
    Expect, KeyValue, ListPage, ListRequest, Outcome, Put, Storage, StorageError, StorageWatch,
};

/// The interval of compactions of the history of the objects.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of concurrent writes of a refresh.
const CONCURRENT_WRITES: usize = 64;

/// What a [`LiveStorage`] shows.
pub(crate) trait LiveObjects: std::fmt::Debug + Send + Sync {
    /// Returns the present objects by name.
    fn objects(&self, registry: &Registry) -> BTreeMap<String, Value>;

    /// Handles that a client has deleted an object.
    fn deleted(&self, _registry: &Registry, _name: &str) {}
}

/// The present version of a stored object.
#[derive(Debug)]
struct Stored {
    value: Bytes,
    at: ResourceVersion,
}

/// A storage in memory whose objects show the state of a server. A consistent read compares them with the server first, because
/// it reads storage, or requests the [current revision](Storage::current_revision) before it reads the cache.
#[derive(Debug)]
pub(crate) struct LiveStorage {
    /// The prefix of the keys.
    prefix: StorageKey,
    shown: Box<dyn LiveObjects>,
    registry: OnceLock<Weak<Registry>>,
    /// Created by the first request.
    memory: OnceCell<Arc<Memory>>,
    /// The objects by name. Each write holds the lock, so that no write conflicts with another.
    stored: Mutex<HashMap<String, Stored>>,
}

impl LiveStorage {
    pub(crate) fn new(prefix: StorageKey, shown: impl LiveObjects + 'static) -> Arc<Self> {
        Arc::new(Self {
            prefix,
            shown: Box::new(shown),
            registry: OnceLock::new(),
            memory: OnceCell::new(),
            stored: Mutex::default(),
        })
    }

    /// Sets the registry whose state the objects show.
    pub(crate) fn show(&self, registry: &Arc<Registry>) {
        self.registry.get_or_init(|| Arc::downgrade(registry));
    }

    fn registry(&self) -> Option<Arc<Registry>> {
        self.registry.get()?.upgrade()
    }

    /// Returns the storage of the objects, which the first call creates.
    async fn memory(&self) -> Result<&Arc<Memory>, StorageError> {
        let unavailable = |detail: String| StorageError::Unavailable(detail);
        let opened = self.memory.get_or_try_init(async || {
            let registry = self.registry();
            let registry =
                registry.ok_or_else(|| unavailable("the server is stopping".to_owned()))?;
            let memory = Memory::new(COMPACTION_INTERVAL);
            let memory = memory.map_err(|error| unavailable(error.to_string()))?;
            let (maintained, tasks) = (Arc::clone(&memory), registry.tasks());
            let until = tasks.token();
            tasks.spawn(
                "live-objects",
                async move { maintained.maintain(until).await },
            );
            Ok(memory)
        });
        opened.await
    }

    /// Compares the objects with the server, and writes what has changed.
    pub(crate) async fn refresh(&self) -> Result<(), StorageError> {
        let memory = self.memory().await?;
        let Some(registry) = self.registry() else {
            return Ok(());
        };
        let mut stored = self.stored.lock().await;
        let mut writes = Vec::new();
        let present = self.shown.objects(&registry);
        for (name, before) in &*stored {
            if !present.contains_key(name) {
                writes.push((name.clone(), None, Some(before.at)));
            }
        }
        for (name, object) in present {
            let value = Bytes::from(object.to_string());
            let before = stored.get(&name);
            if before.is_none_or(|before| before.value != value) {
                let at = before.map(|before| before.at);
                writes.push((name, Some(value), at));
            }
        }
        let written = writes.into_iter().map(async |(name, value, before)| {
            let outcome = self.write(memory, &name, value.clone(), before).await?;
            Ok::<_, StorageError>((name, value, outcome))
        });
        let mut written = stream::iter(written).buffer_unordered(CONCURRENT_WRITES);
        while let Some((name, value, outcome)) = written.try_next().await? {
            match (value, outcome) {
                (Some(value), Outcome::Done(at)) => {
                    stored.insert(name, Stored { value, at });
                }
                (None, Outcome::Done(_)) => drop(stored.remove(&name)),
                (_, Outcome::Refused(current)) => {
                    debug_assert!(false, "{name} was written by another writer: {current:?}");
                    tracing::error!(name, "object was written by another writer");
                }
            }
        }
        Ok(())
    }

    /// Writes an object that was last written at `before`, or deletes it if there is no `value`.
    async fn write(
        &self,
        memory: &Memory,
        name: &str,
        value: Option<Bytes>,
        before: Option<ResourceVersion>,
    ) -> Result<Outcome, StorageError> {
        let key = self.prefix.join(name);
        let key = key.map_err(|error| StorageError::Failed(error.to_string()))?;
        match (value, before) {
            (Some(value), before) => {
                let expect = before.map_or(Expect::Absent, Expect::At);
                let put = Put {
                    key,
                    value,
                    expect,
                    ttl: None,
                };
                memory.put(put).await
            }
            (None, Some(before)) => memory.delete(&key, before).await,
            (None, None) => Ok(Outcome::Refused(None)),
        }
    }
}

#[async_trait]
impl Storage for LiveStorage {
    fn name(&self) -> &'static str {
        "live"
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        self.refresh().await?;
        self.memory().await?.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        // A page of the present state, or the first list of the cache.
        if request.at.is_none() && request.start.is_empty() {
            self.refresh().await?;
        }
        self.memory().await?.list(request).await
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        // No verb writes the objects.
        let key = put.key;
        Err(StorageError::Failed(format!("{key} is read-only")))
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        let memory = self.memory().await?;
        let mut stored = self.stored.lock().await;
        let outcome = memory.delete(key, expect).await?;
        if let (Outcome::Done(_), Some(name)) = (&outcome, self.prefix.strip(key.as_str())) {
            stored.remove(name);
            if let Some(registry) = self.registry() {
                self.shown.deleted(&registry, name);
            }
        }
        Ok(outcome)
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        self.memory().await?.watch(prefix, after).await
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.refresh().await?;
        self.memory().await?.current_revision().await
    }

    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        self.memory().await?.compact(at).await
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.memory().await?.compacted_revision().await
    }

    fn progress_supported(&self) -> bool {
        true
    }

    /// The registry's tasks maintain the storage, from the first request on.
    async fn maintain(&self, _cancel: CancellationToken) {}
}
