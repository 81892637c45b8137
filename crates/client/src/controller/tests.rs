//! Tests of the controller: processing of deltas, resyncs, stopping.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::sleep;

use super::*;
use crate::shared::tests::collection::{Collection, name_of, object};
use crate::{Deleted, Indexers};

/// The log of processed deltas.
type Book = Arc<Mutex<Vec<String>>>;

#[allow(clippy::type_complexity, reason = "its function has no name")]
/// Creates a controller that logs the deltas from its queue, and returns its known store.
fn controller(
    collection: &Collection,
    resync: Resync,
) -> (
    Controller<
        ConfigMap,
        Collection,
        impl FnMut(&Deltas<ConfigMap>, bool) -> Result<(), Requeue> + Send + use<>,
    >,
    Book,
    Arc<DeltaFifo<ConfigMap>>,
) {
    let indexer = Arc::new(ThreadSafeStore::new(Indexers::new()));
    let queue = Arc::new(DeltaFifo::new().with_known_objects(indexer.clone()));
    let book = Book::default();
    let written = book.clone();
    let config = Config {
        queue: queue.clone(),
        lister_watcher: collection.clone(),
        process: move |deltas: &Deltas<ConfigMap>, is_in_initial_list| {
            process_deltas(&indexer, deltas, is_in_initial_list, |_| {});
            let names: Vec<_> = deltas.iter().map(Delta::name).collect();
            let line = format!("{} {}", deltas.key(), names.join(" "));
            let mut book = written.lock();
            // A key `twice` is requeued the first time.
            let requeued = line.contains("twice") && !book.contains(&line);
            book.push(line);
            if requeued { Err(Requeue) } else { Ok(()) }
        },
        resync,
        watch_error_handler: None,
        backoff: Backoff::default(),
    };
    (Controller::new(config), book, queue)
}

/// Runs a controller for some seconds.
async fn run(
    collection: &Collection,
    resync: Resync,
    seconds: u64,
) -> (Vec<String>, ControllerState) {
    let (controller, book, queue) = controller(collection, resync);
    let state = controller.state();
    let stop = CancellationToken::new();
    tokio::join!(controller.run(stop.clone()), async {
        sleep(Duration::from_millis(seconds * 1000 + 1)).await;
        stop.cancel();
    });
    assert!(queue.is_closed());
    let book = std::mem::take(&mut *book.lock());
    (book, state)
}

#[tokio::test(start_paused = true)]
async fn controller_resyncs_each_period_if_should_resync_returns_true() {
    let collection = Collection::new(&["a"]);
    for never in [Resync::never(), Resync::every(Duration::MAX)] {
        let (book, _) = run(&collection, never, 3600).await;
        assert_eq!(book, ["ns/a Replaced"]);
    }
    let (book, _) = run(&collection, Resync::every(Duration::from_secs(10)), 35).await;
    let sync = "ns/a Sync";
    assert_eq!(book, ["ns/a Replaced", sync, sync, sync]);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let second = move || count.fetch_add(1, Ordering::Relaxed) == 1;
    let resync = Resync::every(Duration::from_secs(10)).only_if(second);
    let (book, _) = run(&collection, resync, 45).await;
    assert_eq!(book, ["ns/a Replaced", sync]);
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn state_reports_progress() {
    let collection = Collection::new(&["a", "b"]);
    let (unstarted, _, _) = controller(&collection, Resync::never());
    assert!(!unstarted.state().has_synced());
    assert_eq!(unstarted.state().last_sync_resource_version(), None);
    let (_, state) = run(&collection, Resync::never(), 1).await;
    assert!(state.has_synced());
    assert_eq!(
        state.last_sync_resource_version(),
        Some(ResourceVersion::new(2))
    );
    state.synced().wait().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn requeued_deltas_are_processed_again() {
    let collection = Collection::new(&["twice"]);
    let (book, state) = run(&collection, Resync::never(), 1).await;
    assert_eq!(book, ["ns/twice Replaced", "ns/twice Replaced"]);
    assert!(state.has_synced());
}

/// Returns the notifications for the queued deltas.
async fn notifications(
    indexer: &ThreadSafeStore<ConfigMap>,
    queue: &DeltaFifo<ConfigMap>,
) -> Vec<String> {
    let mut lines = Vec::new();
    while !queue.is_empty() {
        let popped = queue.pop(|deltas, is_in_initial_list| {
            process_deltas(indexer, deltas, is_in_initial_list, |notification| {
                lines.push(match &notification {
                    Notification::Added {
                        object,
                        is_in_initial_list,
                    } => format!("add {} {is_in_initial_list}", name_of(object)),
                    Notification::Updated { old, new } => {
                        let version = |map: &ConfigMap| map.metadata.resource_version.clone();
                        format!(
                            "update {} {:?} {:?}",
                            name_of(new),
                            version(old),
                            version(new)
                        )
                    }
                    Notification::Deleted(Deleted::Observed(object)) => {
                        format!("delete {}", name_of(object))
                    }
                    Notification::Deleted(Deleted::Unknown(tombstone)) => {
                        format!("tombstone {}", tombstone.key)
                    }
                });
            });
            Ok(())
        });
        popped.await.unwrap();
    }
    lines
}

#[tokio::test]
async fn deltas_update_the_indexer_and_notify() {
    let indexer = Arc::new(ThreadSafeStore::new(Indexers::new()));
    let queue = DeltaFifo::new().with_known_objects(indexer.clone());
    let map = |name: &str, version: u64| Arc::new(object(name, 1, version));
    queue.replace(vec![map("a", 1), map("b", 1)]);
    assert_eq!(
        notifications(&indexer, &queue).await,
        ["add a true", "add b true"]
    );
    // The indexer decides whether an object is added or updated, not the delta.
    queue.add(map("a", 2));
    queue.update(map("c", 3));
    queue.resync();
    let expected = [
        r#"update a Some("1") Some("2")"#,
        "add c false",
        r#"update b Some("1") Some("1")"#,
    ];
    assert_eq!(notifications(&indexer, &queue).await, expected);
    queue.update(map("c", 4));
    queue.delete(map("c", 5));
    queue.replace(vec![map("b", 6)]);
    let expected = [
        r#"update c Some("3") Some("4")"#,
        "delete c",
        r#"update b Some("1") Some("6")"#,
        "tombstone ns/a",
    ];
    assert_eq!(notifications(&indexer, &queue).await, expected);
    let keys = indexer.list_keys();
    assert_eq!(
        keys.iter().map(|key| key.as_str()).collect::<Vec<_>>(),
        ["ns/b"]
    );
}
