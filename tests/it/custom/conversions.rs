//! Tests of failing conversions, of the storage version, and of other components that need conversions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::webhooks::{
    DEFINITION, NEWER, answer, converted_foos, converter, reviewed, sized, watched,
};
use super::*;
use crate::harness::{Reply, Webhook};

pub(super) async fn a_failed_conversion_is_an_error(world: &mut World) {
    let turn = Arc::new(AtomicUsize::new(0));
    let turns = turn.clone();
    let webhook = Webhook::answering(move |call| {
        let mut actual = answer(call);
        let response = &mut actual["response"];
        match turns.load(Ordering::SeqCst) {
            1 => return Reply::other(200, "nothing of the kind"),
            2 => return Reply::other(500, "broken"),
            3 => response["convertedObjects"] = json!([]),
            4 => response["convertedObjects"][0]["metadata"]["name"] = "other".into(),
            5 => response["uid"] = "other".into(),
            6 => response["result"] = json!({"status": "Failure", "message": "too large for v2"}),
            7 => response["convertedObjects"][0]["apiVersion"] = "example.com/v9".into(),
            _ => {}
        }
        Reply::json(&actual)
    })
    .await;
    world
        .define(&converted_foos("v1", webhook.client_config("/")))
        .await;
    assert_eq!(world.post(FOOS, &sized("v1", "a", 1)).await.0, 201);
    let actual = [
        "failed: couldn't get version/kind; json parse error: ",
        r#"failed: an error on the server ("broken") has prevented the request from succeeding"#,
        "returned 0 objects, expected 1",
        "returned invalid converted object at index 0: must have the same name: a != other",
        r#"got "other""#,
        "failed: too large for v2",
        "invalid groupVersion (expected example.com/v2, received example.com/v9)",
    ];
    for (number, words) in (1..).zip(actual) {
        turn.store(number, Ordering::SeqCst);
        let of_write = sized("v2", "new", 1);
        for (method, path, body) in [
            (Method::GET, format!("{NEWER}/a"), Value::Null),
            (Method::GET, NEWER.to_owned(), Value::Null),
            (Method::PUT, format!("{NEWER}/a"), sized("v2", "a", 2)),
            (Method::DELETE, format!("{NEWER}/a"), Value::Null),
        ] {
            let (code, body) = world.send(method, &path, "application/json", &body).await;
            let message = body["message"].as_str().unwrap_or_default();
            assert_eq!((code, body["reason"].as_str()), (500, None), "{body}");
            let begins = "conversion webhook for example.com/v1, Kind=Foo ";
            assert!(
                message.starts_with(begins) && message.contains(words),
                "{body}"
            );
        }
        let (code, body) = world.post(NEWER, &of_write).await;
        assert_eq!(code, 500, "{body}");
        let path = format!("{NEWER}?watch=1&timeoutSeconds=30");
        let events = watched(&mut world.wire, &path).await;
        assert_eq!(events.len(), 1, "it ends by itself: {events:?}");
        assert_eq!(events[0]["type"], "ERROR");
        assert_eq!(events[0]["object"]["code"], 500);
        assert_eq!(events[0]["object"]["reason"], "InternalError");
        assert!(
            events[0]["object"]["message"]
                .as_str()
                .unwrap()
                .contains(words)
        );
        let (code, _) = world.get(&format!("{FOOS}/a")).await;
        assert_eq!(code, 200, "the stored version needs no webhook");
    }
    turn.store(0, Ordering::SeqCst);
    let (code, body) = world.get(&format!("{NEWER}/a")).await;
    assert_eq!(
        (code, &body["spec"]["dimensions"]["size"]),
        (200, &json!(1)),
        "{body}"
    );
    assert_eq!(
        world.get(&format!("{FOOS}/new")).await.0,
        404,
        "nothing was stored"
    );
}

/// Objects that are stored in an old storage version can be read, and every write stores them in the new one.
pub(super) async fn storage_version_can_change(world: &mut World) {
    let webhook = converter().await;
    world
        .define(&converted_foos("v1", webhook.client_config("/")))
        .await;
    for name in ["a", "b"] {
        assert_eq!(world.post(FOOS, &sized("v1", name, 4)).await.0, 201);
    }
    let (_, before) = world.get(&format!("{NEWER}/a")).await;
    let spec = &converted_foos("v2", webhook.client_config("/"))["spec"];
    let patch = json!({"spec": {"versions": spec["versions"]}});
    let (code, body) = world.patch(DEFINITION, "merge", &patch).await;
    assert_eq!(code, 200, "{body}");
    assert_eq!(body["status"]["storedVersions"], json!(["v1", "v2"]));
    // The webhook is called for writes until the new storage version is in effect.
    let written = world
        .until(&format!("{NEWER}/a"), |code, _| code == 200)
        .await;
    assert_eq!(written["spec"], before["spec"]);
    let mut name = 0;
    loop {
        name += 1;
        let calls = webhook.calls().len();
        assert_eq!(
            world
                .post(NEWER, &sized("v2", &format!("n{name}"), 1))
                .await
                .0,
            201
        );
        if webhook.calls().len() == calls {
            break;
        }
    }
    let (_, listed) = world.get(NEWER).await;
    let old = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|i| i["metadata"]["name"] == "a");
    assert_eq!(old.unwrap()["spec"], json!({"dimensions": {"size": 4}}));
    // A write without changes stores the object in the storage version: this is how storage is migrated.
    let (_, got) = world.get(&format!("{NEWER}/a")).await;
    let (code, moved) = world.put(&format!("{NEWER}/a"), &got).await;
    assert_eq!(code, 200, "{moved}");
    assert_ne!(
        moved["metadata"]["resourceVersion"],
        got["metadata"]["resourceVersion"]
    );
    let (_, again) = world.put(&format!("{NEWER}/a"), &moved).await;
    assert_eq!(
        again["metadata"]["resourceVersion"],
        moved["metadata"]["resourceVersion"]
    );
    drop(webhook);
    let (code, moved) = world.get(&format!("{NEWER}/a")).await;
    assert_eq!(
        (code, &moved["spec"]),
        (200, &json!({"dimensions": {"size": 4}}))
    );
    let (code, body) = world.get(&format!("{FOOS}/a")).await;
    assert_eq!(code, 500, "{body}");
}

/// A request for one object does not wait for another client's list, only for the objects that are converted in the
/// same call.
pub(super) async fn a_long_conversion_delays_no_other_request(world: &mut World) {
    let released = watch::Sender::new(false);
    let release = released.subscribe();
    let webhook = Webhook::start(move |call| {
        let mut release = release.clone();
        Box::pin(async move {
            let objects = call.body["request"]["objects"].as_array().cloned();
            let is_first = |object: &Value| object["metadata"]["name"] == "a";
            if objects.unwrap_or_default().iter().any(is_first) {
                let released = release.wait_for(|now| *now).await;
                released.expect("it ends with the test");
            }
            Reply::json(&answer(&call))
        })
    })
    .await;
    world
        .define(&converted_foos("v1", webhook.client_config("/")))
        .await;
    let names = ["a", "b", "c", "d"];
    for name in names {
        let mut large = sized("v1", name, 1);
        large["spec"]["color"] = "x".repeat(600 << 10).into();
        assert_eq!(world.post(FOOS, &large).await.0, 201);
    }
    let before = webhook.calls().len();
    let mut wire = world.server.plain(Protocol::Http1).await;
    let headers: [(&str, &str); 0] = [];
    let listing = wire.send(Method::GET, NEWER, &headers, "");
    let getting = async {
        while webhook.calls().len() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (code, body) = world.get(&format!("{NEWER}/d")).await;
        assert_eq!(
            (code, &body["spec"]["dimensions"]["size"]),
            (200, &json!(1))
        );
        assert_eq!(reviewed(&webhook, before), [2, 1], "the list still waits");
        released.send_replace(true);
    };
    let (list, ()) = tokio::join!(listing, getting);
    let list = list.json();
    let listed = list["items"].as_array().unwrap().iter();
    let listed = listed.map(|item| item["metadata"]["name"].as_str().unwrap());
    assert_eq!(listed.collect::<Vec<_>>(), names);
    // The object that was converted for the get is not converted again.
    assert_eq!(reviewed(&webhook, before), [2, 1, 1]);
}

/// A conversion webhook that is configured by a Service, and an admission webhook that receives converted objects.
pub(super) async fn services_and_admission(world: &mut World) {
    let webhook = Webhook::start_as("converter.default.svc", |call| {
        Box::pin(async move { Reply::json(&answer(&call)) })
    })
    .await;
    // The test has no pod network, so the Service has an external name.
    let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "converter"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let (code, body) = world
        .post("/api/v1/namespaces/default/services", &service)
        .await;
    assert_eq!(code, 201, "{body}");
    let config = json!({"caBundle": webhook.ca_bundle(), "service": {
        "namespace": "default", "name": "converter", "path": "/crd", "port": webhook.port()}});
    world.define(&converted_foos("v1", config)).await;
    let judge = Webhook::answering(|call| {
        let request = &call.body["request"];
        Reply::json(
            &json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": request["uid"], "allowed": request["object"]["spec"]["size"] != 13,
                "status": {"message": "unlucky"}}}),
        )
    })
    .await;
    let configuration = json!({
        "kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": "judge"},
        "webhooks": [{"name": "judge.example.com", "clientConfig": judge.client_config("/"),
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "matchPolicy": "Equivalent",
            "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["foos"],
                "operations": ["CREATE", "UPDATE"]}]}],
    });
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(world.post(configurations, &configuration).await.0, 201);
    // The webhook configuration takes effect after a short delay.
    for n in 0.. {
        let (code, body) = world.post(NEWER, &sized("v2", &format!("a{n}"), 13)).await;
        if code != 201 {
            let received = body["message"].as_str().unwrap();
            assert!(
                received.contains(r#"admission webhook "judge.example.com" denied"#),
                "{body}"
            );
            break;
        }
    }
    let (code, body) = world.post(NEWER, &sized("v2", "lucky", 7)).await;
    assert_eq!(code, 201, "{body}");
    let calls = judge.calls();
    let last = &calls.last().unwrap().body["request"];
    assert_eq!(last["object"]["spec"], json!({"size": 7}));
    assert_eq!(last["kind"]["version"], "v1");
    assert_eq!(last["requestKind"]["version"], "v2");
    assert!(
        webhook
            .calls()
            .iter()
            .all(|call| call.path == "/crd?timeout=30s")
    );
}
