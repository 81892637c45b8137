//! A server without sockets, and the target that sends built-in objects to it.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower_service::Service as _;
use watchet_builtin::new_registry;
use watchet_cacher::CacherConfig;
use watchet_http::{HttpConfig, router};
use watchet_storage::memory::Memory;
use watchet_tasks::Tasks;

use super::json_parts;

/// The number of inputs after which a new server is started, so that what they left behind does not accumulate.
const INPUTS_MAX: u32 = 2000;

/// The media types in which objects are read.
const FORMS: [&str; 5] = [
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
    "application/json",
];

/// A server with its runtime.
pub(super) struct Server {
    runtime: tokio::runtime::Runtime,
    router: axum::Router,
    resources: Vec<(String, String, String)>,
    tasks: Tasks,
    inputs: Cell<u32>,
}

/// A response that was read.
#[derive(Debug)]
pub(super) struct ReceivedResponse {
    pub(super) code: u16,
    pub(super) body: Vec<u8>,
}

impl ReceivedResponse {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Returns a runtime of this thread.
pub(super) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_all()
        .build()
        .expect("the process may have more files")
}

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

/// Runs `use_server` with the server of this thread.
pub(super) fn with_server(use_server: impl FnOnce(&Server)) {
    SERVER.with_borrow_mut(|server| {
        // A server that panicked is not used again: it is put back only after it was used.
        let current = server
            .take()
            .filter(|server| server.inputs.get() < INPUTS_MAX);
        let current = current.unwrap_or_else(Server::start);
        current.inputs.set(current.inputs.get() + 1);
        use_server(&current);
        *server = Some(current);
    });
}

impl Server {
    fn start() -> Self {
        let runtime = runtime();
        let tasks = Tasks::new();
        let (router, resources) = runtime.block_on(async {
            let storage = Memory::new(Duration::ZERO).expect("memory can be allocated");
            let config = HttpConfig::default();
            let registry = new_registry(
                storage,
                &tasks,
                CacherConfig::default(),
                config.metrics.clone(),
            );
            registry.bootstrap().await.expect("memory can be written");
            let resources = registry.resources().into_iter().map(|resource| {
                let version = resource.api_version();
                let root = match resource.group.is_empty() {
                    true => format!("/api/{version}"),
                    false => format!("/apis/{version}"),
                };
                let path = match resource.namespaced {
                    true => format!("{root}/namespaces/default/{}", resource.plural),
                    false => format!("{root}/{}", resource.plural),
                };
                (version, resource.kind.clone(), path)
            });
            let resources = resources.collect();
            (router(registry, config), resources)
        });
        Self {
            runtime,
            router,
            resources,
            tasks,
            inputs: Cell::new(0),
        }
    }

    /// Sends a request and reads the response. No request may fail because of the server.
    pub(super) fn call(
        &self,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> ReceivedResponse {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let Ok(request) = request.body(Body::from(body)) else {
            return ReceivedResponse {
                code: 400,
                body: Vec::new(),
            };
        };
        let received = self.runtime.block_on(async {
            let response = self.router.clone().call(request).await;
            let (parts, body) = response.unwrap_or_else(|never| match never {}).into_parts();
            let body = body.collect().await.expect("the body is complete");
            ReceivedResponse {
                code: parts.status.as_u16(),
                body: body.to_bytes().into(),
            }
        });
        let is_served = received.code < 500 || matches!(received.code, 501 | 503 | 504);
        assert!(
            is_served,
            "{method} {uri}: {}",
            String::from_utf8_lossy(&received.body)
        );
        received
    }

    /// Sends a JSON body.
    pub(super) fn send(&self, method: &str, uri: &str, body: &Value) -> ReceivedResponse {
        let content_type = [("content-type", "application/json")];
        self.call(method, uri, &content_type, body.to_string().into_bytes())
    }

    /// Reads an object or a list in each form.
    pub(super) fn read(&self, uri: &str) {
        for form in FORMS {
            self.call("GET", uri, &[("accept", form)], Vec::new());
        }
    }

    /// Patches an object by the second part of an input, in each way that fits it.
    pub(super) fn patch(&self, uri: &str, patch: &Value) {
        let types: &[&str] = match patch {
            Value::Array(_) => &["application/json-patch+json"],
            _ => &[
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ],
        };
        for content_type in types {
            let uri = format!("{uri}?fieldManager=fuzz&force=true");
            let uri = if content_type.contains("apply") {
                &uri
            } else {
                uri.split('?').next().unwrap_or(&uri)
            };
            self.call(
                "PATCH",
                uri,
                &[("content-type", content_type)],
                patch.to_string().into_bytes(),
            );
        }
    }

    /// Deletes an object, also one that has finalizers.
    pub(super) fn delete(&self, uri: &str) {
        let now = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        self.send("DELETE", uri, &now);
        let freed = json!({"metadata": {"finalizers": null}})
            .to_string()
            .into_bytes();
        self.call(
            "PATCH",
            uri,
            &[("content-type", "application/merge-patch+json")],
            freed,
        );
    }

    /// Lets the tasks of the server run.
    pub(super) fn pause(&self) {
        self.runtime
            .block_on(tokio::time::sleep(Duration::from_millis(1)));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

/// Asserts that an update that repeats an object has changed nothing.
pub(super) fn assert_unchanged(before: &Value, after: &Value) {
    let difference = json_patch::diff(before, after);
    assert!(
        difference.is_empty(),
        "an update without a change made these changes: {difference}"
    );
}

/// Escapes a name as a segment of a path.
pub(super) fn escaped(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The kinds whose objects change how other objects are treated, which would make the result depend on earlier inputs.
const EXCLUDED: [&str; 3] = ["CustomResourceDefinition", "Namespace", "APIService"];

/// The first part is an object of a built-in kind, the second a patch of it. Whatever is created can be read in each form, and
/// an update that repeats it changes nothing: the defaults that a create sets are complete.
pub(super) fn objects(input: &[u8]) {
    let Some([object, patch]) = json_parts::<2>(input) else {
        return;
    };
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if EXCLUDED.contains(&kind) {
        return;
    }
    with_server(|server| {
        let mut resources = server.resources.iter();
        let found = resources
            .find(|(of_version, of_kind, _)| (&**of_version, &**of_kind) == (version, kind));
        let Some((_, _, path)) = found else {
            return;
        };
        let created = server.send("POST", path, &object);
        if created.code != 201 {
            return;
        }
        let created = created.json();
        let Some(name) = created["metadata"]["name"].as_str() else {
            return;
        };
        let uri = format!("{path}/{}", escaped(name));
        let got = server.call("GET", &uri, &[], Vec::new());
        if got.code != 200 {
            return;
        }
        let updated = server.send("PUT", &uri, &got.json());
        if updated.code == 200 {
            assert_unchanged(&got.json(), &updated.json());
        }
        server.read(&uri);
        server.read(path);
        if !patch.is_null() {
            server.patch(&uri, &patch);
            server.read(&uri);
        }
        server.delete(&uri);
    });
}
