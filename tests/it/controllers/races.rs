//! Tests of changes that follow each other so fast that a controller may not have received the first one.

use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams, PropagationPolicy,
};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;

use super::{client, create, map};
use crate::harness::{Kubectl, PATIENCE, Protocol, Server};
use crate::storage::etcd::EtcdProcess;

/// A server that is still deleting the content of a namespace must not affect a new namespace of the same name, which
/// another server has created, or the objects in it.
#[tokio::test]
async fn a_recreated_namespace_survives_the_deletion_of_the_old_one() {
    const ROUNDS: usize = 20;
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    let both = [
        Server::start(&["--storage=etcd", &servers]).await,
        Server::start(&["--storage=etcd", &servers]).await,
    ];
    let clients = [client(&both[0]).await, client(&both[1]).await];
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "phoenix"}})).expect("a namespace");
    let creation = PostParams::default();
    let mut alive: Vec<ConfigMap> = Vec::new();
    for round in 0..=ROUNDS {
        let (old, new) = (&clients[round % 2], &clients[(round + 1) % 2]);
        let namespaces: Api<Namespace> = Api::all(old.clone());
        let maps: Api<ConfigMap> = Api::namespaced(old.clone(), "phoenix");
        for map in &alive {
            let found = maps.get(&map.name_any()).await;
            let found = found.unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(found.uid(), map.uid(), "round {round}");
            assert_eq!(found.metadata.deletion_timestamp, None, "round {round}");
        }
        if round > 0 {
            let end = DeleteParams::default();
            namespaces.delete("phoenix", &end).await.expect("it ends");
        }
        let started = Instant::now();
        let recreated: Api<Namespace> = Api::all(new.clone());
        while let Err(error) = recreated.create(&creation, &namespace).await {
            assert!(started.elapsed() < PATIENCE, "round {round}: {error}");
        }
        let maps: Api<ConfigMap> = Api::namespaced(new.clone(), "phoenix");
        alive.clear();
        for name in ["a", "b", "c"] {
            // The old namespace had an object of this name too.
            let map = map(name, &[]);
            let made = maps.create(&creation, &map).await;
            alive.push(made.unwrap_or_else(|error| panic!("round {round}: {error}")));
        }
    }
    for client in &clients {
        until_controllers_are_idle(client).await;
    }
    let left: Api<ConfigMap> = Api::namespaced(clients[0].clone(), "phoenix");
    for map in &alive {
        let found = left.get(&map.name_any()).await.expect("it is there");
        assert_eq!(found.uid(), map.uid());
    }
    for server in both {
        assert_no_errors(&server);
        server.stop().await;
    }
}

/// Asserts that the log has no errors, except that etcd is unavailable: a busy machine can delay etcd by a second.
pub(super) fn assert_no_errors(server: &Server) {
    let log = server.log();
    let is_error = |line: &str| line.contains("ERROR") && !line.contains("etcd is unavailable");
    assert!(!log.lines().any(is_error), "{log}");
}

/// Waits until all work queues of the server are empty and idle, ten times in a row.
async fn until_controllers_are_idle(client: &Client) {
    let started = Instant::now();
    let mut idle = 0;
    while idle < 10 {
        assert!(started.elapsed() < PATIENCE, "the controllers are busy");
        let request = http::Request::get("/metrics").body(Vec::new());
        let metrics = client.request_text(request.expect("a request")).await;
        let metrics = metrics.expect("metrics");
        let mut counts = metrics.lines().filter(|line| {
            line.starts_with("workqueue_depth{")
                || line.starts_with("workqueue_unfinished_work_seconds{")
        });
        assert!(counts.clone().count() > 2, "{metrics}");
        idle = if counts.all(|line| line.ends_with(" 0")) {
            idle + 1
        } else {
            0
        };
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The orphans were deleted in half of the runs: the owner's finalizer was removed before the collector watched their
/// kind.
pub(super) async fn orphans_of_a_new_kind_are_not_deleted(server: &Server, _: &Kubectl) {
    let client = client(server).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let creation = PostParams::default();
    let orphaning = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    for round in 0..10 {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(
            "example.com",
            "v1",
            &format!("Gadget{round}"),
        ));
        let schema = json!({"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }});
        let definition = json!({
            "metadata": {"name": format!("{}.example.com", kind.plural)},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": kind.plural, "kind": kind.kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        });
        let definition = serde_json::from_value(definition).expect("a definition");
        let name = format!("owner-{round}");
        let owner = maps.create(&creation, &map(&name, &[])).await;
        let owner = owner.expect("it is made");
        let defined = definitions.create(&creation, &definition).await;
        let defined = defined.expect("it is defined").name_any();
        let served = await_condition(
            definitions.clone(),
            &defined,
            conditions::is_crd_established(),
        );
        let served = tokio::time::timeout(PATIENCE, served).await;
        served.expect("in time").expect("it is watched");
        let gadgets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
        for gadget in ["a", "b"] {
            let mut gadget = DynamicObject::new(gadget, &kind);
            gadget.metadata.owner_references = map("", &[&owner]).metadata.owner_references;
            let made = gadgets.create(&creation, &gadget).await;
            made.expect("it is made");
        }
        maps.delete(&name, &orphaning).await.expect("it is marked");
        let uid = owner.uid().expect("a uid");
        let gone = await_condition(maps.clone(), &name, conditions::is_deleted(&uid));
        let gone = tokio::time::timeout(PATIENCE, gone).await;
        gone.expect("in time").expect("it is watched");
        for gadget in ["a", "b"] {
            let gadget = gadgets.get(gadget).await.expect("it stays");
            assert!(
                gadget.owner_references().is_empty(),
                "round {round}: {gadget:?}"
            );
            assert!(gadget.metadata.deletion_timestamp.is_none(), "{gadget:?}");
        }
    }
}

/// When several clients removed the last finalizer concurrently, all but one could get a 404 for a namespace that they
/// had read, or a 409. Upstream deletes the namespace if it exists.
pub(super) async fn clients_that_finalize_a_namespace_concurrently_meet_no_conflict(
    server: &Server,
    kubectl: &Kubectl,
) {
    const CLIENTS: usize = 8;
    let mut wires = Vec::new();
    for _ in 0..CLIENTS {
        wires.push(server.plain(Protocol::Http1).await);
    }
    for round in 0..10 {
        let path = format!("/api/v1/namespaces/n{round}");
        // No controller removes this finalizer.
        let held = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("n{round}")},
            "spec": {"finalizers": ["example.com/held"]}});
        create(kubectl, &held).await;
        let deleted = wires[0].send(Method::DELETE, &path, &[], "").await;
        assert_eq!(deleted.status, 200);
        let waiting = async {
            loop {
                let namespace = wires[0].get(&path).await.json();
                if namespace["spec"]["finalizers"] == json!(["example.com/held"]) {
                    return namespace;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waiting = tokio::time::timeout(PATIENCE, waiting).await;
        let mut namespace = waiting.expect("the controller is done");
        namespace["spec"]["finalizers"] = json!([]);
        // With the uid, a deleted namespace is a conflict, as upstream.
        namespace["metadata"].as_object_mut().unwrap().remove("uid");
        let (finalize, body) = (format!("{path}/finalize"), namespace.to_string());
        let finalizing = wires
            .iter_mut()
            .map(|wire| wire.send(Method::PUT, &finalize, &[], &body));
        let answers = futures_util::future::join_all(finalizing).await;
        let codes: Vec<u16> = answers.iter().map(|a| a.status.as_u16()).collect();
        assert!(codes.contains(&200), "{codes:?}");
        // A client that came after the deletion gets a 404.
        assert!(
            codes.iter().all(|code| [200, 404].contains(code)),
            "{codes:?}"
        );
        assert_eq!(wires[0].get(&path).await.status, 404);
    }
}
