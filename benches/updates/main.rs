//! How many updates of one resource per second pass through memory storage, its watch, the cache and 100 watchers:
//! `cargo bench --bench updates -- [--seconds N]`. There is no HTTP, no admission and no validation, so it is the limit
//! of what they could send. It prints updates and deliveries per second, and fails if a watcher misses an event or
//! receives one twice.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;
use watchet::api::{ListOptions, ResourceVersion, StorageKey};
use watchet::builtin::new_registry;
use watchet::metrics::Metrics;
use watchet::registry::{CacherConfig, Registry};
use watchet::storage::memory::Memory;
use watchet::storage::{Expect, Outcome, Put, Storage};
use watchet::tasks::Tasks;

const WATCHERS: usize = 100;
/// Tasks that write; each waits for its write before the next, as a client does.
const WRITERS: usize = 1_000;
/// Config maps that each of them changes in turn.
const OBJECTS: usize = 10;
/// How long watchers may take to receive the last event.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (writes, elapsed) = runtime.block_on(run(seconds()));
    let per_second = |count: u64| count as f64 / elapsed.as_secs_f64();
    writeln!(
        std::io::stdout(),
        "{:.0} {:.0}",
        per_second(writes),
        per_second(writes * WATCHERS as u64)
    )
    .expect("standard output is open");
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
async fn run(seconds: Duration) -> (u64, Duration) {
    let storage: Arc<dyn Storage> = Memory::new(Duration::from_secs(300)).expect("storage");
    let tasks = Tasks::new();
    let registry = new_registry(
        Arc::clone(&storage),
        &tasks,
        CacherConfig::default(),
        Metrics::new(),
    );
    let mut objects = Vec::new();
    for writer in 0..WRITERS {
        objects.push(create(&storage, writer).await);
    }
    let received = Arc::new(AtomicU64::new(0));
    let mut watchers = watch(&registry, &storage, &received).await;
    let written = Arc::new(AtomicU64::new(0));
    let begin = Instant::now();
    let mut writers = JoinSet::new();
    for owned in objects {
        writers.spawn(write(
            Arc::clone(&storage),
            owned,
            begin + seconds,
            Arc::clone(&written),
        ));
    }
    while let Some(writer) = writers.join_next().await {
        writer.expect("a writer");
    }
    let writes = written.load(Ordering::Relaxed);
    let last_write = Instant::now();
    while received.load(Ordering::Relaxed) < writes * WATCHERS as u64 {
        assert!(last_write.elapsed() < PATIENCE, "events are missing");
        assert!(watchers.try_join_next().is_none(), "a watch has ended");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let elapsed = begin.elapsed();
    tasks.cancel();
    assert_eq!(
        received.load(Ordering::Relaxed),
        writes * WATCHERS as u64,
        "events are duplicate"
    );
    (writes, elapsed)
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
    received: &Arc<AtomicU64>,
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
            while let Some(items) = watch.next().await {
                received.fetch_add(items.len() as u64, Ordering::Relaxed);
            }
        });
    }
    watchers
}

/// Changes the config maps in turn until `end`.
async fn write(
    storage: Arc<dyn Storage>,
    mut owned: Vec<Owned>,
    end: Instant,
    written: Arc<AtomicU64>,
) {
    for turn in 0.. {
        if Instant::now() >= end {
            return;
        }
        let (key, value, revision) = &mut owned[turn % OBJECTS];
        *revision = put(&storage, key, value, Expect::At(*revision)).await;
        written.fetch_add(1, Ordering::Relaxed);
    }
}
