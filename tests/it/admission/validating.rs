//! Validating webhooks: their requests, and the effects of their responses and failures.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::time::Instant;

use super::cluster::{Cluster, MAPS, allow, deny, hook, map, pod, requests, respond, rule};
use crate::harness::{Kubectl, PATIENCE, Reply, Webhook, on_both};

on_both!(|server| (&Cluster(server)) => [
    the_review_has_the_user_and_the_operation,
    a_denial_has_the_status_of_the_webhook,
    warnings_become_headers,
    failure_policy_rejects_or_ignores_failures,
    hanging_webhook_fails_after_its_timeout,
    webhooks_are_called_concurrently,
    dry_run_calls_webhooks_and_stores_nothing,
    deletions_call_webhooks,
    a_webhook_may_write_to_the_server_itself,
    webhook_configurations_call_no_webhook,
    deleted_configuration_calls_no_webhook,
    kubectl_shows_it,
]);

async fn the_review_has_the_user_and_the_operation(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(allow).await;
    let watched = hook(&webhook, "/watch", json!({}));
    cluster.configure("Validating", "w", &[watched]).await;
    let made = cluster
        .post(&format!("{MAPS}?fieldManager=me"), &map("one"))
        .await
        .ok(201);
    let mut changed = made.clone();
    changed["data"] = json!({"a": "c"});
    let changed = cluster.put(&format!("{MAPS}/one"), &changed).await.ok(200);
    cluster
        .patch(&format!("{MAPS}/one"), &json!({"data": {"d": "e"}}))
        .await
        .ok(200);
    cluster.delete(&format!("{MAPS}/one")).await.ok(200);

    let calls = requests(&webhook, "/watch");
    let operations: Vec<_> = calls
        .iter()
        .map(|r| r["operation"].as_str().unwrap())
        .collect();
    assert_eq!(operations, ["CREATE", "UPDATE", "UPDATE", "DELETE"]);
    let create = &calls[0];
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    assert_eq!(create["resource"], resource);
    assert_eq!(create["requestResource"], resource);
    assert_eq!(create["kind"], kind);
    assert_eq!(create["requestKind"], kind);
    assert_eq!(
        (&create["name"], &create["namespace"]),
        (&json!("one"), &json!("default"))
    );
    assert_eq!(create["dryRun"], false);
    assert_eq!(create["oldObject"], Value::Null);
    assert_eq!(create["object"]["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(create["object"]["kind"], "ConfigMap");
    assert_eq!(create["options"]["kind"], "CreateOptions");
    assert_eq!(create["options"]["fieldManager"], "me");
    assert_eq!(create["userInfo"]["username"], "system:unsecured");
    let groups = create["userInfo"]["groups"].as_array().unwrap();
    assert!(groups.contains(&json!("system:masters")), "{groups:?}");
    let update = &calls[1];
    assert_eq!(update["object"]["data"], json!({"a": "c"}));
    assert_eq!(update["oldObject"]["data"], json!({"a": "b"}));
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&update["oldObject"]), version(&made));
    assert_eq!(version(&calls[2]["oldObject"]), version(&changed));
    assert_eq!(update["options"]["kind"], "UpdateOptions");
    let delete = &calls[3];
    assert_eq!(delete["object"], Value::Null);
    assert_eq!(delete["oldObject"]["data"], json!({"a": "c", "d": "e"}));
    assert_eq!(delete["options"]["kind"], "DeleteOptions");
    let uids: std::collections::BTreeSet<_> = calls.iter().map(|r| r["uid"].to_string()).collect();
    assert_eq!(uids.len(), 4);
    let path = webhook.calls().pop().unwrap().path;
    assert_eq!(path, "/watch?timeout=10s");
}

async fn a_denial_has_the_status_of_the_webhook(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| match &*call.path {
        path if path.starts_with("/deny") && call.body["request"]["name"] == "bare" => {
            respond(call, json!({"allowed": false}))
        }
        path if path.starts_with("/deny") => deny(call, "not today"),
        _ => allow(call),
    })
    .await;
    let denying = hook(&webhook, "/deny", json!({}));
    cluster.configure("Validating", "w", &[denying]).await;
    let by = "admission webhook \"deny.example.com\" denied the request";
    let response = cluster.make("one").await;
    let status = response.refused(403, "Forbidden", by);
    assert_eq!(status["message"], format!("{by}: not today"));
    assert_eq!(requests(&webhook, "/deny").len(), 1, "it is asked once");
    let status = cluster.make("bare").await.refused(400, "", by);
    assert_eq!(status["message"], format!("{by} without explanation"));
    cluster.get(&format!("{MAPS}/one")).await.ok(404);
}

async fn warnings_become_headers(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| {
        let denied = call.body["request"]["name"] == "no";
        respond(
            call,
            json!({"allowed": !denied, "warnings": ["this is old", "use that"]}),
        )
    })
    .await;
    let warning = hook(&webhook, "/warn", json!({}));
    cluster.configure("Validating", "w", &[warning]).await;
    let expect = ["299 - \"this is old\"", "299 - \"use that\""];
    let response = cluster.make("one").await;
    response.ok(201);
    assert_eq!(response.warnings(), expect);
    let response = cluster.make("no").await;
    response.refused(400, "", "without explanation");
    assert_eq!(response.warnings(), expect);
    let response = cluster.delete(&format!("{MAPS}/one")).await;
    response.ok(200);
    assert_eq!(response.warnings(), expect);
}

async fn failure_policy_rejects_or_ignores_failures(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| match &*call.path {
        path if path.starts_with("/broken") => Reply::other(500, "boom"),
        path if path.starts_with("/other") => respond(call, json!({"uid": "another"})),
        _ => allow(call),
    })
    .await;
    let of = |name: &str| {
        let pattern = format!("object.metadata.name == '{name}'");
        json!([{"name": "one", "expression": pattern}])
    };
    let mut unreachable = hook(&webhook, "/gone", json!({"matchConditions": of("gone")}));
    unreachable["clientConfig"] = json!({"url": "https://127.0.0.1:1/gone"});
    let mut untrusted = hook(
        &webhook,
        "/untrusted",
        json!({"matchConditions": of("untrusted")}),
    );
    untrusted["clientConfig"] = json!({"url": webhook.url("/untrusted")});
    let ignored = json!({"failurePolicy": "Ignore", "matchConditions": of("ignored")});
    let mut service = hook(
        &webhook,
        "/service",
        json!({"matchConditions": of("service")}),
    );
    service["clientConfig"] = json!({"service": {"namespace": "default", "name": "hook"}});
    let hooks = [
        hook(
            &webhook,
            "/broken",
            json!({"matchConditions": of("broken")}),
        ),
        hook(&webhook, "/other", json!({"matchConditions": of("other")})),
        hook(&webhook, "/broken-ignored", ignored),
        unreachable,
        untrusted,
        service,
    ];
    cluster.configure("Validating", "w", &hooks).await;
    let cases = [
        (
            "broken",
            "failed to call webhook: an error on the server (\"boom\") has prevented the request from succeeding",
        ),
        (
            "other",
            "received invalid webhook response: expected response.uid=",
        ),
        (
            "gone",
            "failed to call webhook: Post \"https://127.0.0.1:1/gone?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused",
        ),
        (
            "untrusted",
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        ),
        (
            "service",
            "failed to call webhook: Post \"https://hook.default.svc:443/?timeout=10s\": service \"hook\" not found",
        ),
    ];
    for (name, words) in cases {
        let begins =
            format!("Internal error occurred: failed calling webhook \"{name}.example.com\": ");
        let response = cluster.make(name).await;
        response.refused(500, "InternalError", words);
        response.refused(500, "InternalError", &begins);
    }
    cluster.make("ignored").await.ok(201);
    assert_eq!(requests(&webhook, "/broken-ignored").len(), 1);
}

async fn hanging_webhook_fails_after_its_timeout(cluster: &Cluster<'_>) {
    let webhook = Webhook::start(|call| {
        Box::pin(async move {
            if call.path.starts_with("/slow") {
                std::future::pending::<()>().await;
            }
            allow(&call)
        })
    })
    .await;
    let slow = hook(&webhook, "/slow", json!({"timeoutSeconds": 1}));
    cluster.configure("Validating", "w", &[slow]).await;
    let begun = Instant::now();
    let response = cluster.make("one").await;
    response.refused(
        500,
        "InternalError",
        "/slow?timeout=1s\": context deadline exceeded",
    );
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(900), "{took:?}");
}

/// The webhooks respond only after all of them have been called.
async fn webhooks_are_called_concurrently(cluster: &Cluster<'_>) {
    let called = Arc::new(Barrier::new(4));
    let webhook = Webhook::start(move |call| {
        let called = called.clone();
        Box::pin(async move {
            if call.path.starts_with("/late") && call.body["request"]["name"] == "one" {
                called.wait().await;
            }
            if call.path.starts_with("/late-1") {
                return deny(&call, "the second");
            }
            allow(&call)
        })
    })
    .await;
    let hooks: Vec<Value> = (0..4)
        .map(|n| hook(&webhook, &format!("/late-{n}"), json!({})))
        .collect();
    cluster.configure("Validating", "w", &hooks).await;
    cluster
        .make("one")
        .await
        .refused(403, "Forbidden", "the second");
    for n in 0..4 {
        let calls = requests(&webhook, &format!("/late-{n}"));
        assert!(
            calls.iter().any(|r| r["name"] == "one"),
            "all are asked: {n}"
        );
    }
}

async fn dry_run_calls_webhooks_and_stores_nothing(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(allow).await;
    let watched = hook(&webhook, "/watch", json!({}));
    cluster.configure("Validating", "w", &[watched]).await;
    cluster
        .post(&format!("{MAPS}?dryRun=All"), &map("one"))
        .await
        .ok(201);
    let calls = requests(&webhook, "/watch");
    let call = calls
        .iter()
        .find(|r| r["name"] == "one")
        .expect("it was asked");
    assert_eq!(call["dryRun"], true);
    assert_eq!(call["options"]["dryRun"], json!(["All"]));
    cluster.get(&format!("{MAPS}/one")).await.ok(404);
}

async fn deletions_call_webhooks(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| {
        let request = &call.body["request"];
        match request["operation"] == "DELETE" && request["name"] == "kept" {
            true => deny(call, "it is kept"),
            false => allow(call),
        }
    })
    .await;
    let watched = hook(&webhook, "/watch", json!({}));
    cluster.configure("Validating", "w", &[watched]).await;
    for name in ["a", "kept", "z"] {
        cluster.make(name).await.ok(201);
    }
    let one = cluster.delete(&format!("{MAPS}/kept")).await;
    one.refused(403, "Forbidden", "it is kept");
    let all = cluster.delete(MAPS).await;
    all.refused(403, "Forbidden", "it is kept");
    cluster.get(&format!("{MAPS}/kept")).await.ok(200);
}

/// A webhook's own request to the server does not wait for the write that waits for the webhook.
async fn a_webhook_may_write_to_the_server_itself(cluster: &Cluster<'_>) {
    let server = cluster.0.insecure();
    let webhook = Webhook::start(move |call| {
        Box::pin(async move {
            if call.path.starts_with("/writes") && call.body["request"]["name"] == "one" {
                let mut wire =
                    crate::harness::Wire::plain(server, crate::harness::Protocol::Http1).await;
                let headers = [("content-type", "application/json")];
                let body = map("by-the-webhook").to_string();
                let answer = wire.send(http::Method::POST, MAPS, &headers, &body).await;
                if answer.status != 201 {
                    return deny(&call, "it could not write");
                }
            }
            allow(&call)
        })
    })
    .await;
    let writes = hook(&webhook, "/writes", json!({}));
    cluster.configure("Validating", "w", &[writes]).await;
    let many = (0..20).map(|n| async move { cluster.make(&format!("other-{n}")).await.ok(201) });
    let (one, _) = tokio::join!(cluster.make("one"), futures::future::join_all(many));
    one.ok(201);
    cluster.get(&format!("{MAPS}/by-the-webhook")).await.ok(200);
}

/// No webhook can prevent the repair of the webhook configurations.
async fn webhook_configurations_call_no_webhook(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| match call.path.starts_with("/all") {
        true => deny(call, "nothing at all"),
        false => allow(call),
    })
    .await;
    let everything = json!({
        "rules": [{
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
        }],
        "matchConditions": [{"name": "n", "expression": "!request.dryRun"}],
    });
    let all = hook(&webhook, "/all", everything);
    cluster.configure("Validating", "w", &[all]).await;
    cluster
        .make("one")
        .await
        .refused(403, "Forbidden", "nothing at all");
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/w";
    cluster.delete(path).await.ok(200);
}

async fn deleted_configuration_calls_no_webhook(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| match call.path.starts_with("/deny") {
        true => deny(call, "no"),
        false => allow(call),
    })
    .await;
    let denying = hook(
        &webhook,
        "/deny",
        json!({"rules": [rule(&["CREATE"], "", "pods")]}),
    );
    cluster.configure("Validating", "w", &[denying]).await;
    let pods = "/api/v1/namespaces/default/pods";
    cluster
        .post(pods, &pod("a"))
        .await
        .refused(403, "Forbidden", "no");
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/w";
    cluster.delete(path).await.ok(200);
    let begun = Instant::now();
    while cluster.post(pods, &pod("a")).await.code != 201 {
        assert!(begun.elapsed() < PATIENCE, "it still counts");
    }
}

async fn kubectl_shows_it(cluster: &Cluster<'_>) {
    let webhook = Webhook::answering(|call| match &*call.path {
        path if path.starts_with("/deny") && call.body["request"]["name"] == "one" => {
            deny(call, "not today")
        }
        _ => respond(call, json!({"warnings": ["mind the gap"]})),
    })
    .await;
    let denying = hook(&webhook, "/deny", json!({}));
    cluster.configure("Validating", "w", &[denying]).await;
    let kubectl = Kubectl::new(&cluster.0.kubeconfig());
    let args = ["create", "configmap", "one", "--from-literal=a=b"];
    let error = kubectl.run_failing(&args).await;
    assert!(
        error.contains("admission webhook \"deny.example.com\" denied the request: not today"),
        "{error}"
    );
    kubectl
        .run(&["create", "configmap", "two", "--from-literal=a=b"])
        .await;
    let calls = requests(&webhook, "/deny");
    let call = calls
        .iter()
        .find(|r| r["name"] == "two")
        .expect("it was asked");
    assert_eq!(call["userInfo"]["username"], "kubernetes-admin");
    assert_eq!(call["options"]["fieldManager"], "kubectl-create");
}
