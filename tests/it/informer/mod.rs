//! Tests of informers with the real program: after crashes, lost history, cut connections, bursts and slow handlers,
//! their stores and the sum of each handler's notifications equal a list. `crates/client` has the unit tests.

mod burst;
mod kinds;
mod outages;
mod sample_controller;
mod tally;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio::time::{Instant, sleep};
use watchet::client::{
    ApiResource, HttpListerWatcher, Kubeconfig, ListParams, ListWatchOptions, ResourceClient,
    RestClient, RestConfig, SharedInformer,
};

use crate::harness::PATIENCE;

/// The namespace of all objects.
const NAMESPACE: &str = "default";

pub(crate) fn client(kubeconfig: &Path) -> RestClient {
    let kubeconfig = Kubeconfig::load(&[kubeconfig]).unwrap();
    RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None).unwrap()).unwrap()
}

/// Returns a client of an insecure port.
fn plain_client(address: std::net::SocketAddr) -> RestClient {
    RestClient::new(&RestConfig::new(format!("http://{address}"))).unwrap()
}

fn maps(client: &RestClient) -> ResourceClient<ConfigMap> {
    let maps = client.resource(ApiResource::of::<ConfigMap>());
    maps.namespace(NAMESPACE)
}

fn informer_of(client: &RestClient) -> SharedInformer<ConfigMap> {
    let source = HttpListerWatcher::new(maps(client), ListWatchOptions::default());
    SharedInformer::new("configmaps", source, Duration::ZERO)
}

fn map(name: &str, text: &str) -> ConfigMap {
    let map = json!({"metadata": {"name": name}, "data": {"text": text}});
    serde_json::from_value(map).unwrap()
}

/// Creates or replaces a config map.
async fn put(maps: &ResourceClient<ConfigMap>, name: &str, text: &str) {
    match maps.update(&map(name, text)).await {
        Ok(_) => {}
        Err(error) if error.is_not_found() => {
            maps.create(&map(name, text)).await.unwrap();
        }
        Err(error) => panic!("{error}"),
    }
}

async fn delete(maps: &ResourceClient<ConfigMap>, name: &str) {
    maps.delete(name, &Default::default()).await.unwrap();
}

/// Versions by name.
type Versions = BTreeMap<String, String>;

fn versions<'a>(maps: impl IntoIterator<Item = &'a ConfigMap>) -> Versions {
    let of = |map: &ConfigMap| {
        let metadata = &map.metadata;
        (
            metadata.name.clone().unwrap(),
            metadata.resource_version.clone().unwrap(),
        )
    };
    maps.into_iter().map(of).collect()
}

fn held(informer: &SharedInformer<ConfigMap>) -> Versions {
    let held = informer.indexer().list();
    versions(held.iter().map(|map| &**map))
}

async fn listed(maps: &ResourceClient<ConfigMap>) -> Versions {
    let list = maps.list(&ListParams::default()).await.unwrap();
    versions(&list.items)
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "in vain for: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}
