//! Tests of which informers are shared, of their requests, and of start and stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use tokio::time::sleep;

use super::*;
use crate::rest::fake::{End, Fake, Reply};
use crate::{DynamicObject, PartialObjectMetadata, ResourceEventHandlerFuncs, RestConfig};

/// Returns a client of a server that does not exist.
fn nowhere() -> RestClient {
    RestClient::new(&RestConfig::new("http://127.0.0.1:1")).unwrap()
}

fn is_same<T: KubeObject>(one: &SharedInformer<T>, other: &SharedInformer<T>) -> bool {
    Arc::ptr_eq(one.indexer(), other.indexer())
}

#[tokio::test]
async fn there_is_one_informer_for_each_collection() {
    let factory = SharedInformerFactory::new(nowhere());
    let maps = ApiResource::of::<ConfigMap>();
    let informer = factory.informer::<ConfigMap>();
    assert!(is_same(&informer, &factory.informer()));
    assert!(is_same(&informer, &factory.informer_for(&maps)));
    let again = factory.filtered_informer_for(&maps, None, ListWatchOptions::default());
    assert!(is_same(&informer, &again));

    let labelled = ListWatchOptions {
        labels: Some("app=web".to_owned()),
        ..ListWatchOptions::default()
    };
    let in_shop = factory.filtered_informer_for(&maps, Some("shop"), ListWatchOptions::default());
    let chosen = factory.filtered_informer_for(&maps, None, labelled.clone());
    assert!(!is_same(&informer, &in_shop) && !is_same(&informer, &chosen));
    assert!(is_same(
        &chosen,
        &factory.filtered_informer_for(&maps, None, labelled)
    ));
    // The same collection with other object types.
    factory.informer_for::<DynamicObject>(&maps);
    factory.informer_for::<PartialObjectMetadata>(&maps);
    assert_eq!(factory.informers.lock().len(), 5);
}

/// A cluster-scoped resource has only one collection.
#[tokio::test]
async fn a_cluster_scoped_resource_ignores_the_namespace() {
    let factory = SharedInformerFactory::new(nowhere()).with_namespace("shop");
    let nodes = ApiResource::of::<Node>();
    let all = factory.filtered_informer_for(&nodes, None, ListWatchOptions::default());
    assert!(is_same(&factory.informer::<Node>(), &all));
}

#[tokio::test]
async fn errors_name_resources_as_the_api_does() {
    let factory = SharedInformerFactory::new(nowhere());
    let deployments = factory.informer::<Deployment>();
    assert_eq!(deployments.resource(), "deployments.apps");
    let missing = deployments.lister().namespaced("default").get("web");
    let expected = "deployments.apps \"web\" not found";
    assert_eq!(missing.unwrap_err().to_string(), expected);
    assert_eq!(factory.informer::<Node>().resource(), "nodes");
}

#[tokio::test]
async fn start_runs_informers_that_are_not_running() {
    let list = r#"{"kind": "List", "metadata": {"resourceVersion": "5"}, "items": []}"#;
    let replies = [
        Reply::new(200, list),
        Reply::pieces(200, Vec::new(), End::Never),
    ];
    let fake = Fake::start(replies.clone()).await;
    let options = ListWatchOptions {
        labels: Some("app=web".to_owned()),
        watch_list: false,
        ..ListWatchOptions::default()
    };
    let factory = SharedInformerFactory::new(fake.client())
        .with_namespace("shop")
        .with_options(options);
    let maps = factory.informer::<ConfigMap>();
    factory.start();
    factory.start();
    factory.wait_for_cache_sync().await.unwrap();
    assert!(maps.has_synced());
    let watched = |path: &str| {
        let lines = fake.lines();
        lines
            .iter()
            .any(|line| line.contains(path) && line.contains("watch=true"))
    };
    let path = "/api/v1/namespaces/shop/configmaps?labelSelector=app%3Dweb";
    while !watched(path) {
        tokio::task::yield_now().await;
    }

    replies.into_iter().for_each(|reply| fake.then(reply));
    factory.informer::<Deployment>();
    factory.start();
    factory.wait_for_cache_sync().await.unwrap();
    while !watched("/apis/apps/v1/namespaces/shop/deployments") {
        tokio::task::yield_now().await;
    }
    assert_eq!(fake.lines().len(), 4, "{:?}", fake.lines());
    factory.shutdown(Duration::from_secs(30)).await.unwrap();
    assert!(maps.is_stopped());
}

/// Counts the resync notifications of the informer's handler.
fn resyncs<T: KubeObject>(informer: &SharedInformer<T>) -> Arc<AtomicUsize> {
    let count = Arc::<AtomicUsize>::default();
    let calls = count.clone();
    let handler = ResourceEventHandlerFuncs::<T>::new().on_update(move |old, new| {
        assert!(Arc::ptr_eq(&old, &new));
        calls.fetch_add(1, Ordering::Relaxed);
    });
    informer.add_event_handler(handler).unwrap();
    count
}

#[tokio::test]
async fn resources_have_their_own_or_the_default_resync_period() {
    let list = r#"{"kind": "List", "metadata": {"resourceVersion": "5"}, "items": [
        {"metadata": {"name": "a", "namespace": "n", "resourceVersion": "1"}}]}"#;
    let watch = || Reply::pieces(200, Vec::new(), End::Never);
    let replies = [Reply::new(200, list), watch()];
    let fake = Fake::start(replies.iter().cloned()).await;
    let options = ListWatchOptions {
        watch_list: false,
        ..ListWatchOptions::default()
    };
    let factory = SharedInformerFactory::new(fake.client())
        .with_default_resync(Duration::from_secs(1))
        .with_resync(ApiResource::of::<ConfigMap>(), Duration::ZERO)
        .with_options(options);
    let never = resyncs(&factory.informer::<ConfigMap>());
    factory.start();
    factory.wait_for_cache_sync().await.unwrap();
    // One after the other, because the scripted responses are not tied to a client.
    while fake.lines().len() < 2 {
        sleep(Duration::from_millis(5)).await;
    }
    replies.into_iter().for_each(|reply| fake.then(reply));
    let by_default = resyncs(&factory.informer::<Node>());
    factory.start();
    while by_default.load(Ordering::Relaxed) < 2 {
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(never.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn wait_for_cache_sync_fails_after_shutdown() {
    let factory = SharedInformerFactory::new(nowhere());
    factory.informer::<Deployment>();
    factory.start();
    let grace = Duration::from_secs(30);
    let (waited, ended) = tokio::join!(factory.wait_for_cache_sync(), factory.shutdown(grace));
    ended.unwrap();
    let expected = "the informer of deployments.v1.apps was stopped before it was synced";
    assert_eq!(waited.unwrap_err().to_string(), expected);
}
