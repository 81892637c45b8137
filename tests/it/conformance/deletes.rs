//! WC-060 to WC-075: deletes.

use http::Method;
use k8s_pb::apimachinery::pkg::runtime::Unknown;
use prost::Message as _;
use serde_json::{Value, json};

use super::faults::Before;
use super::site::{MAPS, Site, causes, map, names, version};
use super::watching::word;

const A: &str = "/api/v1/namespaces/default/configmaps/a";
const KEY: &str = "/configmaps/default/a";

/// Returns the stored form of an object in a response.
fn stored_form(object: &Value) -> Value {
    let mut stored = object.clone();
    let metadata = stored["metadata"].as_object_mut().expect("metadata");
    metadata.remove("resourceVersion");
    stored
}

/// Creates an object with a finalizer.
async fn held(site: &Site) -> Value {
    let mut body = map("a", json!({}));
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    site.post(MAPS, &body).await.ok(201)
}

pub(crate) async fn wc_060_a_deletion_has_a_revision_of_its_own(site: &Site) {
    let made = site.make("a", json!({"k": "v"})).await;
    let from = format!("{MAPS}?resourceVersion={}", version(&made));
    let mut watch = site.watch(&from).await;
    site.delete(A, &Value::Null).await.ok(200);
    let revision = site.revision().await;
    let event = watch.events(1).await.remove(0);
    assert_eq!(word(&event), "DELETED a");
    assert_eq!(version(&event["object"]), revision, "that of the deletion");
    let mut last = event["object"].clone();
    last["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    assert_eq!(last, made, "its last state");
}

pub(crate) async fn wc_061_a_delete_of_a_missing_object_is_not_found(site: &Site) {
    site.delete(A, &Value::Null).await.failure(404, "NotFound");
}

pub(crate) async fn wc_062_073_preconditions_hold_or_conflict(site: &Site) {
    let made = site.make("a", json!({})).await;
    let changed = site.change("a").await;
    let version = |of: &Value| of["metadata"]["resourceVersion"].clone();
    for bad in [
        json!({"uid": "another"}),
        json!({"resourceVersion": version(&made)}),
        json!({"uid": made["metadata"]["uid"], "resourceVersion": "1"}),
    ] {
        let answer = site.delete(A, &json!({"preconditions": bad})).await;
        answer.failure(409, "Conflict");
    }
    let good = json!({"uid": made["metadata"]["uid"], "resourceVersion": version(&changed)});
    site.delete(A, &json!({"preconditions": good}))
        .await
        .ok(200);
    assert!(site.stored(KEY).await.is_none());
}

pub(crate) async fn wc_063_064_a_delete_applies_to_the_stored_object(site: &Site) {
    use std::sync::atomic::Ordering;
    site.make("a", json!({})).await;
    site.settle().await;
    let gets = site.storage.gets.load(Ordering::SeqCst);
    site.delete(A, &Value::Null).await.ok(200);
    assert_eq!(
        site.storage.gets.load(Ordering::SeqCst),
        gets,
        "the suggestion was good"
    );
    assert!(site.stored(KEY).await.is_none());

    let made = site.make("a", json!({})).await;
    site.settle().await;
    site.storage.freeze(true);
    let mut theirs = stored_form(&made);
    theirs["data"]["theirs"] = "1".into();
    site.store(KEY, &theirs.to_string()).await;
    site.delete(A, &Value::Null).await.ok(200);
    assert!(site.stored(KEY).await.is_none());
    site.storage.freeze(false);
}

pub(crate) async fn wc_065_a_delete_of_a_deleted_object_in_a_stale_cache_is_not_found(site: &Site) {
    site.make("a", json!({})).await;
    site.settle().await;
    site.storage.freeze(true);
    site.unstore(KEY).await;
    site.delete(A, &Value::Null).await.failure(404, "NotFound");
    site.storage.freeze(false);
    // The same if another writer deletes the object just before.
    site.make("a", json!({})).await;
    site.storage.before_next_write(Before::Delete(KEY.into()));
    site.delete(A, &Value::Null).await.failure(404, "NotFound");
}

pub(crate) async fn wc_066_067_preconditions_apply_to_the_stored_object(site: &Site) {
    let made = site.make("a", json!({})).await;
    site.settle().await;
    site.storage.freeze(true);
    let changed = site.change("a").await;
    // The precondition holds for the cached object only: a conflict.
    let stale = json!({"preconditions": {"resourceVersion": version(&made).to_string()}});
    site.delete(A, &stale).await.failure(409, "Conflict");
    assert!(site.stored(KEY).await.is_some());
    // The precondition holds for the stored object only: the object is deleted.
    let now = json!({"preconditions": {"resourceVersion": version(&changed).to_string()}});
    site.delete(A, &now).await.ok(200);
    assert!(site.stored(KEY).await.is_none());
    site.storage.freeze(false);
    // If another writer changes the object just before, the precondition is checked against the new object.
    let made = site.make("a", json!({})).await;
    let mut theirs = stored_form(&made);
    theirs["data"]["theirs"] = "1".into();
    site.storage
        .before_next_write(Before::Put(KEY.into(), theirs.to_string()));
    let then = json!({"preconditions": {"resourceVersion": version(&made).to_string()}});
    site.delete(A, &then).await.failure(409, "Conflict");
}

pub(crate) async fn wc_068_070_an_object_with_finalizers_remains_until_they_are_removed(
    site: &Site,
) {
    let made = held(site).await;
    let pending = site.delete(A, &Value::Null).await.ok(200);
    let deleted_at = pending["metadata"]["deletionTimestamp"].clone();
    assert!(deleted_at.is_string(), "{pending}");
    assert_eq!(pending["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(pending["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(site.get(A).await.ok(200), pending, "still readable");
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let again = site.delete(A, &Value::Null).await.ok(200);
    assert_eq!(again["metadata"]["deletionTimestamp"], deleted_at);
    let over = site.post(MAPS, &map("a", json!({}))).await;
    let status = over.failure(409, "AlreadyExists");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("object is being deleted: "),
        "{message}"
    );
}

pub(crate) async fn wc_069_removing_the_last_finalizer_deletes(site: &Site) {
    held(site).await;
    let pending = site.delete(A, &Value::Null).await.ok(200);
    let from = format!("{MAPS}?resourceVersion={}", version(&pending));
    let mut watch = site.watch(&from).await;
    let patch = json!({"metadata": {"finalizers": null}});
    let answer = site.patch(A, "merge", &patch).await.ok(200);
    assert!(answer["metadata"]["finalizers"].is_null(), "{answer}");
    assert_eq!(watch.words(1).await, ["DELETED a"]);
    assert_eq!(watch.position(), site.revision().await);
    site.get(A).await.failure(404, "NotFound");
}

pub(crate) async fn wc_071_an_immediate_delete_returns_a_status_with_details(site: &Site) {
    let made = site.make("a", json!({})).await;
    let status = site.delete(A, &Value::Null).await.ok(200);
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["status"], "Success");
    let details = json!({"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]});
    assert_eq!(status["details"], details);
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let made = site
        .post(roles, &json!({"metadata": {"name": "r"}, "rules": []}))
        .await
        .ok(201);
    let status = site
        .delete(&format!("{roles}/r"), &Value::Null)
        .await
        .ok(200);
    assert_eq!(status["details"]["group"], "rbac.authorization.k8s.io");
    assert_eq!(status["details"]["kind"], "clusterroles");
    assert_eq!(status["details"]["uid"], made["metadata"]["uid"]);
}

pub(crate) async fn wc_072_orphan_dependents_with_a_propagation_policy_is_invalid(site: &Site) {
    site.make("a", json!({})).await;
    let both = json!({"orphanDependents": true, "propagationPolicy": "Background"});
    site.delete(A, &both).await.failure(422, "Invalid");
    let query = format!("{A}?orphanDependents=true&propagationPolicy=Background");
    site.delete(&query, &Value::Null)
        .await
        .failure(422, "Invalid");
    let unknown = json!({"propagationPolicy": "Sideways"});
    let answer = site.delete(A, &unknown).await;
    assert!((400..=422).contains(&answer.code), "{answer:?}");
    assert!(site.stored(KEY).await.is_some());
}

pub(crate) async fn wc_074_a_collection_delete_applies_selectors_and_returns_the_list(site: &Site) {
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        site.make(name, json!({"app": app})).await;
    }
    let path = format!("{MAPS}?labelSelector=app%3Dx&fieldSelector=metadata.name%21%3Db");
    let list = site.delete(&path, &Value::Null).await.ok(200);
    assert_eq!(list["kind"], "ConfigMapList", "{list}");
    assert_eq!(names(&list), ["a"]);
    assert_eq!(names(&site.get(MAPS).await.ok(200)), ["b", "c"]);
    let list = site.delete(MAPS, &Value::Null).await.ok(200);
    assert_eq!(names(&list), ["b", "c"]);
    assert!(names(&site.get(MAPS).await.ok(200)).is_empty());
}

const UNSAFE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

pub(crate) async fn wc_075_136_only_an_unreadable_object_can_be_deleted_unsafely(site: &Site) {
    let made = site.make("a", json!({})).await;
    let option = json!({UNSAFE: true});
    let refused = site.delete(A, &option).await.failure(422, "Invalid");
    assert!(causes(&refused)[0].ends_with(UNSAFE), "{refused}");
    let mixed = json!({UNSAFE: true, "gracePeriodSeconds": 0});
    site.delete(A, &mixed).await.failure(422, "Invalid");
    site.delete(MAPS, &option).await.failure(422, "Invalid");
    assert!(site.stored(KEY).await.is_some(), "nothing was deleted");

    let from = format!("{MAPS}?resourceVersion={}", version(&made));
    let mut watch = site.watch(&from).await;
    site.store(KEY, "not JSON").await;
    let frames = watch.rest().await;
    let error = &frames.last().expect("an ERROR event")["object"];
    super::site::is_failure(error, 500, "StorageReadError");
    site.delete(A, &Value::Null)
        .await
        .failure(500, "InternalError");
    site.delete(A, &option).await.ok(200);
    let key = watchet::api::StorageKey::new(KEY).unwrap();
    let (none, _) = site.storage.inner().get(&key).await.unwrap();
    assert!(none.is_none());
    // The resource is available again.
    Site::until("the resource answers again", || async {
        site.get(MAPS).await.code == 200
    })
    .await;
    site.make("b", json!({})).await;
    assert_eq!(names(&site.get(MAPS).await.ok(200)), ["b"]);
}

/// The Status of a deletion has the media type that the client accepts.
pub(crate) async fn a_status_of_success_is_negotiated(site: &Site) {
    let made = site.make("a", json!({})).await;
    let uid = made["metadata"]["uid"].as_str().expect("a uid");
    let yaml = [("accept", "application/yaml")];
    let gone = site.send(Method::DELETE, A, &yaml, "").await;
    assert_eq!(gone.code, 200);
    assert_eq!(gone.headers["content-type"], "application/yaml");
    let text = String::from_utf8(gone.body.to_vec()).expect("text");
    assert!(text.contains("kind: Status\n"), "{text}");
    assert!(text.contains(&format!("uid: {uid}\n")), "{text}");

    let made = site.make("a", json!({})).await;
    let uid = made["metadata"]["uid"].as_str().expect("a uid");
    let protobuf = [("accept", "application/vnd.kubernetes.protobuf")];
    let gone = site.send(Method::DELETE, A, &protobuf, "").await;
    assert_eq!(gone.code, 200);
    let kind = &gone.headers["content-type"];
    assert_eq!(kind, "application/vnd.kubernetes.protobuf");
    let envelope = Unknown::decode(&gone.body[4..]).expect("an envelope");
    assert_eq!(&gone.body[..4], b"k8s\0");
    let kind = envelope.type_meta.expect("its type").kind;
    assert_eq!(kind.as_deref(), Some("Status"));
    let raw = envelope.raw.expect("the status");
    let status = k8s_pb::apimachinery::pkg::apis::meta::v1::Status::decode(&*raw);
    let status = status.expect("a status");
    assert_eq!(status.status.as_deref(), Some("Success"));
    assert_eq!(status.details.expect("details").uid.as_deref(), Some(uid));
}
