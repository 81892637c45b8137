//! Tests that the counted values are rendered under the documented names.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::sleep;

use super::*;
use crate::rest::fake::{End, Fake, Reply};
use crate::{ApiResource, ListWatchOptions, ResourceEventHandlerFuncs};
use watchet_test_util::scrape::Scrape;

const LIST: &str = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},
    "items":[{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"}}]}"#;

fn rendered(metrics: &InformerMetrics) -> Scrape {
    Scrape::parse(&metrics.render(Format::Prometheus))
}

#[tokio::test]
async fn all_counters_are_rendered() {
    let replies = [
        Reply::new(200, LIST),
        Reply::pieces(200, Vec::new(), End::Complete),
    ];
    let fake = Fake::start(replies).await;
    let options = ListWatchOptions {
        watch_list: false,
        ..ListWatchOptions::default()
    };
    let factory = SharedInformerFactory::new(fake.client()).with_options(options);
    let maps = factory.informer::<ConfigMap>();
    let again = ApiResource::of::<ConfigMap>();
    factory.filtered_informer_for::<ConfigMap>(&again, Some("n"), ListWatchOptions::default());
    let handler = ResourceEventHandlerFuncs::<ConfigMap>::new();
    let handler = maps.add_event_handler(handler).unwrap();
    let queue = WorkQueue::<&str>::named("maps");
    queue.add("a");
    queue.add("b");
    let key = queue.get().await.unwrap();
    queue.done(&key);
    queue.add_rate_limited(key);
    let metrics = || InformerMetrics::new().factory(&factory).queue(&queue);
    let before = rendered(&metrics());
    assert_eq!(
        before.get(r#"informer_synced{name="configmaps"}"#),
        Some(0.0)
    );

    // Only this informer: the other one would use the same scripted responses.
    maps.start(factory.tasks()).unwrap();
    handler.wait_for_sync().await.unwrap();
    // A watch that ended without an event.
    let short = r#"reflector_short_watches_total{name="configmaps"}"#;
    while rendered(&metrics()).get(short) != Some(1.0) {
        sleep(Duration::from_millis(5)).await;
    }
    let actual = rendered(&metrics());
    for (series, expected) in [
        (r#"informer_synced{name="configmaps"}"#, 1.0),
        (r#"informer_synced{name="configmaps-2"}"#, 0.0),
        (r#"informer_objects{name="configmaps"}"#, 1.0),
        (r#"informer_queued_items{name="configmaps"}"#, 0.0),
        (
            r#"informer_notifications_total{name="configmaps",handler="0"}"#,
            1.0,
        ),
        (
            r#"informer_handled_notifications_total{name="configmaps",handler="0"}"#,
            1.0,
        ),
        (
            r#"informer_pending_notifications{name="configmaps",handler="0"}"#,
            0.0,
        ),
        (r#"reflector_lists_total{name="configmaps"}"#, 1.0),
        (r#"reflector_lists_total{name="configmaps-2"}"#, 0.0),
        (r#"reflector_items_per_list_sum{name="configmaps"}"#, 1.0),
        (r#"reflector_last_resource_version{name="configmaps"}"#, 7.0),
        (r#"workqueue_adds_total{name="maps"}"#, 2.0),
        (r#"workqueue_depth{name="maps"}"#, 1.0),
        (r#"workqueue_retries_total{name="maps"}"#, 1.0),
        (r#"workqueue_work_duration_seconds_count{name="maps"}"#, 1.0),
    ] {
        assert_eq!(actual.get(series), Some(expected), "{series}");
    }
    let rows = include_str!("../METRICS.md").lines();
    let documented: BTreeSet<&str> = rows
        .filter_map(|row| row.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let families: BTreeSet<&str> = actual.families().keys().map(String::as_str).collect();
    assert_eq!(families, documented);
}

#[tokio::test]
async fn an_informer_without_a_factory_is_rendered() {
    let collection = crate::shared::tests::collection::Collection::new(&["a"]);
    let informer = SharedInformer::new("configmaps", collection, Duration::ZERO);
    let actual = rendered(&InformerMetrics::new().informer(&informer));
    assert_eq!(
        actual.get(r#"informer_objects{name="configmaps"}"#),
        Some(0.0)
    );
    assert!(!actual.families().contains_key("reflector_lists_total"));
    let source = Arc::<ReflectorMetrics>::default();
    informer.set_reflector_metrics(source.clone());
    source.lists.inc();
    let actual = rendered(
        &InformerMetrics::new()
            .informer(&informer)
            .informer(&informer),
    );
    assert_eq!(
        actual.get(r#"reflector_lists_total{name="configmaps"}"#),
        Some(1.0)
    );
    assert_eq!(
        actual.get(r#"informer_synced{name="configmaps-2"}"#),
        Some(0.0)
    );
}

/// The queue has its own clock.
#[tokio::test(start_paused = true)]
async fn a_queue_measures_waiting_and_processing() {
    let queue = WorkQueue::<&str>::named("maps");
    let actual = |series: &str| {
        let text = InformerMetrics::new()
            .queue(&queue)
            .render(Format::Prometheus);
        Scrape::parse(&text).get(&format!("workqueue_{series}{{name=\"maps\"}}"))
    };
    queue.add("a");
    queue.add("b");
    sleep(Duration::from_secs(2)).await;
    let (a, b) = (queue.get().await.unwrap(), queue.get().await.unwrap());
    assert_eq!(actual("queue_duration_seconds_sum"), Some(4.0));
    sleep(Duration::from_secs(3)).await;
    // The key is added again while it is processed, and waits from now on.
    queue.add(b);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(actual("unfinished_work_seconds"), Some(8.0));
    assert_eq!(actual("longest_running_processor_seconds"), Some(4.0));
    queue.done(&a);
    sleep(Duration::from_secs(5)).await;
    queue.done(&b);
    assert_eq!(actual("work_duration_seconds_sum"), Some(4.0 + 9.0));
    assert_eq!(actual("longest_running_processor_seconds"), Some(0.0));
    queue.get().await.unwrap();
    assert_eq!(actual("queue_duration_seconds_sum"), Some(4.0 + 6.0));
    assert_eq!(actual("unfinished_work_seconds"), Some(0.0));
}
