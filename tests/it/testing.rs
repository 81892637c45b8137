//! Tests of `watchet::testing::Server` as library users have it: with kube-rs, kubectl and a second server, in memory,
//! in a persistent directory and on etcd.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;
use tokio::time::timeout;
use watchet::testing::Server;

use crate::harness::{Kubectl, PATIENCE, free_port};
use crate::storage::etcd::EtcdProcess;

const MANIFESTS: &str = "
apiVersion: v1
kind: Namespace
metadata:
  name: shop
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: settings
    namespace: shop
  data:
    colour: red
";

async fn config(server: &Server) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(server.kubeconfig()).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.expect("a configuration")
}

async fn client(server: &Server) -> Client {
    Client::try_from(config(server).await).expect("a client")
}

#[tokio::test]
async fn servers_are_isolated_and_create_the_given_objects() {
    let with = Server::builder()
        .manifests(MANIFESTS)
        .start()
        .await
        .unwrap();
    let without = Server::start().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client(&with).await, "shop");
    let settings = maps.get("settings").await.unwrap();
    assert_eq!(settings.data.unwrap()["colour"], "red");
    let maps: Api<ConfigMap> = Api::all(client(&without).await);
    let found = maps.list(&ListParams::default()).await.unwrap();
    let found: Vec<String> = found.iter().map(|map| map.namespace().unwrap()).collect();
    assert!(!found.contains(&"shop".to_owned()), "{found:?}");
    with.stop().await.unwrap();
    without.stop().await.unwrap();
}

/// The only thread of the test waits for kubectl; the server must continue.
#[tokio::test]
async fn a_test_may_block_its_thread() {
    let server = Server::builder()
        .manifests(MANIFESTS)
        .start()
        .await
        .unwrap();
    let binary = std::env::var_os("WATCHET_TEST_KUBECTL").unwrap_or_else(|| "kubectl".into());
    let home = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(binary)
        .env("KUBECONFIG", server.kubeconfig_path())
        .env("HOME", home.path())
        .args(["get", "configmaps", "-n", "shop", "-o", "name"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("configmap/settings\n"), "{output:?}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_token_authenticates_its_user() {
    let server = Server::builder()
        .manifests(
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: ops}, \
             roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, \
             subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: ops}]}",
        )
        .token("s3cret,\"", "jane, \"the\" user", &["dev", "ops"])
        .start()
        .await
        .unwrap();
    let with = |token: &str| {
        let token = token.to_owned();
        let config = config(&server);
        async move {
            let mut config = config.await;
            config.auth_info = kube::config::AuthInfo {
                token: Some(token.into()),
                ..Default::default()
            };
            let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
            namespaces.list(&ListParams::default()).await
        }
    };
    // The binding takes effect shortly after its creation, as in a cluster.
    let allowed = async { while with("s3cret,\"").await.is_err() {} };
    let within = tokio::time::timeout(Duration::from_secs(30), allowed).await;
    within.expect("the user may list namespaces");
    let refused = with("s3cret").await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 401),
        "{refused}"
    );
    server.stop().await.unwrap();
}

const OPERATOR: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: operator, namespace: shop}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects:
- {kind: ServiceAccount, name: operator, namespace: shop}
"#;

/// An operator that works in a test with every permission may fail in a cluster.
#[tokio::test]
async fn an_operator_runs_under_the_roles_that_it_ships() {
    let server = Server::builder().manifests(OPERATOR).start().await.unwrap();
    let kubeconfig = server.kubeconfig_as("system:serviceaccount:shop:operator", &[]);
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "shop");
    let allowed = async { while maps.list(&ListParams::default()).await.is_err() {} };
    timeout(PATIENCE, allowed)
        .await
        .expect("the binding takes effect");
    let new: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "new"}})).unwrap();
    maps.create(&PostParams::default(), &new).await.unwrap();
    let is_forbidden = |error: kube::Error| match error {
        kube::Error::Api(status) => status.code == 403,
        _ => false,
    };
    let deleted = maps.delete("new", &DeleteParams::default()).await;
    assert!(is_forbidden(deleted.unwrap_err()));
    let elsewhere: Api<ConfigMap> = Api::namespaced(client, "default");
    let listed = elsewhere.list(&ListParams::default()).await;
    assert!(is_forbidden(listed.unwrap_err()));
    server.stop().await.unwrap();
}

/// Stops the server and starts it on the same port, as an upgrade of a cluster looks to an operator.
async fn survives_a_restart(builder: watchet::testing::Builder) {
    let builder = builder.set("secure-port", free_port().to_string());
    let first = builder.clone().manifests(MANIFESTS).start().await.unwrap();
    let client = client(&first).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "shop");
    let version = maps
        .get("settings")
        .await
        .unwrap()
        .resource_version()
        .unwrap();
    first.stop().await.unwrap();

    let second = builder.start().await.unwrap();
    let merge = Patch::Merge(json!({"data": {"colour": "blue"}}));
    let patched = maps
        .patch("settings", &PatchParams::default(), &merge)
        .await;
    assert_eq!(patched.unwrap().data.unwrap()["colour"], "blue");
    // The client resumes its watch. The watch selects one name, because a controller creates another config map in the
    // namespace at some time.
    let settings = WatchParams::default().fields("metadata.name=settings");
    let events = maps.watch(&settings, &version).await.unwrap();
    let mut events = events.boxed();
    let event = timeout(PATIENCE, events.next()).await.unwrap().unwrap();
    let map = match event.unwrap() {
        kube::api::WatchEvent::Modified(map) => map,
        other => panic!("it was modified, not {other:?}"),
    };
    assert_eq!(map.data.unwrap()["colour"], "blue");
    second.stop().await.unwrap();
}

#[tokio::test]
async fn directory_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    survives_a_restart(Server::builder().data_dir(directory.path())).await;
}

#[tokio::test]
async fn etcd_survives_a_restart() {
    let etcd = EtcdProcess::start(&[]).await;
    let directory = tempfile::tempdir().unwrap();
    let builder = Server::builder().etcd(&[etcd.url()]);
    survives_a_restart(builder.data_dir(directory.path())).await;
}

/// The end of a server does not wait for open watches, whether it is stopped or dropped.
#[tokio::test]
async fn open_watches_do_not_delay_shutdown() {
    for dropped in [true, false] {
        let server = Server::start().await.unwrap();
        let namespaces: Api<Namespace> = Api::all(client(&server).await);
        let events = namespaces.watch(&WatchParams::default(), "0").await;
        let mut events = events.unwrap().boxed();
        let first = timeout(PATIENCE, events.next()).await.unwrap();
        assert!(first.unwrap().is_ok());
        let begun = tokio::time::Instant::now();
        match dropped {
            true => drop(server),
            false => server.stop().await.unwrap(),
        }
        let took = begun.elapsed();
        // Shorter than the grace period.
        assert!(took < Duration::from_secs(20), "{dropped} {took:?}");
        let rest = events.collect::<Vec<_>>();
        timeout(PATIENCE, rest).await.expect("the watch ends");
    }
}

#[tokio::test]
async fn kubectl_uses_its_kubeconfig() {
    let server = Server::start().await.unwrap();
    let kubectl = Kubectl::new(server.kubeconfig_path());
    let output = kubectl.run(&["create", "namespace", "shop"]).await;
    assert_eq!(output, "namespace/shop created\n");
    server.stop().await.unwrap();
}

/// Each of several servers of a test suite has its own port, directory and objects, and the end of one does not affect
/// the others.
#[tokio::test]
async fn several_servers_run_concurrently() {
    const SERVERS: usize = 16;
    let started = futures::future::join_all((0..SERVERS).map(|_| Server::start())).await;
    let servers: Vec<Server> = started.into_iter().map(|server| server.unwrap()).collect();
    let mut urls: Vec<&str> = servers.iter().map(Server::url).collect();
    urls.sort_unstable();
    urls.dedup();
    assert_eq!(urls.len(), SERVERS);
    let use_one = async |index: usize, server: Server| {
        let maps: Api<ConfigMap> = Api::namespaced(client(&server).await, "default");
        let name = format!("of-{index}");
        let map = ConfigMap {
            metadata: kube::api::ObjectMeta {
                name: Some(name.clone()),
                ..Default::default()
            },
            ..Default::default()
        };
        maps.create(&Default::default(), &map).await.unwrap();
        let mut found = maps.list(&ListParams::default()).await.unwrap().into_iter();
        assert!(found.all(|map| !map.name_any().starts_with("of-") || map.name_any() == name));
        // Half of the servers end while the others are in use.
        match index % 2 {
            0 => {
                server.stop().await.unwrap();
                None
            }
            _ => Some((maps, name, server)),
        }
    };
    let used = servers.into_iter().enumerate();
    let used = used.map(|(index, server)| use_one(index, server));
    for (maps, name, server) in futures::future::join_all(used).await.into_iter().flatten() {
        assert_eq!(maps.get(&name).await.unwrap().name_any(), name);
        server.stop().await.unwrap();
    }
}
