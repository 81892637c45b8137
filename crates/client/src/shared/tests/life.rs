//! Tests of the life cycle: start, sync, failures, stop.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::{A_WHILE, Host, Log, run_until_idle};
use crate::{
    AlreadyStarted, Indexers, InformerStopped, NeverSynced, ResourceEventHandlerFuncs,
    wait_for_cache_sync,
};

/// Indexes objects by the first letter of their names.
fn by_letter() -> Indexers<ConfigMap> {
    Indexers::new().with("letter", |map: &ConfigMap| {
        let name = map.metadata.name.as_deref().unwrap_or_default();
        name.get(..1).map(str::to_owned).into_iter().collect()
    })
}

#[tokio::test(start_paused = true)]
async fn has_synced_after_the_first_list_is_processed() {
    let host = Host::new(&["a", "b"]);
    host.collection.fail(1);
    let (_, registration) = host.listen();
    assert!(!host.informer.has_synced());
    host.start();
    run_until_idle().await;
    assert!(!host.informer.has_synced() && !registration.has_synced());
    host.informer.wait_for_cache_sync().await.unwrap();
    assert_eq!(host.informer.indexer().len(), 2);
    registration.wait_for_sync().await.unwrap();
    assert!(host.informer.has_synced() && registration.has_synced());
}

#[tokio::test(start_paused = true)]
async fn last_sync_resource_version_follows_the_source() {
    let host = Host::new(&["a"]);
    let version = || {
        host.informer
            .last_sync_resource_version()
            .map(|version| version.get())
    };
    assert_eq!(version(), None);
    host.start();
    run_until_idle().await;
    assert_eq!(version(), Some(host.collection.version()));
    host.collection.put("b");
    run_until_idle().await;
    assert_eq!(version(), Some(host.collection.version()));
    host.tasks.cancel();
    run_until_idle().await;
    assert_eq!(
        version(),
        Some(host.collection.version()),
        "the version is known after the stop"
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_is_synced_immediately() {
    let host = Host::new(&[]);
    let (log, registration) = host.listen();
    host.start();
    run_until_idle().await;
    assert!(host.informer.has_synced() && registration.has_synced());
    assert_eq!(log.take(), [""; 0]);
}

/// A handler has synced when its last call for the initial objects has returned.
#[tokio::test(start_paused = true)]
async fn a_handler_has_synced_after_all_initial_objects() {
    let host = Host::new(&["a", "b", "c"]);
    let slow = Log {
        pause: Duration::from_secs(1),
        ..Log::default()
    };
    let slow = host.informer.add_event_handler(slow).unwrap();
    let (_, quick) = host.listen();
    host.start();
    for second in 0..3 {
        run_until_idle().await;
        assert!(host.informer.has_synced() && quick.has_synced());
        assert!(!slow.has_synced(), "after {second} s");
        sleep(Duration::from_secs(1)).await;
    }
    run_until_idle().await;
    assert!(slow.has_synced());
    let all = [host.informer.synced(), slow.synced(), quick.synced()];
    wait_for_cache_sync(all).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_before_the_first_list_receives_initial_objects() {
    let host = Host::new(&["a", "b"]);
    host.collection.fail(1);
    host.start();
    run_until_idle().await;
    let (log, registration) = host.listen();
    registration.wait_for_sync().await.unwrap();
    assert_eq!(log.take(), ["add a@1 initially", "add b@2 initially"]);
}

#[tokio::test(start_paused = true)]
async fn settings_are_rejected_after_the_start() {
    let host = Host::new(&[]);
    host.start();
    let refused = [
        host.informer.start(&host.tasks),
        host.informer.set_transform(|_| {}),
        host.informer.set_watch_error_handler(|_| {}),
    ];
    assert_eq!(refused, [Err(AlreadyStarted); 3]);
}

#[tokio::test(start_paused = true)]
async fn indexers_can_be_added_before_and_after_the_start() {
    let host = Host::new(&["ab", "ac", "b"]);
    host.informer.add_indexers(by_letter()).unwrap();
    host.start();
    run_until_idle().await;
    let indexer = host.informer.indexer();
    assert_eq!(indexer.by_index("letter", "a").unwrap().len(), 2);
    assert_eq!(indexer.by_index("namespace", "ns").unwrap().len(), 3);
    let late = Indexers::new().with("all", |_: &ConfigMap| vec!["all".to_owned()]);
    host.informer.add_indexers(late).unwrap();
    assert_eq!(indexer.by_index("all", "all").unwrap().len(), 3);
    host.collection.delete("b");
    run_until_idle().await;
    assert_eq!(indexer.by_index("all", "all").unwrap().len(), 2);
    let error = host.informer.add_indexers(by_letter()).unwrap_err();
    assert!(error.to_string().contains("letter"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_source_are_reported() {
    let host = Host::new(&["a"]);
    host.collection.fail(2);
    let book = Arc::new(Mutex::new(Vec::new()));
    let lines = book.clone();
    let handler =
        move |error: &watchet_reflector::SourceError| lines.lock().push(error.to_string());
    host.informer.set_watch_error_handler(handler).unwrap();
    host.start();
    sleep(A_WHILE).await;
    host.collection.lose(|meanwhile| meanwhile.put("a"));
    sleep(A_WHILE).await;
    let unavailable = "source unavailable: connection refused";
    let expired = "resource version 1 is too old: too old resource version";
    assert_eq!(
        *book.lock(),
        [unavailable, unavailable, unavailable, expired]
    );
    assert!(host.is_equal());
}

#[tokio::test(start_paused = true)]
async fn stops_with_its_tasks() {
    let host = Host::new(&["a", "b"]);
    let slow = Log {
        pause: Duration::from_secs(1),
        ..Log::default()
    };
    let registration = host.informer.add_event_handler(slow.clone()).unwrap();
    assert!(!host.informer.is_stopped());
    host.start();
    run_until_idle().await;
    assert!(!host.informer.is_stopped());
    host.tasks.drain(Duration::from_secs(5)).await.unwrap();
    assert!(host.informer.is_stopped());
    assert_eq!(slow.take(), ["add a@1 initially"]);
    assert_eq!(
        registration.metrics().delivered.get(),
        1,
        "the call was completed"
    );
    assert_eq!(registration.wait_for_sync().await, Err(NeverSynced));
    let late = host.informer.add_event_handler(Log::default());
    assert_eq!(late.unwrap_err(), InformerStopped);
    // The indexer can still be read.
    assert!(host.informer.has_synced());
    assert!(host.informer.lister().namespaced("ns").get("b").is_ok());
}

#[tokio::test(start_paused = true)]
async fn waiting_fails_when_the_informer_stops() {
    let host = Host::new(&[]);
    host.collection.fail(usize::MAX);
    host.start();
    run_until_idle().await;
    let waits = host.informer.wait_for_cache_sync();
    let (waited, drained) = tokio::join!(waits, host.tasks.drain(A_WHILE));
    assert_eq!(waited, Err(NeverSynced));
    drained.unwrap();
}

/// A panic in one handler is reported to the owner of the tasks and does not affect others.
#[tokio::test(start_paused = true)]
async fn a_panicking_handler_does_not_affect_others() {
    let host = Host::new(&["a", "b"]);
    let handler = ResourceEventHandlerFuncs::new().on_add(|_, _| panic!("a bug"));
    let broken = host.informer.add_event_handler(handler).unwrap();
    let (log, _) = host.listen();
    host.start();
    assert_eq!(host.tasks.failed().await.message, "a bug");
    run_until_idle().await;
    host.collection.put("a");
    run_until_idle().await;
    let expected = ["add a@1 initially", "add b@2 initially", "update a@1 a@3"];
    assert_eq!(log.take(), expected);
    assert_eq!(broken.metrics().pending.get(), 0);
    assert_eq!(broken.wait_for_sync().await, Err(NeverSynced));
}
