//! Tests of informers during outages of the server or the connection: crashes, an outage longer than history,
//! connections that are cut in the middle of events.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use watchet::tasks::Tasks;

use super::tally::Tally;
use super::{client, delete, held, informer_of, listed, maps, plain_client, put, until};
use crate::harness::{Mode, PATIENCE, Proxy, Server, free_port, on_both};
use crate::storage::etcd::EtcdProcess;

/// A server that is restarted on the same port with the same data.
pub(crate) struct Host {
    pub(crate) directory: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) port: u16,
}

impl Host {
    pub(crate) fn new(directory: &std::path::Path, args: &[&str]) -> Self {
        Self {
            directory: directory.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            port: free_port(),
        }
    }

    pub(crate) async fn start(&self) -> Server {
        let port = format!("--secure-port={}", self.port);
        let mut args = vec![port.as_str(), "--watch-cache-consistency-check-interval=2s"];
        args.extend(self.args.iter().map(String::as_str));
        Server::start_exactly(&self.directory, &args).await
    }
}

/// Both back ends retain history across a crash, so the watch is resumed.
#[tokio::test]
async fn informer_survives_crashes_embedded() {
    crashes(&[]).await;
}

#[tokio::test]
async fn informer_survives_crashes_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    crashes(&["--storage=etcd", &servers]).await;
}

async fn crashes(args: &[&str]) {
    const ROUNDS: usize = 3;
    let directory = tempfile::tempdir().unwrap();
    let host = Host::new(directory.path(), args);
    let mut server = host.start().await;
    let client = client(&server.kubeconfig());
    let maps = maps(&client);
    let informer = informer_of(&client);
    let tally = Tally::default();
    informer.add_event_handler(tally.clone()).unwrap();
    let tasks = Tasks::new();
    for round in 0..ROUNDS {
        for n in 0..6 {
            put(&maps, &format!("r{round}-{n}"), "before").await;
        }
        if round == 0 {
            informer.start(&tasks).unwrap();
            informer.wait_for_cache_sync().await.unwrap();
        }
        server.kill().await;
        server = host.start().await;
        delete(&maps, &format!("r{round}-0")).await;
        delete(&maps, &format!("r{round}-1")).await;
        put(&maps, &format!("r{round}-2"), "after").await;
    }
    let expected = listed(&maps).await;
    until("what is listed", || tally.view() == expected).await;
    assert_eq!(held(&informer), expected);
    tally.look(|received| {
        let (seen, missed) = (received.deleted.len(), received.deleted_unseen.len());
        // No crash lost history: no change was found by a list.
        assert_eq!((seen, missed), (2 * ROUNDS, 0), "{received:?}");
    });
    tasks.drain(PATIENCE).await.unwrap();
    server.stop().await;
}

/// During the outage more changes happen than the server retains: the watch gets a 410, and a list returns the present
/// state.
#[tokio::test]
async fn an_informer_relists_after_history_was_lost_embedded() {
    history_is_lost(&[]).await;
}

#[tokio::test]
async fn an_informer_relists_after_history_was_lost_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    history_is_lost(&["--storage=etcd", &servers]).await;
}

async fn history_is_lost(args: &[&str]) {
    let short = [&["--watch-history-bytes-max=16Mi"], args].concat();
    let server = Server::start(&short).await;
    let maps = maps(&plain_client(server.insecure()));
    for n in 0..10 {
        put(&maps, &format!("a{n}"), "before").await;
    }
    let proxy = Proxy::start(server.insecure(), 1).await;
    let informer = informer_of(&plain_client(proxy.address));
    let tally = Tally::default();
    informer.add_event_handler(tally.clone()).unwrap();
    let expired = std::sync::Arc::new(parking_lot::Mutex::new(0));
    let count = expired.clone();
    let on_error = move |error: &watchet::reflector::SourceError| {
        if let watchet::reflector::SourceError::Expired { .. } = error {
            *count.lock() += 1;
        }
    };
    informer.set_watch_error_handler(on_error).unwrap();
    let tasks = Tasks::new();
    informer.start(&tasks).unwrap();
    until("the first list", || {
        tally.look(|received| received.adds) >= 10
    })
    .await;

    proxy.set(Mode::Down);
    delete(&maps, "a0").await;
    delete(&maps, "a1").await;
    put(&maps, "a2", "after").await;
    // A recreated object has another uid.
    delete(&maps, "a3").await;
    put(&maps, "a3", "after").await;
    forget(&maps).await;
    proxy.set(Mode::Open);

    let expected = listed(&maps).await;
    until("what is listed", || tally.view() == expected).await;
    assert_eq!(held(&informer), expected);
    assert_eq!(*expired.lock(), 1);
    tally.look(|received| {
        assert_eq!(received.deleted_unseen, ["a0", "a1"], "{received:?}");
        assert_eq!(received.deleted, [""; 0], "{received:?}");
        // `a2` and `a3`; the others are unchanged and cause no notification.
        assert_eq!((received.updates, received.resyncs), (2, 0), "{received:?}");
    });
    tasks.drain(PATIENCE).await.unwrap();
    server.stop().await;
}

/// Writes more bytes of changes than the server retains, so that it drops the earlier history.
async fn forget(maps: &watchet::client::ResourceClient<k8s_openapi::api::core::v1::ConfigMap>) {
    let large = "x".repeat(400 << 10);
    for n in 0..110 {
        put(maps, "large", &format!("{n}{large}")).await;
    }
}

on_both!(|server| (server) => [events_cut_in_the_middle_are_delivered_once]);

/// Many informers, whose connections end after some bytes, while objects are created, changed and deleted.
async fn events_cut_in_the_middle_are_delivered_once(server: &Server) {
    const INFORMERS: usize = 8;
    const CHURN: Duration = Duration::from_secs(6);
    let maps = maps(&plain_client(server.insecure()));
    let proxy = Proxy::start(server.insecure(), 7).await;
    let tasks = Tasks::new();
    proxy.set(Mode::Cutting(20_000));
    let followers: Vec<_> = (0..INFORMERS)
        .map(|_| {
            let informer = informer_of(&plain_client(proxy.address));
            let tally = Tally::default();
            informer.add_event_handler(tally.clone()).unwrap();
            informer.start(&tasks).unwrap();
            (informer, tally)
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(watchet_test_util::seeds::seed_or(7));
    let started = Instant::now();
    let text = "x".repeat(300);
    while started.elapsed() < CHURN {
        let name = format!("a{}", random.usize(..20));
        match random.u8(..3) {
            0 => match maps.delete(&name, &Default::default()).await {
                Ok(()) => {}
                Err(error) => assert!(error.is_not_found(), "{error}"),
            },
            _ => put(&maps, &name, &text).await,
        }
        sleep(Duration::from_millis(2)).await;
    }
    proxy.set(Mode::Open);
    let expected = listed(&maps).await;
    for (informer, tally) in &followers {
        until("what is listed", || tally.view() == expected).await;
        assert_eq!(held(informer), expected);
    }
    assert!(proxy.cuts() > INFORMERS, "{}", proxy.cuts());
    tasks.drain(PATIENCE).await.unwrap();
}
