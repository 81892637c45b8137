//! The watch cache over a real etcd, for what only etcd does to it. What the cache does over any
//! storage is tested beside it, over a scripted one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Client, Txn, TxnOp};
use watchet::api::{ColumnSet, ListOptions, ResourceVersion, SelectionPredicate, StorageKey};
use watchet::cacher::{CacheWatcher, CachedResource, Cacher, CacherConfig, WatchItem};
use watchet::storage::{Expect, Put, Storage};
use watchet::tasks::Tasks;

use super::etcd::EtcdProcess;
use super::support::{PATIENCE, key};

fn configmap(name: &str) -> String {
    format!(r#"{{"metadata":{{"namespace":"ns","name":"{name}"}}}}"#)
}

fn txn_put(name: &str) -> TxnOp {
    TxnOp::put(format!("/registry/things/ns/{name}"), configmap(name), None)
}

/// A cache over an etcd of its own, and that etcd by its raw client.
struct Fixture {
    storage: Arc<dyn Storage>,
    cacher: Arc<Cacher>,
    raw: Client,
    tasks: Tasks,
    _process: EtcdProcess,
}

impl Fixture {
    async fn start() -> Self {
        let process = EtcdProcess::start(&[]).await;
        let storage: Arc<dyn Storage> = process.connect().await;
        let tasks = Tasks::new();
        let resource = CachedResource {
            name: "things".into(),
            namespaced: true,
            prefix: StorageKey::new("/things/").unwrap(),
            columns: Arc::new(ColumnSet::default()),
            triggers: vec![],
        };
        let config = CacherConfig::default();
        Self {
            cacher: Cacher::start(resource, storage.clone(), &tasks, config),
            raw: Client::connect([process.url()], None).await.unwrap(),
            storage,
            tasks,
            _process: process,
        }
    }

    async fn list(&self) -> (Vec<String>, ResourceVersion) {
        let everything = SelectionPredicate::default();
        let latest = ListOptions::default();
        let list = self.cacher.list(&everything, &latest).await.unwrap();
        let keys = list.items.iter().map(|object| object.key().to_string());
        (keys.collect(), list.resource_version)
    }

    async fn watch(&self, after: ResourceVersion) -> CacheWatcher {
        let options = ListOptions {
            resource_version: Some(after),
            ..ListOptions::default()
        };
        let everything = SelectionPredicate::default();
        self.cacher.watch(everything, &options).await.unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

/// The next events, sorted: within a revision etcd's order is its own.
async fn told(watch: &mut CacheWatcher, count: usize) -> Vec<String> {
    let mut told = Vec::new();
    while told.len() < count {
        let items = tokio::time::timeout(PATIENCE, watch.next()).await;
        for item in items.expect("the watch tells").expect("it goes on") {
            let WatchItem::Event(event) = item else {
                panic!("{item:?}")
            };
            let (kind, object) = (event.event_type().as_str(), event.object());
            told.push(format!(
                "{kind} {}@{}",
                object.key(),
                event.resource_version()
            ));
        }
    }
    told.sort();
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_another_client_is_one_revision() {
    let mut f = Fixture::start().await;
    let (_, start) = f.list().await;
    let mut watch = f.watch(start).await;
    let both = Txn::new().and_then([txn_put("a"), txn_put("b")]);
    f.raw.txn(both).await.unwrap();
    let at = f.storage.current_revision().await.unwrap();
    let expected = [format!("ADDED ns/a@{at}"), format!("ADDED ns/b@{at}")];
    assert_eq!(told(&mut watch, 2).await, expected);
    assert_eq!(told(&mut f.watch(start).await, 2).await, expected);
    assert_eq!(f.list().await, (vec!["ns/a".into(), "ns/b".into()], at));

    // And it goes on.
    let swap = Txn::new().and_then([TxnOp::delete("/registry/things/ns/a", None), txn_put("c")]);
    f.raw.txn(swap).await.unwrap();
    let next = f.storage.current_revision().await.unwrap();
    let expected = [format!("ADDED ns/c@{next}"), format!("DELETED ns/a@{next}")];
    assert_eq!(told(&mut watch, 2).await, expected);
    assert_eq!(told(&mut f.watch(at).await, 2).await, expected);
}

/// What an hour does to every server that has Events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ends_deletes_its_keys_at_one_revision() {
    let mut f = Fixture::start().await;
    for name in ["a", "b", "kept"] {
        let put = Put {
            key: key(&format!("/things/ns/{name}")),
            value: Bytes::from(configmap(name)),
            expect: Expect::Absent,
            ttl: (name != "kept").then_some(Duration::from_secs(3600)),
        };
        f.storage.put(put).await.unwrap();
    }
    let (_, start) = f.list().await;
    let mut watch = f.watch(start).await;
    let stored = f.raw.get("/registry/things/ns/a", None).await.unwrap();
    f.raw.lease_revoke(stored.kvs()[0].lease()).await.unwrap();
    let at = f.storage.current_revision().await.unwrap();
    let expected = [format!("DELETED ns/a@{at}"), format!("DELETED ns/b@{at}")];
    assert_eq!(told(&mut watch, 2).await, expected);
    assert_eq!(f.list().await, (vec!["ns/kept".into()], at));
    assert_eq!(f.cacher.readiness(), Ok(()));
}
