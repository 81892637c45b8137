//! `Site`: the server of a conformance test. The registry, its caches and the HTTP router run in the process of the
//! test over one back end, on a real socket, so that a test can send HTTP requests and also write to storage directly.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use watchet::api::{ResourceVersion, StorageKey};
use watchet::builtin::new_registry;
use watchet::http::{HttpConfig, router};
use watchet::registry::CacherConfig;
use watchet::storage::{Expect, Outcome, Put, Storage};
use watchet::tasks::Tasks;

use super::faults::Faults;
use super::watching::Watching;
use crate::harness::{PATIENCE, Protocol, Scrape, Wire, full, request};
use crate::storage::Backend;

/// The collection that most tests use: its objects have no defaults and no status.
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// How long a request waits for a cache that is behind: the default of [`CacherConfig`]. A request that must not wait takes less.
pub(crate) const FRESHNESS_TIMEOUT: Duration = Duration::from_secs(3);

/// A server of the suite.
pub(crate) struct Site {
    /// The back end, with fault injection.
    pub(crate) storage: Arc<Faults>,
    pub(crate) address: SocketAddr,
    wire: HttpConfig,
    tasks: Tasks,
    wire_tasks: Tasks,
    _backend: Option<Box<dyn Any + Send + Sync>>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Site {
    /// Starts a server over a new back end.
    pub(crate) async fn start<B: Backend + 'static>() -> Self {
        let backend = B::start().await;
        let storage = Faults::over(backend.storage());
        let mut site = Self::over(storage, CacherConfig::default()).await;
        site._backend = Some(Box::new(backend));
        site
    }

    /// Starts another server over the same storage, as a second replica or after a restart.
    pub(crate) async fn replica(&self) -> Self {
        let storage = Faults::over(self.storage.inner());
        Self::over(storage, CacherConfig::default()).await
    }

    pub(crate) async fn over(storage: Arc<Faults>, config: CacherConfig) -> Self {
        let tasks = Tasks::new();
        let wire = HttpConfig::default();
        let registry = new_registry(storage.clone(), &tasks, config, wire.metrics.clone());
        registry.bootstrap().await.expect("storage answers");
        let service = router(registry, wire.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let wire_tasks = Tasks::new();
        let stop = wire_tasks.token();
        wire_tasks.spawn("conformance-http", async move {
            let stopped = stop.cancelled_owned();
            let served = axum::serve(listener, service).with_graceful_shutdown(stopped);
            served.await.expect("a listener does not fail");
        });
        Self {
            storage,
            address,
            wire,
            tasks,
            wire_tasks,
            _backend: None,
        }
    }

    /// Begins the shutdown, as SIGTERM does: watches end.
    pub(crate) fn drain(&self) {
        self.wire.connections.cancel();
    }

    /// Stops the tasks of the caches; the HTTP server continues.
    pub(crate) fn stop_caches(&self) {
        self.tasks.cancel();
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self, protocol: Protocol) -> Wire {
        Wire::plain(self.address, protocol).await
    }

    /// Sends a request over a new connection and reads the complete response.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let mut wire = self.connect(Protocol::Http1).await;
        let answer = wire.send(method, path, headers, body).await;
        Response {
            code: answer.status.as_u16(),
            headers: answer.headers,
            body: answer.body,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send(Method::GET, path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.send(Method::POST, path, &JSON, &body.to_string())
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Response {
        self.send(Method::PUT, path, &JSON, &body.to_string()).await
    }

    /// Scrapes `/metrics`.
    pub(crate) async fn scrape(&self) -> Scrape {
        let answer = self.get("/metrics").await;
        assert_eq!(answer.code, 200, "{answer:?}");
        Scrape::parse(std::str::from_utf8(&answer.body).expect("text"))
    }

    /// Sends a patch of type `merge`, `json` or `strategic-merge`.
    pub(crate) async fn patch(&self, path: &str, kind: &str, body: &Value) -> Response {
        let media = format!("application/{kind}-patch+json");
        let headers = [("content-type", media.as_str())];
        self.send(Method::PATCH, path, &headers, &body.to_string())
            .await
    }

    /// Sends a DELETE with options in its body; `null` sends no body.
    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Response {
        let body = match options {
            Value::Null => String::new(),
            options => options.to_string(),
        };
        self.send(Method::DELETE, path, &JSON, &body).await
    }

    /// Creates a config map in `default`, which must succeed, and returns it.
    pub(crate) async fn make(&self, name: &str, labels: Value) -> Value {
        self.post(MAPS, &map(name, labels)).await.ok(201)
    }

    /// Changes the data of a config map in `default` and returns it.
    pub(crate) async fn change(&self, name: &str) -> Value {
        let stamp = self.storage.current_revision().await.expect("it answers");
        let body = json!({"data": {"stamp": stamp.to_string()}});
        let path = format!("{MAPS}/{name}");
        self.patch(&path, "merge", &body).await.ok(200)
    }

    /// Deletes a config map in `default`.
    pub(crate) async fn remove(&self, name: &str) {
        let path = format!("{MAPS}/{name}");
        self.delete(&path, &Value::Null).await.ok(200);
    }

    /// Waits until the cache of config maps has all writes.
    pub(crate) async fn settle(&self) {
        self.get("/api/v1/configmaps").await.ok(200);
    }

    /// Opens a watch; `path` has the query without `watch=1`.
    pub(crate) async fn watch(&self, path: &str) -> Watching {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}watch=1");
        let mut wire = self.connect(Protocol::Http1).await;
        let get = request(Method::GET, &path, &[], full(""));
        let response = wire.open(get).await.expect("an answer");
        assert_eq!(response.status(), 200, "{path}");
        Watching::new(wire, response.into_body())
    }

    /// Returns the revision of storage.
    pub(crate) async fn revision(&self) -> u64 {
        let revision = self.storage.current_revision().await;
        revision.expect("it answers").get()
    }

    /// Writes to storage directly.
    pub(crate) async fn store(&self, key: &str, value: &str) -> ResourceVersion {
        let key = StorageKey::new(key).expect("a key");
        let (stored, _) = self.storage.inner().get(&key).await.expect("it answers");
        let put = Put {
            key,
            value: Bytes::copy_from_slice(value.as_bytes()),
            expect: stored.map_or(Expect::Absent, |s| Expect::At(s.mod_revision)),
            ttl: None,
        };
        match self.storage.inner().put(put).await.expect("it answers") {
            Outcome::Done(at) => at,
            Outcome::Refused(current) => panic!("{current:?}"),
        }
    }

    /// Moves a pod in `default` to another node, in storage: the server rejects such an update.
    pub(crate) async fn move_pod(&self, name: &str, node: &str) {
        let key = format!("/pods/default/{name}");
        let mut pod = self.stored(&key).await.expect("it is there");
        let stamp = self.revision().await.to_string();
        pod["metadata"]["annotations"] = json!({ "stamp": stamp });
        pod["spec"]["nodeName"] = node.into();
        self.store(&key, &pod.to_string()).await;
    }

    /// Deletes from storage directly.
    pub(crate) async fn unstore(&self, key: &str) -> ResourceVersion {
        let key = StorageKey::new(key).expect("a key");
        let (stored, _) = self.storage.inner().get(&key).await.expect("it answers");
        let at = stored.expect("it is there").mod_revision;
        match self.storage.inner().delete(&key, at).await {
            Ok(Outcome::Done(at)) => at,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the stored value at a key, as JSON.
    pub(crate) async fn stored(&self, key: &str) -> Option<Value> {
        let key = StorageKey::new(key).expect("a key");
        let (stored, _) = self.storage.inner().get(&key).await.expect("it answers");
        stored.map(|s| serde_json::from_slice(&s.value).expect("stored JSON"))
    }

    /// Compacts history up to `at`.
    pub(crate) async fn compact(&self, at: u64) {
        let at = ResourceVersion::new(at);
        self.storage.compact(at).await.expect("it compacts");
    }

    /// Waits until `condition` holds.
    pub(crate) async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
        let waiting = async {
            while !condition().await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        waited.unwrap_or_else(|_| panic!("in vain for: {what}"));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.drain();
        self.tasks.cancel();
        self.wire_tasks.cancel();
    }
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Returns a config map.
pub(crate) fn map(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels}, "data": {"of": name},
    })
}

/// Returns a pod on a node.
pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    })
}

/// Returns the version of an object or a list.
pub(crate) fn version(of: &Value) -> u64 {
    let version = of["metadata"]["resourceVersion"].as_str();
    let version = version.unwrap_or_else(|| panic!("no version: {of}"));
    version.parse().expect("a number")
}

/// Returns the names in a list, in order.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array();
    let items = items.unwrap_or_else(|| panic!("no list: {list}"));
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().expect("a name"))
        .collect()
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// Asserts the status code and returns the body.
    pub(crate) fn ok(&self, code: u16) -> Value {
        let body = self.json();
        assert_eq!(self.code, code, "{body}");
        body
    }

    /// Asserts a failure with this code and reason, a complete Status and matching headers; returns the Status.
    pub(crate) fn failure(&self, code: u16, reason: &str) -> Value {
        let status = self.json();
        assert_eq!(self.code, code, "{status}");
        is_failure(&status, code, reason);
        let retry = status["details"]["retryAfterSeconds"].as_u64();
        let header = self.headers.get("retry-after");
        let header = header.map(|value| value.to_str().expect("text").parse().expect("a number"));
        assert_eq!(header, retry.filter(|seconds| *seconds > 0), "{status}");
        status
    }
}

/// Asserts that `status` is a complete failure with this code and reason.
pub(crate) fn is_failure(status: &Value, code: u16, reason: &str) {
    assert_eq!(status["kind"], "Status", "{status}");
    assert_eq!(status["apiVersion"], "v1", "{status}");
    assert_eq!(status["status"], "Failure", "{status}");
    assert_eq!(status["code"], code, "{status}");
    assert_eq!(status["reason"], reason, "{status}");
    assert!(status["message"].is_string(), "{status}");
    assert!(status["metadata"].is_object(), "{status}");
}

/// Returns `reason field` of each cause of a Status.
pub(crate) fn causes(status: &Value) -> Vec<String> {
    let causes = status["details"]["causes"].as_array();
    let causes = causes.unwrap_or_else(|| panic!("no causes: {status}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let describe = |cause: &Value| format!("{} {}", text(&cause["reason"]), text(&cause["field"]));
    causes.iter().map(describe).collect()
}
