//! Helpers of the admission tests: requests, webhook configurations that are in effect when a helper returns, and
//! responses of webhooks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use crate::harness::{Protocol, Reply, Server, Webhook, WebhookRequest};

/// The collection that most tests write to.
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The path of webhook and policy configurations.
pub(crate) const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// A running server.
pub(crate) struct Cluster<'a>(pub(crate) &'a Server);

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    /// Asserts the status code and returns the body.
    pub(crate) fn ok(&self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.json());
        self.json()
    }

    /// Asserts a failure with this code and reason whose message contains `words`.
    pub(crate) fn refused(&self, code: u16, reason: &str, words: &str) -> Value {
        let status = self.ok(code);
        assert_eq!(status["kind"], "Status", "{status}");
        assert_eq!(
            status["reason"].as_str().unwrap_or_default(),
            reason,
            "{status}"
        );
        let message = status["message"].as_str().unwrap_or_default();
        assert!(
            message.contains(words),
            "{message:?} does not say {words:?}"
        );
        status
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let all = self.headers.get_all("warning").iter();
        all.map(|value| value.to_str().expect("text").to_owned())
            .collect()
    }
}

impl Cluster<'_> {
    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Response {
        let media = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut wire = self.0.plain(Protocol::Http1).await;
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let answer = wire
            .send(method, path, &[("content-type", media)], &body)
            .await;
        Response {
            code: answer.status.as_u16(),
            headers: answer.headers,
            body: answer.body,
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.send(Method::POST, path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Response {
        self.settle(path).await;
        self.send(Method::PUT, path, body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Response {
        self.settle(path).await;
        self.send(Method::PATCH, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Response {
        self.settle(path).await;
        self.send(Method::DELETE, path, &Value::Null).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send(Method::GET, path, &Value::Null).await
    }

    /// Waits until the cache is up to date, by a consistent read. An update of an object that is stale in the cache
    /// calls the webhooks again with the stored object, as upstream, so that the number of calls would vary.
    async fn settle(&self, path: &str) {
        self.get(path.split('?').next().unwrap_or(path)).await;
    }

    /// Creates a config map in `default`.
    pub(crate) async fn make(&self, name: &str) -> Response {
        self.post(MAPS, &map(name)).await
    }

    /// Creates a webhook configuration (`Mutating` or `Validating`), which is in effect for the next write.
    pub(crate) async fn configure(&self, kind: &str, name: &str, webhooks: &[Value]) {
        let plural = format!("{}webhookconfigurations", kind.to_lowercase());
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}WebhookConfiguration"),
            "metadata": {"name": name},
            "webhooks": webhooks,
        });
        self.post(&format!("{REGISTRATION}/{plural}"), &configuration)
            .await
            .ok(201);
    }
}

/// A config map.
pub(crate) fn map(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"},
    })
}

/// A pod.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

/// Returns a rule for version v1.
pub(crate) fn rule(operations: &[&str], group: &str, resource: &str) -> Value {
    json!({
        "operations": operations, "apiGroups": [group], "apiVersions": ["v1"],
        "resources": [resource],
    })
}

/// Returns a webhook at `path` with the members of `more`; by default it matches all writes of config maps.
pub(crate) fn hook(webhook: &Webhook, path: &str, more: Value) -> Value {
    let mut hook = json!({
        "name": format!("{}.example.com", path.trim_matches('/')),
        "clientConfig": webhook.client_config(path),
        "rules": [rule(&["CREATE", "UPDATE", "DELETE"], "", "configmaps")],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 10,
    });
    for (key, value) in more.as_object().expect("members") {
        hook[key] = value.clone();
    }
    hook
}

/// Returns the AdmissionReview response to `asked` with these members.
pub(crate) fn respond(call: &WebhookRequest, response: Value) -> Reply {
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": call.body["request"]["uid"], "allowed": true},
    });
    for (key, value) in response.as_object().expect("members") {
        review["response"][key] = value.clone();
    }
    Reply::json(&review)
}

pub(crate) fn allow(call: &WebhookRequest) -> Reply {
    respond(call, json!({}))
}

pub(crate) fn deny(call: &WebhookRequest, why: &str) -> Reply {
    respond(
        call,
        json!({"allowed": false, "status": {"message": why, "code": 403, "reason": "Forbidden"}}),
    )
}

/// Returns a response that allows the request, with a JSON patch.
pub(crate) fn change(call: &WebhookRequest, patch: &Value) -> Reply {
    let patch = STANDARD.encode(patch.to_string());
    respond(call, json!({"patch": patch, "patchType": "JSONPatch"}))
}

/// Returns the requests that a webhook received at `path`, except for those that waited for a configuration.
pub(crate) fn requests(webhook: &Webhook, path: &str) -> Vec<Value> {
    let at = |call: &WebhookRequest| {
        let name = call.body["request"]["name"].as_str().unwrap_or_default();
        call.path.split('?').next() == Some(path) && !name.starts_with("probe-")
    };
    let all = webhook.calls();
    let all = all.iter().filter(|call| at(call));
    all.map(|call| call.body["request"].clone()).collect()
}
