//! WC-150 to WC-169: initial events and bookmarks.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::site::{FRESHNESS_TIMEOUT, MAPS, Site, causes, is_failure, map, version};
use super::watching::word;

/// The query of a streaming list (KEP-3157).
const STREAM: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
const BOOKMARKS: &str = "allowWatchBookmarks=true";

fn words(frames: &[Value]) -> Vec<String> {
    frames.iter().map(word).collect()
}

/// Returns the next `count` frames, including bookmarks.
async fn next_frames(watch: &mut super::watching::Watching, count: usize) -> Vec<Value> {
    let mut frames = Vec::new();
    for _ in 0..count {
        frames.push(watch.next().await.expect("it goes on"));
    }
    frames
}

pub(crate) async fn wc_150_version_0_begins_with_the_state_in_key_order(site: &Site) {
    for name in ["b", "a-b", "a.b", "a"] {
        site.make(name, json!({})).await;
    }
    let make = |n: usize| async move { drop(site.make(&format!("m{n:04}"), json!({})).await) };
    for batch in 0..12 {
        futures::future::join_all((batch * 50..batch * 50 + 50).map(make)).await;
    }
    let list = site.get(MAPS).await.ok(200);
    let mut watch = site.watch(&format!("{MAPS}?resourceVersion=0")).await;
    let frames = watch.events(604).await;
    let objects: Vec<_> = frames.iter().map(|frame| frame["object"].clone()).collect();
    assert!(frames.iter().all(|frame| frame["type"] == "ADDED"));
    assert_eq!(objects, *list["items"].as_array().unwrap());
    watch.is_silent().await;
}

pub(crate) async fn wc_151_without_a_version_the_state_has_every_earlier_write(site: &Site) {
    let other = site.replica().await;
    for n in 0..20 {
        let name = format!("m{n:02}");
        site.make(&name, json!({})).await;
        for one in [site, &other] {
            let mut watch = one.watch(MAPS).await;
            let received = watch.words(n + 1).await;
            assert_eq!(received[n], format!("ADDED {name}"));
        }
    }
}

pub(crate) async fn wc_152_163_a_stream_ends_its_state_with_one_annotated_bookmark(site: &Site) {
    site.make("a", json!({})).await;
    site.make("b", json!({})).await;
    for query in [
        format!("{STREAM}&{BOOKMARKS}"),
        format!("{STREAM}&{BOOKMARKS}&resourceVersion=0"),
        BOOKMARKS.to_owned(),
        format!("{BOOKMARKS}&resourceVersion=0"),
    ] {
        let mut watch = site.watch(&format!("{MAPS}?{query}")).await;
        let frames = next_frames(&mut watch, 3).await;
        assert_eq!(
            words(&frames),
            ["ADDED a", "ADDED b", "BOOKMARK end"],
            "{query}"
        );
        let at = version(&frames[2]["object"]);
        let expected = json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {
                "resourceVersion": at.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
        });
        assert_eq!(frames[2]["object"], expected, "{query}");
        let changed = site.change("a").await;
        let next = watch.next().await.unwrap();
        assert_eq!(
            (word(&next), version(&next["object"])),
            ("MODIFIED a".into(), version(&changed))
        );
        watch.is_silent().await;
    }
}

pub(crate) async fn wc_153_161_a_watch_without_bookmarks_gets_none(site: &Site) {
    site.make("a", json!({})).await;
    for query in [
        STREAM.to_owned(),
        format!("{STREAM}&allowWatchBookmarks=false"),
        format!("{STREAM}&allowWatchBookmarks=0"),
    ] {
        // A bookmark would be sent shortly before this deadline.
        let mut watch = site
            .watch(&format!("{MAPS}?{query}&timeoutSeconds=3"))
            .await;
        assert_eq!(words(&watch.rest().await), ["ADDED a"], "{query}");
    }
}

pub(crate) async fn wc_156_a_stream_waits_for_its_version(site: &Site) {
    site.make("a", json!({})).await;
    let next = site.revision().await + 1;
    let path = format!("{MAPS}?{STREAM}&{BOOKMARKS}&resourceVersion={next}");
    let write = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        site.make("b", json!({})).await
    };
    let (mut watch, _) = tokio::join!(site.watch(&path), write);
    let frames = next_frames(&mut watch, 3).await;
    assert_eq!(words(&frames), ["ADDED a", "ADDED b", "BOOKMARK end"]);
    assert!(version(&frames[2]["object"]) >= next);
}

pub(crate) async fn wc_157_a_stream_from_the_future_is_one_error_after_three_seconds(site: &Site) {
    let ahead = site.revision().await + 1000;
    let begun = Instant::now();
    let mut watch = site
        .watch(&format!("{MAPS}?{STREAM}&resourceVersion={ahead}"))
        .await;
    let frames = watch.rest().await;
    let waited = begun.elapsed();
    assert_eq!(frames.len(), 1, "{frames:?}");
    let status = &frames[0]["object"];
    is_failure(status, 504, "Timeout");
    assert_eq!(causes(status)[0], "ResourceVersionTooLarge ");
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    assert!(waited >= Duration::from_millis(2500), "{waited:?}");
}

pub(crate) async fn wc_158_170_the_end_bookmark_has_the_version_of_the_store(site: &Site) {
    site.post(
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "other"}}),
    )
    .await
    .ok(201);
    let made = site.make("a", json!({})).await;
    let other = "/api/v1/namespaces/other/configmaps";
    let elsewhere = site.post(other, &map("b", json!({}))).await.ok(201);
    let mut watch = site.watch(&format!("{MAPS}?{STREAM}&{BOOKMARKS}")).await;
    let frames = next_frames(&mut watch, 2).await;
    assert_eq!(
        words(&frames),
        ["ADDED a", "BOOKMARK end"],
        "of this namespace only"
    );
    let at = version(&frames[1]["object"]);
    assert!(at > version(&made) && at >= version(&elsewhere), "{at}");
}

pub(crate) async fn wc_159_a_streaming_list_of_one_name(site: &Site) {
    site.make("a", json!({})).await;
    site.make("b", json!({})).await;
    for name in ["a", "b"] {
        site.post("/api/v1/nodes", &json!({"metadata": {"name": name}}))
            .await
            .ok(201);
    }
    for path in [MAPS, "/api/v1/configmaps", "/api/v1/nodes"] {
        let one = format!("{path}?{STREAM}&{BOOKMARKS}&fieldSelector=metadata.name%3Db");
        let frames = next_frames(&mut site.watch(&one).await, 2).await;
        assert_eq!(words(&frames), ["ADDED b", "BOOKMARK end"], "{path}");
        let none = format!("{path}?{STREAM}&{BOOKMARKS}&fieldSelector=metadata.name%3Dmissing");
        let frames = next_frames(&mut site.watch(&none).await, 1).await;
        assert_eq!(words(&frames), ["BOOKMARK end"], "{path}");
    }
}

pub(crate) async fn wc_160_objects_that_change_during_initial_events_follow_in_order(site: &Site) {
    const COUNT: usize = 600;
    let padding = "x".repeat(4000);
    let make = |n: usize| {
        let body = json!({"metadata": {"name": format!("m{n:04}")}, "data": {"p": padding}});
        async move { drop(site.post(MAPS, &body).await.ok(201)) }
    };
    for batch in 0..COUNT / 50 {
        futures::future::join_all((batch * 50..batch * 50 + 50).map(make)).await;
    }
    let mut watch = site.watch(&format!("{MAPS}?{STREAM}&{BOOKMARKS}")).await;
    let change = |n: usize| async move { drop(site.change(&format!("m{n:04}")).await) };
    let changing = async {
        for batch in 0..COUNT / 50 {
            futures::future::join_all((batch * 50..batch * 50 + 50).map(change)).await;
        }
    };
    // `Watching` checks the order of the versions.
    let reading = async {
        let mut received = Vec::new();
        while received.len() < 2 * COUNT + 1 {
            received.push(watch.next().await.expect("it goes on"));
            if received.len() % 100 == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        received
    };
    let (received, ()) = tokio::join!(reading, changing);
    let end = received
        .iter()
        .position(|frame| word(frame) == "BOOKMARK end");
    let end = end.expect("the state ends");
    assert_eq!(end, COUNT, "all of one state");
    let border = version(&received[end]["object"]);
    for frame in &received[end + 1..] {
        assert!(version(&frame["object"]) > border, "{frame}");
    }
}

pub(crate) async fn wc_162_the_last_bookmark_comes_two_seconds_before_the_deadline(site: &Site) {
    let begun = Instant::now();
    let path = format!("{MAPS}?resourceVersion=0&{BOOKMARKS}&timeoutSeconds=4");
    let mut watch = site.watch(&path).await;
    assert_eq!(word(&watch.next().await.unwrap()), "BOOKMARK end");
    let busy = async {
        // Continuous events do not delay the bookmark.
        for n in 0..15 {
            site.make(&format!("m{n}"), json!({})).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let bookmark = async {
        loop {
            let frame = watch.next().await.expect("it comes before the end");
            if word(&frame) == "BOOKMARK" {
                return begun.elapsed();
            }
        }
    };
    let (at, ()) = tokio::join!(bookmark, busy);
    assert!(at >= Duration::from_millis(1900), "{at:?}");
    watch.rest().await;
    assert!(begun.elapsed() >= Duration::from_millis(3900));
}

pub(crate) async fn wc_164_events_and_bookmarks_never_go_back(site: &Site) {
    let path = format!("{MAPS}?{STREAM}&{BOOKMARKS}&timeoutSeconds=3");
    let mut watches = Vec::new();
    for _ in 0..4 {
        watches.push(site.watch(&path).await);
    }
    let writing = async {
        for n in 0..100 {
            site.make(&format!("m{n:03}"), json!({})).await;
        }
    };
    // `Watching` checks the order.
    let reading = futures::future::join_all(watches.iter_mut().map(|watch| watch.rest()));
    let (received, ()) = tokio::join!(reading, writing);
    for frames in received {
        let bookmarks = frames
            .iter()
            .filter(|frame| frame["type"] == "BOOKMARK")
            .count();
        assert!(
            bookmarks >= 2,
            "the end of the state, and the last one: {bookmarks}"
        );
    }
}

pub(crate) async fn wc_166_167_contradictory_watch_options_are_invalid(site: &Site) {
    const FORBIDDEN: &str = "FieldValueForbidden resourceVersionMatch";
    const UNKNOWN: &str = "FieldValueNotSupported resourceVersionMatch";
    for (query, expected) in [
        ("sendInitialEvents=true", vec![FORBIDDEN]),
        ("sendInitialEvents=false", vec![FORBIDDEN]),
        (
            "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
            vec![FORBIDDEN, UNKNOWN],
        ),
        (
            "resourceVersionMatch=NotOlderThan&resourceVersion=1",
            vec![FORBIDDEN],
        ),
    ] {
        let answer = site.get(&format!("{MAPS}?watch=1&{query}")).await;
        let status = answer.failure(422, "Invalid");
        assert_eq!(status["details"]["kind"], "ListOptions", "{status}");
        assert_eq!(causes(&status), expected, "{query}");
    }
}

pub(crate) async fn wc_168_without_trusted_progress_storage_begins_the_stream(site: &Site) {
    site.make("a", json!({})).await;
    let other = site.replica().await;
    other.storage.distrust_progress();
    let now = version(&site.make("b", json!({})).await);
    for query in ["", "&resourceVersion=0", &format!("&resourceVersion={now}")] {
        let begun = Instant::now();
        let path = format!("{MAPS}?{STREAM}&{BOOKMARKS}{query}");
        let mut watch = other.watch(&path).await;
        let mut state = Vec::new();
        while state.last().is_none_or(|last| last != "BOOKMARK end") {
            state.push(word(&watch.next().await.expect("it goes on")));
        }
        let took = begun.elapsed();
        assert!(
            took < FRESHNESS_TIMEOUT,
            "{query}: nothing to wait for: {took:?}"
        );
        if query != "&resourceVersion=0" {
            assert_eq!(state, ["ADDED a", "ADDED b", "BOOKMARK end"], "{query}");
        }
        // The watch continues after the list of storage.
        let changed = version(&site.change("b").await);
        while watch.position() < changed {
            watch.events(1).await;
        }
    }
}
