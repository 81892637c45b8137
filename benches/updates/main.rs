//! How many updates of one resource per second pass through the cache to 100 watchers: `cargo bench --bench updates --
//! [--seconds N]`. There is no HTTP, no admission and no validation, so it is the limit of what they could send. The
//! updates are writes to memory storage, and then events of a synthetic source, which costs no writes. For each it prints
//! updates and deliveries per second. It fails if a watcher misses an event or receives one twice.

mod synthetic;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;
use watchet::api::{ListOptions, ResourceVersion, StorageKey};
use watchet::builtin::new_registry;
use watchet::metrics::Metrics;
use watchet::registry::{CacherConfig, Registry, WatchItem};
use watchet::storage::memory::Memory;
use watchet::storage::{Expect, Outcome, Put, Storage};
use watchet::tasks::Tasks;

use self::synthetic::{Received, synthetic};

/// The allocator of the program.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const WATCHERS: usize = 100;
/// Tasks that write; each waits for its write before the next, as a client does.
const WRITERS: usize = 1_000;
/// Config maps that each of them changes in turn.
const OBJECTS: usize = 10;
/// How long watchers may take to receive the last event.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    let mut figures = Vec::new();
    for source in [Source::Memory, Source::Synthetic] {
        // A runtime for each, so that no task of the first one runs during the second.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let (updates, elapsed) = runtime.block_on(run(source, seconds()));
        let per_second = |count: u64| format!("{:.0}", count as f64 / elapsed.as_secs_f64());
        figures.extend([per_second(updates), per_second(updates * WATCHERS as u64)]);
    }
    writeln!(std::io::stdout(), "{}", figures.join(" ")).expect("standard output is open");
}

/// Where the updates come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Writes to memory storage.
    Memory,
    /// See [`synthetic`].
    Synthetic,
}

/// Returns the value of `--seconds`, by default 10. Cargo adds `--bench`.
fn seconds() -> Duration {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--seconds");
    let seconds = match arguments.nth(1) {
        Some(text) => text.parse().expect("--seconds is a number"),
        None => 10,
    };
    Duration::from_secs(seconds)
}

/// Returns the number of updates, and the time until the last watcher has received the last.
async fn run(source: Source, seconds: Duration) -> (u64, Duration) {
    let memory: Arc<dyn Storage> = Memory::new(Duration::from_secs(300)).expect("storage");
    let mut objects = Vec::new();
    for writer in 0..WRITERS {
        objects.push(create(&memory, writer).await);
    }
    let received = Arc::new(Received::default());
    let (storage, synthetic): (Arc<dyn Storage>, _) = match source {
        Source::Memory => (Arc::clone(&memory), None),
        Source::Synthetic => {
            let (storage, updates) = synthetic(&memory, objects.concat());
            (storage, Some(updates))
        }
    };
    let tasks = Tasks::new();
    let metrics = Metrics::new();
    let registry = new_registry(storage, &tasks, CacherConfig::default(), metrics);
    let mut watchers = watch(&registry, &memory, &received).await;
    let begin = Instant::now();
    let updates = match &synthetic {
        None => write_all(&memory, objects, begin + seconds).await,
        Some(updates) => updates.send_until(begin + seconds, &received).await,
    };
    let last_update = Instant::now();
    while received.events() < updates * WATCHERS as u64 {
        assert!(last_update.elapsed() < PATIENCE, "events are missing");
        assert!(watchers.try_join_next().is_none(), "a watch has ended");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let elapsed = begin.elapsed();
    tasks.cancel();
    // No watcher has received an event twice, so each has received all.
    assert_eq!(received.events(), updates * WATCHERS as u64);
    (updates, elapsed)
}

/// A config map and the revision of its last write.
type Owned = (StorageKey, Bytes, ResourceVersion);

/// Creates the config maps of a writer.
async fn create(storage: &Arc<dyn Storage>, writer: usize) -> Vec<Owned> {
    let mut owned = Vec::new();
    for object in 0..OBJECTS {
        let name = format!("updates-{writer}-{object}");
        let key = StorageKey::new(&format!("/configmaps/default/{name}")).expect("a key");
        let value = Bytes::from(format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"default","uid":"6f1d2c3b-4a59-4687-9abc-{:012}"}},"data":{{"payload":"{}"}}}}"#,
            writer * OBJECTS + object,
            "x".repeat(800)
        ));
        let revision = put(storage, &key, &value, Expect::Absent).await;
        owned.push((key, value, revision));
    }
    owned
}

async fn put(
    storage: &Arc<dyn Storage>,
    key: &StorageKey,
    value: &Bytes,
    expect: Expect,
) -> ResourceVersion {
    let put = Put {
        key: key.clone(),
        value: value.clone(),
        expect,
        ttl: None,
    };
    match storage.put(put).await {
        Ok(Outcome::Done(revision)) => revision,
        other => panic!("{key}: {other:?}"),
    }
}

/// Opens the watches, from storage's present revision.
async fn watch(
    registry: &Arc<Registry>,
    storage: &Arc<dyn Storage>,
    received: &Arc<Received>,
) -> JoinSet<()> {
    let resource = registry
        .resource("", "v1", "configmaps")
        .expect("a built-in");
    let options = ListOptions {
        resource_version: Some(storage.current_revision().await.expect("a revision")),
        ..ListOptions::default()
    };
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        let watch = registry.watch(&resource, None, &options).await;
        let (mut watch, received) = (watch.expect("a watch"), Arc::clone(received));
        watchers.spawn(async move {
            let mut last = ResourceVersion::ZERO;
            while let Some(items) = watch.next().await {
                for item in &items {
                    let WatchItem::Event(event) = item else {
                        panic!("not an event: {item:?}");
                    };
                    assert!(event.resource_version() > last, "events are duplicate");
                    last = event.resource_version();
                }
                received.add(items.len());
            }
        });
    }
    watchers
}

/// Changes the config maps of each writer in turn until `end`, and returns the number of writes.
async fn write_all(storage: &Arc<dyn Storage>, objects: Vec<Vec<Owned>>, end: Instant) -> u64 {
    let mut writers = JoinSet::new();
    for owned in objects {
        writers.spawn(write(Arc::clone(storage), owned, end));
    }
    writers.join_all().await.into_iter().sum()
}

async fn write(storage: Arc<dyn Storage>, mut owned: Vec<Owned>, end: Instant) -> u64 {
    let mut written = 0;
    while Instant::now() < end {
        let (key, value, revision) = &mut owned[written % OBJECTS];
        *revision = put(&storage, key, value, Expect::At(*revision)).await;
        written += 1;
    }
    written as u64
}
