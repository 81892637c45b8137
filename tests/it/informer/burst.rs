//! Tests of informers in a burst of 50,000 changes: a fast handler, a slow one and one that hangs; and a `watchet tail`
//! whose output is not read, because the memory of an informer can be measured only in another process. With etcd the
//! changes come from transactions; with the embedded store from requests to the server, which take longer.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Txn, TxnOp};
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use watchet::client::{Deleted, ResourceClient, ResourceEventHandler};
use watchet::tasks::Tasks;

use super::tally::Tally;
use super::{Versions, client, delete, held, informer_of, listed, maps, put, until};
use crate::harness::{PATIENCE, Server};
use crate::storage::etcd::EtcdProcess;
use crate::tail::Tail;

const CHANGES: usize = 50_000;
const KEYS: usize = 500;
/// The number of changes in a transaction; etcd allows 128.
const TRANSACTION_CHANGES: usize = 125;
/// The maximum number of notifications that an informer retains for a handler, unless there are more objects.
const PENDING_MAX: i64 = 1024;
/// The size of an object's data. A process whose output is not read retains `PENDING_MAX` objects and its pending
/// lines, about 8 MB in all. The objects of all changes would be 100 MB.
const TEXT_BYTES: usize = 1_000;
const MEMORY_MAX: usize = 32 << 20;

/// A handler that hangs in its first call until it is released.
struct Hangs {
    tally: Tally,
    released: watch::Receiver<bool>,
}

impl ResourceEventHandler<ConfigMap> for Hangs {
    async fn on_add(&mut self, map: Arc<ConfigMap>, is_in_initial_list: bool) {
        self.tally.on_add(map, is_in_initial_list).await;
        self.released.wait_for(|released| *released).await.unwrap();
    }

    async fn on_update(&mut self, old: Arc<ConfigMap>, new: Arc<ConfigMap>) {
        self.tally.on_update(old, new).await;
    }

    async fn on_delete(&mut self, deleted: Deleted<ConfigMap>) {
        self.tally.on_delete(deleted).await;
    }
}

/// The writer of the objects.
enum Into {
    /// Another client of the same etcd.
    Etcd(Box<Client>),
    /// Clients of the server.
    Server(ResourceClient<ConfigMap>),
}

/// A change of an object.
enum Operation {
    /// Stores an object with this uid and text.
    Put(usize, String),
    Delete,
}

struct Writer {
    into: Into,
    random: fastrand::Rng,
    /// The uids of the existing objects, by name.
    there: BTreeMap<usize, usize>,
    changes: usize,
}

impl Writer {
    fn new(into: Into) -> Self {
        Self {
            into,
            random: fastrand::Rng::with_seed(watchet_test_util::seeds::seed_or(5)),
            there: BTreeMap::new(),
            changes: 0,
        }
    }

    fn operation(&mut self, key: usize) -> Option<(String, Operation)> {
        let name = format!("a{key}");
        self.changes += 1;
        if self.random.u8(..4) == 0 {
            let there = self.there.remove(&key).is_some();
            self.changes -= usize::from(!there);
            return there.then_some((name, Operation::Delete));
        }
        let uid = *self.there.entry(key).or_insert(self.changes);
        let text = format!("{:0>TEXT_BYTES$}", self.changes);
        Some((name, Operation::Put(uid, text)))
    }

    async fn write(&mut self, changes: usize) {
        let end = self.changes + changes;
        while self.changes < end {
            let first = self.random.usize(..KEYS);
            let keys = (first..first + TRANSACTION_CHANGES).map(|key| key % KEYS);
            let operations: Vec<_> = keys.filter_map(|key| self.operation(key)).collect();
            match &mut self.into {
                Into::Etcd(etcd) => {
                    let operations = operations.into_iter().map(in_etcd).collect::<Vec<_>>();
                    let written = etcd.txn(Txn::new().and_then(operations)).await;
                    written.unwrap();
                }
                Into::Server(maps) => {
                    let all = operations
                        .iter()
                        .map(async |(name, operation)| match operation {
                            Operation::Put(_, text) => put(maps, name, text).await,
                            Operation::Delete => delete(maps, name).await,
                        });
                    join_all(all).await;
                }
            }
        }
    }
}

fn in_etcd((name, operation): (String, Operation)) -> TxnOp {
    let path = format!("/registry/configmaps/default/{name}");
    let Operation::Put(uid, text) = operation else {
        return TxnOp::delete(path, None);
    };
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": format!("u{uid}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "data": {"text": text},
    });
    TxnOp::put(path, map.to_string(), None)
}

/// A `watchet tail` whose output is read only at the end.
struct Unread {
    tail: Tail,
    /// The objects, computed from the output.
    view: Versions,
    memory: usize,
}

impl Unread {
    async fn start(kubeconfig: &Path) -> Self {
        let tail = Tail::synced(kubeconfig, &["configmaps", "-o", "json"]).await;
        Self {
            memory: tail.memory_peak(),
            view: listed(&maps(&client(kubeconfig))).await,
            tail,
        }
    }

    /// Returns the memory in bytes that the burst has added.
    fn taken(&self) -> usize {
        self.tail.memory_peak() - self.memory
    }

    /// Reads the output until the computed objects equal `expected`.
    async fn read(mut self, expected: &Versions) {
        let begun = Instant::now();
        while self.view != *expected {
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.view.len());
            let line = self.tail.json().await;
            let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            let (_, name) = line["key"].as_str().unwrap().split_once('/').unwrap();
            let before = match line["type"].as_str().unwrap() {
                "DELETED" => self.view.remove(name),
                _ => self
                    .view
                    .insert(name.to_owned(), text(&line["resourceVersion"])),
            };
            assert_eq!(before.is_none(), line["type"] == "ADDED", "{line}");
        }
        self.tail.interrupt().await;
    }
}

#[tokio::test]
async fn a_burst_ends_in_the_state_of_a_list_whatever_handlers_do_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let server = Server::start(&["--storage=etcd", &servers]).await;
    let client = Client::connect([etcd.url()], None).await.unwrap();
    let into = Into::Etcd(Box::new(client));
    burst(server, into, CHANGES).await;
}

#[tokio::test]
async fn a_burst_ends_in_the_state_of_a_list_whatever_handlers_do_embedded() {
    let server = Server::start(&[]).await;
    let into = Into::Server(maps(&client(&server.kubeconfig())));
    burst(server, into, CHANGES / 10).await;
}

async fn burst(server: Server, into: Into, changes: usize) {
    let mut writer = Writer::new(into);
    writer.write(KEYS).await;

    let unread = Unread::start(&server.kubeconfig()).await;
    let client = client(&server.kubeconfig());
    let informer = informer_of(&client);
    let (quick, slow) = (Tally::default(), Tally::slow(Duration::from_millis(1)));
    let (released, hangs_until) = watch::channel(false);
    let hangs = Tally::default();
    let handler = Hangs {
        tally: hangs.clone(),
        released: hangs_until,
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
        () = writer.write(changes) => {}
        () = async { loop { watched().await } } => {}
    }
    let expected = listed(&maps(&client)).await;
    until("the quick handler", || quick.view() == expected).await;
    assert_eq!(held(&informer), expected);
    let taken = unread.taken();
    println!("{taken} bytes were taken");
    // A tenth of the changes is within the variation of a process's memory.
    assert!(changes < CHANGES || taken < MEMORY_MAX, "{taken} bytes");
    let behind = pending();
    assert!(behind[2] <= KEYS as i64, "one for each object: {behind:?}");
    assert!(most.iter().all(|most| *most <= PENDING_MAX), "{most:?}");
    let received = registrations[0].metrics().received.get();
    let actual = registrations
        .each_ref()
        .map(|handler| handler.metrics().delivered.get());
    println!(
        "of {} changes {received} received, {actual:?} delivered, at most {most:?} pending",
        writer.changes
    );
    assert_eq!(actual[2], 0, "it hangs");
    unread.read(&expected).await;

    released.send_replace(true);
    until("the slow handlers", || {
        slow.view() == expected && hangs.view() == expected
    })
    .await;
    // The handler received the deletion of each object that it had; otherwise its view would have more objects.
    let actual = registrations[2].metrics().delivered.get();
    assert!(actual <= (PENDING_MAX as u64) + 2 * KEYS as u64, "{actual}");
    tasks.drain(PATIENCE).await.unwrap();
    server.stop().await;
}
