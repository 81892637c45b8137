//! Tests of managed fields of custom resources that a webhook converts: each entry has the field names of its version,
//! and objects are compared in that version.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::webhooks::{DEFINITION, NEWER, answer, converted_foos, converter, sized};
use super::*;
use crate::harness::{Reply, Webhook};

impl World {
    /// Applies a foo named `a` in `version` as `manager`; `how` is appended to the query.
    async fn apply(
        &mut self,
        version: &str,
        manager: &str,
        how: &str,
        spec: Value,
    ) -> (u16, Value) {
        let mut config = foo("a", spec);
        config["apiVersion"] = format!("example.com/{version}").into();
        let path = path(version, &format!("?fieldManager={manager}{how}"));
        let media = "application/apply-patch+yaml";
        self.send(Method::PATCH, &path, media, &config).await
    }
}

/// Returns the path of the foo `a` in a version.
fn path(version: &str, query: &str) -> String {
    let collection = if version == "v1" { FOOS } else { NEWER };
    format!("{collection}/a{query}")
}

/// Returns the manager, the version and the fields of the spec of each entry, in order.
fn managers(object: &Value) -> Vec<(String, String, Value)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = object["metadata"]["managedFields"].as_array();
    let of_each = entries.into_iter().flatten().map(|entry| {
        let fields = entry["fieldsV1"]["f:spec"].clone();
        (text(&entry["manager"]), text(&entry["apiVersion"]), fields)
    });
    let mut all: Vec<_> = of_each.collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn manager(name: &str, version: &str, fields: Value) -> (String, String, Value) {
    (name.to_owned(), format!("example.com/{version}"), fields)
}

/// Entries of another version than the request's were compared with the unconverted object: the value of another
/// manager was overwritten without a conflict, and its entry still had the field.
pub(super) async fn fields_are_compared_in_the_version_of_each_manager(world: &mut World) {
    let webhook = converter().await;
    let definition = converted_foos("v1", webhook.client_config("/"));
    world.define(&definition).await;
    let older = json!({"size": 1, "color": "red"});
    let newer = |size: i64| json!({"dimensions": {"size": size}});
    let (code, body) = world.apply("v1", "a", "", older).await;
    assert_eq!(code, 201, "{body}");
    // The same value is no conflict, even if the field has another name.
    let (code, body) = world.apply("v2", "b", "", newer(1)).await;
    assert_eq!(code, 200, "{body}");
    let both = [
        manager("a", "v1", json!({"f:color": {}, "f:size": {}})),
        manager("b", "v2", json!({"f:dimensions": {"f:size": {}}})),
    ];
    assert_eq!(managers(&body), both);
    // Another value is a conflict, reported with the field name of the other manager's version.
    let (code, body) = world.apply("v2", "b", "", newer(2)).await;
    assert_eq!((code, &body["reason"]), (409, &json!("Conflict")), "{body}");
    let message = r#"Apply failed with 1 conflict: conflict with "a": .spec.size"#;
    assert_eq!(body["message"], message);
    assert_eq!(body["details"]["causes"][0]["field"], ".spec.size");
    let (code, body) = world.apply("v2", "b", "&force=true", newer(2)).await;
    assert_eq!(code, 200, "{body}");
    let forced = [
        manager("a", "v1", json!({"f:color": {}})),
        manager("b", "v2", json!({"f:dimensions": {"f:size": {}}})),
    ];
    assert_eq!(managers(&body), forced);
    // An update takes over only the fields that it changes.
    let patch = json!({"spec": {"color": "blue"}});
    let (code, body) = world
        .patch(&path("v2", "?fieldManager=c"), "merge", &patch)
        .await;
    assert_eq!(code, 200, "{body}");
    let patch = json!({"spec": {"size": 3}});
    let (code, body) = world
        .patch(&path("v1", "?fieldManager=d"), "merge", &patch)
        .await;
    assert_eq!(code, 200, "{body}");
    let updated = [
        manager("c", "v2", json!({"f:color": {}})),
        manager("d", "v1", json!({"f:size": {}})),
    ];
    assert_eq!(managers(&body), updated);
    // A write without changes calls no webhook and stores nothing.
    let (code, same) = world
        .patch(&path("v1", "?fieldManager=e"), "merge", &patch)
        .await;
    assert_eq!((code, same), (200, body));
}

pub(super) async fn a_field_released_in_another_version_is_removed(world: &mut World) {
    let webhook = converter().await;
    let definition = converted_foos("v1", webhook.client_config("/"));
    world.define(&definition).await;
    let all = json!({"size": 1, "color": "red"});
    assert_eq!(world.apply("v1", "a", "", all.clone()).await.0, 201);
    // The manager applied in v1 before and applies in v2 now.
    let (code, body) = world.apply("v2", "a", "", json!({"color": "red"})).await;
    assert_eq!(code, 200, "{body}");
    assert_eq!(body["spec"], json!({"color": "red"}));
    let left = [manager("a", "v2", json!({"f:color": {}}))];
    assert_eq!(managers(&body), left);
    assert_eq!(
        world.get(&path("v1", "")).await.1["spec"],
        json!({"color": "red"})
    );
    // The fields of the other manager remain, under their names in the other version.
    let newer = json!({"dimensions": {"size": 1}});
    assert_eq!(world.apply("v1", "a", "", all).await.0, 200);
    assert_eq!(world.apply("v2", "b", "", newer).await.0, 200);
    let (code, body) = world.apply("v1", "a", "", json!({"color": "red"})).await;
    assert_eq!(code, 200, "{body}");
    assert_eq!(body["spec"], json!({"color": "red", "size": 1}));
    let (code, body) = world.apply("v2", "b", "", json!({})).await;
    assert_eq!(code, 200, "{body}");
    assert_eq!(body["spec"], json!({"color": "red"}));
    let left = [
        manager("a", "v1", json!({"f:color": {}})),
        manager("b", "v2", json!({})),
    ];
    assert_eq!(managers(&body), left);
}

/// Entries in a version that is no longer served are still converted, as upstream. Entries in a version that the
/// definition no longer has are dropped with the next write.
pub(super) async fn managers_of_a_version_that_is_removed_are_dropped(world: &mut World) {
    let webhook = converter().await;
    let mut definition = converted_foos("v1", webhook.client_config("/"));
    world.define(&definition).await;
    let newer = json!({"dimensions": {"size": 1}});
    assert_eq!(world.apply("v2", "b", "", newer).await.0, 201);
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions[1]["served"] = false.into();
    let patch = json!({"spec": {"versions": versions}});
    let (code, body) = world.patch(DEFINITION, "merge", &patch).await;
    assert_eq!(code, 200, "{body}");
    world.until(&path("v2", ""), |code, _| code == 404).await;
    let (code, body) = world.apply("v1", "a", "", json!({"size": 2})).await;
    assert_eq!((code, &body["reason"]), (409, &json!("Conflict")), "{body}");
    let (code, body) = world.apply("v1", "a", "", json!({"color": "red"})).await;
    assert_eq!(code, 200, "{body}");
    let both = [
        manager("a", "v1", json!({"f:color": {}})),
        manager("b", "v2", json!({"f:dimensions": {"f:size": {}}})),
    ];
    assert_eq!(managers(&body), both);
    versions.pop();
    let patch = json!({"spec": {"versions": versions, "conversion": {"strategy": "None", "webhook": null}}});
    let (code, body) = world.patch(DEFINITION, "merge", &patch).await;
    assert_eq!(code, 200, "{body}");
    let (code, body) = world
        .apply("v1", "a", "", json!({"color": "red", "size": 2}))
        .await;
    assert_eq!(code, 200, "{body}");
    let left = [manager("a", "v1", json!({"f:color": {}, "f:size": {}}))];
    assert_eq!(managers(&body), left);
}

pub(super) async fn a_failed_conversion_fails_an_apply_and_keeps_the_managers_of_an_update(
    world: &mut World,
) {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let webhook = Webhook::answering(move |call| match failing.load(Ordering::SeqCst) {
        true => Reply::other(500, "broken"),
        false => Reply::json(&answer(call)),
    })
    .await;
    let definition = converted_foos("v1", webhook.client_config("/"));
    world.define(&definition).await;
    let (code, body) = world.post(NEWER, &sized("v2", "a", 1)).await;
    assert_eq!(code, 201, "{body}");
    let before = managers(&body);
    fails.store(true, Ordering::SeqCst);
    let (code, body) = world.apply("v1", "a", "", json!({"color": "red"})).await;
    let message = body["message"].as_str().unwrap_or_default();
    assert_eq!(code, 500, "{body}");
    assert!(
        message.starts_with("conversion webhook for example.com/v1, Kind=Foo failed: "),
        "{body}"
    );
    let patch = json!({"spec": {"color": "red"}});
    let (code, body) = world.patch(&path("v1", ""), "merge", &patch).await;
    assert_eq!(
        (code, &body["spec"]["color"]),
        (200, &json!("red")),
        "{body}"
    );
    assert_eq!(managers(&body), before);
}
