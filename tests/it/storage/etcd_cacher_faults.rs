//! Tests of a `Cacher` over a real etcd that loses its newest writes or has unreadable values. The modules beside this
//! one test the rules of the storage trait.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use watchet::api::{ColumnSet, ListOptions, ResourceVersion, SelectionPredicate};
use watchet::cacher::{CachedResource, Cacher, CacherConfig, WatchItem};
use watchet::metrics::Metrics;
use watchet::storage::Storage;
use watchet::tasks::Tasks;

use super::etcd::EtcdProcess;
use super::etcd_faults::revision;
use super::support::{PATIENCE, create, key};

fn pod(name: &str) -> String {
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"ns","uid":"{name}"}}}}"#
    )
}

fn cacher(storage: Arc<dyn Storage>, tasks: &Tasks) -> Arc<Cacher> {
    let resource = CachedResource {
        namespaced: true,
        name: "pods".into(),
        prefix: key("/pods/"),
        columns: Arc::new(ColumnSet::new(Vec::new())),
        triggers: Vec::new(),
        metrics: Metrics::new().resource("", "pods"),
        transform: None,
    };
    Cacher::start(resource, storage, tasks, CacherConfig::default())
}

/// Returns the names in a consistent list.
async fn names(cacher: &Arc<Cacher>) -> Result<Vec<String>, String> {
    let list = cacher
        .list(&SelectionPredicate::default(), &ListOptions::default())
        .await
        .map_err(|error| error.to_string())?;
    let names = list.items.iter().map(|object| object.key().to_string());
    Ok(names.collect())
}

/// Lists until the names are these.
async fn until(cacher: &Arc<Cacher>, expect: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let names = names(cacher).await;
        if names.as_ref().is_ok_and(|names| names == expect) {
            return;
        }
        assert!(Instant::now() < deadline, "{names:?} and not {expect:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn watch(cacher: &Arc<Cacher>, after: ResourceVersion) -> watchet::cacher::CacheWatcher {
    let options = ListOptions {
        resource_version: Some(after),
        ..ListOptions::default()
    };
    cacher
        .watch(SelectionPredicate::default(), &options)
        .await
        .expect("the cache has a state")
}

/// An administrator restores a backup while servers run. The later writes are lost: the cache must no longer serve
/// them, and clients that have received them get a 410.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_of_a_restored_etcd_replaces_the_cache() {
    let mut process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let tasks = Tasks::new();
    create(&store, "/pods/ns/a", &pod("a")).await;
    process.kill();
    process.back_up();
    process.restart().await;
    revision(&store).await;
    for name in ["b", "c", "d"] {
        create(&store, &format!("/pods/ns/{name}"), &pod(name)).await;
    }
    let cacher = cacher(store.clone(), &tasks);
    until(&cacher, &["ns/a", "ns/b", "ns/c", "ns/d"]).await;
    let seen = store.current_revision().await.unwrap();
    let mut watcher = watch(&cacher, seen).await;

    process.kill();
    process.restore();
    process.restart().await;
    // Clients have received the revisions after the backup, so that etcd must not use them again.
    assert!(revision(&store).await > seen);
    until(&cacher, &["ns/a"]).await;
    let received = tokio::time::timeout(PATIENCE, watcher.next()).await;
    let received = received
        .expect("an item in time")
        .expect("the error before the end");
    assert!(
        matches!(&received[..], [WatchItem::Error(error)] if error.to_string().contains("too old")),
        "{received:?}"
    );
    create(&store, "/pods/ns/e", &pod("e")).await;
    until(&cacher, &["ns/a", "ns/e"]).await;
    tasks.drain(PATIENCE).await.unwrap();
}

/// Another client of etcd writes a value that is not an object, and deletes it. (WC-132)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_value_of_another_writer_is_an_error_until_it_is_deleted() {
    let process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let tasks = Tasks::new();
    let mut raw = etcd_client::Client::connect([process.url()], None)
        .await
        .unwrap();
    let made = create(&store, "/pods/ns/a", &pod("a")).await;
    let cacher = cacher(store.clone(), &tasks);
    until(&cacher, &["ns/a"]).await;
    let mut watcher = watch(&cacher, made).await;

    // A key that did not exist, and one that did: the error must name each.
    for (garbage, named) in [
        ("/registry/pods/ns/b", "/pods/ns/b"),
        ("/registry/pods//b", "/pods//b"),
    ] {
        raw.put(garbage, "garbage", None).await.unwrap();
        let received = tokio::time::timeout(PATIENCE, watcher.next()).await;
        let received = received
            .expect("an item in time")
            .expect("the error before the end");
        assert!(
            matches!(&received[..], [WatchItem::Error(error)] if error.to_string().contains(named)),
            "{received:?}"
        );
        // The watcher may get the error first.
        until_unready(&cacher).await;
        let unready = cacher.readiness().unwrap_err();
        assert!(unready.contains(named), "{unready}");
        raw.delete(garbage, None).await.unwrap();
        until_ready(&cacher).await;
        until(&cacher, &["ns/a"]).await;
        watcher = watch(&cacher, store.current_revision().await.unwrap()).await;
    }
    create(&store, "/pods/ns/c", &pod("c")).await;
    let received = tokio::time::timeout(PATIENCE, watcher.next()).await;
    let received = received.expect("it goes on").expect("an event");
    assert!(
        matches!(&received[..], [WatchItem::Event(event)] if event.object().key().as_str() == "ns/c"),
        "{received:?}"
    );
    tasks.drain(PATIENCE).await.unwrap();
}

/// While etcd had an unreadable value, which was later deleted, a watch that resumed from just before the gap received
/// only the last of five changes of another object, without a 410. If etcd has compacted the changes, the watch gets a
/// 410.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_during_an_unreadable_value_are_replayed_or_a_410() {
    let process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let tasks = Tasks::new();
    let mut raw = etcd_client::Client::connect([process.url()], None)
        .await
        .unwrap();
    let made = create(&store, "/pods/ns/a", &pod("a")).await;
    let cacher = cacher(store.clone(), &tasks);
    until(&cacher, &["ns/a"]).await;
    let mut begin = made;
    for is_compacted in [false, true] {
        raw.put("/registry/pods/ns/b", "garbage", None)
            .await
            .unwrap();
        let mut versions = Vec::new();
        for _ in 0..5 {
            let response = raw
                .put("/registry/pods/ns/a", pod("a"), None)
                .await
                .unwrap();
            let revision = response.header().unwrap().revision();
            versions.push(ResourceVersion::new(u64::try_from(revision).unwrap()));
        }
        until_unready(&cacher).await;
        if is_compacted {
            let now = store.current_revision().await.unwrap();
            store.compact(now).await.unwrap();
        }
        raw.delete("/registry/pods/ns/b", None).await.unwrap();
        until_ready(&cacher).await;
        until(&cacher, &["ns/a"]).await;
        let mut watcher = watch(&cacher, begin).await;
        let mut received = Vec::new();
        let mut error = None;
        while received.len() < versions.len() && error.is_none() {
            let items = tokio::time::timeout(PATIENCE, watcher.next()).await;
            for item in items.expect("an item in time").expect("it goes on") {
                match item {
                    WatchItem::Event(event) => received.push(event.resource_version()),
                    WatchItem::Error(received) => error = Some(received.to_string()),
                    other => panic!("{other:?}"),
                }
            }
        }
        if is_compacted {
            let error = error.expect("what is forgotten is not skipped");
            assert!(error.contains("too old") && received.is_empty(), "{error}");
        } else {
            assert_eq!((received, error), (versions, None));
        }
        begin = store.current_revision().await.unwrap();
    }
    tasks.drain(PATIENCE).await.unwrap();
}

async fn until_unready(cacher: &Arc<Cacher>) {
    let deadline = Instant::now() + PATIENCE;
    while cacher.readiness().is_ok() {
        assert!(Instant::now() < deadline, "it is ready");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn until_ready(cacher: &Arc<Cacher>) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(reason) = cacher.readiness() {
        assert!(Instant::now() < deadline, "{reason}");
        sleep(Duration::from_millis(20)).await;
    }
}
