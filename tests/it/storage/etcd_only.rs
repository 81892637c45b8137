//! Tests of the `etcd` back end only: Kubernetes' key layout, large lists and histories, leases, the compactor, TLS.
//! `etcd_faults` tests failures.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Client, GetOptions, PutOptions, Txn, TxnOp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep};
use watchet::api::ResourceVersion;
use watchet::storage::etcd3::{ConnectError, Etcd3, Etcd3Config};
use watchet::storage::{Expect, Outcome, Put, Storage, StorageError};
use watchet::tasks::Tasks;

use super::etcd::EtcdProcess;
use super::support::{Follow, PATIENCE, create, describe, key, list, page};
use super::tls::TlsFiles;

async fn raw(process: &EtcdProcess) -> Client {
    Client::connect([process.url()], None).await.unwrap()
}

async fn put_large(store: &Arc<dyn Storage>, at: &str, bytes: usize, ttl: Option<Duration>) {
    let put = Put {
        key: key(at),
        value: Bytes::from(vec![b'x'; bytes]),
        expect: Expect::Absent,
        ttl,
    };
    assert!(matches!(store.put(put).await.unwrap(), Outcome::Done(_)));
}

#[tokio::test]
async fn keys_have_the_layout_of_kubernetes() {
    let process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let mut raw = raw(&process).await;
    let ours = create(&store, "/pods/ns/a", "{}").await;
    let stored = raw.get("/registry/pods/ns/a", None).await.unwrap();
    assert_eq!(stored.kvs()[0].value(), b"{}");
    assert_eq!(
        stored.kvs()[0].mod_revision(),
        i64::try_from(ours.get()).unwrap()
    );

    // A value that another API server wrote in its own encoding is returned unchanged.
    let protobuf = b"k8s\0\x0a\x0f\xff".to_vec();
    raw.put("/registry/pods/ns/b", protobuf.clone(), None)
        .await
        .unwrap();
    let listed = list(&store, "/pods/", None).await.unwrap();
    assert_eq!(listed.items[1].key, key("/pods/ns/b"));
    assert_eq!(listed.items[1].value, protobuf);
    let mut watch = Follow::open(&store, "/pods/", ours).await;
    assert_eq!(watch.events(1).await[0].value.as_ref().unwrap(), &protobuf);

    // Another prefix in the same etcd is separate.
    let other = Etcd3::connect(Etcd3Config {
        prefix: "elsewhere/".into(),
        ..process.config()
    });
    let other: Arc<dyn Storage> = other.await.unwrap();
    assert!(list(&other, "/pods/", None).await.unwrap().items.is_empty());
    create(&other, "/pods/ns/a", "other").await;
    let stored = raw.get("/elsewhere/pods/ns/a", None).await.unwrap();
    assert_eq!(stored.kvs()[0].value(), b"other");
}

/// Larger than the default limit of a gRPC client (4 MiB) and than this client's (64 MiB): the first page is too large
/// and must be requested again with fewer keys.
#[tokio::test]
async fn large_lists_are_complete() {
    let process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    for number in 0..70 {
        put_large(&store, &format!("/pods/ns/{number:03}"), 1 << 20, None).await;
    }
    let whole = list(&store, "/pods/", None).await.unwrap();
    assert_eq!(whole.items.len(), 70);
    assert!(whole.items.iter().all(|item| item.value.len() == 1 << 20));
    let part = page(&store, "/pods/", "", None, 68).await.unwrap();
    assert_eq!((part.items.len(), part.remaining), (68, Some(2)));
}

/// Small values are read in pages too; all pages are of the same revision, whatever is written in between.
#[tokio::test]
async fn a_list_of_many_pages_is_one_state() {
    let process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let mut raw = raw(&process).await;
    for chunk in 0..25 {
        let puts: Vec<_> = (0..100)
            .map(|number| {
                TxnOp::put(
                    format!("/registry/pods/ns/{chunk:02}-{number:02}"),
                    "x",
                    None,
                )
            })
            .collect();
        raw.txn(Txn::new().and_then(puts)).await.unwrap();
    }
    let tasks = Tasks::new();
    let token = tasks.token();
    let writer = store.clone();
    let writing = tasks.spawn("writes", async move {
        let mut number = 0;
        while !token.is_cancelled() {
            number += 1;
            // A change of the first page, then of the last one.
            create(&writer, &format!("/pods/ns/0-{number}"), "new").await;
            create(&writer, &format!("/pods/ns/99-{number}"), "new").await;
        }
    });
    for _ in 0..20 {
        let whole = list(&store, "/pods/", None).await.unwrap();
        let again = list(&store, "/pods/", Some(whole.revision)).await.unwrap();
        assert!(whole == again, "two states in one list");
    }
    tasks.cancel();
    writing.await.unwrap();
}

/// etcd replays up to 1,000 revisions in one message; these are 72 MiB, more than this client accepts.
#[tokio::test]
async fn a_long_history_of_large_values_replays() {
    const EVENTS: usize = 1000;
    const VALUE_BYTES: usize = 72 << 10;
    let process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let start = store.current_revision().await.unwrap();
    for number in 0..EVENTS {
        put_large(&store, &format!("/pods/ns/{number}"), VALUE_BYTES, None).await;
    }
    let mut watch = Follow::open(&store, "/pods/", start).await;
    let events = watch.events(EVENTS).await;
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event.key, key(&format!("/pods/ns/{number}")));
        assert_eq!(event.value.as_ref().map(Bytes::len), Some(VALUE_BYTES));
    }
}

/// The events of a transaction, with previous values, exceed the limit of a message: etcd sends fragments, and the
/// batch must contain all events.
#[tokio::test]
async fn events_of_a_revision_are_delivered_together() {
    const KEYS: usize = 100;
    let process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let mut raw = raw(&process).await;
    let start = store.current_revision().await.unwrap();
    for round in 0..4_u8 {
        let value = vec![b'0' + round; 13 << 10];
        let puts: Vec<_> = (0..KEYS)
            .map(|number| {
                TxnOp::put(
                    format!("/registry/pods/ns/{number:03}"),
                    value.clone(),
                    None,
                )
            })
            .collect();
        raw.txn(Txn::new().and_then(puts)).await.unwrap();
    }
    let mut watch = store.watch(&key("/pods/"), start).await.unwrap();
    let mut position = start;
    let mut seen = 0;
    while seen < 4 * KEYS {
        let next = futures::StreamExt::next(&mut watch.batches);
        let batch = tokio::time::timeout(PATIENCE, next)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(
            batch.events.is_empty() || batch.events[0].revision > position,
            "cut at {position}"
        );
        position = batch.revision;
        seen += batch.events.len();
        assert_eq!(seen % KEYS, 0, "part of a revision");
    }
}

#[tokio::test]
async fn wc_196_keys_of_like_ttl_share_a_lease() {
    let process = EtcdProcess::start(&[]).await;
    let config = process.config();
    let counted = config.lease_keys.clone();
    let store: Arc<dyn Storage> = Etcd3::connect(config).await.unwrap();
    let hour = Some(Duration::from_secs(3600));
    for number in 0..1001 {
        put_large(&store, &format!("/events/ns/{number:04}"), 1, hour).await;
    }
    put_large(&store, "/other/ns/short", 1, Some(Duration::from_secs(100))).await;
    put_large(&store, "/other/ns/none", 1, None).await;
    let mut raw = raw(&process).await;
    let leases = |kvs: &[etcd_client::KeyValue]| -> Vec<i64> {
        kvs.iter().map(etcd_client::KeyValue::lease).collect()
    };
    let prefix = Some(GetOptions::new().with_prefix());
    let events = leases(
        raw.get("/registry/events/", prefix.clone())
            .await
            .unwrap()
            .kvs(),
    );
    let distinct: BTreeSet<_> = events.iter().collect();
    assert_eq!(distinct.len(), 2, "1,000 keys fill a lease");
    assert_eq!(
        events.iter().filter(|lease| **lease == events[0]).count(),
        1000
    );
    let granted = raw.lease_time_to_live(events[0], None).await.unwrap();
    assert_eq!(granted.granted_ttl(), 3660);
    let others = leases(raw.get("/registry/other/", prefix).await.unwrap().kvs());
    assert_eq!(others[0], 0, "no TTL, no lease");
    assert!(
        !events.contains(&others[1]),
        "100 s do not share with an hour"
    );
    assert_eq!(
        (counted.count(), counted.sum()),
        (2, 1001.0),
        "those of both leases that were replaced"
    );
}

#[tokio::test]
async fn a_revoked_lease_is_replaced() {
    let process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let ttl = Some(Duration::from_secs(3600));
    put_large(&store, "/events/ns/a", 1, ttl).await;
    let mut raw = raw(&process).await;
    let first = raw.get("/registry/events/ns/a", None).await.unwrap().kvs()[0].lease();
    raw.lease_revoke(first).await.unwrap();
    put_large(&store, "/events/ns/b", 1, ttl).await;
    let second = raw.get("/registry/events/ns/b", None).await.unwrap().kvs()[0].lease();
    assert_ne!(first, second);
}

/// Runs the maintenance of `stores`, as their servers do.
fn maintenance(stores: &[Arc<dyn Storage>]) -> Tasks {
    let tasks = Tasks::new();
    for store in stores {
        let (store, token) = (store.clone(), tasks.token());
        tasks.spawn("maintain", async move { store.maintain(token).await });
    }
    tasks
}

/// Waits until the fourth round, or a later one, is complete: the key is written and etcd has compacted. Returns the
/// version of the key.
async fn complete_round(raw: &mut etcd_client::Client, store: &Arc<dyn Storage>) -> i64 {
    let begun = Instant::now();
    loop {
        let agreed = raw.get("compact_rev_key", None).await.unwrap();
        if let [kv] = agreed.kvs()
            && kv.version() >= 4
        {
            let at: u64 = kv.value_str().unwrap().parse().unwrap();
            let before = ResourceVersion::new(at - 1);
            let listed = list(store, "/pods/", Some(before)).await;
            if matches!(listed, Err(StorageError::Compacted { .. })) {
                return kv.version();
            }
        }
        assert!(begun.elapsed() < PATIENCE, "fewer than four rounds");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Runs two compactors and stops them after a complete round; repeats this if another round has begun meanwhile. Returns the
/// key of that round.
async fn rounds_of_two(
    raw: &mut etcd_client::Client,
    stores: &[Arc<dyn Storage>],
) -> etcd_client::KeyValue {
    loop {
        let tasks = maintenance(stores);
        let complete = complete_round(raw, &stores[0]).await;
        tasks.drain(PATIENCE).await.unwrap();
        // etcd may still apply a transaction of a compactor that was stopped.
        sleep(Duration::from_millis(200)).await;
        let agreed = raw.get("compact_rev_key", None).await.unwrap();
        // A round that begins while the servers stop can write the key without compacting.
        if agreed.kvs()[0].version() == complete {
            return agreed.kvs()[0].clone();
        }
    }
}

/// Two servers compact one etcd: one of them wins each interval and compacts at the revision of the interval before, so
/// that history is one to two intervals long.
#[tokio::test]
async fn wc_194_one_compactor_wins_each_interval() {
    const INTERVAL: Duration = Duration::from_millis(800);
    let process = EtcdProcess::start(&[]).await;
    let config = Etcd3Config {
        compaction_interval: INTERVAL,
        ..process.config()
    };
    let begun = Instant::now();
    let mut stores: Vec<Arc<dyn Storage>> = Vec::new();
    for _ in 0..2 {
        stores.push(Etcd3::connect(config.clone()).await.unwrap());
    }
    let mut made = Vec::new();
    // Writes until the end: history has to be left after each round, however many are needed.
    let write = async {
        loop {
            let started = begun.elapsed();
            let at = format!("/pods/ns/{}", made.len());
            made.push((started, create(&stores[0], &at, "x").await));
            sleep(Duration::from_millis(20)).await;
        }
    };
    let mut raw = raw(&process).await;
    let last_round = tokio::select! {
        last_round = rounds_of_two(&mut raw, &stores) => last_round,
        () = write => unreachable!("writes until it is dropped"),
    };
    let elapsed = begun.elapsed();
    let rounds = u32::try_from(last_round.version()).unwrap();
    assert!(
        INTERVAL * rounds <= elapsed,
        "{rounds} rounds in {elapsed:?}"
    );
    let compacted: ResourceVersion = last_round.value_str().unwrap().parse().unwrap();
    let before = GetOptions::new().with_revision(last_round.mod_revision() - 1);
    let previous_round = raw.get("compact_rev_key", Some(before)).await.unwrap();
    let previous_round = previous_round.kvs()[0].mod_revision();
    let between_rounds = previous_round..last_round.mod_revision();
    assert!(
        between_rounds.contains(&i64::try_from(compacted.get()).unwrap()),
        "{compacted} is not of the interval {between_rounds:?}"
    );
    for store in &stores {
        // WC-195: independent of which server wrote it.
        assert_eq!(store.compacted_revision().await.unwrap(), compacted);
        assert!(
            list(store, "/pods/", Some(compacted)).await.is_ok(),
            "the compacted revision can be read"
        );
        let before = ResourceVersion::new(compacted.get() - 1);
        match list(store, "/pods/", Some(before)).await {
            Err(StorageError::Compacted {
                compacted: received,
                ..
            }) => assert_eq!(received, compacted),
            other => panic!("{other:?}"),
        }
    }
    let last_compacted = made.iter().rfind(|(_, revision)| *revision <= compacted);
    let (started, _) = last_compacted.expect("a write of the first interval");
    assert!(
        elapsed - *started >= INTERVAL,
        "a write of {:?} ago is compacted",
        elapsed - *started
    );
}

/// A store with an interval compacts its etcd; one without an interval does not write to its etcd.
#[tokio::test]
async fn a_store_without_an_interval_does_not_compact() {
    let tasks = Tasks::new();
    let mut processes = Vec::new();
    for compaction_interval in [Duration::ZERO, Duration::from_millis(100)] {
        let process = EtcdProcess::start(&[]).await;
        let config = Etcd3Config {
            compaction_interval,
            ..process.config()
        };
        let store = Etcd3::connect(config).await.unwrap();
        let token = tasks.token();
        tasks.spawn("maintain", async move { store.maintain(token).await });
        processes.push(process);
    }
    let versions = async |process: &EtcdProcess| {
        let response = raw(process).await.get("compact_rev_key", None).await;
        let response = response.unwrap();
        response.kvs().first().map_or(0, |value| value.version())
    };
    let begun = Instant::now();
    while versions(&processes[1]).await < 3 {
        assert!(begun.elapsed() < PATIENCE, "the interval has no effect");
        sleep(Duration::from_millis(20)).await;
    }
    tasks.drain(PATIENCE).await.unwrap();
    assert_eq!(versions(&processes[0]).await, 0);
}

#[tokio::test]
async fn tls_with_client_certificates() {
    let files = TlsFiles::new();
    let process = EtcdProcess::start_tls(&files).await;
    let config = Etcd3Config {
        ca_file: Some(files.ca.clone()),
        cert_file: Some(files.client_cert.clone()),
        key_file: Some(files.client_key.clone()),
        ..process.config()
    };
    let store: Arc<dyn Storage> = Etcd3::connect(config.clone()).await.unwrap();
    let start = store.current_revision().await.unwrap();
    let mut watch = Follow::open(&store, "/pods/", start).await;
    create(&store, "/pods/ns/a", "secret").await;
    assert_eq!(
        describe(&watch.events(1).await),
        ["/pods/ns/a=secret was -"]
    );

    let stranger = TlsFiles::new();
    for refused in [
        Etcd3Config {
            cert_file: None,
            key_file: None,
            ..config.clone()
        },
        Etcd3Config {
            ca_file: Some(stranger.ca.clone()),
            ..config.clone()
        },
        Etcd3Config {
            cert_file: Some(stranger.client_cert.clone()),
            key_file: Some(stranger.client_key.clone()),
            ..config
        },
    ] {
        let error = Etcd3::connect(refused).await.unwrap_err();
        assert!(
            matches!(&error, ConnectError::Unreachable { .. }),
            "{error}"
        );
        assert!(error.to_string().contains(process.url()), "{error}");
    }
}

/// Returns the number of watches that etcd reports.
async fn watchers(process: &EtcdProcess) -> u64 {
    let address = process.url().strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let metric = "\netcd_debugging_mvcc_watcher_total ";
    let (_, rest) = answer.split_once(metric).expect("etcd counts its watchers");
    rest.lines().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn dropped_watch_is_cancelled_in_etcd() {
    const WATCHES: usize = 150;
    let process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let start = store.current_revision().await.unwrap();
    // More watches than one connection carries.
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        watches.push(Follow::open(&store, "/pods/", start).await);
    }
    assert_eq!(watchers(&process).await, WATCHES as u64);
    create(&store, "/pods/ns/a", "x").await;
    for watch in &mut watches {
        assert_eq!(watch.events(1).await.len(), 1);
    }
    drop(watches);
    let deadline = Instant::now() + PATIENCE;
    while watchers(&process).await > 0 {
        assert!(Instant::now() < deadline, "etcd still holds watches");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Values with a lease of another client are served, and keys that name no object are reported.
#[tokio::test]
async fn values_of_other_writers_are_served_or_reported() {
    let process = EtcdProcess::start(&[]).await;
    let store: Arc<dyn Storage> = process.connect().await;
    let mut raw = raw(&process).await;
    let lease = raw.lease_grant(100, None).await.unwrap().id();
    let leased = PutOptions::new().with_lease(lease);
    raw.put("/registry/pods/ns/a", "x", Some(leased))
        .await
        .unwrap();
    assert_eq!(list(&store, "/pods/", None).await.unwrap().items.len(), 1);
    raw.put("/registry/pods//b", "x", None).await.unwrap();
    let error = list(&store, "/pods/", None).await.unwrap_err();
    assert!(
        matches!(&error, StorageError::Corrupt(text) if text.contains("/pods//b")),
        "{error}"
    );
}
