//! Tests of stored objects whose definition changes: how they are read later, and what happens to open watches.

use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use super::*;
use crate::harness::{full, request};

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.example.com";

/// Returns the events of a watch until it ends.
async fn watched(wire: &mut Wire, path: &str) -> Vec<Value> {
    let watch = wire.open(request(Method::GET, path, &[], full(""))).await;
    events_of(watch.expect("an answer")).await
}

/// Returns the events of an open watch until it ends.
async fn events_of(watch: Response<Incoming>) -> Vec<Value> {
    let received = timeout(PATIENCE, watch.into_body().collect()).await;
    let received = received.expect("a body in time").expect("a whole body");
    let received = received.to_bytes();
    let lines = received
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

fn kinds(events: &[Value]) -> Vec<(&str, &str)> {
    let received = events.iter().map(|event| {
        let name = event["object"]["metadata"]["name"].as_str();
        (
            event["type"].as_str().unwrap_or_default(),
            name.unwrap_or_default(),
        )
    });
    received.collect()
}

async fn version_of(world: &mut World) -> String {
    let (_, list) = world.get(FOOS).await;
    let version = &list["metadata"]["resourceVersion"];
    version
        .as_str()
        .unwrap_or_else(|| panic!("{list}"))
        .to_owned()
}

async fn change(world: &mut World, patch: &Value) {
    let (code, body) = world.patch(DEFINITION, "merge", patch).await;
    assert_eq!(code, 200, "{body}");
}

/// Returns a schema of foos with a default, which prunes unknown fields.
fn stricter() -> Value {
    let mut definition = foos();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"] = json!({"type": "object", "properties": {
        "color": {"type": "string"}, "size": {"type": "integer", "default": 7},
    }});
    definition
}

pub(super) async fn stored_objects_are_pruned_and_defaulted_by_the_present_schema(
    world: &mut World,
) {
    world.define(&foos()).await;
    let spec = json!({"color": "red", "extra": {"a": 1}});
    let (code, made) = world.post(FOOS, &foo("a", spec.clone())).await;
    assert_eq!((code, &made["spec"]), (201, &spec), "{made}");
    let (code, body) = world.patch(DEFINITION, "merge", &stricter()).await;
    assert_eq!(code, 200, "{body}");
    let now = json!({"color": "red", "size": 7});
    let path = format!("{FOOS}/a");
    let got = world.until(&path, |_, got| got["spec"] == now).await;
    assert_eq!(got["metadata"], made["metadata"], "nothing was written");
    let (_, list) = world.get(FOOS).await;
    assert_eq!(list["items"][0]["spec"], now);
    let (_, selected) = world
        .get(&format!("{FOOS}?fieldSelector=spec.size%3D7"))
        .await;
    assert_eq!(
        selected["items"].as_array().map(Vec::len),
        Some(1),
        "{selected}"
    );
    let events = watched(&mut world.wire, &format!("{FOOS}?watch=1&timeoutSeconds=5")).await;
    assert_eq!(events[0]["object"]["spec"], now);
    // A list at an old version has the same form.
    let at = made["metadata"]["resourceVersion"].as_str().unwrap();
    let exact = format!("{FOOS}?resourceVersion={at}&resourceVersionMatch=Exact");
    let (code, list) = world.get(&exact).await;
    assert_eq!((code, &list["items"][0]["spec"]), (200, &now), "{list}");
    // A write without other changes stores the pruned and defaulted object, once.
    let (code, kept) = world.put(&path, &got).await;
    assert_eq!((code, &kept["spec"]), (200, &now), "{kept}");
    assert_ne!(
        kept["metadata"]["resourceVersion"],
        got["metadata"]["resourceVersion"]
    );
    let (_, again) = world.put(&path, &kept).await;
    assert_eq!(
        again["metadata"]["resourceVersion"],
        kept["metadata"]["resourceVersion"]
    );
    let (code, body) = world.patch(DEFINITION, "merge", &foos()).await;
    assert_eq!(code, 200, "{body}");
    let (_, stored) = world.get(&path).await;
    assert_eq!(stored["spec"], now, "it was stored so");
}

/// A default of the storage version that the client's version does not have is not a change. Otherwise a client that
/// applies the existing object would write each time.
pub(super) async fn a_default_of_another_version_is_no_change(world: &mut World) {
    let mut definition = stricter();
    let stored = definition["spec"]["versions"][0].clone();
    let mut older = foos()["spec"]["versions"][0].clone();
    older["name"] = "v1alpha1".into();
    older["storage"] = false.into();
    older["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({"type": "object", "properties": {"color": {"type": "string"}}});
    older["selectableFields"] = json!([]);
    definition["spec"]["versions"] = json!([stored, older]);
    world.define(&definition).await;
    let path = FOOS.replace("v1", "v1alpha1");
    let mut object = foo("a", json!({"color": "red"}));
    object["apiVersion"] = "example.com/v1alpha1".into();
    let (code, made) = world.post(&path, &object).await;
    assert_eq!(
        (code, &made["spec"]),
        (201, &json!({"color": "red"})),
        "{made}"
    );
    let (_, got) = world.get(&format!("{FOOS}/a")).await;
    assert_eq!(got["spec"], json!({"color": "red", "size": 7}));
    let path = format!("{path}/a");
    let (code, again) = world.put(&path, &made).await;
    assert_eq!(
        (code, &again["metadata"]),
        (200, &made["metadata"]),
        "{again}"
    );
    let patch = json!({"spec": {"color": "red"}});
    let (code, again) = world.patch(&path, "merge", &patch).await;
    assert_eq!(
        (code, &again["metadata"]),
        (200, &made["metadata"]),
        "{again}"
    );
}

/// As upstream, a watch ends when its definition changes, because its events have the form of the old definition.
pub(super) async fn watch_ends_when_its_definition_changes(world: &mut World) {
    world.define(&foos()).await;
    let at = version_of(world).await;
    let path = format!("{FOOS}?watch=1&timeoutSeconds=3600&resourceVersion={at}");
    let mut wire = world.server.plain(Protocol::Http1).await;
    let watch = wire.open(request(Method::GET, &path, &[], full(""))).await;
    let mut body = watch.expect("an answer").into_body();
    let labels = json!({"metadata": {"labels": {"l": "v"}}});
    change(world, &labels).await;
    assert_eq!(world.post(FOOS, &foo("a", json!({}))).await.0, 201);
    // Read before the change: a watch that ends may drop events that it has not sent.
    let sent = timeout(PATIENCE, body.frame()).await.expect("in time");
    let sent = sent.expect("an event").expect("the body goes on");
    let event: Value = serde_json::from_slice(sent.data_ref().expect("data")).unwrap();
    assert_eq!(kinds(std::slice::from_ref(&event)), [("ADDED", "a")]);
    change(world, &stricter()).await;
    let rest = timeout(PATIENCE, body.collect()).await.expect("in time");
    assert_eq!(rest.expect("a whole body").to_bytes(), "");
    // The watch can be resumed where it ended.
    let last = event["object"]["metadata"]["resourceVersion"]
        .as_str()
        .unwrap();
    assert_eq!(world.post(FOOS, &foo("b", json!({}))).await.0, 201);
    let path = format!("{FOOS}?watch=1&timeoutSeconds=5&resourceVersion={last}");
    let events = watched(&mut wire, &path).await;
    assert_eq!(kinds(&events), [("ADDED", "b")], "{events:?}");
    assert_eq!(events[0]["object"]["spec"]["size"], 7);
}

/// The watch receives the deletions of the objects and then ends.
pub(super) async fn watch_ends_after_the_deletion_of_its_definition(world: &mut World) {
    let mut definition = foos();
    let mut older = definition["spec"]["versions"][0].clone();
    older["name"] = "v1alpha1".into();
    older["storage"] = false.into();
    // The served version is not the storage version.
    definition["spec"]["versions"][0]["served"] = false.into();
    let both = json!([definition["spec"]["versions"][0], older]);
    definition["spec"]["versions"] = both;
    world.define(&definition).await;
    let older = FOOS.replace("v1", "v1alpha1");
    let mut object = foo("a", json!({"size": 1}));
    object["apiVersion"] = "example.com/v1alpha1".into();
    let (code, made) = world.post(&older, &object).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(world.get(FOOS).await.0, 404);
    let at = made["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{older}?watch=1&timeoutSeconds=3600&resourceVersion={at}");
    let mut wire = world.server.plain(Protocol::Http1).await;
    let watch = wire.open(request(Method::GET, &path, &[], full(""))).await;
    let (events, (code, _)) = tokio::join!(
        events_of(watch.expect("an answer")),
        world.delete(DEFINITION)
    );
    assert_eq!(code, 200);
    assert_eq!(kinds(&events), [("DELETED", "a")], "{events:?}");
    assert_eq!(events[0]["object"]["apiVersion"], "example.com/v1alpha1");
    world.until(DEFINITION, |code, _| code == 404).await;
}

pub(super) async fn definition_without_served_versions_is_deleted_with_its_objects(
    world: &mut World,
) {
    world.define(&foos()).await;
    let mut held = foo("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/keeps"]);
    for object in [foo("a", json!({})), foo("b", json!({})), held] {
        assert_eq!(world.post(FOOS, &object).await.0, 201);
    }
    let served = |served: bool| {
        let mut definition = foos();
        definition["spec"]["versions"][0]["served"] = served.into();
        json!({"spec": {"versions": definition["spec"]["versions"]}})
    };
    change(world, &served(false)).await;
    world.until(FOOS, |code, _| code == 404).await;
    assert_eq!(world.delete(DEFINITION).await.0, 200);
    let reason = |definition: &Value| {
        let all = definition["status"]["conditions"].as_array().cloned();
        let mut all = all.unwrap_or_default().into_iter();
        let one = all.find(|condition| condition["type"] == "Terminating");
        one.map(|condition| condition["reason"].clone())
    };
    world
        .until(DEFINITION, |_, now| {
            reason(now) == Some("InstanceDeletionInProgress".into())
        })
        .await;
    // A finalizer delays the deletion of an object, whether it is served or not.
    change(world, &served(true)).await;
    let left = |code, list: &Value| {
        code == 200
            && list["items"]
                .as_array()
                .is_some_and(|items| items.len() == 1)
    };
    let list = world.until(FOOS, left).await;
    assert_eq!(list["items"][0]["metadata"]["name"], "held");
    assert!(list["items"][0]["metadata"]["deletionTimestamp"].is_string());
    change(world, &served(false)).await;
    world.until(FOOS, |code, _| code == 404).await;
    change(world, &served(true)).await;
    world.until(FOOS, left).await;
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(
        world.patch(&format!("{FOOS}/held"), "merge", &free).await.0,
        200
    );
    world.until(DEFINITION, |code, _| code == 404).await;
    world.define(&foos()).await;
    let (code, list) = world.get(FOOS).await;
    assert_eq!((code, &list["items"]), (200, &json!([])), "{list}");
}

/// The clean-up of a deleted definition affected a new definition of the same name, which another server had just
/// accepted: in 21 of 128 rounds the definition or its objects were lost.
pub(super) async fn a_recreated_definition_survives_the_deletion_of_the_old_one(world: &mut World) {
    // The embedded store has only one server, which takes both roles.
    let mut other = match &world.etcd {
        Some(etcd) => {
            let servers = format!("--etcd-servers={}", etcd.url());
            let server = Server::start(&["--storage=etcd", &servers]).await;
            Some(World::start(server, None).await)
        }
        None => None,
    };
    world.define(&foos()).await;
    // The other server may have accepted the definition first.
    world.until(FOOS, |code, _| code == 200).await;
    for round in 0..20 {
        for n in 0..3 {
            let (code, body) = world.post(FOOS, &foo(&format!("old{n}"), json!({}))).await;
            assert_eq!(code, 201, "{round}: {body}");
        }
        assert_eq!(world.delete(DEFINITION).await.0, 200);
        let maker = other.as_mut().unwrap_or(&mut *world);
        let uid = loop {
            match maker.post(DEFINITIONS, &foos()).await {
                (201, made) => break made["metadata"]["uid"].clone(),
                (409, _) => {}
                answer => panic!("{round}: {answer:?}"),
            }
        };
        let began = Instant::now();
        while maker.post(FOOS, &foo("new", json!({}))).await.0 != 201 {
            assert!(began.elapsed() < PATIENCE, "{round}: it is not served");
        }
        // Each server serves the new definition, so each has finished the clean-up of the old one.
        let new = format!("{FOOS}/new");
        world.until(&new, |code, _| code == 200).await;
        if let Some(other) = &mut other {
            other.until(&new, |code, _| code == 200).await;
        }
        let (code, now) = world.get(DEFINITION).await;
        assert_eq!(
            (code, &now["metadata"]["uid"]),
            (200, &uid),
            "{round}: {now}"
        );
        assert_eq!(now["metadata"].get("deletionTimestamp"), None, "{round}");
        let (_, list) = world.get(FOOS).await;
        let names: Vec<_> = list["items"].as_array().unwrap().iter().collect();
        assert_eq!(names.len(), 1, "{round}: {list}");
    }
    if let Some(other) = other {
        other.server.stop().await;
    }
}
