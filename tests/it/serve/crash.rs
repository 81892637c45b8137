//! Tests of kill -9 of the real process: acknowledged writes are stored, and a watch can be resumed from the last
//! version that its client received.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{PATIENCE, Protocol, Server, Wire, full, request};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The number of writers; several, so that commits are grouped.
const WRITERS: usize = 4;
/// The number of writes that are acknowledged before the kill.
const BEFORE_THE_KILL: usize = 100;

/// Creates objects until the server has ended; returns the acknowledged ones with their versions.
async fn write_until_it_dies(
    mut wire: Wire,
    writer: usize,
    total: &AtomicUsize,
) -> BTreeMap<String, u64> {
    let mut acknowledged = BTreeMap::new();
    for number in 0.. {
        let name = format!("w{writer}-{number}");
        let body = json!({"metadata": {"name": name}, "data": {"number": number.to_string()}});
        let headers = [("content-type", "application/json")];
        let request = request(Method::POST, CONFIG_MAPS, &headers, full(&body.to_string()));
        let Ok(response) = wire.open(request).await else {
            break;
        };
        assert_eq!(response.status(), StatusCode::CREATED);
        // If the connection ends after the head of the response, the write is acknowledged.
        let version = match response.into_body().collect().await {
            Ok(body) => {
                let object: Value = serde_json::from_slice(&body.to_bytes()).expect("JSON");
                version(&object)
            }
            Err(_) => 0,
        };
        acknowledged.insert(name, version);
        total.fetch_add(1, Ordering::Relaxed);
    }
    acknowledged
}

fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.expect("a version").parse().expect("a number")
}

/// The events of a watch, one line each.
struct Events {
    body: Incoming,
    rest: Vec<u8>,
    _wire: Wire,
}

impl Events {
    async fn open(server: &Server, from: u64) -> Self {
        let mut wire = server.plain(Protocol::Http2).await;
        let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={from}");
        let request = request(Method::GET, &path, &[], full(""));
        let response = wire.open(request).await.expect("an answer");
        assert_eq!(response.status(), StatusCode::OK);
        Self {
            body: response.into_body(),
            rest: Vec::new(),
            _wire: wire,
        }
    }

    /// Returns the next event; `None` when the server has ended.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("JSON"));
            }
            let frame = timeout(PATIENCE, self.body.frame()).await.expect("in time");
            let data = frame?.ok()?.into_data().ok()?;
            self.rest.extend_from_slice(&data);
        }
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_and_watches_resume() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_in(directory.path(), &[]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let start = wire.get(CONFIG_MAPS).await.json();
    let start = version(&start);
    let mut events = Events::open(&server, start).await;
    let total = AtomicUsize::new(0);
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let wire = server.plain(Protocol::Http1).await;
        writers.push(write_until_it_dies(wire, writer, &total));
    }
    let watched = async {
        let mut seen = BTreeMap::new();
        while let Some(event) = events.next().await {
            assert_eq!(event["type"], "ADDED", "{event}");
            let name = event["object"]["metadata"]["name"]
                .as_str()
                .expect("a name");
            seen.insert(name.to_owned(), version(&event["object"]));
        }
        seen
    };
    let killed = async {
        let burst = async {
            while total.load(Ordering::Relaxed) < BEFORE_THE_KILL {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, burst).await.expect("they write");
        server.kill().await;
    };
    let (acknowledged, mut seen, ()) =
        tokio::join!(futures::future::join_all(writers), watched, killed);
    let acknowledged: BTreeMap<String, u64> = acknowledged.into_iter().flatten().collect();
    assert!(
        acknowledged.len() >= BEFORE_THE_KILL,
        "each has a name of its own"
    );

    let server = Server::start_in(directory.path(), &[]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let list = wire.get(CONFIG_MAPS).await.json();
    let kept: BTreeMap<String, u64> = list["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|item| {
            let name = item["metadata"]["name"].as_str().expect("a name");
            (name.to_owned(), version(item))
        })
        .collect();
    for (name, version) in &acknowledged {
        let kept = kept.get(name).unwrap_or_else(|| panic!("{name} is lost"));
        assert!(
            *version == 0 || version == kept,
            "{name}: {version} became {kept}"
        );
    }
    for (name, version) in &seen {
        assert_eq!(kept.get(name), Some(version), "a watch had {name}");
    }

    // A watch from the last received version continues without a gap.
    let last = seen.values().copied().max().unwrap_or(start);
    let mut events = Events::open(&server, last).await;
    while seen.len() < kept.len() {
        let event = events.next().await.expect("the watch goes on");
        assert_eq!(event["type"], "ADDED", "{event}");
        let name = event["object"]["metadata"]["name"]
            .as_str()
            .expect("a name");
        let twice = seen.insert(name.to_owned(), version(&event["object"]));
        assert_eq!(twice, None, "{name} is listed twice");
    }
    assert_eq!(seen, kept);
    let body = json!({"metadata": {"name": "after"}});
    let made = version(&wire.post(CONFIG_MAPS, &body).await.json());
    assert!(kept.values().all(|version| *version < made));
    let event = events.next().await.expect("the watch goes on");
    assert_eq!(version(&event["object"]), made);
    server.stop().await;
}
