//! Tests of the metrics, read from a scrape.

use super::*;
use watchet_metrics::Format;
use watchet_test_util::scrape::Scrape;

impl Fixture {
    fn scrape(&self) -> Scrape {
        Scrape::parse(&self.metrics.render(Format::Prometheus))
    }

    /// Asserts values of the resource's series. In the further labels `'` stands for `"`.
    fn check(&self, expect: &[(&str, &str, f64)]) {
        let scrape = self.scrape();
        for (name, labels, expect) in expect {
            let labels = labels.replace('\'', "\"");
            let series = format!("{name}{{group=\"\",resource=\"pods\"{labels}}}");
            let value = scrape.get(&series).unwrap_or(0.0);
            assert_eq!(value, *expect, "{series}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reads_count_by_source_and_cost() {
    let f = Fixture::start();
    f.wait_until_synced().await;
    for (key, app) in [("ns/a", "web"), ("ns/b", "db"), ("other/c", "web")] {
        f.put(key, app, "n1");
    }
    let none = ListOptions::default();
    f.cacher
        .list(&predicate(None, "app=web", ""), &none)
        .await
        .unwrap();
    f.cacher
        .list(&predicate(Some("ns"), "app=web", ""), &none)
        .await
        .unwrap();
    let key = ObjectKey::from("ns/a");
    f.cacher.get(&key, GetOptions::default()).await.unwrap();
    f.keys(from(ResourceVersion::ZERO)).await;
    let exactly = ListOptions {
        resource_version_match: Some(ResourceVersionMatch::Exact),
        ..from(rv(3))
    };
    f.keys(exactly).await;
    // The lists: of no objects, of 3, of 2 in a namespace, of 3 as they are, of 2 at version 3.
    let of_cache = ",storage='watchcache',index=''";
    f.check(&[
        ("apiserver_cache_list_total", ",index=''", 5.0),
        (
            "apiserver_cache_list_fetched_objects_total",
            ",index=''",
            10.0,
        ),
        ("apiserver_cache_list_returned_objects_total", "", 8.0),
        ("apiserver_storage_list_total", of_cache, 5.0),
        (
            "apiserver_storage_list_fetched_objects_total",
            of_cache,
            10.0,
        ),
        (
            "apiserver_watch_cache_consistent_read_total",
            ",success='true',fallback='false'",
            4.0,
        ),
        ("apiserver_watch_cache_read_wait_seconds_count", "", 5.0),
    ]);
    // Storage has answered one list, which filled the cache.
    let of_storage = ",storage='etcd',index=''";
    f.check(&[
        ("apiserver_storage_list_total", of_storage, 1.0),
        (
            "apiserver_storage_list_duration_seconds_count",
            ",streamed='false'",
            1.0,
        ),
        ("apiserver_watch_cache_initializations_total", "", 1.0),
        (
            "apiserver_watch_cache_initialization_duration_seconds_count",
            "",
            1.0,
        ),
    ]);
    f.storage.set_progress_supported(false);
    f.cacher
        .list(&predicate(None, "app=db", ""), &none)
        .await
        .unwrap();
    f.check(&[
        ("apiserver_storage_list_total", of_storage, 2.0),
        (
            "apiserver_storage_list_fetched_objects_total",
            of_storage,
            3.0,
        ),
        (
            "apiserver_storage_list_evaluated_objects_total",
            ",storage='etcd'",
            3.0,
        ),
        (
            "apiserver_storage_list_returned_objects_total",
            ",storage='etcd'",
            1.0,
        ),
        ("apiserver_cache_list_total", ",index=''", 5.0),
        // A consistent read that needs no probe has not failed.
        (
            "apiserver_watch_cache_consistent_read_total",
            ",success='true',fallback='true'",
            0.0,
        ),
    ]);
}

#[tokio::test(start_paused = true)]
async fn lists_count_by_index() {
    let f = Fixture::start();
    for (key, node) in [("ns/a", "n1"), ("ns/b", "n2"), ("ns/c", "n1")] {
        f.put(key, "web", node);
    }
    let none = ListOptions::default();
    for fields in ["spec.nodeName=n1", "spec.nodeName=n9", "spec.nodeName!=n1"] {
        let predicate = predicate(None, "", fields);
        f.cacher.list(&predicate, &none).await.unwrap();
    }
    let (all, pinned) = (",index=''", ",index='f:spec.nodeName'");
    let fetched = "apiserver_cache_list_fetched_objects_total";
    f.check(&[
        ("apiserver_cache_list_total", pinned, 2.0),
        (fetched, pinned, 2.0),
        ("apiserver_cache_list_total", all, 1.0),
        (fetched, all, 3.0),
        ("apiserver_cache_list_returned_objects_total", "", 3.0),
    ]);
    let of_cache = ",storage='watchcache'";
    let pinned = format!("{of_cache}{pinned}");
    f.check(&[
        ("apiserver_storage_list_total", &pinned, 2.0),
        ("apiserver_storage_list_fetched_objects_total", &pinned, 2.0),
        (
            "apiserver_storage_list_returned_objects_total",
            of_cache,
            3.0,
        ),
    ]);
}

/// A list of one name is one lookup, in storage too.
#[tokio::test(start_paused = true)]
async fn list_of_one_name_counts_one_lookup() {
    let f = Fixture::start();
    for key in ["ns/a", "ns/b", "ns/c"] {
        f.put(key, "web", "n1");
    }
    f.wait_until_synced().await;
    f.storage.set_progress_supported(false);
    let exactly = ListOptions {
        resource_version_match: Some(ResourceVersionMatch::Exact),
        ..from(rv(4))
    };
    for (labels, options) in [
        ("", ListOptions::default()),
        ("app=db", ListOptions::default()),
        ("", from(ResourceVersion::ZERO)),
        ("", exactly),
    ] {
        let one = predicate(Some("ns"), labels, "metadata.name=b");
        f.cacher.list(&one, &options).await.unwrap();
    }
    // The cache answered the list at 0 and the exact one. Before, all three objects were read from
    // storage once and from the cache.
    let storage = ",storage='etcd'";
    f.check(&[
        ("apiserver_cache_list_total", ",index=''", 3.0),
        (
            "apiserver_cache_list_fetched_objects_total",
            ",index=''",
            5.0,
        ),
        (
            "apiserver_storage_list_total",
            ",storage='etcd',index=''",
            3.0,
        ),
        (
            "apiserver_storage_list_evaluated_objects_total",
            storage,
            5.0,
        ),
        (
            "apiserver_storage_list_returned_objects_total",
            storage,
            4.0,
        ),
    ]);
}

#[tokio::test(start_paused = true)]
async fn consistency_checks_do_not_count_as_reads() {
    let mut f = Fixture::start();
    f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    let checks = "apiserver_storage_consistency_checks_total";
    // Every 20 to 30 s.
    tokio::time::sleep(Duration::from_secs(35)).await;
    f.check(&[
        (checks, ",status='success'", 1.0),
        (checks, ",status='failure'", 0.0),
        (
            "apiserver_watch_cache_consistent_read_total",
            ",success='true',fallback='false'",
            1.0,
        ),
        (
            "apiserver_storage_list_total",
            ",storage='etcd',index=''",
            1.0,
        ),
    ]);
    f.failures = 1;
    f.storage.lose("/pods/ns/a");
    tokio::time::sleep(Duration::from_secs(30)).await;
    f.check(&[(checks, ",status='failure'", 1.0)]);
}

#[tokio::test(start_paused = true)]
async fn sharded_watches_and_filtered_events_count() {
    let f = Fixture::start();
    f.wait_until_synced().await;
    let half = |labels: &str, from: &str, to: &str| {
        let range = format!("shardRange(object.metadata.uid, '{from}', '{to}')");
        predicate(None, labels, "").sharded(Some(range.parse().unwrap()))
    };
    let (start, middle, end) = (
        "0x0000000000000000",
        "0x8000000000000000",
        "0x10000000000000000",
    );
    let mut low = f.watch(half("", start, middle), from(rv(1))).await;
    let mut high = f.watch(half("", middle, end), from(rv(1))).await;
    let mut other = f.watch(half("app=db", start, middle), from(rv(1))).await;
    let mut all = f.watch(everything(), from(rv(1))).await;
    for watch in [&mut low, &mut high, &mut other, &mut all] {
        assert!(drain(watch).await.is_empty());
    }
    for n in 0..20 {
        f.put(&format!("ns/p{n}"), "web", "n1");
    }
    let counts = (drain(&mut low).await.len(), drain(&mut high).await.len());
    assert!(
        counts.0 > 0 && counts.1 > 0 && counts.0 + counts.1 == 20,
        "{counts:?}"
    );
    let (shards, filtered) = (
        "apiserver_watch_shards_total",
        "apiserver_watch_filtered_events_total",
    );
    // Events excluded by labels do not count as excluded by the shard.
    f.check(&[(shards, "", 3.0), (filtered, "", 20.0)]);
    drop((low, high, other));
    f.check(&[(shards, "", 0.0), ("watchet_watchers", "", 1.0)]);
}

#[tokio::test(start_paused = true)]
async fn fallback_reads_count() {
    // WC-191
    let f = Fixture::start();
    f.wait_until_synced().await;
    f.storage.set_silent(true);
    f.put("ns/a", "web", "n1");
    assert_eq!(f.keys(ListOptions::default()).await, ["ns/a"]);
    let key = ObjectKey::from("ns/a");
    f.cacher.get(&key, GetOptions::default()).await.unwrap();
    f.storage.write("/pods/ns/b", Some("no object".into()));
    f.list(ListOptions::default()).await.unwrap_err();
    let reads = "apiserver_watch_cache_consistent_read_total";
    f.check(&[
        (reads, ",success='true',fallback='false'", 1.0),
        (reads, ",success='true',fallback='true'", 2.0),
        (reads, ",success='false',fallback='true'", 1.0),
        ("apiserver_storage_decode_errors_total", "", 1.0),
        // Three of them for 3 s, and one for the first state.
        ("apiserver_watch_cache_read_wait_seconds_sum", "", 9.0),
        ("apiserver_watch_cache_read_wait_seconds_count", "", 4.0),
    ]);
}

#[tokio::test(start_paused = true)]
async fn event_stages_and_gauges() {
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    let mut all = f.watch(everything(), watch_list()).await;
    let mut web = f.watch(predicate(None, "app=web", ""), from(rv(2))).await;
    assert_eq!(drain(&mut all).await.len(), 2);
    assert!(drain(&mut web).await.is_empty());
    f.put("ns/b", "db", "n1");
    f.put("ns/c", "web", "n1");
    f.put("ns/c", "web", "n2");
    f.delete("ns/a");
    assert_eq!(drain(&mut all).await.len(), 4);
    assert_eq!(drain(&mut web).await.len(), 3);
    let objects = f.keys(ListOptions::default()).await;
    assert_eq!(objects, ["ns/b", "ns/c"]);
    let list = f.list(ListOptions::default()).await.unwrap();
    let bytes: usize = list.items.iter().map(|object| object.body().len()).sum();
    f.check(&[
        ("apiserver_init_events_total", "", 1.0),
        ("apiserver_watch_cache_events_received_total", "", 4.0),
        ("apiserver_watch_cache_events_dispatched_total", "", 4.0),
        ("apiserver_watch_cache_resource_version", "", 6.0),
        ("apiserver_resource_objects", "", 2.0),
        ("apiserver_resource_size_estimate_bytes", "", bytes as f64),
        ("watch_cache_capacity", "", 4.0),
        ("watchet_watchers", "", 2.0),
        ("watchet_live_watchers", "", 2.0),
    ]);
    let stages = "apiserver_watch_events_dispatch_duration_seconds_count";
    f.check(&[
        (stages, ",stage='storage_to_cache'", 4.0),
        (stages, ",stage='cache_to_watcher'", 7.0),
        (stages, ",stage='total'", 7.0),
    ]);
    // All events arrived together; the second watch was read a second after the first.
    let stages = "apiserver_watch_events_dispatch_duration_seconds_sum";
    f.check(&[(stages, ",stage='storage_to_cache'", 0.0)]);
    for stage in ["stage=\"cache_to_watcher\"", "stage=\"total\""] {
        let taken = f.scrape().sum(stages, &[stage]);
        assert!((3.0..3.1).contains(&taken), "{stage} {taken}");
    }
    // Another resource advances.
    f.storage.write("/configmaps/ns/x", Some("{}".into()));
    f.wait_until_synced().await;
    drop(web);
    f.check(&[
        ("apiserver_watch_cache_events_received_total", "", 4.0),
        ("apiserver_watch_cache_events_dispatched_total", "", 5.0),
        ("apiserver_storage_events_received_total", "", 4.0),
        ("apiserver_watch_cache_resource_version", "", 7.0),
        ("watchet_watchers", "", 1.0),
        ("watchet_live_watchers", "", 1.0),
    ]);
}

#[tokio::test(start_paused = true)]
async fn wc_135_blocked_watch_is_parked_until_history_is_trimmed() {
    let config = CacherConfig {
        history_bytes_max: 2_000_000,
        ..CacherConfig::default()
    };
    let f = Fixture::over(FakeStorage::new(), config);
    let mut slow = f.watch(everything(), from(rv(1))).await;
    assert!(drain(&mut slow).await.is_empty());
    let write = async |count| {
        for change in 0..count {
            f.put(&format!("ns/p{}", change % 50), "web", "n1");
            if change % 100 == 0 {
                f.wait_until_synced().await;
            }
        }
        f.wait_until_synced().await;
    };
    let parked = "watchet_parked_watchers_total";
    let terminated = "apiserver_terminated_watchers_total";
    write(1100).await;
    assert_eq!(drain(&mut slow).await.len(), 1100);
    f.check(&[(parked, "", 1.0), (terminated, "", 0.0)]);
    write(5000).await;
    let words = drain(&mut slow).await;
    assert!(words[0].starts_with("ERROR too old"), "{words:?}");
    f.check(&[(parked, "", 2.0), (terminated, "", 1.0)]);
    // A watch that starts at a trimmed version is not a slow reader.
    let mut late = f.watch(everything(), from(rv(1))).await;
    assert_eq!(drain(&mut late).await.len(), 2);
    f.check(&[(parked, "", 2.0), (terminated, "", 1.0)]);
    drop((slow, late));
    f.check(&[("watchet_watchers", "", 0.0)]);
}

#[tokio::test(start_paused = true)]
async fn lists_relists_and_failures_count() {
    let storage = FakeStorage::new();
    storage.set_down(true);
    let f = Fixture::over(storage, CacherConfig::default());
    tokio::time::sleep(Duration::from_millis(10)).await;
    let (made, failed) = (
        "apiserver_watch_cache_initializations_total",
        "apiserver_watch_cache_initialization_errors_total",
    );
    f.check(&[
        (made, "", 0.0),
        (failed, "", 1.0),
        ("apiserver_resource_objects", "", -1.0),
    ]);
    f.storage.set_down(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    f.put("ns/a", "web", "n1");
    f.wait_until_synced().await;
    let failures = f.scrape().sum(failed, &[]);
    f.check(&[(made, "", 1.0), ("apiserver_resource_objects", "", 1.0)]);
    f.storage.set_down(true);
    let last = f.put("ns/b", "web", "n1");
    f.storage.compact_to(last);
    f.storage.set_down(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    f.wait_until_synced().await;
    f.check(&[
        (made, "", 2.0),
        (failed, "", failures),
        ("apiserver_resource_objects", "", 2.0),
        ("apiserver_watch_cache_events_received_total", "", 1.0),
        ("apiserver_watch_cache_events_dispatched_total", "", 1.0),
    ]);
}
