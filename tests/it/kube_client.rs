//! Tests of kube-rs with the real program on both back ends: the client, the watcher with a list and with a streaming
//! list, the reflector, and waiting for conditions.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::time::timeout;

use crate::harness::{PATIENCE, Server, on_both};

async fn client(server: &Server) -> Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

on_both!(|server| (client(server).await) => [
    the_verbs,
    a_watcher_by_list_and_watch,
    a_watcher_by_streaming_list,
    a_reflector_and_wait,
]);

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "data": {"value": value},
    }))
    .unwrap()
}

async fn the_verbs(client: Client) {
    let info = client.apiserver_version().await.expect("a version");
    assert!(info.git_version.contains("watchet"), "{}", info.git_version);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert_eq!(
        namespaces
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        4
    );

    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let created = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let twice = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap_err();
    assert!(
        matches!(&twice, kube::Error::Api(status) if status.is_already_exists()),
        "{twice}"
    );

    let mut changed = config_map("a", "2");
    changed.metadata.resource_version = created.metadata.resource_version.clone();
    let replaced = maps
        .replace("a", &PostParams::default(), &changed)
        .await
        .unwrap();
    assert_eq!(replaced.metadata.uid, created.metadata.uid);
    let stale = maps
        .replace("a", &PostParams::default(), &changed)
        .await
        .unwrap_err();
    assert!(
        matches!(&stale, kube::Error::Api(status) if status.is_conflict()),
        "{stale}"
    );

    let merge = Patch::Merge(json!({"data": {"value": "3"}}));
    let patched = maps
        .patch("a", &PatchParams::default(), &merge)
        .await
        .unwrap();
    assert_eq!(patched.data.unwrap()["value"], "3");
    let json_patch = serde_json::from_value(json!([
        {"op": "test", "path": "/data/value", "value": "3"},
        {"op": "replace", "path": "/data/value", "value": "4"},
    ]));
    let patch = Patch::<()>::Json(json_patch.unwrap());
    let patched = maps
        .patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(patched.data.unwrap()["value"], "4");

    for name in ["b", "c", "d"] {
        maps.create(&PostParams::default(), &config_map(name, "1"))
            .await
            .unwrap();
    }
    let mut paged = Vec::new();
    let mut params = ListParams::default().limit(3).labels("app=web");
    loop {
        let page = maps.list(&params).await.unwrap();
        paged.extend(page.items.into_iter().filter_map(|map| map.metadata.name));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(paged, ["a", "b", "c", "d"]);
    let fields = ListParams::default().fields("metadata.name=c");
    assert_eq!(maps.list(&fields).await.unwrap().items.len(), 1);
    let metadata = maps.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(metadata.items.len(), 4);

    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
    maps.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .unwrap();
    assert!(
        maps.list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

async fn a_watcher_by_list_and_watch(client: Client) {
    follow(client, watcher::Config::default()).await;
}

async fn a_watcher_by_streaming_list(client: Client) {
    follow(client, watcher::Config::default().streaming_lists()).await;
}

/// Checks that a watcher receives the existing objects and then each change.
async fn follow(client: Client, config: watcher::Config) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["a", "b"] {
        maps.create(&PostParams::default(), &config_map(name, "1"))
            .await
            .unwrap();
    }
    // A streaming list of kube-rs requests resourceVersion 0, so the cache may be older than the writes of this client.
    let any = ListParams::default().match_any().fields("metadata.name=b");
    while maps.list(&any).await.unwrap().items.is_empty() {
        tokio::task::yield_now().await;
    }
    let events = watcher(maps.clone(), config);
    futures::pin_mut!(events);
    let mut next = async || {
        let event = timeout(PATIENCE, events.next())
            .await
            .expect("an event in time");
        match event.expect("it goes on").expect("no failure") {
            watcher::Event::Init => "init".to_owned(),
            watcher::Event::InitApply(map) => format!("initial {}", map.metadata.name.unwrap()),
            watcher::Event::InitDone => "done".to_owned(),
            watcher::Event::Apply(map) => format!("applied {}", map.metadata.name.unwrap()),
            watcher::Event::Delete(map) => format!("deleted {}", map.metadata.name.unwrap()),
        }
    };
    for expected in ["init", "initial a", "initial b", "done"] {
        assert_eq!(next().await, expected);
    }
    maps.create(&PostParams::default(), &config_map("c", "1"))
        .await
        .unwrap();
    assert_eq!(next().await, "applied c");
    let patch = Patch::Merge(json!({"data": {"value": "2"}}));
    maps.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(next().await, "applied a");
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    assert_eq!(next().await, "deleted b");
}

async fn a_reflector_and_wait(client: Client) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let (reader, writer) = reflector::store();
    let stream = reflector(writer, watcher(pods.clone(), watcher::Config::default()))
        .default_backoff()
        .applied_objects();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    }))
    .unwrap();
    let work = async {
        reader.wait_until_ready().await.unwrap();
        assert!(reader.state().is_empty());
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let running = await_condition(pods.clone(), "p", conditions::is_pod_running());
        let kubelet = async {
            let status = json!({"status": {"phase": "Running"}});
            let patch = Patch::Merge(status);
            pods.patch_status("p", &PatchParams::default(), &patch)
                .await
                .unwrap();
        };
        let (found, ()) = tokio::join!(running, kubelet);
        let uid = found.unwrap().unwrap().metadata.uid.unwrap();
        while reader
            .state()
            .iter()
            .all(|pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Running"))
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        pods.delete("p", &DeleteParams::default()).await.unwrap();
        await_condition(pods.clone(), "p", conditions::is_deleted(&uid))
            .await
            .unwrap();
        while !reader.state().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let drain = stream.try_for_each(async |_| Ok(()));
    // The reflector makes progress only while its stream is polled, and the stream does not end.
    tokio::select! {
        () = async { timeout(PATIENCE, work).await.expect("in time") } => {}
        ended = drain => panic!("the reflector ended: {ended:?}"),
    }
    let deployments: Api<Deployment> = Api::default_namespaced(client);
    assert!(
        deployments
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}
