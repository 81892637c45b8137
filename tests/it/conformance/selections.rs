//! WC-103 to WC-115, WC-208 to WC-211, WC-219 and WC-220: selectors of lists, and the ends of pages.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::site::{MAPS, Site, causes, map, names, pod, version};

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn list(site: &Site, query: &str) -> Value {
    site.get(&format!("{MAPS}?{query}")).await.ok(200)
}

pub(crate) async fn wc_103_104_105_a_filtered_page_finds_its_match_and_counts_nothing(site: &Site) {
    let make = |n: usize| async move {
        let app = if n == 700 { "needle" } else { "hay" };
        site.make(&format!("m{n:04}"), json!({"app": app})).await;
    };
    for batch in 0..20 {
        futures::future::join_all((batch * 50..batch * 50 + 50).map(make)).await;
    }
    for one in [site, &distrusting(site).await] {
        let page = list(one, "labelSelector=app%3Dneedle&limit=1").await;
        assert_eq!(names(&page), ["m0700"]);
        assert!(page["metadata"]["remainingItemCount"].is_null(), "{page}");
        let token = page["metadata"]["continue"]
            .as_str()
            .expect("there are more objects");
        let next = format!("labelSelector=app%3Dneedle&limit=1&continue={token}");
        let next = list(one, &next).await;
        assert!(names(&next).is_empty(), "{next}");
        assert!(next["metadata"]["continue"].is_null(), "{next}");
        let page = list(one, "fieldSelector=metadata.name%21%3Dm0000&limit=3").await;
        assert_eq!(names(&page), ["m0001", "m0002", "m0003"]);
        assert!(page["metadata"]["remainingItemCount"].is_null(), "{page}");
    }
}

/// Starts a replica that reads lists from storage, because progress responses are not reliable.
async fn distrusting(site: &Site) -> Site {
    let other = site.replica().await;
    other.storage.distrust_progress();
    other
}

pub(crate) async fn wc_106_107_an_expired_token_comes_back_with_a_fresh_one(site: &Site) {
    for name in ["a", "b", "c"] {
        site.make(name, json!({})).await;
    }
    let first = list(site, "limit=1").await;
    let old = first["metadata"]["continue"].as_str().unwrap().to_owned();
    site.make("b2", json!({})).await;
    site.compact(site.revision().await).await;
    let fresh = site.replica().await;
    let answer = fresh.get(&format!("{MAPS}?limit=1&continue={old}")).await;
    let status = answer.failure(410, "Expired");
    let token = status["metadata"]["continue"]
        .as_str()
        .expect("a fresh token");
    let rest = list(&fresh, &format!("continue={token}")).await;
    assert_eq!(
        names(&rest),
        ["b", "b2", "c"],
        "the latest, from the same key on"
    );
    assert!(version(&rest) > version(&first));
}

pub(crate) async fn wc_108_tokens_work_on_another_replica_and_after_a_restart(site: &Site) {
    for name in ["a", "b", "c"] {
        site.make(name, json!({})).await;
    }
    let namespaced = list(site, "limit=1").await;
    let all = site.get("/api/v1/configmaps?limit=1").await.ok(200);
    let other = site.replica().await;
    for (path, first) in [(MAPS, &namespaced), ("/api/v1/configmaps", &all)] {
        let token = first["metadata"]["continue"].as_str().unwrap();
        let rest = other.get(&format!("{path}?continue={token}")).await.ok(200);
        assert_eq!(
            (names(&rest), version(&rest)),
            (vec!["b", "c"], version(first)),
            "{path}"
        );
    }
}

pub(crate) async fn wc_109_a_list_of_one_name_is_that_object_or_none(site: &Site) {
    let mut versions = Vec::new();
    for name in ["a", "b", "c"] {
        let node = json!({"metadata": {"name": name}});
        let made = site.post("/api/v1/nodes", &node).await.ok(201);
        versions.push(version(&made));
        site.make(name, json!({})).await;
    }
    let now = site.revision().await;
    for path in ["/api/v1/nodes", MAPS] {
        let at =
            |name: &str, query: &str| format!("{path}?fieldSelector=metadata.name%3D{name}{query}");
        for query in [
            "",
            "&limit=1",
            "&resourceVersion=0",
            &format!("&resourceVersion={now}"),
        ] {
            let list = site.get(&at("b", query)).await.ok(200);
            assert_eq!(names(&list), ["b"], "{path} {query}");
            assert!(
                list["metadata"]["continue"].is_null(),
                "{path} {query}: {list}"
            );
        }
        let none = site.get(&at("missing", "&limit=1")).await.ok(200);
        assert!(names(&none).is_empty());
        assert!(none["metadata"]["continue"].is_null(), "{none}");
        let ahead = now + 1000;
        let future = site
            .get(&at("b", &format!("&resourceVersion={ahead}")))
            .await;
        future.failure(504, "Timeout");
    }
    let before_b = format!(
        "&resourceVersionMatch=Exact&resourceVersion={}",
        versions[0]
    );
    let path = format!("/api/v1/nodes?fieldSelector=metadata.name%3Db{before_b}");
    assert!(
        names(&site.get(&path).await.ok(200)).is_empty(),
        "it was not there yet"
    );
}

pub(crate) async fn wc_110_namespaces_and_filters_work_together(site: &Site) {
    site.post(
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "other"}}),
    )
    .await
    .ok(201);
    let other = "/api/v1/namespaces/other/configmaps";
    for name in ["a", "b"] {
        site.make(name, json!({"app": name})).await;
        site.post(other, &map(name, json!({"app": name})))
            .await
            .ok(201);
    }
    for one in [site, &distrusting(site).await] {
        let list = one
            .get(&format!("{other}?labelSelector=app%3Da"))
            .await
            .ok(200);
        assert_eq!(names(&list), ["a"]);
        assert_eq!(list["items"][0]["metadata"]["namespace"], "other");
        let by_field = "/api/v1/configmaps?fieldSelector=metadata.namespace%3Dother";
        assert_eq!(names(&one.get(by_field).await.ok(200)), ["a", "b"]);
        let both = format!("{by_field},metadata.name%3Db&labelSelector=app%3Db");
        assert_eq!(names(&one.get(&both).await.ok(200)), ["b"]);
        let neither = format!("{by_field},metadata.name%3Db&labelSelector=app%3Da");
        assert!(names(&one.get(&neither).await.ok(200)).is_empty());
    }
}

pub(crate) async fn wc_111_an_indexed_field_selects_the_same_as_a_scan(site: &Site) {
    for n in 0..30 {
        let node = ["", "n1", "n2"][n % 3];
        site.post(PODS, &pod(&format!("p{n:02}"), node))
            .await
            .ok(201);
    }
    site.move_pod("p00", "n2").await;
    site.delete(&format!("{PODS}/p02"), &json!({"gracePeriodSeconds": 0}))
        .await
        .ok(200);
    for node in ["n1", "n2", "n3"] {
        let list = |field: &str| {
            let path = format!("{PODS}?fieldSelector={field}");
            async move { site.get(&path).await.ok(200)["items"].clone() }
        };
        let indexed = list(&format!("spec.nodeName%3D{node}")).await;
        let alias = list(&format!("spec.host%3D{node}")).await;
        let others: Vec<_> = ["", "n1", "n2", "n3"]
            .iter()
            .filter(|other| **other != node)
            .map(|other| format!("spec.nodeName%21%3D{other}"))
            .collect();
        let scanned = list(&others.join(",")).await;
        assert_eq!(indexed, scanned, "{node}");
        assert_eq!(alias, scanned, "{node}");
    }
}

pub(crate) async fn wc_112_a_list_over_corrupt_objects_names_them(site: &Site) {
    for n in 0..103 {
        site.store(&format!("/configmaps/default/bad{n:03}"), "not JSON")
            .await;
    }
    let fresh = site.replica().await;
    let status = fresh
        .get(&format!("{MAPS}?limit=500"))
        .await
        .failure(500, "StorageReadError");
    let reported = causes(&status);
    assert_eq!(reported.len(), 101, "{status}");
    for (n, cause) in reported[..100].iter().enumerate() {
        let expected = format!("UnexpectedServerResponse /configmaps/default/bad{n:03}");
        assert_eq!(cause, &expected);
    }
    assert!(
        status["details"]["causes"][100]["message"]
            .as_str()
            .unwrap()
            .contains("too many")
    );
}

pub(crate) async fn wc_114_an_empty_list_has_items(site: &Site) {
    for query in ["", "?resourceVersion=0", "?limit=5"] {
        let answer = site.get(&format!("{MAPS}{query}")).await;
        assert_eq!(answer.ok(200)["items"], json!([]), "{query}");
    }
    let body = site.get(MAPS).await.body;
    let text = std::str::from_utf8(&body).unwrap();
    assert!(text.contains(r#""items":[]"#), "{text}");
}

pub(crate) async fn wc_115_object_counts_follow_creates_and_deletes(site: &Site) {
    let count = || async {
        // A consistent list waits for the cache, which counts the objects.
        site.get(MAPS).await.ok(200);
        let series = "apiserver_resource_objects{group=\"\",resource=\"configmaps\"}";
        site.scrape().await.get(series)
    };
    assert_eq!(count().await, Some(0.0));
    for name in ["a", "b", "c"] {
        site.make(name, json!({})).await;
    }
    assert_eq!(count().await, Some(3.0));
    site.remove("b").await;
    assert_eq!(count().await, Some(2.0));
}

pub(crate) async fn wc_208_an_unknown_field_is_a_bad_request(site: &Site) {
    let bad = site.get(&format!("{MAPS}?fieldSelector=data.x%3D1")).await;
    let status = bad.failure(400, "BadRequest");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("is not a known field selector"),
        "{message}"
    );
    let bad = site.get(&format!("{PODS}?fieldSelector=spec.x%3D1")).await;
    let status = bad.failure(400, "BadRequest");
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("field label not supported: spec.x")
    );
    let watch = site
        .get(&format!("{PODS}?watch=1&fieldSelector=spec.x%3D1"))
        .await;
    watch.failure(400, "BadRequest");
}

pub(crate) async fn wc_209_negative_requirements_match_objects_without_the_key(site: &Site) {
    site.make("none", json!({})).await;
    site.make("x", json!({"app": "x"})).await;
    site.make("y", json!({"app": "y"})).await;
    for (selector, expected) in [
        ("app%21%3Dx", vec!["none", "y"]),
        ("app+notin+(x,z)", vec!["none", "y"]),
        ("%21app", vec!["none"]),
        ("app", vec!["x", "y"]),
        ("app+in+(x,y),app%21%3Dy", vec!["x"]),
        ("app+in+()", vec![]),
    ] {
        let selected = list(site, &format!("labelSelector={selector}")).await;
        assert_eq!(names(&selected), expected, "{selector}");
    }
    for bad in ["app+in+x", "a+b", "app%3D%3D%3Dx", "-x%3D1", "app%3E-1"] {
        let answer = site.get(&format!("{MAPS}?labelSelector={bad}")).await;
        answer.failure(400, "BadRequest");
    }
}

pub(crate) async fn wc_210_a_comma_in_a_field_value_is_escaped(site: &Site) {
    let events = "/api/v1/namespaces/default/events";
    for (name, reason) in [
        ("a", "Killed,Again"),
        ("b", "Killed"),
        ("c", r"back\slash=x"),
    ] {
        let body = json!({
            "metadata": {"name": name}, "reason": reason,
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        });
        site.post(events, &body).await.ok(201);
    }
    for (selector, expected) in [
        (r"reason%3DKilled%5C,Again", vec!["a"]),
        (r"reason%3DKilled", vec!["b"]),
        (r"reason%3Dback%5C%5Cslash%5C%3Dx", vec!["c"]),
    ] {
        let list = site
            .get(&format!("{events}?fieldSelector={selector}"))
            .await
            .ok(200);
        assert_eq!(names(&list), expected, "{selector}");
    }
}

pub(crate) async fn wc_211_a_name_in_the_selector_must_be_that_of_the_path(site: &Site) {
    site.make("a", json!({})).await;
    let path = "/api/v1/watch/namespaces/default/configmaps/a?timeoutSeconds=1";
    for bad in ["metadata.name%3Db", "metadata.name%21%3Da"] {
        let answer = site.get(&format!("{path}&fieldSelector={bad}")).await;
        answer.failure(400, "BadRequest");
    }
    let good = site
        .get(&format!("{path}&fieldSelector=metadata.name%3Da"))
        .await;
    assert_eq!(good.code, 200);
    assert!(!good.body.is_empty());
}

/// Returns a shard selector of these ranges over a field.
fn shards(field: &str, ranges: &[(&str, &str)]) -> String {
    let range = |(from, to): &(&str, &str)| format!("shardRange(object.{field}, '{from}', '{to}')");
    let text: Vec<_> = ranges.iter().map(range).collect();
    percent(&text.join(" || "))
}

fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let spell = |byte: u8| match plain(byte) {
        true => (byte as char).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(spell).collect()
}

const LOW: &str = "0x0000000000000000";
const THIRD: &str = "0x5555555555555555";
const TOP_THIRD: &str = "0xaaaaaaaaaaaaaaaa";
const HIGH: &str = "0x10000000000000000";

pub(crate) async fn wc_219_shards_partition_lists_and_watches(site: &Site) {
    let start = site.revision().await;
    for n in 0..40 {
        site.make(&format!("m{n:02}"), json!({})).await;
    }
    let ranges = [
        vec![(LOW, THIRD)],
        vec![(THIRD, TOP_THIRD)],
        vec![(TOP_THIRD, HIGH)],
    ];
    let mut listed = BTreeSet::new();
    let mut watched = BTreeSet::new();
    let mut per_shard = Vec::new();
    for range in &ranges {
        let selector = shards("metadata.uid", range);
        let shard = list(site, &format!("shardSelector={selector}&limit=100")).await;
        let echoed = shard["metadata"]["shardInfo"]["selector"]
            .as_str()
            .expect("it is echoed");
        assert_eq!(percent(echoed), selector);
        assert!(shard["metadata"]["remainingItemCount"].is_null());
        let mine: Vec<String> = names(&shard).iter().map(ToString::to_string).collect();
        let path = format!("{MAPS}?shardSelector={selector}&resourceVersion={start}");
        let mut watch = site.watch(&path).await;
        for event in watch.events(mine.len()).await {
            let name = event["object"]["metadata"]["name"]
                .as_str()
                .unwrap()
                .to_owned();
            assert!(mine.contains(&name), "{name} is not of the shard");
            assert!(watched.insert(name.clone()), "{name} came twice");
        }
        watch.is_silent().await;
        per_shard.push(mine.len());
        for name in mine {
            assert!(listed.insert(name.clone()), "{name} is in two shards");
        }
    }
    assert_eq!((listed.len(), watched.len()), (40, 40), "{per_shard:?}");
    let two = shards("metadata.uid", &[(LOW, THIRD), (TOP_THIRD, HIGH)]);
    let two = list(site, &format!("shardSelector={two}")).await;
    assert_eq!(names(&two).len(), per_shard[0] + per_shard[2]);
    let by_namespace = shards("metadata.namespace", &[(LOW, HIGH)]);
    let all = list(site, &format!("shardSelector={by_namespace}")).await;
    assert_eq!(names(&all).len(), 40);
}

pub(crate) async fn wc_220_malformed_shards_are_bad_requests(site: &Site) {
    let range = |from: &str, to: &str| format!("shardRange(object.metadata.uid, '{from}', '{to}')");
    let mixed = format!(
        "{} || shardRange(object.metadata.namespace, '{THIRD}', '{HIGH}')",
        range(LOW, THIRD)
    );
    for bad in [
        "nonsense".to_owned(),
        range(THIRD, LOW),
        range(LOW, LOW),
        range("0x0", THIRD),
        range("0x000000000000000g", THIRD),
        range(LOW, "0x10000000000000001"),
        "shardRange(object.metadata.name, '0x0000000000000000', '0x5555555555555555')".to_owned(),
        format!("{} && {}", range(LOW, THIRD), range(THIRD, HIGH)),
        format!("{} ||", range(LOW, THIRD)),
        mixed,
    ] {
        let selector = percent(&bad);
        for path in [
            format!("{MAPS}?shardSelector={selector}"),
            format!("{MAPS}?watch=1&shardSelector={selector}"),
        ] {
            site.get(&path).await.failure(400, "BadRequest");
        }
    }
}
