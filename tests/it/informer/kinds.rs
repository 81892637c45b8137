//! Tests of the informers of a factory: typed, dynamic and metadata-only informers; restricted to a namespace, labels
//! or fields; handlers and indexes that are added later; resyncs; a transform.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use serde_json::json;
use watchet::api::LabelSelector;
use watchet::client::{
    ApiResource, DynamicObject, Indexers, KubeObject, ListWatchOptions, PartialObjectMetadata,
    SharedInformer, SharedInformerFactory,
};

use super::tally::Tally;
use super::{client, delete, maps, put, until};
use crate::harness::{PATIENCE, Server, on_both};

on_both!(|server| (server) => [
    informers_of_all_types_have_the_same_objects,
    informers_select_by_namespace_and_selectors,
    handlers_and_indexes_can_be_added_later,
]);

fn names<T: KubeObject>(informer: &SharedInformer<T>) -> Vec<String> {
    let keys = informer.indexer().list_keys();
    keys.iter().map(|key| key.name().to_owned()).collect()
}

async fn informers_of_all_types_have_the_same_objects(server: &Server) {
    let client = client(&server.kubeconfig());
    let maps = maps(&client);
    put(&maps, "a", "one").await;
    let factory = SharedInformerFactory::new(client).with_namespace("default");
    let resource = ApiResource::of::<ConfigMap>();
    let typed = factory.informer::<ConfigMap>();
    typed
        .set_transform(|map| map.metadata.managed_fields = None)
        .unwrap();
    let dynamic = factory.informer_for::<DynamicObject>(&resource);
    let metadata = factory.informer_for::<PartialObjectMetadata>(&resource);
    let tallies = [(); 3].map(|()| Tally::default());
    typed.add_event_handler(tallies[0].clone()).unwrap();
    dynamic.add_event_handler(tallies[1].clone()).unwrap();
    metadata.add_event_handler(tallies[2].clone()).unwrap();
    factory.start();
    factory.wait_for_cache_sync().await.unwrap();

    put(&maps, "b", "two").await;
    put(&maps, "a", "three").await;
    delete(&maps, "b").await;
    put(&maps, "c", "four").await;
    let expected = super::listed(&maps).await;
    for tally in &tallies {
        until("what is listed", || tally.view() == expected).await;
        tally.look(|received| {
            assert_eq!(
                (received.initial, received.adds, received.updates),
                (1, 3, 1),
                "{received:?}"
            );
            assert_eq!(received.deleted, ["b"]);
        });
    }
    let a = typed.lister().namespaced("default").get("a").unwrap();
    assert_eq!(a.data.as_ref().unwrap()["text"], "three");
    assert_eq!(a.metadata.managed_fields, None, "the transform took them");
    let a = dynamic.lister().namespaced("default").get("a").unwrap();
    assert_eq!(
        (a.types.kind.as_str(), &a.data["data"]),
        ("ConfigMap", &json!({"text": "three"}))
    );
    assert!(a.metadata.managed_fields.is_some());
    let a = metadata.lister().namespaced("default").get("a").unwrap();
    assert_eq!(
        a.metadata.uid,
        typed
            .indexer()
            .get_by_key("default/a")
            .unwrap()
            .metadata
            .uid
    );
    factory.shutdown(PATIENCE).await.unwrap();
}

async fn informers_select_by_namespace_and_selectors(server: &Server) {
    let client = client(&server.kubeconfig());
    let all = client.resource::<ConfigMap>(ApiResource::of::<ConfigMap>());
    let shop = json!({"metadata": {"name": "shop"}});
    let namespaces = client.resource::<Namespace>(ApiResource::of::<Namespace>());
    namespaces
        .create(&serde_json::from_value(shop).unwrap())
        .await
        .unwrap();
    for (namespace, name, app) in [
        ("default", "a", "web"),
        ("shop", "b", "web"),
        ("shop", "c", "db"),
    ] {
        let map = json!({
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        });
        all.create(&serde_json::from_value(map).unwrap())
            .await
            .unwrap();
    }
    let factory = SharedInformerFactory::new(client);
    let resource = ApiResource::of::<ConfigMap>();
    let options = |labels: Option<&str>, fields: Option<&str>| ListWatchOptions {
        labels: labels.map(str::to_owned),
        fields: fields.map(str::to_owned),
        ..ListWatchOptions::default()
    };
    let everywhere = factory.informer::<ConfigMap>();
    let informer = |namespace, options| {
        factory.filtered_informer_for::<ConfigMap>(&resource, namespace, options)
    };
    let in_shop = informer(Some("shop"), options(None, None));
    let web = informer(None, options(Some("app=web"), None));
    let named = informer(Some("shop"), options(None, Some("metadata.name=c")));
    factory.start();
    factory.wait_for_cache_sync().await.unwrap();
    assert_eq!(names(&everywhere), ["a", "b", "c"]);
    assert_eq!(names(&in_shop), ["b", "c"]);
    assert_eq!(names(&web), ["a", "b"]);
    assert_eq!(names(&named), ["c"]);

    let lister = everywhere.lister();
    let selector: LabelSelector = "app in (web)".parse().unwrap();
    assert_eq!(lister.list(&selector).len(), 2);
    assert_eq!(lister.namespaced("shop").list(&selector).len(), 1);
    assert_eq!(
        lister
            .namespaced("shop")
            .list(&LabelSelector::default())
            .len(),
        2
    );
    let missing = lister.namespaced("shop").get("a").unwrap_err();
    assert_eq!(missing.to_string(), "configmaps \"a\" not found");
    factory.shutdown(PATIENCE).await.unwrap();
}

async fn handlers_and_indexes_can_be_added_later(server: &Server) {
    let client = client(&server.kubeconfig());
    let maps = maps(&client);
    for name in ["a", "b"] {
        put(&maps, name, "x").await;
    }
    let secrets = client.resource::<Secret>(ApiResource::of::<Secret>());
    let secret = json!({"metadata": {"name": "s", "namespace": "default"}});
    secrets
        .create(&serde_json::from_value(secret).unwrap())
        .await
        .unwrap();
    let factory = SharedInformerFactory::new(client)
        .with_namespace("default")
        .with_default_resync(Duration::from_secs(1))
        .with_resync(ApiResource::of::<Secret>(), Duration::ZERO);
    let informer = factory.informer::<ConfigMap>();
    let of_secrets = Tally::default();
    factory
        .informer::<Secret>()
        .add_event_handler(of_secrets.clone())
        .unwrap();
    factory.start();
    factory.wait_for_cache_sync().await.unwrap();

    let by_text = Indexers::new().with("text", |map: &ConfigMap| {
        let text = map.data.as_ref().and_then(|data| data.get("text").cloned());
        text.into_iter().collect()
    });
    informer.add_indexers(by_text).unwrap();
    let (late, never) = (Tally::default(), Tally::default());
    let registration = informer.add_event_handler(late.clone()).unwrap();
    informer
        .add_event_handler_with_resync_period(never.clone(), Duration::ZERO)
        .unwrap();
    registration.wait_for_sync().await.unwrap();
    assert_eq!(
        late.look(|received| (received.initial, received.adds)),
        (2, 2)
    );
    put(&maps, "b", "y").await;
    put(&maps, "c", "y").await;
    let with = |text: &str| informer.indexer().by_index("text", text).unwrap().len();
    until("the late index", || (with("x"), with("y")) == (1, 2)).await;

    until("two resyncs", || {
        late.look(|received| received.resyncs) >= 5
    })
    .await;
    let expected = super::listed(&maps).await;
    until("what is listed", || late.view() == expected).await;
    until("what is listed", || never.view() == expected).await;
    assert_eq!(
        never.look(|received| (received.updates, received.resyncs)),
        (1, 0)
    );
    assert_eq!(
        of_secrets.look(|received| (received.adds, received.updates)),
        (1, 0)
    );

    assert!(informer.remove_event_handler(&registration));
    put(&maps, "d", "z").await;
    until("the new map", || {
        never.look(|received| received.view.contains_key("d"))
    })
    .await;
    assert!(!late.view().contains_key("d"));
    factory.shutdown(PATIENCE).await.unwrap();
    assert!(informer.is_stopped());
}
