//! Tests of the watch cache over a real etcd, for transactions and leases. The unit tests of the cache use a scripted
//! storage.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Client, Txn, TxnOp};
use watchet::api::{
    ColumnSet, ContinueToken, FieldSelector, ListOptions, ResolvedFieldSelector, ResourceVersion,
    ResourceVersionMatch, SelectionPredicate, StorageKey,
};
use watchet::cacher::{CacheWatcher, CachedResource, Cacher, CacherConfig, WatchItem};
use watchet::metrics::Metrics;
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

fn cache(storage: &Arc<dyn Storage>, tasks: &Tasks) -> Arc<Cacher> {
    let resource = CachedResource {
        name: "things".into(),
        namespaced: true,
        prefix: StorageKey::new("/things/").unwrap(),
        columns: Arc::new(ColumnSet::default()),
        triggers: vec![],
        metrics: Metrics::new().resource("", "things"),
        transform: None,
    };
    let config = CacherConfig::default();
    Cacher::start(resource, storage.clone(), tasks, config)
}

/// A cache over its own etcd, and a client of that etcd.
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
        Self {
            cacher: cache(&storage, &tasks),
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

/// Returns the next events, sorted, because their order within a revision is not defined.
async fn next_events(watch: &mut CacheWatcher, count: usize) -> Vec<String> {
    let mut received = Vec::new();
    while received.len() < count {
        let items = tokio::time::timeout(PATIENCE, watch.next()).await;
        for item in items.expect("an event in time").expect("it goes on") {
            let WatchItem::Event(event) = item else {
                panic!("{item:?}")
            };
            let (kind, object) = (event.event_type().as_str(), event.object());
            received.push(format!(
                "{kind} {}@{}",
                object.key(),
                event.resource_version()
            ));
        }
    }
    received.sort();
    received
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
    assert_eq!(next_events(&mut watch, 2).await, expected);
    assert_eq!(next_events(&mut f.watch(start).await, 2).await, expected);
    assert_eq!(f.list().await, (vec!["ns/a".into(), "ns/b".into()], at));

    // Later events arrive too.
    let swap = Txn::new().and_then([TxnOp::delete("/registry/things/ns/a", None), txn_put("c")]);
    f.raw.txn(swap).await.unwrap();
    let next = f.storage.current_revision().await.unwrap();
    let expected = [format!("ADDED ns/c@{next}"), format!("DELETED ns/a@{next}")];
    assert_eq!(next_events(&mut watch, 2).await, expected);
    assert_eq!(next_events(&mut f.watch(at).await, 2).await, expected);
}

/// As when Events expire after an hour.
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
    assert_eq!(next_events(&mut watch, 2).await, expected);
    assert_eq!(f.list().await, (vec!["ns/kept".into()], at));
    assert_eq!(f.cacher.readiness(), Ok(()));
}

/// States from before the start of the cache are read from etcd: one object by one get, and a page from the position of
/// its token, which is relative to the namespace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_from_before_a_restart_are_read_from_etcd() {
    let mut f = Fixture::start().await;
    let both = Txn::new().and_then([txn_put("a"), txn_put("b"), txn_put("c")]);
    f.raw.txn(both).await.unwrap();
    let old = f.storage.current_revision().await.unwrap();
    f.raw.delete("/registry/things/ns/b", None).await.unwrap();
    f.raw
        .put("/registry/things/ns/bb", configmap("bb"), None)
        .await
        .unwrap();
    let restarted = cache(&f.storage, &f.tasks);
    let select = |fields: &str| {
        let fields: FieldSelector = fields.parse().unwrap();
        let fields = ResolvedFieldSelector::resolve(&fields, &ColumnSet::default()).unwrap();
        SelectionPredicate::new(Some("ns"), Default::default(), fields)
    };
    let exactly = |at| ListOptions {
        resource_version: Some(at),
        resource_version_match: Some(ResourceVersionMatch::Exact),
        limit: 1,
        ..ListOptions::default()
    };
    for (name, at, found) in [
        ("b", old, 1),
        ("bb", old, 0),
        ("b", f.storage.current_revision().await.unwrap(), 0),
    ] {
        let named = select(&format!("metadata.name={name}"));
        let list = restarted.list(&named, &exactly(at)).await.unwrap();
        assert_eq!(list.items.len(), found, "{name} at {at}");
        assert_eq!((list.resource_version, list.continue_token), (at, None));
    }
    let page = restarted.list(&select(""), &exactly(old)).await.unwrap();
    assert_eq!(page.remaining, Some(2));
    let token = page.continue_token.unwrap();
    assert_eq!(ContinueToken::decode(&token).unwrap().start, "a\0");
    let next = ListOptions {
        continue_token: Some(token),
        ..ListOptions::default()
    };
    let rest = restarted.list(&select(""), &next).await.unwrap();
    let keys: Vec<_> = rest
        .items
        .iter()
        .map(|object| object.key().to_string())
        .collect();
    assert_eq!(keys, ["ns/b", "ns/c"]);
}
