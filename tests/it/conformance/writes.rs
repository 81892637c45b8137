//! WC-020 to WC-052: create, get and update.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::faults::Before;
use super::site::{MAPS, Site, map, version};
use super::watching::word;

const A: &str = "/api/v1/namespaces/default/configmaps/a";
const KEY: &str = "/configmaps/default/a";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

pub(crate) async fn wc_020_create_echoes_the_object_with_its_version(site: &Site) {
    let before = site.revision().await;
    let made = site.make("a", json!({"k": "v"})).await;
    assert_eq!(made["metadata"]["labels"]["k"], "v");
    assert_eq!(made["data"]["of"], "a");
    assert!(version(&made) > before, "{made}");
    assert_eq!(site.get(A).await.ok(200), made);
}

pub(crate) async fn wc_021_create_with_a_version_fails_and_stores_nothing(site: &Site) {
    let mut body = map("a", json!({}));
    body["metadata"]["resourceVersion"] = "5".into();
    let status = site.post(MAPS, &body).await.ok(500);
    let message = "resourceVersion should not be set on objects to be created";
    assert_eq!(status["message"], message);
    assert_eq!(status.get("reason"), None);
    assert!(site.stored(KEY).await.is_none());
}

pub(crate) async fn wc_022_create_over_an_existing_name_is_already_exists(site: &Site) {
    let made = site.make("a", json!({})).await;
    let again = site.post(MAPS, &map("a", json!({"k": "v"}))).await;
    let status = again.failure(409, "AlreadyExists");
    assert_eq!(status["details"]["name"], "a", "{status}");
    assert_eq!(status["details"]["kind"], "configmaps", "{status}");
    assert_eq!(site.get(A).await.ok(200), made);
}

pub(crate) async fn wc_023_049_an_object_with_a_ttl_is_deleted_when_it_expires(site: &Site) {
    use watchet::storage::{Expect, Put, Storage as _};
    let list = site.get(MAPS).await.ok(200);
    let from = format!("{MAPS}?resourceVersion={}", version(&list));
    let mut watch = site.watch(&from).await;
    let put = |expect, n: u8| Put {
        key: watchet::api::StorageKey::new(KEY).unwrap(),
        value: map("a", json!({"n": n.to_string()})).to_string().into(),
        expect,
        ttl: Some(Duration::from_secs(2)),
    };
    let outcome = site.storage.put(put(Expect::Absent, 1)).await.unwrap();
    let watchet::storage::Outcome::Done(created) = outcome else {
        panic!("{outcome:?}");
    };
    site.storage.put(put(Expect::At(created), 2)).await.unwrap();
    let duties = watchet::tasks::Tasks::new();
    let (store, token) = (site.storage.inner(), duties.token());
    duties.spawn("maintain", async move { store.maintain(token).await });
    let events = watch.events(3).await;
    let words: Vec<_> = events.iter().map(word).collect();
    assert_eq!(words, ["ADDED a", "MODIFIED a", "DELETED a"]);
    let last = &events[2]["object"];
    assert_eq!(last["metadata"]["labels"]["n"], "2", "its last state");
    assert!(version(last) > version(&events[1]["object"]));
    duties.cancel();
}

pub(crate) async fn wc_024_a_get_is_the_latest(site: &Site) {
    site.make("a", json!({})).await;
    for _ in 0..20 {
        let changed = site.change("a").await;
        assert_eq!(site.get(A).await.ok(200), changed);
    }
}

pub(crate) async fn wc_025_a_get_at_version_0_reads_the_cache_only(site: &Site) {
    let made = site.make("a", json!({})).await;
    site.settle().await;
    site.storage.freeze(true);
    site.change("a").await;
    let (gets, probes) = (&site.storage.gets, &site.storage.probes);
    let before = (gets.load(Ordering::SeqCst), probes.load(Ordering::SeqCst));
    let stale = site.get(&format!("{A}?resourceVersion=0")).await.ok(200);
    assert_eq!(stale, made);
    let after = (gets.load(Ordering::SeqCst), probes.load(Ordering::SeqCst));
    assert_eq!(after, before, "storage was not asked");
    let absent = site.get(&format!("{MAPS}/none?resourceVersion=0")).await;
    absent.failure(404, "NotFound");
    site.storage.freeze(false);
}

pub(crate) async fn wc_026_a_get_at_a_version_is_that_or_newer(site: &Site) {
    let made = site.make("a", json!({})).await;
    let changed = site.change("a").await;
    let at = format!("{A}?resourceVersion={}", version(&made));
    let got = version(&site.get(&at).await.ok(200));
    assert!(got == version(&made) || got == version(&changed), "{got}");
}

pub(crate) async fn wc_027_a_get_at_the_latest_version_waits_for_it(site: &Site) {
    site.make("a", json!({})).await;
    site.settle().await;
    site.storage.freeze(true);
    let changed = site.change("a").await;
    let thaw = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        site.storage.freeze(false);
    };
    let at = format!("{A}?resourceVersion={}", version(&changed));
    let (got, ()) = tokio::join!(site.get(&at), thaw);
    assert_eq!(got.ok(200), changed);
}

pub(crate) async fn wc_028_a_get_of_the_future_is_a_timeout_with_a_cause(site: &Site) {
    site.make("a", json!({})).await;
    site.settle().await;
    let ahead = site.revision().await + 1000;
    let begun = Instant::now();
    let answer = site.get(&format!("{A}?resourceVersion={ahead}")).await;
    let waited = begun.elapsed();
    let status = answer.failure(504, "Timeout");
    let message = status["message"].as_str().unwrap();
    let expected = format!("Too large resource version: {ahead}, current: ");
    assert!(message.contains(&expected), "{status}");
    let cause = &status["details"]["causes"][0];
    assert_eq!(cause["reason"], "ResourceVersionTooLarge", "{status}");
    assert_eq!(status["details"]["retryAfterSeconds"], 1, "{status}");
    assert!(waited >= Duration::from_millis(2500), "{waited:?}");
}

pub(crate) async fn wc_029_a_get_of_a_missing_object_is_not_found(site: &Site) {
    let status = site.get(A).await.failure(404, "NotFound");
    assert_eq!(status["message"], "configmaps \"a\" not found");
    assert_eq!(status["details"]["name"], "a");
    assert_eq!(status["details"]["kind"], "configmaps");
    let key = watchet::api::StorageKey::new(KEY).unwrap();
    let (none, _) = site.storage.inner().get(&key).await.unwrap();
    assert!(none.is_none(), "to storage it is no error");
}

pub(crate) async fn wc_030_a_dry_run_stores_nothing_and_detects_existing_names(site: &Site) {
    let dry = format!("{MAPS}?dryRun=All");
    let made = site.post(&dry, &map("a", json!({}))).await.ok(201);
    let at = &made["metadata"]["resourceVersion"];
    assert!(at.is_null() || at == "", "{made}");
    assert!(made["metadata"]["uid"].is_string(), "{made}");
    assert!(site.stored(KEY).await.is_none());
    site.make("a", json!({})).await;
    let again = site.post(&dry, &map("a", json!({}))).await;
    again.failure(409, "AlreadyExists");
    let unknown = site
        .post(&format!("{MAPS}?dryRun=Some"), &map("b", json!({})))
        .await;
    unknown.failure(422, "Invalid");
}

pub(crate) async fn wc_040_a_put_of_a_missing_object_is_not_found_or_creates(site: &Site) {
    site.put(A, &map("a", json!({})))
        .await
        .failure(404, "NotFound");
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    let path = format!("{LEASES}/l");
    let made = site.put(&path, &lease).await.ok(201);
    assert_eq!(made["spec"]["holderIdentity"], "me");
    // If another writer creates the object first, the PUT is an update of that object, or a conflict.
    let mut other = made.clone();
    other["metadata"] = json!({"name": "m", "namespace": "default", "uid": "u"});
    let before = Before::Put("/leases/default/m".into(), other.to_string());
    site.storage.before_next_write(before);
    let lease = json!({"metadata": {"name": "m"}, "spec": {"holderIdentity": "me"}});
    let answer = site.put(&format!("{LEASES}/m"), &lease).await;
    match answer.code {
        200 => assert_eq!(answer.json()["metadata"]["uid"], "u"),
        409 => drop(answer.failure(409, "Conflict")),
        422 => drop(answer.failure(422, "Invalid")),
        _ => panic!("{answer:?}"),
    }
}

pub(crate) async fn wc_041_042_an_update_without_changes_is_not_stored(site: &Site) {
    let made = site.make("a", json!({})).await;
    let mut watch = site
        .watch(&format!("{MAPS}?resourceVersion={}", version(&made)))
        .await;
    let revision = site.revision().await;
    assert_eq!(site.put(A, &made).await.ok(200), made);
    let patch = json!({"data": {"of": "a"}});
    assert_eq!(site.patch(A, "merge", &patch).await.ok(200), made);
    let mut linked = made.clone();
    linked["metadata"]["selfLink"] = "/x".into();
    let answer = site.put(A, &linked).await.ok(200);
    assert_eq!(version(&answer), version(&made));
    assert_eq!(site.revision().await, revision);
    watch.is_silent().await;
}

pub(crate) async fn wc_044_a_uid_in_the_body_is_a_precondition(site: &Site) {
    let made = site.make("a", json!({})).await;
    let mut body = map("a", json!({"k": "v"}));
    body["metadata"]["uid"] = made["metadata"]["uid"].clone();
    site.put(A, &body).await.ok(200);
    body["metadata"]["uid"] = "another".into();
    body["metadata"]["labels"]["k"] = "w".into();
    site.put(A, &body).await.failure(409, "Conflict");
    assert_eq!(site.get(A).await.ok(200)["metadata"]["labels"]["k"], "v");
}

pub(crate) async fn wc_045_a_conflicting_update_is_retried_on_the_new_object(site: &Site) {
    let made = site.make("a", json!({})).await;
    let mut theirs = made.clone();
    theirs["data"]["theirs"] = "1".into();
    theirs["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    site.storage
        .before_next_write(Before::Put(KEY.into(), theirs.to_string()));
    let patch = json!({"data": {"ours": "1"}});
    let written = site.patch(A, "merge", &patch).await.ok(200);
    let data = &written["data"];
    assert_eq!((&data["theirs"], &data["ours"]), (&json!("1"), &json!("1")));
}

pub(crate) async fn wc_046_048_an_update_from_a_stale_cache_applies_to_the_stored_object(
    site: &Site,
) {
    let made = site.make("a", json!({})).await;
    site.settle().await;
    site.storage.freeze(true);
    let mut theirs = made.clone();
    theirs["data"]["theirs"] = "1".into();
    theirs["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    site.store(KEY, &theirs.to_string()).await;
    let written = site
        .patch(A, "merge", &json!({"data": {"ours": "1"}}))
        .await
        .ok(200);
    assert_eq!(written["data"]["theirs"], "1", "{written}");
    // This patch changes nothing of the cached object, but it changes the stored one.
    let back = json!({"data": {"theirs": null, "ours": null}});
    let written = site.patch(A, "merge", &back).await.ok(200);
    assert!(written["data"]["theirs"].is_null(), "{written}");
    let stored = site.stored(KEY).await.unwrap();
    assert!(stored["data"]["theirs"].is_null(), "{stored}");
    site.storage.freeze(false);
}

pub(crate) async fn wc_047_a_rejection_based_on_a_stale_cache_is_retried(site: &Site) {
    let made = site.make("a", json!({})).await;
    site.settle().await;
    site.storage.freeze(true);
    let changed = site.change("a").await;
    // The cache has the previous version: the test in this patch fails there and succeeds in storage.
    let stamp = &changed["data"]["stamp"];
    let patch = json!([
        {"op": "test", "path": "/data/stamp", "value": stamp},
        {"op": "add", "path": "/data/more", "value": "1"},
    ]);
    let written = site.patch(A, "json", &patch).await.ok(200);
    assert_eq!(written["data"]["more"], "1");
    assert!(made["data"]["stamp"].is_null());
    let wrong = json!([{"op": "test", "path": "/data/stamp", "value": "never"}]);
    site.patch(A, "json", &wrong).await.failure(422, "Invalid");
    site.storage.freeze(false);
}

pub(crate) async fn wc_050_a_put_at_an_old_version_is_a_conflict(site: &Site) {
    let made = site.make("a", json!({})).await;
    site.change("a").await;
    let status = site.put(A, &made).await.failure(409, "Conflict");
    let message = status["message"].as_str().unwrap();
    let begins = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified";
    assert!(message.starts_with(begins), "{message}");
}

pub(crate) async fn wc_052_json_patches_survive_other_writers(site: &Site) {
    site.post(
        MAPS,
        &json!({"metadata": {"name": "a"}, "data": {"x": "x"}}),
    )
    .await
    .ok(201);
    let writer = |number: usize| async move {
        for n in 0..5 {
            let path = format!("/data/w{number}-{n}");
            let patch = json!([{"op": "add", "path": path, "value": "1"}]);
            site.patch(A, "json", &patch).await.ok(200);
        }
    };
    futures::future::join_all((0..6).map(writer)).await;
    let data = site.get(A).await.ok(200)["data"].clone();
    assert_eq!(data.as_object().unwrap().len(), 31, "{data}");
}
