//! WC-180 to WC-191: a cache that is not ready, has stopped, or is behind. `crates/cacher/src/tests` has the tests that
//! need a paused clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::site::{FRESHNESS_TIMEOUT, MAPS, Site, names, version};

const A: &str = "/api/v1/namespaces/default/configmaps/a";

/// Starts a replica and fills the caches that every write needs: namespaces and admission configurations.
async fn replica(site: &Site) -> Site {
    let other = site.replica().await;
    let body = json!({"metadata": {"name": "nothing"}});
    let probe = format!("{MAPS}?dryRun=All");
    other.post(&probe, &body).await.ok(201);
    other
}

/// Starts a replica that cannot fill any other cache.
async fn not_ready(site: &Site) -> Site {
    let other = replica(site).await;
    other.storage.refuse_loading(true);
    other
}

pub(crate) async fn wc_180_198_watch_of_a_cache_that_is_not_ready_is_a_429(site: &Site) {
    site.make("a", json!({})).await;
    let other = not_ready(site).await;
    for query in [
        "watch=1",
        "watch=1&resourceVersion=0",
        "watch=1&resourceVersion=1",
    ] {
        let answer = other.get(&format!("{MAPS}?{query}")).await;
        let status = answer.failure(429, "TooManyRequests");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("(re)initializing"), "{message}");
        assert_eq!(status["details"]["retryAfterSeconds"], 1, "{status}");
    }
    other.storage.refuse_loading(false);
    Site::until("the cache fills", || async {
        other.get(&format!("{MAPS}?resourceVersion=0")).await.code == 200
    })
    .await;
    let mut watch = other.watch(MAPS).await;
    assert_eq!(watch.words(1).await, ["ADDED a"]);
}

pub(crate) async fn wc_181_182_small_reads_come_from_storage_until_the_cache_is_ready(site: &Site) {
    let made = site.make("a", json!({})).await;
    site.make("b", json!({})).await;
    let other = not_ready(site).await;
    let ahead = site.revision().await + 1000;
    for query in [
        "",
        "?resourceVersion=0",
        &format!("?resourceVersion={}", version(&made)),
    ] {
        assert_eq!(
            other.get(&format!("{A}{query}")).await.ok(200),
            made,
            "{query}"
        );
    }
    let future = other.get(&format!("{A}?resourceVersion={ahead}")).await;
    future.failure(504, "Timeout");
    let page = other.get(&format!("{MAPS}?limit=1")).await.ok(200);
    assert_eq!(names(&page), ["a"]);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = other
        .get(&format!("{MAPS}?limit=1&continue={token}"))
        .await
        .ok(200);
    assert_eq!(names(&rest), ["b"]);
    for query in [
        "",
        "?limit=1&labelSelector=a%3Db",
        "?limit=1&resourceVersion=0",
    ] {
        let answer = other.get(&format!("{MAPS}{query}")).await;
        answer.failure(429, "TooManyRequests");
    }
    // Writes succeed.
    other.make("c", json!({})).await;
}

pub(crate) async fn wc_183_after_a_stop_watches_end_and_small_reads_continue(site: &Site) {
    let made = site.make("a", json!({})).await;
    let path = format!("{MAPS}?resourceVersion={}", version(&made));
    let mut open = site.watch(&path).await;
    site.make("b", json!({})).await;
    assert_eq!(open.words(1).await, ["ADDED b"]);
    site.stop_caches();
    assert!(open.rest().await.is_empty(), "no ERROR");
    let refused = site.get(&format!("{path}&watch=1")).await;
    refused.failure(503, "ServiceUnavailable");
    let begun = Instant::now();
    let got = site.get(A).await.ok(200);
    assert_eq!(got, made);
    let page = site.get(&format!("{MAPS}?limit=1")).await.ok(200);
    assert_eq!(names(&page), ["a"]);
    let took = begun.elapsed();
    assert!(
        took < FRESHNESS_TIMEOUT,
        "no request waits for a stopped cache: {took:?}"
    );
}

pub(crate) async fn wc_189_an_exact_list_beyond_history_comes_from_storage(site: &Site) {
    let old = version(&site.make("a", json!({})).await);
    site.make("b", json!({})).await;
    let other = replica(site).await;
    other.get(MAPS).await.ok(200);
    let lists = other.storage.lists.load(Ordering::SeqCst);
    let exact = format!("{MAPS}?resourceVersionMatch=Exact&resourceVersion={old}");
    assert_eq!(names(&other.get(&exact).await.ok(200)), ["a"]);
    assert_eq!(other.storage.lists.load(Ordering::SeqCst), lists + 1);
    let exact = format!(
        "{MAPS}?resourceVersionMatch=Exact&resourceVersion={}",
        site.revision().await
    );
    assert_eq!(names(&other.get(&exact).await.ok(200)), ["a", "b"]);
    assert_eq!(
        other.storage.lists.load(Ordering::SeqCst),
        lists + 1,
        "this one was retained"
    );
}

pub(crate) async fn wc_191_a_cache_that_stays_behind_leaves_consistent_lists_to_storage(
    site: &Site,
) {
    site.make("a", json!({})).await;
    site.get(MAPS).await.ok(200);
    site.storage.freeze(true);
    let body = json!({"metadata": {"name": "b"}}).to_string();
    let json = [("content-type", "application/json")];
    site.send(Method::POST, MAPS, &json, &body).await.ok(201);
    let lists = site.storage.lists.load(Ordering::SeqCst);
    let fallen_back = || async {
        let reads = "apiserver_watch_cache_consistent_read_total";
        let labels = [
            "resource=\"configmaps\"",
            "success=\"true\"",
            "fallback=\"true\"",
        ];
        site.scrape().await.sum(reads, &labels)
    };
    let before = fallen_back().await;
    let begun = Instant::now();
    assert_eq!(names(&site.get(MAPS).await.ok(200)), ["a", "b"]);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(2900), "{took:?}");
    assert_eq!(site.storage.lists.load(Ordering::SeqCst), lists + 1);
    assert_eq!(fallen_back().await, before + 1.0);
    site.storage.freeze(false);
    Site::until("the cache catches up", || async {
        let list = site.get(&format!("{MAPS}?resourceVersion=0")).await;
        names(&list.ok(200)) == ["a", "b"]
    })
    .await;
}

/// Storage is unreachable. No line of the checklist covers it.
pub(crate) async fn unavailable_storage_is_an_error_with_retry_after(site: &Site) {
    let made = site.make("a", json!({})).await;
    site.get(MAPS).await.ok(200);
    // Fills the caches that admission plugins read; otherwise their errors would come first.
    site.post(&MAPS.replace("configmaps", "pods"), &pod("before"))
        .await
        .ok(201);
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    site.get(classes).await.ok(200);
    site.storage.set_down(true);
    let body = json!({"metadata": {"name": "b"}});
    let status = site.post(MAPS, &body).await.failure(500, "ServerTimeout");
    assert_eq!(status["details"]["retryAfterSeconds"], 2, "{status}");
    let status = site.get(MAPS).await.failure(500, "ServerTimeout");
    assert_eq!(status["details"]["retryAfterSeconds"], 2, "{status}");
    reads_of_admission_plugins_fail_alike(site).await;
    // Reads that allow stale data succeed, and open watches continue when storage is available again.
    let list = site.get(&format!("{MAPS}?resourceVersion=0")).await.ok(200);
    assert_eq!(names(&list), ["a"]);
    let path = format!("{MAPS}?resourceVersion={}", version(&made));
    let mut watch = site.watch(&path).await;
    site.storage.set_down(false);
    site.make("b", json!({})).await;
    assert_eq!(watch.words(1).await, ["ADDED b"]);
}

/// Storage executes a write, but its response is lost. As a ServerTimeout with Retry-After, client-go repeated the
/// request by itself: there were two objects with generateName, and a JSON patch was applied twice. No line of the
/// checklist covers it.
pub(crate) async fn an_unknown_outcome_is_an_error_without_retry_after(site: &Site) {
    let object = format!("{MAPS}/a");
    site.make("a", json!({})).await;
    site.post(MAPS, &json!({"metadata": {"name": "b"}}))
        .await
        .ok(201);
    site.storage.lose_acknowledgements(true);
    let writes = || site.storage.writes.load(Ordering::SeqCst);
    let before = writes();
    let append = json!([{"op": "add", "path": "/data", "value": {"k": "v"}}]);
    let answers = [
        site.post(MAPS, &json!({"metadata": {"generateName": "g-"}}))
            .await,
        site.post(MAPS, &json!({"metadata": {"name": "c"}})).await,
        site.put(
            &object,
            &json!({"metadata": {"name": "a"}, "data": {"k": "u"}}),
        )
        .await,
        site.patch(&object, "json", &append).await,
        site.delete(&format!("{MAPS}/b"), &json!({})).await,
    ];
    let executed = writes() - before;
    for answer in &answers {
        let status = answer.ok(500);
        let retry = answer.headers.get("retry-after");
        assert_eq!((retry, &status["details"]), (None, &Value::Null));
        assert_eq!(status["reason"].as_str().unwrap_or_default(), "");
        let text = status["message"].as_str().unwrap();
        assert!(
            text.starts_with("the outcome of the write is unknown: the case says so"),
            "{text}"
        );
    }
    assert_eq!(executed, answers.len(), "none is repeated");
    site.storage.lose_acknowledgements(false);
    let list = site.get(MAPS).await.ok(200);
    let names = names(&list);
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(
        names[0] == "a" && names[1] == "c" && names[2].starts_with("g-"),
        "{names:?}"
    );
    assert_eq!(list["items"][0]["data"]["k"], "v");
}

/// If storage was unreachable, a read of an admission plugin failed with a 500 InternalError, which clients do not
/// retry, instead of a ServerTimeout.
async fn reads_of_admission_plugins_fail_alike(site: &Site) {
    let pods = MAPS.replace("configmaps", "pods");
    // These classes are not in the cache, so the plugins read them from storage.
    for (member, name) in [
        ("priorityClassName", "high"),
        ("runtimeClassName", "sandbox"),
    ] {
        let mut pod = pod("p");
        pod["spec"][member] = json!(name);
        let status = site.post(&pods, &pod).await.failure(500, "ServerTimeout");
        assert_eq!(status["details"]["retryAfterSeconds"], 2, "{status}");
    }
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}
