//! Runs the watch scripts (`docs/watch-scripts.md`) against the HTTP server, over every back end.

use std::collections::BTreeSet;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use watchet_test_util::watch_script::{
    ApiError, Corpus, DRIVERS, Driver, DriverInfo, EventKind, ListResponse, ReadRequest, Received,
    ReceivedObject, Timing, WatchStream, WriteRequest,
};

use crate::conformance::site::{Site, version};
use crate::conformance::watching::Watching;
use crate::harness::{PATIENCE, Protocol, full, request};
use crate::storage::Backend;

const HTTP: &DriverInfo = &DRIVERS[2];

/// A server, and how to make another one over the same storage.
struct HttpDriver {
    site: Site,
    /// Servers before a restart. The first one has the back end.
    stopped: Vec<Site>,
    is_connected: bool,
}

impl HttpDriver {
    async fn start<B: Backend + 'static>() -> Self {
        Self {
            site: Site::start::<B>().await,
            stopped: Vec::new(),
            is_connected: true,
        }
    }

    /// Writes to storage, past the server.
    async fn store(&self, write: &WriteRequest) -> u64 {
        let key = write.object.storage_key();
        let version = match &write.next {
            Some(next) => self.site.store(&key, &next.value(&write.object)).await,
            None => self.site.unstore(&key).await,
        };
        version.get()
    }

    /// Writes by a request to the server.
    async fn request(&self, write: &WriteRequest) -> u64 {
        let object = &write.object;
        let plural = object.resource.plural();
        let collection = format!("/api/v1/namespaces/{}/{plural}", object.namespace);
        let path = format!("{collection}/{}", object.name);
        match (&write.previous, &write.next) {
            (_, None) => {
                let options = json!({"gracePeriodSeconds": 0});
                self.site.delete(&path, &options).await.ok(200);
                self.site.revision().await
            }
            (None, Some(next)) => {
                let created = self
                    .site
                    .post(&collection, &next.json(object))
                    .await
                    .ok(201);
                version(&created)
            }
            (Some(previous), Some(next)) => {
                let mut labels = json!(next.content.labels);
                for key in previous.content.labels.keys() {
                    if !next.content.labels.contains_key(key) {
                        labels[key] = Value::Null;
                    }
                }
                let annotations = json!({"stamp": next.stamp});
                let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
                version(&self.site.patch(&path, "merge", &patch).await.ok(200))
            }
        }
    }
}

/// Returns the error of a Status.
fn status(status: &Value) -> ApiError {
    let token = status["metadata"]["continue"].as_str();
    ApiError {
        code: status["code"].as_u64().unwrap_or_default() as u16,
        reason: status["reason"].as_str().unwrap_or_default().to_owned(),
        continue_token: token.map(str::to_owned),
    }
}

fn received(frame: &Value) -> Received {
    let object = &frame["object"];
    let kind = frame["type"].as_str().expect("a type");
    match kind {
        "BOOKMARK" => Received::Bookmark {
            version: version(object),
            is_initial_events_end: object["metadata"]["annotations"]["k8s.io/initial-events-end"]
                == "true",
        },
        "ERROR" => Received::Error(status(object)),
        _ => {
            let kind = EventKind::ALL
                .into_iter()
                .find(|other| other.name() == kind);
            Received::Event(
                kind.expect("a type of event"),
                ReceivedObject::from_json(object),
            )
        }
    }
}

impl WatchStream for Watching {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<Received>>> {
        // A read that is not finished has read nothing.
        let frame = pin!(self.read()).poll(cx);
        frame.map(|frame| frame.map(|frame| vec![received(&frame)]))
    }
}

impl Driver for HttpDriver {
    type Watch = Watching;

    fn name(&self) -> String {
        format!("HTTP server over {}", self.site.storage.inner().name())
    }

    fn timing(&self) -> Timing {
        Timing {
            patience: PATIENCE,
            silence: Duration::from_millis(200),
        }
    }

    async fn start(&mut self, namespaces: &BTreeSet<String>) -> u64 {
        for namespace in namespaces
            .iter()
            .filter(|namespace| *namespace != "default")
        {
            let body = json!({"metadata": {"name": namespace}});
            self.site.post("/api/v1/namespaces", &body).await.ok(201);
        }
        self.site.revision().await
    }

    async fn write(&mut self, writes: &[WriteRequest]) -> u64 {
        let [write] = writes else {
            unimplemented!("the API has no transactions")
        };
        let (previous, next) = (write.previous.as_ref(), write.next.as_ref());
        let is_unreadable = previous.is_some_and(|object| object.is_unreadable)
            || next.is_some_and(|object| object.is_unreadable);
        // The server binds a pod to a node once; a script moves it.
        let moves = previous
            .zip(next)
            .is_some_and(|(previous, next)| previous.content.node_name != next.content.node_name);
        if is_unreadable || moves || !self.is_connected {
            self.store(write).await
        } else {
            self.request(write).await
        }
    }

    async fn list(&mut self, request: &ReadRequest) -> Result<ListResponse, ApiError> {
        let answer = self.site.get(&request.path(false)).await;
        let list = answer.json();
        if answer.code != 200 {
            return Err(status(&list));
        }
        let items = list["items"].as_array().expect("items").iter();
        let token = list["metadata"]["continue"].as_str();
        Ok(ListResponse {
            version: version(&list),
            items: items.map(ReceivedObject::from_json).collect(),
            continue_token: token.map(str::to_owned),
            remaining: list["metadata"]["remainingItemCount"].as_u64(),
        })
    }

    async fn watch(&mut self, read: &ReadRequest) -> Result<Watching, ApiError> {
        let mut wire = self.site.connect(Protocol::Http1).await;
        let get = request(Method::GET, &read.path(true), &[], full(""));
        let response = wire.open(get).await.expect("a response");
        if response.status() == 200 {
            return Ok(Watching::new(wire, response.into_body()));
        }
        let body = response.into_body().collect().await.expect("a body");
        let body = serde_json::from_slice(&body.to_bytes()).expect("a Status");
        Err(status(&body))
    }

    async fn compact(&mut self, at: u64) {
        self.site.compact(at).await;
    }

    async fn restart(&mut self) {
        let replica = self.site.replica().await;
        let stopped = std::mem::replace(&mut self.site, replica);
        stopped.drain();
        stopped.stop_caches();
        self.stopped.push(stopped);
    }

    async fn cut(&mut self) {
        self.site.storage.cut_watches();
    }

    async fn set_connected(&mut self, connected: bool) {
        self.is_connected = connected;
        self.site.storage.set_down(!connected);
        if !connected {
            self.site.storage.cut_watches();
        }
    }
}

async fn scripts_pass_over<B: Backend + 'static>(concurrency: usize) {
    let driver = async || HttpDriver::start::<B>().await;
    Corpus::load().run(HTTP, concurrency, driver).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_pass_over_memory() {
    scripts_pass_over::<crate::storage::fixtures::MemoryStore>(8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_pass_over_the_embedded_store() {
    scripts_pass_over::<crate::storage::fixtures::EmbeddedStore>(8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_pass_over_etcd() {
    scripts_pass_over::<crate::storage::etcd::EtcdStore>(4).await;
}
