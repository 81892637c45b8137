//! WC-080 to WC-101: lists at each kind of version, and their pages.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::site::{MAPS, Site, causes, names, version};

/// Creates config maps with these names and returns the version after each.
async fn fill(site: &Site, names: &[&str]) -> Vec<u64> {
    let mut versions = Vec::new();
    for name in names {
        versions.push(version(&site.make(name, json!({})).await));
    }
    versions
}

async fn list(site: &Site, query: &str) -> Value {
    site.get(&format!("{MAPS}?{query}")).await.ok(200)
}

fn exact(at: u64) -> String {
    format!("resourceVersionMatch=Exact&resourceVersion={at}")
}

fn token(list: &Value) -> Option<String> {
    let token = list["metadata"]["continue"].as_str()?;
    assert!(!token.is_empty(), "absent, not empty: {list}");
    Some(token.to_owned())
}

pub(crate) async fn wc_080_082_a_list_shows_every_write_finished_before_it(site: &Site) {
    let writers = (0..4).map(|writer| async move {
        for n in 0..10 {
            let name = format!("w{writer}-{n}");
            let made = site.make(&name, json!({})).await;
            let list = list(site, "").await;
            assert!(names(&list).contains(&name.as_str()), "{name} in {list}");
            assert!(version(&list) >= version(&made));
            for item in list["items"].as_array().unwrap() {
                assert!(version(item) <= version(&list), "{item}");
            }
        }
    });
    futures::future::join_all(writers).await;
}

pub(crate) async fn wc_081_cache_and_storage_list_the_same_in_the_same_order(site: &Site) {
    fill(site, &["b", "a.b", "a-b", "a", "a0", "c"]).await;
    let cached = list(site, "").await;
    let other = site.replica().await;
    other.storage.distrust_progress();
    let stored = list(&other, "").await;
    assert_eq!(cached["items"], stored["items"]);
    assert_eq!(names(&cached), ["a", "a-b", "a.b", "a0", "b", "c"]);
    let paged = list(&other, "limit=2").await;
    assert_eq!(
        paged["items"],
        json!(&cached["items"].as_array().unwrap()[..2])
    );
}

pub(crate) async fn wc_086_an_exact_list_at_a_compacted_version_is_expired(site: &Site) {
    let old = fill(site, &["a", "b", "c"]).await[0];
    let now = site.revision().await;
    site.compact(now).await;
    // The same for a cache that was filled after the compaction.
    let fresh = site.replica().await;
    let answer = fresh.get(&format!("{MAPS}?{}", exact(old))).await;
    answer.failure(410, "Expired");
    let now = list(&fresh, &exact(now)).await;
    assert_eq!(names(&now), ["a", "b", "c"]);
}

pub(crate) async fn wc_087_an_exact_list_of_the_future_is_too_large(site: &Site) {
    fill(site, &["a"]).await;
    let ahead = site.revision().await + 1000;
    let answer = site.get(&format!("{MAPS}?{}", exact(ahead))).await;
    let status = answer.failure(504, "Timeout");
    assert_eq!(causes(&status)[0], "ResourceVersionTooLarge ");
}

pub(crate) async fn wc_088_not_older_than_the_future_waits_three_seconds(site: &Site) {
    fill(site, &["a"]).await;
    let ahead = site.revision().await + 1000;
    let begun = Instant::now();
    let query = format!("resourceVersionMatch=NotOlderThan&resourceVersion={ahead}");
    let answer = site.get(&format!("{MAPS}?{query}")).await;
    let waited = begun.elapsed();
    let status = answer.failure(504, "Timeout");
    assert_eq!(status["details"]["retryAfterSeconds"], 1, "{status}");
    assert!(waited >= Duration::from_millis(2500), "{waited:?}");
}

pub(crate) async fn wc_091_version_0_ignores_the_limit(site: &Site) {
    fill(site, &["a", "b", "c"]).await;
    site.get(MAPS).await.ok(200);
    let all = list(site, "resourceVersion=0&limit=1").await;
    assert_eq!((names(&all), token(&all)), (vec!["a", "b", "c"], None));
    let first = list(site, "limit=1").await;
    let rest = token(&first).unwrap();
    let rest = list(site, &format!("resourceVersion=0&limit=1&continue={rest}")).await;
    assert_eq!((names(&rest), token(&rest)), (vec!["b", "c"], None));
}

pub(crate) async fn wc_092_to_096_contradictory_list_options_are_invalid(site: &Site) {
    fill(site, &["a", "b"]).await;
    let rest = token(&list(site, "limit=1").await).unwrap();
    let cases = [
        (
            "resourceVersionMatch=Exact",
            "FieldValueForbidden resourceVersionMatch",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            "FieldValueForbidden resourceVersionMatch",
        ),
        (
            "resourceVersionMatch=Near&resourceVersion=1",
            "FieldValueNotSupported resourceVersionMatch",
        ),
        (
            "sendInitialEvents=true",
            "FieldValueForbidden sendInitialEvents",
        ),
        (
            "sendInitialEvents=false",
            "FieldValueForbidden sendInitialEvents",
        ),
    ];
    for (query, cause) in cases {
        let status = site
            .get(&format!("{MAPS}?{query}"))
            .await
            .failure(422, "Invalid");
        assert_eq!(status["details"]["kind"], "ListOptions", "{status}");
        assert_eq!(status["details"]["group"], "meta.k8s.io", "{status}");
        assert_eq!(causes(&status), [cause], "{query}");
    }
    let query = format!("resourceVersionMatch=NotOlderThan&continue={rest}");
    let status = site
        .get(&format!("{MAPS}?{query}"))
        .await
        .failure(422, "Invalid");
    assert!(causes(&status).contains(&"FieldValueForbidden resourceVersionMatch".to_owned()));
}

pub(crate) async fn wc_097_098_099_invalid_continue_tokens_are_rejected(site: &Site) {
    use base64::Engine as _;
    fill(site, &["a", "b"]).await;
    let rest = token(&list(site, "limit=1").await).unwrap();
    let with = |version: &str| format!("{MAPS}?resourceVersion={version}&continue={rest}");
    site.get(&with("1")).await.failure(400, "BadRequest");
    assert_eq!(names(&site.get(&with("0")).await.ok(200)), ["b"]);
    let at = site.revision().await;
    let spell = |text: String| base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(text);
    for bad in [
        "garbage!".to_owned(),
        "AAAA".to_owned(),
        spell(format!(r#"{{"v":"meta.k8s.io/v2","rv":{at},"start":"a"}}"#)),
        spell(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#.to_owned()),
        spell(format!(r#"{{"v":"meta.k8s.io/v1","rv":{at},"start":""}}"#)),
        spell(format!(
            r#"{{"v":"meta.k8s.io/v1","rv":{at},"start":"../a"}}"#
        )),
    ] {
        let answer = site.get(&format!("{MAPS}?continue={bad}")).await;
        let status = answer.failure(400, "BadRequest");
        let message = status["message"].as_str().unwrap();
        assert!(
            message.starts_with("invalid continue token: "),
            "{bad}: {message}"
        );
    }
    // kube-apiserver writes the start key relative to the listed prefix.
    let theirs = spell(format!(
        r#"{{"v":"meta.k8s.io/v1","rv":{at},"start":"a\u0000"}}"#
    ));
    assert_eq!(
        names(&list(site, &format!("continue={theirs}")).await),
        ["b"]
    );
}
