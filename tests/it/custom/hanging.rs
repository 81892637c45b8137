//! Tests of conversion webhooks that accept a call and never respond: deletions that need no conversion are not
//! delayed, and those that need one delay nothing else.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::webhooks::{DEFINITION, NEWER, answer, converted_foos, converter, sized};
use super::writes_in_flight::sending;
use super::*;
use crate::harness::{Reply, Webhook};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The timeout of a conversion call. An operation that takes less did not wait for one.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// A conversion webhook that responds until `hang` is called.
struct Hanging {
    webhook: Webhook,
    hangs: watch::Sender<bool>,
}

impl Hanging {
    async fn start() -> Self {
        let hangs = watch::Sender::new(false);
        let state = hangs.subscribe();
        let webhook = Webhook::start(move |call| {
            let hangs = *state.borrow();
            Box::pin(async move {
                match hangs {
                    true => std::future::pending().await,
                    false => Reply::json(&answer(&call)),
                }
            })
        })
        .await;
        Self { webhook, hangs }
    }

    /// Defines foos with the storage version v1.
    async fn define(&self, world: &mut World) {
        let definition = converted_foos("v1", self.webhook.client_config("/"));
        world.define(&definition).await;
    }

    /// Changes the storage version to v2.
    async fn store_as_v2(&self, world: &mut World) {
        let definition = converted_foos("v2", self.webhook.client_config("/"));
        let patch = json!({"spec": {"versions": definition["spec"]["versions"]}});
        let (code, body) = world.patch(DEFINITION, "merge", &patch).await;
        assert_eq!(code, 200, "{body}");
        for number in 0.. {
            let calls = self.webhook.calls().len();
            let probe = sized("v2", &format!("probe-{number}"), 1);
            let (code, made) = world.post(NEWER, &probe).await;
            assert_eq!(code, 201, "{made}");
            if self.webhook.calls().len() == calls {
                break;
            }
        }
    }

    /// Makes the webhook stop responding.
    fn hang(&self) -> usize {
        self.hangs.send_replace(true);
        self.webhook.calls().len()
    }
}

/// The objects are stored in another version than the preferred one of discovery.
pub(super) async fn namespace_is_deleted_while_its_webhook_hangs(world: &mut World) {
    let hanging = Hanging::start().await;
    hanging.define(world).await;
    let (_, group) = world.get("/apis/example.com").await;
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let namespace = json!({"metadata": {"name": "doomed"}});
    assert_eq!(world.post("/api/v1/namespaces", &namespace).await.0, 201);
    let foos = FOOS.replace("default", "doomed");
    let (code, made) = world.post(&foos, &sized("v1", "a", 1)).await;
    assert_eq!(code, 201, "{made}");
    let calls = hanging.hang();
    assert_eq!(world.delete("/api/v1/namespaces/doomed").await.0, 200);
    let gone = |code, _: &Value| code == 404;
    world.until("/api/v1/namespaces/doomed", gone).await;
    assert_eq!(world.get(&format!("{foos}/a")).await.0, 404);
    assert_eq!(
        hanging.webhook.calls().len(),
        calls,
        "there is nothing to convert"
    );
}

/// Objects that must be converted before their deletion delay only the deletion of their own definition.
pub(super) async fn definition_is_deleted_while_the_webhook_of_another_hangs(world: &mut World) {
    let hanging = Hanging::start().await;
    hanging.define(world).await;
    assert_eq!(world.post(FOOS, &sized("v1", "old", 1)).await.0, 201);
    hanging.store_as_v2(world).await;
    let bars = foos()
        .to_string()
        .replace("foo", "bar")
        .replace("Foo", "Bar");
    let bars: Value = serde_json::from_str(&bars.replace(r#""fo""#, r#""ba""#)).unwrap();
    world.define(&bars).await;
    let mut bar = foo("a", json!({}));
    bar["kind"] = "Bar".into();
    let (code, made) = world.post(&FOOS.replace("foos", "bars"), &bar).await;
    assert_eq!(code, 201, "{made}");
    let calls = hanging.hang();
    let began = Instant::now();
    assert_eq!(world.delete(DEFINITION).await.0, 200);
    while hanging.webhook.calls().len() == calls {
        assert!(began.elapsed() < PATIENCE, "its webhook is asked");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let bars = DEFINITION.replace("foos", "bars");
    assert_eq!(world.delete(&bars).await.0, 200);
    world.until(&bars, |code, _| code == 404).await;
    let waited = began.elapsed();
    assert!(
        waited < REVIEW_TIMEOUT,
        "it has not waited for the other: {waited:?}"
    );
    assert_eq!(world.get(DEFINITION).await.0, 200, "which is not through");
    hanging.hangs.send_replace(false);
    hanging.webhook.close_connections();
    world.until(DEFINITION, |code, _| code == 404).await;
}

/// Garbage collection does not need the converted owner, and an owner that waits for a conversion delays no other
/// owner.
pub(super) async fn garbage_collection_does_not_wait_for_a_webhook(world: &mut World) {
    let hanging = Hanging::start().await;
    hanging.define(world).await;
    let (code, owner) = world.post(FOOS, &sized("v1", "owner", 1)).await;
    assert_eq!(code, 201, "{owner}");
    hanging.store_as_v2(world).await;
    let calls = hanging.hang();
    let owned = |name: &str, uid: &Value| {
        json!({"metadata": {"name": name, "ownerReferences": [{"apiVersion": "example.com/v2",
            "kind": "Foo", "name": "owner", "uid": uid}]}})
    };
    let kept = owned("kept", &owner["metadata"]["uid"]);
    let stray = owned("stray", &"of-another-one".into());
    let waits = json!({"metadata": {"name": "waits"}});
    for map in [kept, stray, waits] {
        assert_eq!(world.post(MAPS, &map).await.0, 201);
    }
    let gone = |code, _: &Value| code == 404;
    world.until(&format!("{MAPS}/stray"), gone).await;
    let path = format!("{MAPS}/waits");
    let foreground = format!("{path}?propagationPolicy=Foreground");
    assert_eq!(world.delete(&foreground).await.0, 200);
    world.until(&path, gone).await;
    assert_eq!(world.get(&format!("{MAPS}/kept")).await.0, 200);
    assert_eq!(
        hanging.webhook.calls().len(),
        calls,
        "there is nothing to convert"
    );
}

/// Requests that wait for a webhook use the webhook that replaces it.
pub(super) async fn a_replaced_webhook_delays_no_request(world: &mut World) {
    let hanging = Hanging::start().await;
    hanging.define(world).await;
    assert_eq!(world.post(FOOS, &sized("v1", "a", 1)).await.0, 201);
    let calls = hanging.hang();
    let (path, body) = (format!("{NEWER}/a"), sized("v2", "b", 2));
    let getting = sending(world, Method::GET, &path, "application/json", &Value::Null).await;
    let creating = sending(world, Method::POST, NEWER, "application/json", &body).await;
    let began = Instant::now();
    let replacing = async {
        while hanging.webhook.calls().len() < calls + 2 {
            assert!(began.elapsed() < PATIENCE, "both wait for it");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let converter = converter().await;
        let definition = converted_foos("v1", converter.client_config("/"));
        let patch = json!({"spec": {"conversion": definition["spec"]["conversion"]}});
        let (code, body) = world.patch(DEFINITION, "merge", &patch).await;
        assert_eq!(code, 200, "{body}");
        converter
    };
    let (got, created, _converter) = tokio::join!(getting, creating, replacing);
    let waited = began.elapsed();
    assert!(
        waited < REVIEW_TIMEOUT,
        "no request waits for the old one: {waited:?}"
    );
    for (answer, code, size) in [(got, 200, 1), (created, 201, 2)] {
        let object = answer.json();
        assert_eq!(answer.status.as_u16(), code, "{object}");
        assert_eq!(object["spec"]["dimensions"]["size"], size, "{object}");
    }
}
