//! WC-001 to WC-014: keys, versions, and who sets which metadata.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use watchet::api::StorageKey;

use super::site::{MAPS, Site, map, names, pod, version};

pub(crate) async fn wc_001_empty_keys_are_errors(_: &Site) {
    for bad in ["", "/"] {
        assert!(StorageKey::new(bad).is_err(), "{bad:?}");
    }
}

pub(crate) async fn wc_002_dot_segments_are_errors_and_dotted_names_are_valid(site: &Site) {
    for bad in [
        "/configmaps/./a",
        "/configmaps/../a",
        "/configmaps/default/..",
    ] {
        assert!(StorageKey::new(bad).is_err(), "{bad:?}");
    }
    for bad in ["%2e", "%2e%2e"] {
        let answer = site.get(&format!("{MAPS}/{bad}")).await;
        answer.failure(400, "BadRequest");
    }
    for good in ["a.b", "a..b"] {
        let path = format!("{MAPS}/{good}");
        site.get(&path).await.failure(404, "NotFound");
    }
    site.make("a.b", json!({})).await;
    site.get(&format!("{MAPS}/a.b")).await.ok(200);
}

pub(crate) async fn wc_003_keys_outside_of_the_prefix_are_not_served(site: &Site) {
    let body = map("stray", json!({})).to_string();
    for key in ["/configmaps.x/default/stray", "/configmapsx/default/stray"] {
        site.store(key, &body).await;
    }
    site.make("own", json!({})).await;
    for query in ["", "?resourceVersion=0", "?limit=1"] {
        let list = site.get(&format!("/api/v1/configmaps{query}")).await;
        assert_eq!(names(&list.ok(200)), ["own"], "{query}");
    }
    site.get(&format!("{MAPS}/stray"))
        .await
        .failure(404, "NotFound");
}

pub(crate) async fn wc_004_a_list_excludes_namespaces_that_begin_with_its_namespace(site: &Site) {
    for namespace in ["foo", "foobar", "foo-1"] {
        let body = json!({"metadata": {"name": namespace}});
        site.post("/api/v1/namespaces", &body).await.ok(201);
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let body = map(&format!("in-{namespace}"), json!({}));
        site.post(&maps, &body).await.ok(201);
    }
    let maps = "/api/v1/namespaces/foo/configmaps";
    assert_eq!(names(&site.get(maps).await.ok(200)), ["in-foo"]);
    let mut watch = site.watch(maps).await;
    assert_eq!(watch.words(1).await, ["ADDED in-foo"]);
    watch.is_silent().await;
}

pub(crate) async fn wc_005_an_object_is_stored_at_its_path_with_the_revision_of_its_write(
    site: &Site,
) {
    let made = site.make("a", json!({})).await;
    let key = StorageKey::new("/configmaps/default/a").unwrap();
    let (stored, _) = site.storage.inner().get(&key).await.unwrap();
    let stored = stored.expect("it lies there");
    assert_eq!(stored.mod_revision.get(), version(&made));
    let changed = site.change("a").await;
    let (stored, _) = site.storage.inner().get(&key).await.unwrap();
    assert_eq!(stored.unwrap().mod_revision.get(), version(&changed));
    let node = json!({"metadata": {"name": "n"}});
    site.post("/api/v1/nodes", &node).await.ok(201);
    assert!(
        site.stored("/minions/n").await.is_some(),
        "its historic place"
    );
}

pub(crate) async fn wc_006_stored_bytes_have_no_version_and_no_self_link(site: &Site) {
    let clean = |stored: Option<Value>| {
        let metadata = stored.expect("it is stored")["metadata"].clone();
        assert!(metadata["resourceVersion"].is_null(), "{metadata}");
        assert!(metadata["selfLink"].is_null(), "{metadata}");
    };
    let mut body = map("a", json!({}));
    body["metadata"]["selfLink"] = "/somewhere".into();
    site.post(MAPS, &body).await.ok(201);
    let path = format!("{MAPS}/a");
    clean(site.stored("/configmaps/default/a").await);
    let mut body = site.get(&path).await.ok(200);
    body["metadata"]["selfLink"] = "/somewhere".into();
    body["data"]["more"] = "1".into();
    site.put(&path, &body).await.ok(200);
    clean(site.stored("/configmaps/default/a").await);
    let patch = json!({"metadata": {"selfLink": "/x"}, "data": {"more": "2"}});
    site.patch(&path, "merge", &patch).await.ok(200);
    clean(site.stored("/configmaps/default/a").await);
}

pub(crate) async fn wc_007_a_list_at_a_malformed_version_is_a_bad_request(site: &Site) {
    for bad in ["abc", "-1", "1x", "18446744073709551616"] {
        let answer = site.get(&format!("{MAPS}?resourceVersion={bad}")).await;
        let status = answer.failure(400, "BadRequest");
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with("invalid resource version"), "{status}");
    }
}

pub(crate) async fn wc_008_uid_and_times_of_the_client_are_replaced(site: &Site) {
    let mut body = map("a", json!({}));
    body["metadata"]["uid"] = "mine".into();
    body["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    body["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z".into();
    body["metadata"]["deletionGracePeriodSeconds"] = 5.into();
    let made = site.post(MAPS, &body).await.ok(201);
    let metadata = &made["metadata"];
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36, "{made}");
    assert_ne!(metadata["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert!(metadata["deletionTimestamp"].is_null(), "{made}");
    assert!(metadata["deletionGracePeriodSeconds"].is_null(), "{made}");
}

pub(crate) async fn wc_009_a_body_of_another_namespace_is_a_bad_request(site: &Site) {
    let mut body = map("a", json!({}));
    body["metadata"]["namespace"] = "kube-system".into();
    site.post(MAPS, &body).await.failure(400, "BadRequest");
    site.make("a", json!({})).await;
    let path = format!("{MAPS}/a");
    site.put(&path, &body).await.failure(400, "BadRequest");
    body["metadata"]["namespace"] = "default".into();
    site.put(&path, &body).await.ok(200);
}

pub(crate) async fn wc_010_a_body_of_another_name_is_a_bad_request(site: &Site) {
    site.make("a", json!({})).await;
    let path = format!("{MAPS}/a");
    let other = map("b", json!({}));
    site.put(&path, &other).await.failure(400, "BadRequest");
    site.get(&format!("{MAPS}/b"))
        .await
        .failure(404, "NotFound");
}

pub(crate) async fn wc_011_generate_name_creates_names_of_at_most_63_characters(site: &Site) {
    let long = "x".repeat(100);
    for (base, kept) in [("job-", "job-"), (&long, &long[..58])] {
        let body = json!({"metadata": {"generateName": base}});
        let made = site.post(MAPS, &body).await.ok(201);
        let name = made["metadata"]["name"].as_str().unwrap();
        let letters = name.strip_prefix(kept).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(letters.len(), 5, "{name}");
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        assert!(letters.chars().all(lower), "{name}");
        assert_eq!(made["metadata"]["generateName"], base);
    }
}

pub(crate) async fn wc_012_eight_collisions_are_a_conflict_with_retry_after(site: &Site) {
    let body = json!({"metadata": {"generateName": "job-"}});
    site.storage.collisions.store(7, Ordering::SeqCst);
    site.post(MAPS, &body).await.ok(201);
    site.storage.collisions.store(8, Ordering::SeqCst);
    let status = site.post(MAPS, &body).await.failure(409, "AlreadyExists");
    assert_eq!(status["details"]["retryAfterSeconds"], 1, "{status}");
    assert_eq!(site.storage.collisions.load(Ordering::SeqCst), 0);
}

pub(crate) async fn wc_014_status_and_main_resource_are_updated_separately(site: &Site) {
    let pods = "/api/v1/namespaces/default/pods";
    let mut body = pod("a", "");
    body["status"] = json!({"phase": "Running"});
    let made = site.post(pods, &body).await.ok(201);
    assert_ne!(made["status"]["phase"], "Running", "not on create");
    let generation = made["metadata"]["generation"].clone();
    let path = format!("{pods}/a");

    let mut of_status = made.clone();
    of_status["status"] = json!({"phase": "Running"});
    of_status["spec"]["nodeName"] = "stolen".into();
    let status = format!("{path}/status");
    let written = site.put(&status, &of_status).await.ok(200);
    assert_eq!(written["status"]["phase"], "Running");
    assert_eq!(written["spec"], made["spec"], "spec is not of /status");
    assert_eq!(written["metadata"]["generation"], generation);

    let mut of_main = written.clone();
    of_main["status"] = json!({"phase": "Failed"});
    of_main["metadata"]["labels"] = json!({"x": "y"});
    let written = site.put(&path, &of_main).await.ok(200);
    assert_eq!(
        written["status"]["phase"], "Running",
        "status is not of the object"
    );
    assert_eq!(written["metadata"]["labels"]["x"], "y");
    assert_eq!(
        written["metadata"]["generation"], generation,
        "a label is no spec"
    );
}
