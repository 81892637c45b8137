//! A burst: 50,000 changes as fast as storage takes them, which the server tells as fast as it can, to
//! an informer with a quick handler, a slow one and one that hangs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Txn, TxnOp};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio::sync::watch;
use watchet::informer::{Deleted, ResourceEventHandler};
use watchet::tasks::Tasks;

use super::tally::Tally;
use super::{client, held, informer_of, listed, maps, until};
use crate::harness::{PATIENCE, Server};
use crate::storage::etcd::EtcdProcess;

const CHANGES: usize = 50_000;
const KEYS: usize = 500;
/// Changes in a transaction; etcd takes 128.
const AT_ONCE: usize = 125;
/// What an informer keeps for a handler at most: so many notifications, or one for each object.
const PENDING_MAX: i64 = 1024;

/// A handler that hangs in its first call until it is let go.
struct Hangs {
    tally: Tally,
    let_go: watch::Receiver<bool>,
}

impl ResourceEventHandler<ConfigMap> for Hangs {
    async fn on_add(&mut self, map: Arc<ConfigMap>, is_in_initial_list: bool) {
        self.tally.on_add(map, is_in_initial_list).await;
        self.let_go.wait_for(|let_go| *let_go).await.unwrap();
    }

    async fn on_update(&mut self, old: Arc<ConfigMap>, new: Arc<ConfigMap>) {
        self.tally.on_update(old, new).await;
    }

    async fn on_delete(&mut self, deleted: Deleted<ConfigMap>) {
        self.tally.on_delete(deleted).await;
    }
}

/// Puts objects into etcd, as another API server on it would.
struct Writer {
    etcd: Client,
    random: fastrand::Rng,
    /// Uids by name.
    there: BTreeMap<usize, usize>,
    changes: usize,
}

impl Writer {
    fn operation(&mut self, key: usize) -> Option<TxnOp> {
        let path = format!("/registry/configmaps/default/a{key}");
        self.changes += 1;
        if self.random.u8(..4) == 0 {
            let there = self.there.remove(&key).is_some();
            self.changes -= usize::from(!there);
            return there.then(|| TxnOp::delete(path, None));
        }
        let uid = *self.there.entry(key).or_insert(self.changes);
        let map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": format!("a{key}"),
                "namespace": "default",
                "uid": format!("u{uid}"),
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "data": {"n": self.changes.to_string()},
        });
        Some(TxnOp::put(path, map.to_string(), None))
    }

    async fn write(&mut self, changes: usize) {
        let end = self.changes + changes;
        while self.changes < end {
            let first = self.random.usize(..KEYS);
            let keys = (first..first + AT_ONCE).map(|key| key % KEYS);
            let operations: Vec<_> = keys.filter_map(|key| self.operation(key)).collect();
            self.etcd
                .txn(Txn::new().and_then(operations))
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn a_burst_ends_in_the_state_of_a_list_whatever_handlers_do() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let server = Server::start(&["--storage=etcd", &servers]).await;
    let mut writer = Writer {
        etcd: Client::connect([etcd.url()], None).await.unwrap(),
        random: fastrand::Rng::with_seed(5),
        there: BTreeMap::new(),
        changes: 0,
    };
    writer.write(KEYS).await;

    let client = client(&server.kubeconfig());
    let informer = informer_of(&client);
    let (quick, slow) = (Tally::default(), Tally::slow(Duration::from_millis(1)));
    let (let_go, hangs_until) = watch::channel(false);
    let hangs = Tally::default();
    let handler = Hangs {
        tally: hangs.clone(),
        let_go: hangs_until,
    };
    let registrations = [
        informer.add_event_handler(quick.clone()).unwrap(),
        informer.add_event_handler(slow.clone()).unwrap(),
        informer.add_event_handler(handler).unwrap(),
    ];
    let tasks = Tasks::new();
    informer.start(&tasks).unwrap();
    informer.wait_for_cache_sync().await.unwrap();

    let pending = || {
        registrations
            .each_ref()
            .map(|handler| handler.metrics().pending.get())
    };
    let mut most = [0; 3];
    let mut watched = async || {
        for (most, now) in most.iter_mut().zip(pending()) {
            *most = now.max(*most);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    tokio::select! {
        () = writer.write(CHANGES) => {}
        () = async { loop { watched().await } } => {}
    }
    let expected = listed(&maps(&client)).await;
    until("the quick handler", || quick.view() == expected).await;
    assert_eq!(held(&informer), expected);
    let behind = pending();
    assert!(behind[2] <= KEYS as i64, "one for each object: {behind:?}");
    assert!(most.iter().all(|most| *most <= PENDING_MAX), "{most:?}");
    let came = registrations[0].metrics().came.get();
    let told = registrations
        .each_ref()
        .map(|handler| handler.metrics().told.get());
    println!(
        "of {} changes {came} came, {told:?} told, at most {most:?} pending",
        writer.changes
    );
    assert_eq!(told[2], 0, "it hangs");

    let_go.send_replace(true);
    until("the slow handlers", || {
        slow.view() == expected && hangs.view() == expected
    })
    .await;
    // All that it was told of and is gone was told as deleted: it would know it otherwise.
    let told = registrations[2].metrics().told.get();
    assert!(told <= (PENDING_MAX as u64) + 2 * KEYS as u64, "{told}");
    tasks.drain(PATIENCE).await.unwrap();
    server.stop().await;
}
