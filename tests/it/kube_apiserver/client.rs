//! A client of either server that sends and receives JSON as it is, without types.

use std::path::Path;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::time::timeout;

use crate::harness::PATIENCE;

/// A client with the credentials of a kubeconfig.
#[derive(Clone)]
pub(super) struct JsonClient(Client);

/// A response.
#[derive(Debug)]
pub(super) struct JsonResponse {
    pub(super) code: u16,
    pub(super) body: Value,
}

impl JsonResponse {
    /// Returns the body of a successful response.
    pub(super) fn ok(self) -> Value {
        assert!(
            (200..300).contains(&self.code),
            "{}: {}",
            self.code,
            self.body
        );
        self.body
    }
}

impl JsonClient {
    /// Creates the client of a kubeconfig.
    pub(super) async fn new(kubeconfig: &Path) -> Self {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        Self(Client::try_from(config.expect("a configuration")).expect("a client"))
    }

    /// Sends a request.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> JsonResponse {
        let content = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let bytes = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Accept", "application/json")
            .header("Content-Type", content)
            .body(Body::from(bytes.into_bytes()))
            .expect("a request");
        let response = self.0.send(request).await.expect("a response");
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body");
        let body = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        JsonResponse { code, body }
    }

    pub(super) async fn get(&self, path: &str) -> JsonResponse {
        self.call(Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, object: &Value) -> JsonResponse {
        self.call(Method::POST, path, Some(object)).await
    }

    pub(super) async fn put(&self, path: &str, object: &Value) -> JsonResponse {
        self.call(Method::PUT, path, Some(object)).await
    }

    pub(super) async fn delete(&self, path: &str) -> JsonResponse {
        self.call(Method::DELETE, path, None).await
    }

    /// Opens a watch of `path` after `version`.
    pub(super) async fn watch(&self, path: &str, version: &str) -> JsonWatch {
        let path = format!("{path}?watch=1&resourceVersion={version}");
        let request = Request::builder().uri(path).body(Body::empty());
        let response = self.0.send(request.expect("a request")).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), 200);
        JsonWatch {
            body: response.into_body(),
            received: Vec::new(),
        }
    }
}

/// An open watch.
pub(super) struct JsonWatch {
    body: Body,
    received: Vec<u8>,
}

impl JsonWatch {
    /// Returns the next event.
    pub(super) async fn next(&mut self) -> Value {
        let event = async {
            loop {
                if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = self.received.drain(..=end).collect();
                    return serde_json::from_slice(&line).expect("an event is JSON");
                }
                let frame = self.body.frame().await.expect("the watch is open");
                let frame = frame.expect("the watch is open").into_data();
                self.received.extend(frame.unwrap_or_default());
            }
        };
        timeout(PATIENCE, event).await.expect("an event")
    }

    /// Returns the next `count` events.
    pub(super) async fn take(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(self.next().await);
        }
        events
    }
}
