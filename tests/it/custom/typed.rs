//! Tests of custom resources with kube-rs: types of two versions, between which a webhook converts, written and watched
//! in either version.

use futures::{Stream, StreamExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::crd::merge_crds;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config, CustomResourceExt as _, ResourceExt as _};
use tokio::time::timeout;

use super::*;
use crate::harness::{Reply, Webhook};

/// The older version.
mod v1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[kube(
        group = "typed.example.com",
        version = "v1",
        kind = "Crate",
        plural = "crates"
    )]
    #[kube(namespaced, status = "CrateStatus", shortname = "cr")]
    pub(super) struct CrateSpec {
        pub(super) size: i64,
    }

    #[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
    pub(super) struct CrateStatus {
        pub(super) full: bool,
    }
}

/// The newer one.
mod v2 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::v1::CrateStatus;

    #[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[kube(
        group = "typed.example.com",
        version = "v2",
        kind = "Crate",
        plural = "crates"
    )]
    #[kube(namespaced, status = "CrateStatus", shortname = "cr")]
    pub(super) struct CrateSpec {
        pub(super) dimensions: Dimensions,
    }

    #[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
    pub(super) struct Dimensions {
        pub(super) size: i64,
    }
}

async fn client(world: &World) -> Client {
    let kubeconfig = Kubeconfig::read_from(world.server.kubeconfig()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

/// Defines crates in both versions; the older one is the storage version.
async fn define(client: &Client, webhook: &Webhook) {
    let crds = vec![v1::Crate::crd(), v2::Crate::crd()];
    let merged = merge_crds(crds, "v1").expect("they fit");
    let mut definition = serde_json::to_value(merged).unwrap();
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": webhook.client_config("/"),
    }});
    let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .expect("a definition");
    let name = "crates.typed.example.com";
    let established = await_condition(definitions, name, conditions::is_crd_established());
    timeout(PATIENCE, established)
        .await
        .expect("in time")
        .expect("it is established");
}

fn older(name: &str, size: i64) -> v1::Crate {
    v1::Crate::new(name, v1::CrateSpec { size })
}

fn newer(name: &str, size: i64) -> v2::Crate {
    let dimensions = v2::Dimensions { size };
    v2::Crate::new(name, v2::CrateSpec { dimensions })
}

async fn next<T>(stream: &mut (impl Stream<Item = watcher::Result<T>> + Unpin)) -> T {
    let next = timeout(PATIENCE, stream.next()).await.expect("in time");
    next.expect("it goes on").expect("no error")
}

pub(super) async fn kube_rs_reads_and_writes_every_version(world: &mut World) {
    let webhook = Webhook::answering(|call| Reply::json(&super::webhooks::answer(call))).await;
    let client = client(world).await;
    define(&client, &webhook).await;
    let old: Api<v1::Crate> = Api::default_namespaced(client.clone());
    let new: Api<v2::Crate> = Api::default_namespaced(client.clone());
    let post = PostParams::default();
    let made = new.create(&post, &newer("a", 3)).await.expect("it is made");
    assert_eq!(made.spec.dimensions.size, 3);
    assert_eq!(old.get("a").await.unwrap().spec.size, 3);

    let patch = PatchParams::apply("tests");
    let applied = newer("b", 4);
    let made = new.patch("b", &patch, &Patch::Apply(&applied)).await;
    let uid = made.expect("it is applied").uid();
    let applied = newer("b", 5);
    let again = new
        .patch("b", &patch, &Patch::Apply(&applied))
        .await
        .unwrap();
    assert_eq!((again.uid(), again.spec.dimensions.size), (uid, 5));
    let fields = again.managed_fields();
    assert_eq!(fields.len(), 1, "{fields:?}");
    assert_eq!(
        fields[0].api_version.as_deref(),
        Some("typed.example.com/v2")
    );

    let mut reported = old.get("b").await.unwrap();
    reported.status = Some(v1::CrateStatus { full: true });
    let received = old.replace_status("b", &post, &reported).await.unwrap();
    assert_eq!(received.status, Some(v1::CrateStatus { full: true }));
    let got = new.get_status("b").await.unwrap();
    assert_eq!(got.status, Some(v1::CrateStatus { full: true }));
    assert_eq!(got.spec.dimensions.size, 5);

    let mut changed = got;
    changed.spec.dimensions.size = 6;
    let changed = new.replace("b", &post, &changed).await.unwrap();
    assert_eq!(changed.metadata.generation, Some(3));
    let list = old.list(&ListParams::default()).await.unwrap();
    let sizes: Vec<i64> = list.items.iter().map(|item| item.spec.size).collect();
    assert_eq!(sizes, [3, 6]);
    let gone = new.delete("b", &DeleteParams::default()).await.unwrap();
    assert!(gone.is_right(), "{gone:?}");
}

/// Both ways in which kube begins a watch, each in the storage version and in another one.
pub(super) async fn kube_rs_watches_every_version(world: &mut World) {
    let webhook = Webhook::answering(|call| Reply::json(&super::webhooks::answer(call))).await;
    let client = client(world).await;
    define(&client, &webhook).await;
    let old: Api<v1::Crate> = Api::default_namespaced(client.clone());
    let new: Api<v2::Crate> = Api::default_namespaced(client.clone());
    let post = PostParams::default();
    old.create(&post, &older("a", 1)).await.unwrap();
    let by_list = watcher::Config::default();
    let by_stream = watcher::Config::default().streaming_lists();
    let mut in_new = Box::pin(watcher(new.clone(), by_list.clone()).applied_objects());
    let mut streamed = Box::pin(watcher(new.clone(), by_stream).applied_objects());
    let mut in_old = Box::pin(watcher(old.clone(), by_list).applied_objects());
    assert_eq!(next(&mut in_new).await.spec.dimensions.size, 1);
    assert_eq!(next(&mut streamed).await.spec.dimensions.size, 1);
    assert_eq!(next(&mut in_old).await.spec.size, 1);
    old.create(&post, &older("b", 2)).await.unwrap();
    new.create(&post, &newer("c", 3)).await.unwrap();
    for (name, size) in [("b", 2), ("c", 3)] {
        for object in [next(&mut in_new).await, next(&mut streamed).await] {
            assert_eq!(
                (&*object.name_any(), object.spec.dimensions.size),
                (name, size)
            );
        }
        let object = next(&mut in_old).await;
        assert_eq!((&*object.name_any(), object.spec.size), (name, size));
    }
}
