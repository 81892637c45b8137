//! Tests that record every metric and read it from the rendered text.

use std::time::Duration;

use super::*;
use watchet_test_util::scrape::Scrape;

#[derive(Debug)]
struct Pods;

impl CacheState for Pods {
    fn stats(&self) -> Option<CacheStats> {
        Some(CacheStats {
            resource_version: 3_000_000_000_000_007,
            objects: 2,
            objects_bytes: 300,
            history_events: 5,
            live_watchers: 4,
            consistency_checks: ConsistencyChecks {
                success: 1,
                failure: 2,
                error: 3,
            },
        })
    }
}

fn scrape(metrics: &Metrics) -> Scrape {
    Scrape::parse(&metrics.render(Format::Prometheus))
}

/// Records a value of every metric.
fn record(metrics: &Metrics, pods: &ResourceMetrics) {
    let second = Duration::from_secs(1);
    let cost = ListCost {
        fetched: 30,
        evaluated: 20,
        returned: 10,
    };
    pods.count_cache_list(cost, None);
    pods.count_cache_list(cost, Some(0));
    pods.count_storage_list(cost, second);
    pods.read_consistently(true, true);
    pods.observe_wait(second);
    pods.initialized(second);
    pods.initialization_errors.inc();
    pods.observe_dispatch(Stage::Total, second, 3);
    pods.requested(Operation::CurrentRevision, second, false);
    pods.requested(Operation::Get, second, true);
    for counter in [
        &pods.init_events,
        &pods.events_received,
        &pods.events_dispatched,
        &pods.terminated_watchers,
        &pods.times_parked,
        &pods.filtered_events,
        &pods.storage_events,
        &pods.storage_bookmarks,
        &pods.decode_errors,
    ] {
        counter.add(7);
    }
    let requests = metrics.http().requests(watch_of_pods());
    requests.count_response(200, second);
    requests.count_response(410, second);
    requests.aborted();
    let lists = RequestLabels {
        verb: "LIST",
        ..watch_of_pods()
    };
    metrics.http().requests(lists).count_response(200, second);
    let watches = metrics.http().watches("", "v1", "pods");
    watches.sent(1500);
    watches.ended(WatchEnd::Expired);
    watches.initial_state_sent(RequestScope::Namespace, second);
    watches.written(second, 3);
    metrics.tasks().count_panic("request");
    metrics.traces().exported.inc();
    metrics.traces().dropped_queue_full.inc();
    metrics.traces().dropped_export_failed.inc();
    metrics.encryption().reloads.inc();
    metrics.encryption().transformed(Transformation {
        resource: "secrets".into(),
        is_encryption: true,
        provider: "identity".into(),
        is_success: true,
    });
    let flow = metrics.flow_control().flow("system", "system-nodes");
    flow.dispatched(1, second);
    flow.rejected(FlowRejection::QueueFull, second);
    flow.executing(1);
    flow.finished(1, false, second);
    let levels = BTreeMap::from([("system".to_owned(), LevelSeats::default())]);
    metrics.flow_control().set_levels(levels);
    metrics.lease_keys().observe(10.0);
    metrics.storage_size(Some(4096));
    metrics.encryption().reloads.inc();
    metrics.encryption().transformed(Transformation {
        resource: "secrets".into(),
        is_encryption: true,
        provider: "k8s:enc:aescbc:v1:".into(),
        is_success: true,
    });
    let kms = &metrics.encryption().kms;
    let operation = KmsOperation {
        provider: "kms".to_owned(),
        method: "/v2.KeyManagementService/Status".to_owned(),
        code: "OK".to_owned(),
    };
    kms.observe_operation(operation, second);
    let key = KmsKey {
        provider: "kms",
        id: "1",
        digest: |id| format!("sha256:{id}"),
    };
    kms.key_used(key, true);
    kms.key_used(key, true);
    kms.key_reported(key);
    kms.invalid_key_id_reported("kms", "empty");
    kms.set_cached_data_keys("kms", 3);
    let authorization = metrics.authorization();
    authorization.authorizer("RBAC", "rbac").allowed.inc();
    let webhook = authorization.webhook("w");
    webhook.observe_review(ReviewResult::Timeout, second);
    webhook.count_fail_open(ReviewResult::Timeout);
    webhook.match_condition_seconds.observe_duration(second);
    webhook.match_condition_errors.inc();
    webhook.match_condition_exclusions.inc();
    metrics.tasks().observe_poll("short", second / 1000);
    metrics.tasks().observe_poll("long", second);
    let sweeper = metrics.work_queue("sweeper");
    sweeper.adds.add(5);
    let work = sweeper.begin(tokio::time::Instant::now());
    sweeper.finish(work);
}

fn watch_of_pods() -> RequestLabels {
    RequestLabels {
        verb: "WATCH",
        dry_run: "",
        group: String::new(),
        version: "v1".to_owned(),
        resource: "pods".to_owned(),
        subresource: String::new(),
        scope: RequestScope::Namespace,
        component: "apiserver",
    }
}

/// Parses the table in METRICS.md: name, type and labels of each family.
fn documented() -> BTreeMap<String, watchet_test_util::scrape::Family> {
    let rows = include_str!("METRICS.md").lines();
    rows.filter(|line| line.starts_with("| `"))
        .map(|row| {
            let mut cells = row.split('|').skip(1).map(str::trim);
            let mut cell = || cells.next().unwrap();
            let name = cell().trim_matches('`').to_owned();
            let (kind, labels) = (cell().to_owned(), cell());
            let labels = labels
                .replace('G', "group, resource")
                .replace('R', "verb, group, version, resource, subresource, scope");
            let labels = labels.split(", ").map(str::to_owned);
            let labels = labels.filter(|label| !label.is_empty()).collect();
            (name, (kind, labels))
        })
        .collect()
}

#[test]
fn document_lists_every_metric() {
    let metrics = Metrics::new();
    let pods = metrics.resource("", "pods");
    let cache: Arc<dyn CacheState> = Arc::new(Pods);
    pods.set_cache(Arc::downgrade(&cache), vec!["f:spec.nodeName".to_owned()]);
    record(&metrics, &pods);
    let scrape = scrape(&metrics);
    let document = documented();
    for (name, family) in &document {
        assert_eq!(scrape.families().get(name), Some(family), "{name}");
    }
    let scrape: Vec<_> = scrape.families().keys().collect();
    assert_eq!(scrape, document.keys().collect::<Vec<_>>());
}

#[test]
fn scraped_values_equal_the_recorded_ones() {
    let metrics = Metrics::new();
    let pods = metrics.resource("", "pods");
    let cache: Arc<dyn CacheState> = Arc::new(Pods);
    pods.set_cache(Arc::downgrade(&cache), vec!["f:spec.nodeName".to_owned()]);
    record(&metrics, &pods);
    let scrape = scrape(&metrics);
    let check =
        |series: &str, expect: f64| assert_eq!(scrape.get(series), Some(expect), "{series}");
    let pods_of = |name: &str| format!("{name}{{group=\"\",resource=\"pods\"}}");
    for name in [
        "apiserver_init_events_total",
        "apiserver_watch_cache_events_received_total",
        "apiserver_watch_cache_events_dispatched_total",
        "apiserver_terminated_watchers_total",
        "watchet_parked_watchers_total",
        "apiserver_watch_filtered_events_total",
        "apiserver_storage_events_received_total",
        "etcd_bookmark_total",
        "apiserver_storage_decode_errors_total",
    ] {
        check(&pods_of(name), 7.0);
    }
    check(&pods_of("apiserver_watch_cache_resource_version"), 7.0);
    check(&pods_of("apiserver_resource_objects"), 2.0);
    check(&pods_of("apiserver_resource_size_estimate_bytes"), 300.0);
    check(&pods_of("watch_cache_capacity"), 5.0);
    check(&pods_of("watchet_live_watchers"), 4.0);
    check(&pods_of("apiserver_watch_cache_initializations_total"), 1.0);
    check(
        &pods_of("apiserver_cache_list_returned_objects_total"),
        20.0,
    );
    for index in ["", "f:spec.nodeName"] {
        let labels = format!("{{group=\"\",resource=\"pods\",index=\"{index}\"}}");
        let series = format!("apiserver_cache_list_fetched_objects_total{labels}");
        check(&series, 30.0);
    }
    check(
        r#"apiserver_storage_list_fetched_objects_total{group="",resource="pods",storage="etcd",index=""}"#,
        30.0,
    );
    check(
        r#"apiserver_storage_list_evaluated_objects_total{group="",resource="pods",storage="watchcache"}"#,
        40.0,
    );
    check(
        r#"apiserver_storage_consistency_checks_total{group="",resource="pods",status="error"}"#,
        3.0,
    );
    check(
        r#"apiserver_watch_cache_consistent_read_total{group="",resource="pods",success="true",fallback="true"}"#,
        1.0,
    );
    check(
        r#"apiserver_watch_events_dispatch_duration_seconds_sum{group="",resource="pods",stage="total"}"#,
        3.0,
    );
    check(
        r#"etcd_request_errors_total{group="",resource="pods",operation="get"}"#,
        1.0,
    );
    check(
        r#"apiserver_request_total{verb="WATCH",dry_run="",group="",version="v1",resource="pods",subresource="",scope="namespace",component="apiserver",code="410"}"#,
        1.0,
    );
    check(
        r#"apiserver_watch_events_sizes_bucket{group="",version="v1",resource="pods",le="2048"}"#,
        1.0,
    );
    check(
        r#"watchet_watch_ends_total{group="",version="v1",resource="pods",reason="expired"}"#,
        1.0,
    );
    check(r#"etcd_lease_object_counts_bucket{le="10"}"#, 1.0);
    check(
        r#"apiserver_envelope_encryption_kms_operations_latency_seconds_bucket{grpc_status_code="OK",method_name="/v2.KeyManagementService/Status",provider_name="kms",le="1.6384"}"#,
        1.0,
    );
    check(
        r#"apiserver_envelope_encryption_key_id_hash_total{key_id_hash="sha256:1",provider_name="kms",transformation_type="to_storage"}"#,
        2.0,
    );
    check(
        r#"apiserver_envelope_encryption_dek_source_cache_size{provider_name="kms"}"#,
        3.0,
    );
    check(r#"workqueue_adds_total{name="sweeper"}"#, 5.0);
}

#[test]
fn gauges_have_the_current_state_and_dropped_resources_are_removed() {
    let metrics = Metrics::new();
    let pods = metrics.resource("", "pods");
    assert!(Arc::ptr_eq(&pods, &metrics.resource("", "pods")));
    let objects = r#"apiserver_resource_objects{group="",resource="pods"}"#;
    assert_eq!(scrape(&metrics).get(objects), Some(-1.0), "no cache yet");
    let cache: Arc<dyn CacheState> = Arc::new(Pods);
    pods.set_cache(Arc::downgrade(&cache), vec!["f:spec.nodeName".to_owned()]);
    assert_eq!(scrape(&metrics).get(objects), Some(2.0));
    let watchers = r#"watchet_watchers{group="",resource="pods"}"#;
    let watcher = pods.watchers.hold();
    assert_eq!(scrape(&metrics).get(watchers), Some(1.0));
    drop(watcher);
    assert_eq!(scrape(&metrics).get(watchers), Some(0.0));
    drop(cache);
    assert_eq!(
        scrape(&metrics).get(objects),
        Some(-1.0),
        "the cache was dropped"
    );
    drop(pods);
    assert_eq!(scrape(&metrics).get(objects), None);
    let deployments = metrics.resource("apps", "deployments");
    let objects = r#"apiserver_storage_objects{resource="deployments.apps"}"#;
    assert_eq!(scrape(&metrics).get(objects), Some(-1.0));
    drop(deployments);
    scrape(&metrics);
    assert!(metrics.resources.lock().is_empty());
}

#[test]
fn both_formats_have_equal_values() {
    let metrics = Metrics::new();
    let pods = metrics.resource("apps", "deployments");
    record(&metrics, &pods);
    let samples = |format| -> Vec<String> {
        let text = metrics.render(format);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        // The process metrics change between the two, and bounds are formatted differently.
        let lines = lines.filter(|line| !line.starts_with("process_"));
        lines.map(|line| line.replace(".0\"", "\"")).collect()
    };
    assert_eq!(samples(Format::Prometheus), samples(Format::OpenMetrics));
    let text = metrics.render(Format::OpenMetrics);
    assert!(text.ends_with("\n# EOF\n"));
    assert!(text.contains("# TYPE apiserver_terminated_watchers counter\n"));
}
