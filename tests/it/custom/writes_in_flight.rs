//! Tests of writes that are in flight while their definition changes: an admission webhook delays them until the new
//! definition is in effect. The result must be as if they had been sent after the change.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::webhooks::{DEFINITION, NEWER, converted_foos, converter, sized};
use super::*;
use crate::harness::{Reply, Response, Webhook, WebhookRequest};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// An admission webhook that delays requests for objects whose names begin with `held`.
struct Holder {
    webhook: Webhook,
    released: watch::Sender<bool>,
}

impl Holder {
    /// Starts a webhook that is called for every foo.
    async fn start(world: &mut World) -> Self {
        let released = watch::Sender::new(false);
        let release = released.subscribe();
        let webhook = Webhook::start(move |call| {
            let mut release = release.clone();
            Box::pin(async move {
                let request = &call.body["request"];
                if request["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with("held"))
                {
                    release
                        .wait_for(|now| *now)
                        .await
                        .expect("it ends with the test");
                }
                Reply::json(&json!({
                    "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                    "response": {"uid": request["uid"], "allowed": true},
                }))
            })
        })
        .await;
        let configuration = json!({
            "kind": "MutatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
            "metadata": {"name": "holder"},
            "webhooks": [{"name": "holder.example.com", "clientConfig": webhook.client_config("/"),
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "matchPolicy": "Exact",
                "timeoutSeconds": 30,
                "rules": [{"apiGroups": ["example.com"], "apiVersions": ["*"],
                    "resources": ["foos"], "operations": ["CREATE", "UPDATE"]}]}],
        });
        let (code, body) = world.post(CONFIGURATIONS, &configuration).await;
        assert_eq!(code, 201, "{body}");
        Self { webhook, released }
    }

    /// Waits until this many writes are delayed.
    async fn holds(&self, count: usize) {
        let names = || -> Vec<String> {
            let calls = self.webhook.calls().into_iter();
            let name =
                |call: WebhookRequest| call.body["request"]["name"].as_str().map(str::to_owned);
            calls
                .filter_map(name)
                .filter(|n| n.starts_with("held"))
                .collect()
        };
        let held = async {
            while names().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let held = timeout(PATIENCE, held).await;
        held.unwrap_or_else(|_| panic!("the webhook is asked about {:?} only", names()));
    }

    fn release(&self) {
        self.released.send_replace(true);
    }
}

/// Returns a future that sends a request over its own connection.
pub(super) async fn sending<'b>(
    world: &World,
    method: Method,
    path: &'b str,
    media: &'b str,
    body: &'b Value,
) -> impl Future<Output = Response> + use<'b> {
    let mut wire = world.server.plain(Protocol::Http1).await;
    async move {
        let headers = [("content-type", media)];
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        wire.send(method, path, &headers, &body).await
    }
}

/// Returns a definition of foos whose spec has these properties.
fn foos_with(properties: Value) -> Value {
    let mut definition = foos();
    let version = &mut definition["spec"]["versions"][0];
    version["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({"type": "object", "properties": properties});
    version["selectableFields"].take();
    definition
}

/// A field that is added to the schema before the object is stored is stored, without a warning that it is unknown. (An
/// apply with an undeclared field is rejected immediately.)
pub(super) async fn write_in_flight_stores_a_field_that_is_added_to_its_schema(world: &mut World) {
    let text = json!({"type": "string"});
    world.define(&foos_with(json!({"color": text}))).await;
    let mut before = Vec::new();
    for name in ["held-put", "held-patch"] {
        let (code, made) = world.post(FOOS, &foo(name, json!({"color": "red"}))).await;
        assert_eq!(code, 201, "{made}");
        before.push(made);
    }
    let holder = Holder::start(world).await;
    let spec = json!({"color": "red", "extra": "new"});
    // Under the old definition the replacement would change nothing.
    let mut replacement = before.remove(0);
    replacement["spec"] = spec.clone();
    let of = |name: &str| format!("{FOOS}/{name}");
    let (put, patch) = (of("held-put"), of("held-patch"));
    let (json_type, merge_type) = ("application/json", "application/merge-patch+json");
    let created = foo("held-new", spec.clone());
    let patched = json!({"spec": {"extra": "new"}});
    let writes = futures_util::future::join3(
        sending(world, Method::POST, FOOS, json_type, &created).await,
        sending(world, Method::PUT, &put, json_type, &replacement).await,
        sending(world, Method::PATCH, &patch, merge_type, &patched).await,
    );
    let defining = async {
        holder.holds(3).await;
        let newer = foos_with(json!({"color": text, "extra": text}));
        let newer = json!({"spec": {"versions": newer["spec"]["versions"]}});
        let (code, body) = world.patch(DEFINITION, "merge", &newer).await;
        assert_eq!(code, 200, "{body}");
        for number in 0.. {
            let probe = foo(&format!("probe-{number}"), spec.clone());
            let (code, made) = world.post(FOOS, &probe).await;
            assert_eq!(code, 201, "{made}");
            if made["spec"] == spec {
                break;
            }
        }
        holder.release();
    };
    let (answers, ()) = tokio::join!(writes, defining);
    let answers = [answers.0, answers.1, answers.2];
    let names = ["held-new", "held-put", "held-patch"];
    for (name, answer) in names.into_iter().zip(answers) {
        let code = if name == "held-new" { 201 } else { 200 };
        let body = answer.json();
        assert_eq!(
            (answer.status.as_u16(), &body["spec"]),
            (code, &spec),
            "{name}: {body}"
        );
        let warning = answer.headers.get("warning");
        assert_eq!(warning, None, "{name}: the field is known");
        let (_, stored) = world.get(&of(name)).await;
        assert_eq!(stored["spec"], spec, "{name}");
    }
}

/// A write is stored in the storage version at the time when it is stored.
pub(super) async fn write_in_flight_is_stored_in_the_new_storage_version(world: &mut World) {
    let converter = converter().await;
    let config = converter.client_config("/");
    world.define(&converted_foos("v1", config.clone())).await;
    let holder = Holder::start(world).await;
    let (older, newer) = (sized("v1", "held-1", 1), sized("v2", "held-2", 2));
    let json_type = "application/json";
    let writes = futures_util::future::join(
        sending(world, Method::POST, FOOS, json_type, &older).await,
        sending(world, Method::POST, NEWER, json_type, &newer).await,
    );
    let defining = async {
        holder.holds(2).await;
        let versions = &converted_foos("v2", config)["spec"]["versions"];
        let patch = json!({"spec": {"versions": versions}});
        let (code, body) = world.patch(DEFINITION, "merge", &patch).await;
        assert_eq!(code, 200, "{body}");
        for number in 0.. {
            let calls = converter.calls().len();
            let probe = sized("v2", &format!("probe-{number}"), 1);
            let (code, made) = world.post(NEWER, &probe).await;
            assert_eq!(code, 201, "{made}");
            // No request converts an object that is stored in the requested version.
            if converter.calls().len() == calls {
                break;
            }
        }
        holder.release();
    };
    let (answers, ()) = tokio::join!(writes, defining);
    for answer in [answers.0, answers.1] {
        assert_eq!(answer.status.as_u16(), 201, "{}", answer.json());
    }
    drop(converter);
    for (name, size) in [("held-1", 1), ("held-2", 2)] {
        let (code, body) = world.get(&format!("{NEWER}/{name}")).await;
        assert_eq!(
            code, 200,
            "it is stored as v2, which needs no webhook: {body}"
        );
        assert_eq!(body["spec"]["dimensions"]["size"], size, "{body}");
    }
}

/// A create that was admitted before its definition was deleted does not leave an object behind.
pub(super) async fn create_in_flight_does_not_outlive_its_definition(world: &mut World) {
    world.define(&foos()).await;
    let holder = Holder::start(world).await;
    let body = foo("held", json!({}));
    let creating = sending(world, Method::POST, FOOS, "application/json", &body).await;
    let deleting = async {
        holder.holds(1).await;
        let (code, body) = world.delete(DEFINITION).await;
        assert_eq!(code, 200, "{body}");
        world.until(DEFINITION, |code, _| code == 404).await;
        world.until(FOOS, |code, _| code == 404).await;
        holder.release();
    };
    let (answer, ()) = tokio::join!(creating, deleting);
    assert_eq!(answer.status.as_u16(), 404, "{}", answer.json());
    world.define(&foos()).await;
    let (code, list) = world.get(FOOS).await;
    assert_eq!((code, &list["items"]), (200, &json!([])), "{list}");
}

/// The same while the deletion of the definition waits for the deletion of its objects.
pub(super) async fn create_in_flight_fails_when_its_definition_is_deleted(world: &mut World) {
    world.define(&foos()).await;
    let mut keeps = foo("keeps", json!({}));
    keeps["metadata"]["finalizers"] = json!(["example.com/keeps"]);
    assert_eq!(world.post(FOOS, &keeps).await.0, 201);
    let holder = Holder::start(world).await;
    let body = foo("held", json!({}));
    let creating = sending(world, Method::POST, FOOS, "application/json", &body).await;
    let deleting = async {
        holder.holds(1).await;
        assert_eq!(world.delete(DEFINITION).await.0, 200);
        let is_refused = |offered: &Value| !offered.to_string().contains(r#""create""#);
        world
            .until("/apis/example.com/v1", |_, offered| is_refused(offered))
            .await;
        holder.release();
    };
    let (answer, ()) = tokio::join!(creating, deleting);
    let refused = answer.json();
    assert_eq!(answer.status.as_u16(), 405, "{refused}");
    let received = "create not allowed while custom resource definition is terminating";
    assert!(refused.to_string().contains(received), "{refused}");
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(
        world
            .patch(&format!("{FOOS}/keeps"), "merge", &free)
            .await
            .0,
        200
    );
    world.until(DEFINITION, |code, _| code == 404).await;
}

/// A definition is in effect for the next request of the client that has received the response to its write.
pub(super) async fn definition_applies_to_requests_after_its_response(world: &mut World) {
    let text = json!({"type": "string"});
    let of = |field: &str| foos_with(json!({ field: text }));
    let (code, body) = world.post(DEFINITIONS, &of("f0")).await;
    assert_eq!(code, 201, "{body}");
    for number in 0..20 {
        let spec = json!({format!("f{number}"): "x"});
        let (code, made) = world
            .post(FOOS, &foo(&format!("a{number}"), spec.clone()))
            .await;
        assert_eq!((code, &made["spec"]), (201, &spec), "{made}");
        let next = of(&format!("f{}", number + 1));
        let patch = json!([{"op": "replace", "path": "/spec/versions",
            "value": next["spec"]["versions"]}]);
        let (code, body) = world.patch(DEFINITION, "json", &patch).await;
        assert_eq!(code, 200, "{body}");
    }
    assert_eq!(world.delete(DEFINITION).await.0, 200);
    let (code, body) = world.post(FOOS, &foo("late", json!({}))).await;
    assert!(matches!(code, 404 | 405), "{body}");
}
