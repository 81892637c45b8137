//! Tests of the creation and the deletion of definitions.

use super::*;

/// Clients such as `kubectl wait --for=condition=Established` create objects next, so none of these requests may fail.
pub(super) async fn an_established_definition_is_served(world: &mut World) {
    let (code, before) = world.get("/apis").await;
    assert_eq!(code, 200);
    assert!(!before.to_string().contains("example.com"));
    for n in 0..5 {
        let mut definition = foos();
        let group = format!("g{n}.example.com");
        definition["metadata"]["name"] = format!("foos.{group}").into();
        definition["spec"]["group"] = group.clone().into();
        let (code, answer) = world.post(DEFINITIONS, &definition).await;
        assert_eq!(code, 201, "{answer}");
        let path = format!("{DEFINITIONS}/foos.{group}");
        world
            .until(&path, |_, now| condition(now, "Established") == "True")
            .await;
        let mut body = foo("a", json!({"color": "red"}));
        body["apiVersion"] = format!("{group}/v1").into();
        let foos = format!("/apis/{group}/v1/namespaces/default/foos");
        let (code, answer) = world.post(&foos, &body).await;
        assert_eq!(code, 201, "{answer}");
        let (_, list) = world.get(&format!("/apis/{group}/v1")).await;
        assert_eq!(list["resources"][0]["name"], "foos", "{list}");
        assert_eq!(list["resources"][1]["name"], "foos/status", "{list}");
    }
}

pub(super) async fn recreated_definition_has_no_objects(world: &mut World) {
    world.define(&foos()).await;
    for n in 0..30 {
        let (code, body) = world.post(FOOS, &foo(&format!("f{n}"), json!({}))).await;
        assert_eq!(code, 201, "{body}");
    }
    let mut held = foo("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/keeps"]);
    assert_eq!(world.post(FOOS, &held).await.0, 201);
    let path = format!("{DEFINITIONS}/foos.example.com");
    let (code, body) = world.delete(&path).await;
    assert_eq!(
        (code, condition(&body, "Terminating")),
        (200, "True"),
        "{body}"
    );
    world
        .until(FOOS, |_, list| {
            list["items"].as_array().is_some_and(|i| i.len() == 1)
        })
        .await;
    world
        .until("/apis/example.com/v1", |_, list| {
            list["resources"][0]["verbs"]
                == json!(["delete", "deletecollection", "get", "list", "watch"])
        })
        .await;
    let (code, body) = world.post(FOOS, &foo("late", json!({}))).await;
    assert_eq!(code, 405, "{body}");
    let message = body["message"].as_str().unwrap();
    assert!(
        message.contains("while custom resource definition is terminating"),
        "{message}"
    );
    let free = json!({"metadata": {"finalizers": null}});
    let (code, body) = world.patch(&format!("{FOOS}/held"), "merge", &free).await;
    assert_eq!(code, 200, "{body}");
    world.until(&path, |code, _| code == 404).await;
    world.until(FOOS, |code, _| code == 404).await;
    world
        .until("/apis/example.com", |code, _| code == 404)
        .await;
    world.define(&foos()).await;
    let (code, list) = world.get(FOOS).await;
    assert_eq!((code, &list["items"]), (200, &json!([])), "{list}");
}

pub(super) async fn objects_outlive_their_server(world: &mut World) {
    world.define(&foos()).await;
    let (_, made) = world.post(FOOS, &foo("a", json!({"color": "red"}))).await;
    let directory = tempfile::tempdir().unwrap();
    let mut args = Vec::new();
    let servers;
    if let Some(etcd) = &world.etcd {
        servers = format!("--etcd-servers={}", etcd.url());
        args.extend(["--storage=etcd", servers.as_str()]);
    } else {
        // A separate server, whose data directory the test retains.
        let server = Server::start_in(directory.path(), &[]).await;
        let mut first = World::start(server, None).await;
        first.define(&foos()).await;
        let (code, body) = first.post(FOOS, &foo("a", json!({"color": "red"}))).await;
        assert_eq!(code, 201, "{body}");
        first.server.kill().await;
    }
    let server = Server::start_in(directory.path(), &args).await;
    let mut next = World::start(server, None).await;
    // This is the first request: the server is ready only once it serves the stored definitions.
    let (code, got) = next.get(&format!("{FOOS}/a")).await;
    assert_eq!(code, 200, "{got}");
    assert_eq!(got["spec"], made["spec"]);
    next.server.stop().await;
}

/// The servers watch definitions in storage: with etcd, another server serves a definition of this one.
pub(super) async fn definition_is_served_by_another_server(world: &mut World) {
    let Some(etcd) = &world.etcd else {
        // The embedded store has only one server; other tests cover it.
        world.define(&foos()).await;
        return;
    };
    let servers = format!("--etcd-servers={}", etcd.url());
    let server = Server::start(&["--storage=etcd", &servers]).await;
    let mut other = World::start(server, None).await;
    world.define(&foos()).await;
    other.until(FOOS, |code, _| code == 200).await;
    let (code, body) = other.post(FOOS, &foo("a", json!({}))).await;
    assert_eq!(code, 201, "{body}");
    assert_eq!(world.get(&format!("{FOOS}/a")).await.0, 200);
    assert_eq!(
        other
            .delete(&format!("{DEFINITIONS}/foos.example.com"))
            .await
            .0,
        200
    );
    world.until(FOOS, |code, _| code == 404).await;
    other.until(FOOS, |code, _| code == 404).await;
    other.server.stop().await;
}
