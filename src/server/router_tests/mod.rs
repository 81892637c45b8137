//! Tests of the router of `http` with the built-in resources and caches on in-memory storage.

mod authorization;
mod checklist;
mod memory;
mod monitor;
mod reads;
mod shards;
mod streams;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};

use crate::api::{StorageKey, UserInfo};
use crate::builtin::new_registry;
use crate::http::{HealthCheck, HttpConfig, router};
use crate::registry::CacherConfig;
use crate::storage::memory::Memory;
use crate::storage::{Expect, Outcome, Put, Storage as _};
use crate::tasks::Tasks;

/// A server without a socket.
struct Server {
    router: axum::Router,
    storage: Arc<Memory>,
    tasks: Tasks,
    config: HttpConfig,
}

/// A response that has been read.
#[derive(Debug)]
struct ReceivedResponse {
    code: u16,
    headers: axum::http::HeaderMap,
    body: Bytes,
}

impl ReceivedResponse {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Asserts that it is a well-formed failure of this code and reason; returns its message.
    fn failure(&self, code: u16, reason: &str) -> String {
        let status = self.json();
        assert_eq!(
            (self.code, &status["code"]),
            (code, &json!(code)),
            "{status}"
        );
        assert_eq!(
            (&status["kind"], &status["status"]),
            (&json!("Status"), &json!("Failure"))
        );
        assert_eq!(status["reason"], reason, "{status}");
        assert_eq!(self.headers["content-type"], "application/json");
        assert!(self.headers.contains_key("audit-id"));
        let retry = &status["details"]["retryAfterSeconds"];
        let header = self
            .headers
            .get("retry-after")
            .map(|v| v.to_str().unwrap().to_owned());
        assert_eq!(header, retry.as_u64().map(|s| s.to_string()));
        status["message"].as_str().unwrap().to_owned()
    }
}

impl Server {
    async fn start(config: HttpConfig) -> Self {
        let tasks = Tasks::new();
        let storage = Memory::new(Duration::from_secs(300)).unwrap();
        let registry = new_registry(
            storage.clone(),
            &tasks,
            CacherConfig::default(),
            config.metrics.clone(),
        );
        registry.bootstrap().await.unwrap();
        let router = router(registry, config.clone());
        Self {
            router,
            storage,
            tasks,
            config,
        }
    }

    /// Writes a value directly to storage.
    async fn put_raw(&self, key: &str, value: &'static str) {
        let put = Put {
            key: StorageKey::new(key).unwrap(),
            value: value.into(),
            expect: Expect::Absent,
            ttl: None,
        };
        let outcome = self.storage.put(put).await;
        assert!(matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
    }

    async fn new() -> Self {
        Self::start(HttpConfig::default()).await
    }

    /// Sends a request; returns when the response head is there.
    async fn send(&self, request: Request<Body>) -> Response {
        let service = TowerToHyperService::new(self.router.clone());
        service
            .call(request)
            .await
            .unwrap_or_else(|never| match never {})
    }

    /// Sends `METHOD uri` with headers as `name: value` and a body.
    async fn call(&self, line: &str, headers: &[&str], body: impl Into<Body>) -> ReceivedResponse {
        let response = self.send(request(line, headers, body)).await;
        let (parts, body) = response.into_parts();
        ReceivedResponse {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    async fn get(&self, uri: &str) -> ReceivedResponse {
        self.call(&format!("GET {uri}"), &[], "").await
    }

    async fn post(&self, uri: &str, body: &Value) -> ReceivedResponse {
        let headers = ["content-type: application/json"];
        self.call(&format!("POST {uri}"), &headers, body.to_string())
            .await
    }

    /// Creates a config map in `default`, which must succeed.
    async fn put_config_map(&self, name: &str, text: &str) -> Value {
        let received = self.post(CONFIG_MAPS, &config_map(name, text)).await;
        assert_eq!(received.code, 201, "{received:?}");
        received.json()
    }

    async fn stop(self) {
        self.config.connections.cancel();
        self.tasks.drain(Duration::from_secs(5)).await.unwrap();
    }
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": name}}, "data": {"text": text},
    })
}

fn request(line: &str, headers: &[&str], body: impl Into<Body>) -> Request<Body> {
    let (method, uri) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(uri);
    for header in headers {
        let (name, value) = header.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    request.body(body.into()).unwrap()
}

const TABLE: &str = "accept: application/json;as=Table;v=v1;g=meta.k8s.io";

/// Returns the next `count` frames of a watch, or more if they arrive in one write.
async fn frames(body: &mut Body, count: usize) -> Vec<Value> {
    let mut text = String::new();
    while text.lines().count() < count {
        let frame = tokio::time::timeout(Duration::from_secs(20), body.frame()).await;
        let frame = frame.unwrap_or_else(|_| panic!("nothing follows {text}"));
        let data = frame.expect("it goes on").unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&data).unwrap());
    }
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the first `count` frames of a new watch.
async fn watched(server: &Server, uri: &str, count: usize) -> Vec<Value> {
    let response = server.send(request(&format!("GET {uri}"), &[], "")).await;
    assert_eq!(response.status(), StatusCode::OK);
    frames(&mut response.into_body(), count).await
}
