//! Runs the watch scripts (`docs/watch-scripts.md`) against a Cacher, also as the source of informers: over the scripted storage with
//! a paused clock, over the embedded store, and random ones with the events that the model predicts.

mod source;

use std::collections::BTreeSet;
use std::task::{Context, Poll};

use parking_lot::Mutex;

use watchet_storage::Storage;
use watchet_storage::embedded::{Durability, Embedded, EmbeddedConfig};
use watchet_storage::memory::Memory;
use watchet_storage::{Expect, Outcome, Put};
use watchet_test_util::watch_script::{
    ApiError, Corpus, DRIVERS, Driver, DriverInfo, EventKind, InformerRequest, ListResponse, Match,
    ReadRequest, Received, ReceivedObject, ScriptInformer, Timing, WatchStream, WriteRequest,
    random_actions, run, shrink,
};

use super::*;
use source::CacherSource;

const SCRIPTED: &DriverInfo = &DRIVERS[0];
const EMBEDDED: &DriverInfo = &DRIVERS[1];

/// The storage of a run.
enum Store {
    Scripted(Arc<FakeStorage>),
    Real(Arc<dyn Storage>),
}

impl Store {
    fn storage(&self) -> Arc<dyn Storage> {
        match self {
            Self::Scripted(storage) => storage.clone(),
            Self::Real(storage) => storage.clone(),
        }
    }
}

/// A Cacher of pods as the driver of a script.
struct CacherDriver {
    store: Store,
    cacher: Arc<Cacher>,
    /// The cacher that informers connect to: the present one.
    served: Arc<Mutex<Arc<Cacher>>>,
    tasks: Tasks,
}

impl CacherDriver {
    fn over(store: Store) -> Self {
        let tasks = Tasks::new();
        let cacher = Self::cacher(&store, &tasks);
        Self {
            store,
            served: Arc::new(Mutex::new(cacher.clone())),
            cacher,
            tasks,
        }
    }

    fn cacher(store: &Store, tasks: &Tasks) -> Arc<Cacher> {
        let config = CacherConfig {
            consistency_check_period: Some(Duration::from_secs(20)),
            ..CacherConfig::default()
        };
        Cacher::start(resource(), store.storage(), tasks, config)
    }

    fn scripted() -> Self {
        Self::over(Store::Scripted(FakeStorage::new()))
    }

    fn fake(&self) -> &FakeStorage {
        match &self.store {
            Store::Scripted(storage) => storage,
            Store::Real(_) => unimplemented!("only the scripted storage has faults"),
        }
    }
}

impl CacherDriver {
    /// Ends the tasks of the present cacher, which must never have differed from storage.
    fn stop(&self) {
        self.tasks.cancel();
        if !std::thread::panicking() {
            let failures = self.cacher.consistency_checks().failure;
            assert_eq!(failures, 0, "the cache differed from storage");
        }
    }
}

impl Drop for CacherDriver {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn write_one(storage: &dyn Storage, write: &WriteRequest) -> ResourceVersion {
    let key = StorageKey::new(&write.object.storage_key()).unwrap();
    let (current, _) = storage.get(&key).await.unwrap();
    let outcome = match &write.next {
        Some(next) => {
            let put = Put {
                key,
                value: next.value(&write.object).into(),
                expect: current.map_or(Expect::Absent, |item| Expect::At(item.mod_revision)),
                ttl: None,
            };
            storage.put(put).await.unwrap()
        }
        None => {
            let at = current.expect("the key exists").mod_revision;
            storage.delete(&key, at).await.unwrap()
        }
    };
    match outcome {
        Outcome::Done(version) => version,
        Outcome::Refused(current) => panic!("another writer wrote {current:?}"),
    }
}

fn list_options(request: &ReadRequest) -> ListOptions {
    // As `http` derives it from sendInitialEvents.
    let streams = request
        .send_initial_events
        .map(|_| ResourceVersionMatch::NotOlderThan);
    ListOptions {
        resource_version: request.resource_version.map(rv),
        resource_version_match: match request.version_match {
            Some(Match::Exact) => Some(ResourceVersionMatch::Exact),
            Some(Match::NotOlderThan) => Some(ResourceVersionMatch::NotOlderThan),
            None => streams,
        },
        limit: request.limit,
        continue_token: request.continue_token.clone(),
        send_initial_events: request.send_initial_events,
        allow_watch_bookmarks: request.allow_watch_bookmarks,
        timeout: request.timeout,
        ..ListOptions::default()
    }
}

fn selection(request: &ReadRequest) -> SelectionPredicate {
    predicate(
        request.namespace.as_deref(),
        &request.labels,
        &request.fields,
    )
}

/// Returns the Status that `http` makes of an error.
fn status(error: ReadError) -> ApiError {
    let (code, reason) = match &error {
        ReadError::Expired { .. } => (410, "Expired"),
        ReadError::TooLargeResourceVersion { .. } => (504, "Timeout"),
        ReadError::NotReady { .. } => (429, "TooManyRequests"),
        ReadError::Stopped => (503, "ServiceUnavailable"),
        ReadError::Undecodable(_) | ReadError::Corrupt(_) => (500, "StorageReadError"),
        ReadError::InvalidContinue(_)
        | ReadError::VersionWithContinue
        | ReadError::InvalidKey(_) => (400, "BadRequest"),
        ReadError::Unconvertible(_) | ReadError::Storage(_) => (500, "InternalError"),
    };
    let continue_token = match error {
        ReadError::Expired { fresh_token, .. } => fresh_token,
        _ => None,
    };
    ApiError {
        code,
        reason: reason.to_owned(),
        continue_token,
    }
}

fn object(object: &watchet_api::Object) -> ReceivedObject {
    ReceivedObject::from_json(&serde_json::from_slice(&object.body()).unwrap())
}

fn received(item: &WatchItem) -> Received {
    match item {
        WatchItem::Initial(added) => Received::Event(EventKind::Added, object(added)),
        WatchItem::Event(event) => {
            let kind = match event.event_type() {
                EventType::Added => EventKind::Added,
                EventType::Modified => EventKind::Modified,
                EventType::Deleted => EventKind::Deleted,
            };
            Received::Event(kind, object(event.object()))
        }
        WatchItem::Bookmark {
            resource_version,
            initial_events_end,
        } => Received::Bookmark {
            version: resource_version.get(),
            is_initial_events_end: *initial_events_end,
        },
        WatchItem::Error(error) => Received::Error(status(error.clone())),
    }
}

impl WatchStream for CacheWatcher {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<Received>>> {
        let items = CacheWatcher::poll_next(self, cx);
        items.map(|items| items.map(|items| items.iter().map(received).collect()))
    }
}

impl Driver for CacherDriver {
    type Watch = CacheWatcher;
    type Informer = ScriptInformer;

    fn name(&self) -> String {
        format!("cacher over {}", self.store.storage().name())
    }

    fn timing(&self) -> Timing {
        match self.store {
            Store::Scripted(_) => Timing {
                patience: Duration::from_secs(60),
                silence: Duration::from_secs(1),
            },
            Store::Real(_) => Timing {
                patience: Duration::from_secs(30),
                silence: Duration::from_millis(100),
            },
        }
    }

    async fn start(&mut self, _namespaces: &BTreeSet<String>) -> u64 {
        let revision = self.store.storage().current_revision().await;
        revision.unwrap().get()
    }

    async fn write(&mut self, writes: &[WriteRequest]) -> u64 {
        let version = match (&self.store, writes) {
            (Store::Scripted(storage), writes) => {
                let values = writes.iter().map(|write| {
                    let value = write.next.as_ref().map(|next| next.value(&write.object));
                    (write.object.storage_key(), value)
                });
                storage.write_together(values.collect())
            }
            (Store::Real(storage), [write]) => write_one(&**storage, write).await,
            (Store::Real(_), _) => unimplemented!("the embedded store has no transactions"),
        };
        version.get()
    }

    async fn list(&mut self, request: &ReadRequest) -> Result<ListResponse, ApiError> {
        let options = list_options(request);
        let list = self.cacher.list(&selection(request), &options).await;
        let list = list.map_err(status)?;
        Ok(ListResponse {
            version: list.resource_version.get(),
            items: list.items.iter().map(|item| object(item)).collect(),
            continue_token: list.continue_token,
            remaining: list.remaining,
        })
    }

    async fn watch(&mut self, request: &ReadRequest) -> Result<CacheWatcher, ApiError> {
        let options = list_options(request);
        let watch = self.cacher.watch(selection(request), &options).await;
        watch.map_err(status)
    }

    async fn informer(&mut self, request: &InformerRequest) -> ScriptInformer {
        let (source, connection) = CacherSource::new(&self.served, request);
        ScriptInformer::start(source, request, move |connected| {
            connection.set_connected(connected);
        })
    }

    async fn compact(&mut self, at: u64) {
        self.store.storage().compact(rv(at)).await.unwrap();
    }

    async fn restart(&mut self) {
        self.stop();
        self.tasks = Tasks::new();
        self.cacher = Self::cacher(&self.store, &self.tasks);
        *self.served.lock() = self.cacher.clone();
    }

    async fn cut(&mut self) {
        self.fake().set_down(true);
        self.fake().set_down(false);
    }

    async fn set_connected(&mut self, connected: bool) {
        self.fake().set_down(!connected);
    }
}

#[tokio::test(start_paused = true)]
async fn scripts_pass_over_scripted_storage() {
    let driver = async || CacherDriver::scripted();
    Corpus::load().run(SCRIPTED, 1, driver).await;
}

#[tokio::test]
async fn scripts_pass_over_memory() {
    let driver = async || {
        let storage = Memory::new(Duration::ZERO).unwrap();
        CacherDriver::over(Store::Real(storage))
    };
    Corpus::load().run(EMBEDDED, 16, driver).await;
}

#[tokio::test]
async fn scripts_pass_over_the_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    let runs = std::sync::atomic::AtomicUsize::new(0);
    let driver = async || {
        let config = EmbeddedConfig {
            durability: Durability::None,
            compaction_interval: Duration::ZERO,
            retention: None,
        };
        let run = runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let storage = Embedded::open(&directory.path().join(run.to_string()), config);
        CacherDriver::over(Store::Real(storage.unwrap()))
    };
    Corpus::load().run(EMBEDDED, 16, driver).await;
}

#[tokio::test(start_paused = true)]
async fn random_scripts_meet_the_predictions_of_the_model() {
    for seed in watchet_test_util::seeds::seeds(40) {
        let actions = random_actions(&mut fastrand::Rng::with_seed(seed), 120);
        let result = shrink(actions, async |script| {
            run(script, &mut CacherDriver::scripted(), false)
                .await
                .map(drop)
        });
        if let Err(failure) = result.await {
            panic!("{failure}WATCHET_SEED={seed} repeats it");
        }
    }
}
