//! [`LiveStorage`]: the storage of objects that show the state of the server.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};
use tokio_util::sync::CancellationToken;

use watchet_api::{ResourceVersion, StorageKey};
use watchet_registry::Registry;
use watchet_storage::embedded::{EmbeddedConfig, HistoryRetention};
use watchet_storage::memory::Memory;
use watchet_storage::{
    Expect, KeyValue, ListPage, ListRequest, Outcome, Put, Storage, StorageError, StorageWatch,
};

/// The retained history of the objects: a client that is slower lists again.
const RETENTION: HistoryRetention = HistoryRetention {
    time: Duration::from_secs(60),
    bytes_max: 16 << 20,
};
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

/// What the storage in memory has.
#[derive(Debug, Default)]
struct State {
    objects: HashMap<String, Stored>,
    /// True if the outcome of a write is unknown, so that `objects` may be wrong.
    is_uncertain: bool,
    /// The number of the last request whose comparison was completed.
    refreshed: u64,
}

/// A change of one object.
#[derive(Debug)]
struct Write {
    name: String,
    /// The new value; `None` to delete the object.
    value: Option<Bytes>,
    /// The version of the object before; `None` to create it.
    before: Option<ResourceVersion>,
}

/// A storage in memory whose objects show the state of a server. A consistent read compares them with the server first, because
/// it reads storage, or requests the [current revision](Storage::current_revision) before it reads the cache.
///
/// Comparisons and deletions run in tasks of the registry: a client that disconnects must not interrupt them between a
/// write and the record of it.
#[derive(Debug)]
pub(crate) struct LiveStorage {
    this: Weak<Self>,
    /// The prefix of the keys.
    prefix: StorageKey,
    shown: Box<dyn LiveObjects>,
    registry: OnceLock<Weak<Registry>>,
    /// Created by the first request.
    memory: OnceCell<Arc<Memory>>,
    /// All writes lock it, so that no write is refused.
    state: Mutex<State>,
    /// The number of requests for a comparison.
    requested: AtomicU64,
}

impl LiveStorage {
    pub(crate) fn new(prefix: StorageKey, shown: impl LiveObjects + 'static) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            prefix,
            shown: Box::new(shown),
            registry: OnceLock::new(),
            memory: OnceCell::new(),
            state: Mutex::default(),
            requested: AtomicU64::new(0),
        })
    }

    /// Shows the state of `registry` from now on.
    pub(crate) fn show(&self, registry: &Arc<Registry>) {
        self.registry.get_or_init(|| Arc::downgrade(registry));
    }

    fn registry(&self) -> Result<Arc<Registry>, StorageError> {
        let registry = self.registry.get().and_then(Weak::upgrade);
        registry.ok_or_else(stopping)
    }

    /// Returns the storage of the objects, which the first call creates.
    async fn memory(&self) -> Result<&Arc<Memory>, StorageError> {
        let opened = self.memory.get_or_try_init(async || {
            let registry = self.registry()?;
            let config = EmbeddedConfig {
                retention: Some(RETENTION),
                ..EmbeddedConfig::default()
            };
            let memory = Memory::beginning_at(first_revision(), config);
            let memory = memory.map_err(|error| StorageError::Unavailable(error.to_string()))?;
            let (maintained, until) = (Arc::clone(&memory), registry.tasks().token());
            registry.tasks().spawn("live-objects", async move {
                maintained.maintain(until).await;
            });
            Ok(memory)
        });
        opened.await
    }

    /// Compares the objects with the server, and writes what has changed. Concurrent callers share a comparison that
    /// begins after all of them have called.
    pub(crate) async fn refresh(&self) -> Result<(), StorageError> {
        let request = self.requested.fetch_add(1, Ordering::SeqCst) + 1;
        let this = self.this.upgrade().ok_or_else(stopping)?;
        let registry = self.registry()?;
        let refreshed = registry.tasks().spawn("live-refresh", async move {
            let mut state = this.state.lock().await;
            if state.refreshed >= request {
                return Ok(());
            }
            let newest = this.requested.load(Ordering::SeqCst);
            this.compare(&mut state).await?;
            state.refreshed = newest;
            Ok(())
        });
        // The task was not started, because the server stops, or has panicked, which the registry's tasks report.
        refreshed.await.map_err(|_| stopping())?
    }

    async fn compare(&self, state: &mut State) -> Result<(), StorageError> {
        let (memory, registry) = (self.memory().await?, self.registry()?);
        if state.is_uncertain {
            state.objects = self.read(memory).await?;
            state.is_uncertain = false;
        }
        let changes = changes(&state.objects, self.shown.objects(&registry));
        let written = changes.into_iter().map(async |change| {
            let outcome = self.write(memory, &change).await;
            (change, outcome)
        });
        let mut written = stream::iter(written).buffer_unordered(CONCURRENT_WRITES);
        let mut failure = None;
        while let Some((change, outcome)) = written.next().await {
            match (change.value, outcome) {
                (Some(value), Ok(Outcome::Done(at))) => {
                    state.objects.insert(change.name, Stored { value, at });
                }
                (None, Ok(Outcome::Done(_))) => drop(state.objects.remove(&change.name)),
                (_, Ok(Outcome::Refused(_))) => {
                    let name = change.name;
                    tracing::error!(name, "object has another version than was recorded");
                    state.is_uncertain = true;
                }
                (_, Err(error)) => {
                    state.is_uncertain = true;
                    failure = Some(error);
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Returns all objects as the storage in memory has them.
    async fn read(&self, memory: &Memory) -> Result<HashMap<String, Stored>, StorageError> {
        let request = ListRequest {
            prefix: self.prefix.clone(),
            start: String::new(),
            at: None,
            limit: 0,
            count: false,
        };
        let page = memory.list(request).await?;
        let stored = page.items.into_iter().filter_map(|item| {
            let name = self.prefix.strip(item.key.as_str())?.to_owned();
            let (value, at) = (item.value, item.mod_revision);
            Some((name, Stored { value, at }))
        });
        Ok(stored.collect())
    }

    async fn write(&self, memory: &Memory, change: &Write) -> Result<Outcome, StorageError> {
        let key = self.prefix.join(&change.name);
        let key = key.map_err(|error| StorageError::Failed(error.to_string()))?;
        match (&change.value, change.before) {
            (Some(value), before) => {
                let put = Put {
                    key,
                    value: value.clone(),
                    expect: before.map_or(Expect::Absent, Expect::At),
                    ttl: None,
                };
                memory.put(put).await
            }
            (None, Some(before)) => memory.delete(&key, before).await,
            (None, None) => Ok(Outcome::Refused(None)),
        }
    }
}

/// Returns the changes that turn `stored` into `present`.
fn changes(stored: &HashMap<String, Stored>, present: BTreeMap<String, Value>) -> Vec<Write> {
    let gone = stored
        .iter()
        .filter(|(name, _)| !present.contains_key(*name));
    let mut changes: Vec<Write> = gone
        .map(|(name, before)| Write {
            name: name.clone(),
            value: None,
            before: Some(before.at),
        })
        .collect();
    changes.extend(present.into_iter().filter_map(|(name, object)| {
        let value = Bytes::from(object.to_string());
        let before = stored.get(&name);
        if before.is_some_and(|before| before.value == value) {
            return None;
        }
        let before = before.map(|before| before.at);
        Some(Write {
            name,
            value: Some(value),
            before,
        })
    }));
    changes
}

/// Returns the first revision: the time in microseconds. A client that resumes with a resourceVersion of an earlier process
/// gets a 410, because a process makes fewer writes than microseconds pass.
fn first_revision() -> ResourceVersion {
    let now = Timestamp::now().as_microsecond();
    ResourceVersion::new(u64::try_from(now).unwrap_or(1))
}

fn stopping() -> StorageError {
    StorageError::Unavailable("the server stops".to_owned())
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
        let this = self.this.upgrade().ok_or_else(stopping)?;
        let (registry, key) = (self.registry()?, key.clone());
        let tasks = registry.tasks().clone();
        let deleted = tasks.spawn("live-delete", async move {
            let memory = this.memory().await?;
            let mut state = this.state.lock().await;
            let outcome = memory.delete(&key, expect).await;
            state.is_uncertain |= outcome.is_err();
            if let (Ok(Outcome::Done(_)), Some(name)) = (&outcome, this.prefix.strip(key.as_str()))
            {
                state.objects.remove(name);
                this.shown.deleted(&registry, name);
            }
            outcome
        });
        deleted.await.map_err(|_| stopping())?
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
