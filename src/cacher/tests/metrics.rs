//! What is counted, read back from a scrape.

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::metrics::Format;
use crate::metrics::scrape::Scrape;
use crate::storage::*;

impl Fixture {
    fn scrape(&self) -> Scrape {
        Scrape::parse(&self.metrics.render(Format::Prometheus))
    }

    /// Asserts the values of series of this resource, whose further labels are written with `'`.
    fn check(&self, expect: &[(&str, &str, f64)]) {
        let told = self.scrape();
        for (name, labels, expect) in expect {
            let labels = labels.replace('\'', "\"");
            let series = format!("{name}{{group=\"\",resource=\"pods\"{labels}}}");
            let value = told.get(&series).unwrap_or(0.0);
            assert_eq!(value, *expect, "{series}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reads_count_by_who_answers_and_what_they_look_at() {
    let f = Fixture::start();
    f.settle().await;
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
    // The lists: one of nothing, of 3, of 2 in a namespace, of 3 as they are, of 2 at version 3.
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
        // A cache that need not be asked has not failed.
        (
            "apiserver_watch_cache_consistent_read_total",
            ",success='true',fallback='true'",
            0.0,
        ),
    ]);
}

/// A storage whose watches say nothing.
#[derive(Debug)]
struct Silent(Arc<FakeStorage>);

#[async_trait]
impl Storage for Silent {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        self.0.get(key).await
    }
    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        self.0.list(request).await
    }
    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        self.0.put(put).await
    }
    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        self.0.delete(key, expect).await
    }
    async fn watch(
        &self,
        _: &StorageKey,
        _: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        Ok(StorageWatch {
            batches: Box::pin(futures_util::stream::pending()),
            progress: ProgressRequester::default(),
        })
    }
    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        self.0.current_revision().await
    }
    async fn compact(&self, at: ResourceVersion) -> Result<(), StorageError> {
        self.0.compact(at).await
    }
    fn progress_supported(&self) -> bool {
        self.0.progress_supported()
    }
    async fn maintain(&self, cancel: CancellationToken) {
        self.0.maintain(cancel).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_falls_back_to_storage_says_so() {
    // WC-191
    let storage = FakeStorage::new();
    let silent = Arc::new(Silent(storage.clone()));
    let f = Fixture::on(storage, silent, CacherConfig::default());
    f.settle().await;
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
async fn events_count_on_their_way_and_gauges_tell_the_state() {
    let f = Fixture::start();
    f.put("ns/a", "web", "n1");
    let mut all = f.watch(everything(), watch_list()).await;
    let mut web = f.watch(predicate(None, "app=web", ""), from(rv(2))).await;
    assert_eq!(said(&mut all).await.len(), 2);
    assert!(said(&mut web).await.is_empty());
    f.put("ns/b", "db", "n1");
    f.put("ns/c", "web", "n1");
    f.put("ns/c", "web", "n2");
    f.delete("ns/a");
    assert_eq!(said(&mut all).await.len(), 4);
    assert_eq!(said(&mut web).await.len(), 3);
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
    // All came at one moment; the second watch was read a second after the first.
    let stages = "apiserver_watch_events_dispatch_duration_seconds_sum";
    f.check(&[(stages, ",stage='storage_to_cache'", 0.0)]);
    for stage in ["stage=\"cache_to_watcher\"", "stage=\"total\""] {
        let taken = f.scrape().sum(stages, &[stage]);
        assert!((3.0..3.1).contains(&taken), "{stage} {taken}");
    }
    // Another resource moves on.
    f.storage.write("/configmaps/ns/x", Some("{}".into()));
    f.settle().await;
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
async fn slow_watchers_count_as_parked_and_as_terminated_when_history_leaves_them() {
    let config = CacherConfig {
        history_bytes_max: 2_000_000,
        ..CacherConfig::default()
    };
    let f = Fixture::over(FakeStorage::new(), config);
    let mut slow = f.watch(everything(), from(rv(1))).await;
    assert!(said(&mut slow).await.is_empty());
    let write = async |count| {
        for change in 0..count {
            f.put(&format!("ns/p{}", change % 50), "web", "n1");
            if change % 100 == 0 {
                f.settle().await;
            }
        }
        f.settle().await;
    };
    let parked = "watchet_parked_watchers_total";
    let terminated = "apiserver_terminated_watchers_total";
    write(1100).await;
    assert_eq!(said(&mut slow).await.len(), 1100);
    f.check(&[(parked, "", 1.0), (terminated, "", 0.0)]);
    write(5000).await;
    let words = said(&mut slow).await;
    assert!(words[0].starts_with("ERROR too old"), "{words:?}");
    f.check(&[(parked, "", 2.0), (terminated, "", 1.0)]);
    // Who begins with what is gone has not read too slowly.
    let mut late = f.watch(everything(), from(rv(1))).await;
    assert_eq!(said(&mut late).await.len(), 2);
    f.check(&[(parked, "", 2.0), (terminated, "", 1.0)]);
    drop((slow, late));
    f.check(&[("watchet_watchers", "", 0.0)]);
}

#[tokio::test(start_paused = true)]
async fn first_lists_and_relists_count_and_so_do_their_failures() {
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
    f.settle().await;
    let failures = f.scrape().sum(failed, &[]);
    f.check(&[(made, "", 1.0), ("apiserver_resource_objects", "", 1.0)]);
    f.storage.set_down(true);
    let last = f.put("ns/b", "web", "n1");
    f.storage.compact_to(last);
    f.storage.set_down(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    f.settle().await;
    f.check(&[
        (made, "", 2.0),
        (failed, "", failures),
        ("apiserver_resource_objects", "", 2.0),
        ("apiserver_watch_cache_events_received_total", "", 1.0),
        ("apiserver_watch_cache_events_dispatched_total", "", 1.0),
    ]);
}
