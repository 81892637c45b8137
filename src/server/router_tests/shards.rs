//! Tests of sharded lists and watches (KEP-5866).

use std::collections::BTreeSet;

use super::*;

/// The boundaries of three shards that cover all hashes.
const BORDERS: [&str; 4] = [
    "0x0000000000000000",
    "0x4000000000000000",
    "0xb000000000000000",
    "0x10000000000000000",
];

fn selector(field: &str, shard: usize) -> String {
    let (start, end) = (BORDERS[shard], BORDERS[shard + 1]);
    format!("shardRange(object.metadata.{field}, '{start}', '{end}')")
}

/// Returns the query parameter.
fn shard(selector: &str) -> String {
    let encoded: String = selector
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    format!("shardSelector={encoded}")
}

fn names(list: &Value) -> BTreeSet<String> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn shards_partition_lists_and_watches() {
    let server = Server::new().await;
    let all: BTreeSet<String> = (0..40).map(|n| format!("c{n:02}")).collect();
    for name in &all {
        server.put_config_map(name, "x").await;
    }
    let mut seen = BTreeSet::new();
    for index in 0..3 {
        let selector = selector("uid", index);
        let query = shard(&selector);
        let list = server.get(&format!("{CONFIG_MAPS}?{query}")).await.json();
        assert_eq!(list["metadata"]["shardInfo"]["selector"], *selector);
        let listed = names(&list);
        assert!(
            !listed.is_empty(),
            "a quarter of the hash space has none of 40 objects"
        );
        assert!(seen.is_disjoint(&listed), "no overlap");

        let watch = format!("{CONFIG_MAPS}?watch=1&resourceVersion=0&{query}");
        // An initial state this small arrives in a single write.
        let watched: BTreeSet<String> = watched(&server, &watch, listed.len())
            .await
            .iter()
            .map(|event| {
                event["object"]["metadata"]["name"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        assert_eq!(watched, listed);
        seen.extend(listed);
    }
    assert_eq!(seen, all, "no loss");
    server.stop().await;
}

#[tokio::test]
async fn every_form_of_a_list_has_shard_info() {
    let server = Server::new().await;
    for n in 0..20 {
        server.put_config_map(&format!("c{n:02}"), "x").await;
    }
    let whole =
        "shardRange(object.metadata.namespace, '0x0000000000000000', '0x10000000000000000')";
    let canonical = json!({"selector": whole});
    let query = shard(&whole.replace(' ', ""));
    let partial = "accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for accept in ["accept: application/json", TABLE, partial] {
        let line = format!("GET {CONFIG_MAPS}?limit=5&{query}");
        let list = server.call(&line, &[accept], "").await.json();
        assert_eq!(list["metadata"]["shardInfo"], canonical, "{accept}");
        // The remaining count would require hashing every object.
        assert!(list["metadata"]["continue"].is_string());
        assert!(list["metadata"]["remainingItemCount"].is_null());
    }
    let all = server.get(CONFIG_MAPS).await.json();
    assert!(all["metadata"]["shardInfo"].is_null());

    let shard = shard(&selector("uid", 1));
    let line = format!("DELETE {CONFIG_MAPS}?{shard}");
    let deleted = names(&server.call(&line, &[], "").await.json());
    let left = names(&server.get(CONFIG_MAPS).await.json());
    assert!(!deleted.is_empty() && !left.is_empty());
    assert_eq!(&deleted | &left, names(&all));
    server.stop().await;
}

#[tokio::test]
async fn invalid_shard_selectors_are_rejected() {
    let server = Server::new().await;
    let mixed = format!("{} || {}", selector("uid", 0), selector("namespace", 1));
    let reversed = "shardRange(object.metadata.uid, '0x8000000000000000', '0x0000000000000000')";
    for bad in [" ", "shardRange()", &mixed, reversed] {
        for path in [CONFIG_MAPS, &format!("{CONFIG_MAPS}?watch=1")] {
            let separator = if path.contains('?') { '&' } else { '?' };
            let refused = server
                .get(&format!("{path}{separator}{}", shard(bad)))
                .await;
            let actual = refused.failure(400, "BadRequest");
            assert!(
                actual.starts_with("unable to parse shard selector"),
                "{actual}"
            );
        }
    }
    server.stop().await;
}
