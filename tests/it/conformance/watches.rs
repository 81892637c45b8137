//! WC-120 to WC-139: the events of watches, and where watches begin and end.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::site::{MAPS, Site, is_failure, version};
use super::watching::word;
use crate::harness::{Protocol, full, request};

/// Returns a path that watches the changes after the present version.
async fn from_now(site: &Site, path: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}resourceVersion={}", site.revision().await)
}

async fn label(site: &Site, name: &str, app: &str) -> Value {
    let patch = json!({"metadata": {"labels": {"app": app}}});
    site.patch(&format!("{MAPS}/{name}"), "merge", &patch)
        .await
        .ok(200)
}

pub(crate) async fn wc_120_to_124_events_follow_the_selection(site: &Site) {
    let path = from_now(site, &format!("{MAPS}?labelSelector=app%3Dx")).await;
    let mut watch = site.watch(&path).await;
    site.make("a", json!({"app": "y"})).await;
    label(site, "a", "x").await;
    let inside = site.change("a").await;
    let left = label(site, "a", "y").await;
    site.change("a").await;
    label(site, "a", "x").await;
    let last = site.change("a").await;
    site.remove("a").await;
    let events = watch.events(6).await;
    let words: Vec<_> = events.iter().map(word).collect();
    let expected = [
        "ADDED a",
        "MODIFIED a",
        "DELETED a",
        "ADDED a",
        "MODIFIED a",
        "DELETED a",
    ];
    assert_eq!(words, expected);
    // The last matching state, with the version of the change.
    let mut received = events[2]["object"].clone();
    assert_eq!(version(&received), version(&left));
    received["metadata"]["resourceVersion"] = inside["metadata"]["resourceVersion"].clone();
    assert_eq!(received, inside);
    let mut received = events[5]["object"].clone();
    assert_eq!(version(&received), site.revision().await);
    received["metadata"]["resourceVersion"] = last["metadata"]["resourceVersion"].clone();
    assert_eq!(received, last);
    watch.is_silent().await;
}

pub(crate) async fn wc_128_129_130_a_watch_before_the_start_of_history_is_one_error(site: &Site) {
    for name in ["a", "b", "c"] {
        site.make(name, json!({})).await;
    }
    let now = site.revision().await;
    site.compact(now).await;
    // A cache that was filled after the compaction.
    let fresh = site.replica().await;
    let list = fresh.get(MAPS).await.ok(200);
    assert_eq!(version(&list), now);
    for served in [now, now + 1] {
        let mut watch = fresh
            .watch(&format!("{MAPS}?resourceVersion={served}"))
            .await;
        watch.is_silent().await;
    }
    let mut watch = fresh
        .watch(&format!("{MAPS}?resourceVersion={}", now - 1))
        .await;
    let frames = watch.rest().await;
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert_eq!(frames[0]["type"], "ERROR");
    let status = &frames[0]["object"];
    is_failure(status, 410, "Expired");
    // The message has the oldest version that can be served.
    let message = status["message"].as_str().unwrap();
    assert_eq!(
        message,
        format!("too old resource version: {} ({now})", now - 1)
    );
}

pub(crate) async fn wc_131_a_client_that_disconnects_affects_no_other(site: &Site) {
    let path = format!("{MAPS}?watch=1&resourceVersion={}", site.revision().await);
    let mut wire = site.connect(Protocol::Http2).await;
    for _ in 0..3 {
        let get = request(Method::GET, &path, &[], full(""));
        drop(wire.open(get).await.unwrap());
    }
    drop(site.watch(&path).await);
    let again = wire.get("/api/v1/namespaces/default/configmaps").await;
    assert_eq!(again.status, 200, "the connection lives on");
    let mut watch = site.watch(&from_now(site, MAPS).await).await;
    site.make("a", json!({})).await;
    assert_eq!(watch.words(1).await, ["ADDED a"]);
}

pub(crate) async fn wc_132_an_unreadable_value_is_one_error_and_the_end(site: &Site) {
    let mut watch = site.watch(&from_now(site, MAPS).await).await;
    site.make("a", json!({})).await;
    site.store("/configmaps/default/b", "not JSON").await;
    let frames = watch.rest().await;
    assert_eq!(word(&frames[0]), "ADDED a");
    assert_eq!(frames.len(), 2, "{frames:?}");
    is_failure(&frames[1]["object"], 500, "StorageReadError");
    site.unstore("/configmaps/default/b").await;
    let now = site.revision().await;
    Site::until("the cache follows the repaired resource", || async {
        let path = format!("{MAPS}?resourceVersion={now}");
        site.get(&path).await.code == 200
    })
    .await;
    let mut watch = site.watch(&from_now(site, MAPS).await).await;
    site.make("c", json!({})).await;
    assert_eq!(watch.words(1).await, ["ADDED c"]);
}

pub(crate) async fn wc_133_the_events_before_the_end_of_a_watch_are_a_prefix(site: &Site) {
    let begin = site.revision().await;
    site.make("a", json!({})).await;
    let path = format!("{MAPS}?resourceVersion={begin}");
    let mut cut = site.watch(&format!("{path}&timeoutSeconds=1")).await;
    let writing = async {
        for _ in 0..60 {
            site.change("a").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (frames, ()) = tokio::join!(cut.rest(), writing);
    let mut whole = site.watch(&path).await;
    let whole = whole.events(61).await;
    assert!(frames.len() < whole.len(), "it ended within");
    assert!(frames.len() > 1, "it sent some events");
    assert_eq!(frames, whole[..frames.len()]);
}

pub(crate) async fn wc_134_fifty_watches_that_never_read_delay_no_other(site: &Site) {
    let path = from_now(site, MAPS).await;
    let mut stuck = Vec::new();
    for _ in 0..50 {
        let mut wire = site.connect(Protocol::Http1).await;
        let get = request(Method::GET, &format!("{path}&watch=1"), &[], full(""));
        let body = wire.open(get).await.unwrap();
        stuck.push((wire, body));
    }
    let mut reading = site.watch(&path).await;
    let padding = "x".repeat(20_000);
    for n in 0..300 {
        let body = json!({"metadata": {"name": format!("m{n}")}, "data": {"p": padding}});
        let made = site.post(MAPS, &body).await.ok(201);
        let frames = reading.events(1).await.remove(0);
        assert_eq!(version(&frames["object"]), version(&made));
    }
    // One of them reads again and misses nothing.
    let (wire, body) = stuck.pop().unwrap();
    let mut late = super::watching::Watching::new(wire, body.into_body());
    assert_eq!(late.events(300).await.len(), 300);
}

pub(crate) async fn wc_137_a_watch_of_one_name_sees_one_object(site: &Site) {
    let named = format!("{MAPS}?fieldSelector=metadata.name%3Db");
    let mut watch = site.watch(&from_now(site, &named).await).await;
    let nodes = "/api/v1/nodes";
    let named = format!("{nodes}?fieldSelector=metadata.name%3Db");
    let mut node_watch = site.watch(&from_now(site, &named).await).await;
    for name in ["a", "b", "bb"] {
        site.make(name, json!({})).await;
        site.post(nodes, &json!({"metadata": {"name": name}}))
            .await
            .ok(201);
    }
    site.remove("b").await;
    assert_eq!(watch.words(2).await, ["ADDED b", "DELETED b"]);
    watch.is_silent().await;
    assert_eq!(node_watch.words(1).await, ["ADDED b"]);
    node_watch.is_silent().await;
}

pub(crate) async fn wc_139_a_malformed_version_is_a_bad_request(site: &Site) {
    for bad in ["abc", "-1", "1x", "18446744073709551616"] {
        let answer = site
            .get(&format!("{MAPS}?watch=1&resourceVersion={bad}"))
            .await;
        answer.failure(400, "BadRequest");
    }
}
