//! Tests of the ServiceAccount plugin.

use super::super::testing::{FakeCluster, attributes, pod, refusal};
use super::*;

fn account(name: &str, more: Value) -> Value {
    let mut account = json!({"metadata": {"name": name, "namespace": "n"}});
    for (member, value) in more.as_object().unwrap() {
        account[member] = value.clone();
    }
    account
}

fn cluster(accounts: &[Value]) -> FakeCluster {
    let mut cluster = FakeCluster::default();
    for account in accounts {
        cluster.add("", "serviceaccounts", account.clone());
    }
    cluster
}

fn strict(more: Value) -> Value {
    let mut account = account("strict", more);
    account["metadata"]["annotations"] = json!({ENFORCE_MOUNTABLE_SECRETS: "true"});
    account
}

async fn created(accounts: &[Value], spec: Value) -> Value {
    let cluster = cluster(accounts);
    let created = cluster.create(&ServiceAccount, "pods", pod(spec)).await;
    let created = created.unwrap();
    let validated = cluster.validate_create(&ServiceAccount, ("", "pods"), created.clone());
    validated.await.unwrap();
    created["spec"].clone()
}

/// Checks the messages with which the plugin rejects a new pod, before webhooks and after them.
async fn check_refused(accounts: &[Value], pod: Value, expected: &str) {
    let cluster = cluster(accounts);
    let expected = format!("pods \"p\" is forbidden: {expected}");
    let mutated = cluster.create(&ServiceAccount, "pods", pod.clone()).await;
    assert_eq!(refusal(mutated), expected);
    let validated = cluster.validate_create(&ServiceAccount, ("", "pods"), pod);
    assert_eq!(refusal(validated.await), expected);
}

#[tokio::test]
async fn a_pod_gets_the_default_account_and_a_token() {
    let accounts = [account("default", json!({}))];
    let containers = json!([
        {"name": "a"},
        {"name": "b", "volumeMounts": [{"name": "x", "mountPath": "/x"}]},
        {"name": "c", "volumeMounts": [{"name": "own", "mountPath": token_path()}]},
    ]);
    let spec = json!({
        "containers": containers, "initContainers": [{"name": "i"}], "volumes": [{"name": "x"}],
    });
    let spec = created(&accounts, spec).await;
    assert_eq!(spec["serviceAccountName"], "default");
    let volume = &spec["volumes"][1];
    let name = volume["name"].as_str().unwrap();
    assert_eq!(name.len(), "kube-api-access-12345".len());
    let projected = json!({
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {
                "name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }},
            {"downwardAPI": {"items": [{
                "path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
            }]}},
        ],
    });
    assert_eq!(*volume, json!({"name": name, "projected": projected}));
    let mount = json!({"mountPath": token_path(), "name": name, "readOnly": true});
    assert_eq!(spec["initContainers"][0]["volumeMounts"], json!([mount]));
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount]));
    let second = json!([{"name": "x", "mountPath": "/x"}, mount]);
    assert_eq!(spec["containers"][1]["volumeMounts"], second);
    let own = json!([{"name": "own", "mountPath": token_path()}]);
    assert_eq!(spec["containers"][2]["volumeMounts"], own);
}

fn token_path() -> &'static str {
    "/var/run/secrets/kubernetes.io/serviceaccount"
}

#[tokio::test]
async fn a_token_volume_is_added_once_and_only_if_it_is_used() {
    let accounts = [account("default", json!({}))];
    let volume = json!({"name": "kube-api-access-mine1", "emptyDir": {}});
    let spec = json!({"containers": [{"name": "a"}], "volumes": [volume]});
    let spec = created(&accounts, spec).await;
    assert_eq!(spec["volumes"], json!([volume]));
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["name"], "kube-api-access-mine1");
    let mounts = json!([{"name": "x", "mountPath": token_path()}]);
    let spec = json!({"containers": [{"name": "a", "volumeMounts": mounts}]});
    assert_eq!(created(&accounts, spec).await["volumes"], Value::Null);
}

#[tokio::test]
async fn the_pod_decides_before_the_account_whether_a_token_is_mounted() {
    for (of_account, of_pod, expected) in [
        (json!(null), json!(null), true),
        (json!(false), json!(null), false),
        (json!(false), json!(true), true),
        (json!(true), json!(false), false),
    ] {
        let accounts = [account(
            "default",
            json!({"automountServiceAccountToken": of_account}),
        )];
        let spec = json!({
            "containers": [{"name": "a"}], "automountServiceAccountToken": of_pod,
        });
        let spec = created(&accounts, spec).await;
        assert_eq!(spec["volumes"].is_array(), expected);
    }
}

#[tokio::test]
async fn pull_secrets_come_from_the_account() {
    let secrets = json!([{"name": "r"}, {"name": "s"}]);
    let robot = account("robot", json!({"imagePullSecrets": secrets}));
    let accounts = [robot];
    let spec = created(&accounts, json!({"serviceAccountName": "robot"})).await;
    assert_eq!(spec["imagePullSecrets"], secrets);
    let own = json!([{"name": "own"}]);
    let spec = json!({"serviceAccountName": "robot", "imagePullSecrets": own});
    assert_eq!(created(&accounts, spec).await["imagePullSecrets"], own);
}

#[tokio::test(start_paused = true)]
async fn the_account_must_exist() {
    let robot = pod(json!({"serviceAccountName": "robot"}));
    let expected = "error looking up service account n/robot: serviceaccount \"robot\" not found";
    check_refused(&[], robot, expected).await;
    let begun = tokio::time::Instant::now();
    let usual = pod(json!({"serviceAccountName": "default"}));
    let expected =
        "error looking up service account n/default: serviceaccount \"default\" not found";
    check_refused(&[], usual, expected).await;
    let waited = begun.elapsed();
    assert!(
        waited > Duration::from_secs(2),
        "{waited:?}: it may be made soon"
    );
    let empty = cluster(&[]);
    let validated = empty.validate_create(&ServiceAccount, ("", "pods"), pod(json!({})));
    let expected = "pods \"p\" is forbidden: no service account specified for pod n/p";
    assert_eq!(refusal(validated.await), expected);
}

/// On a busy machine a controller can need over 1.5 seconds to create the account, and pods were rejected then.
#[tokio::test(start_paused = true)]
async fn a_pod_waits_longer_for_the_account_of_a_new_namespace() {
    for (age, waits) in [(0, 8..=11), (5, 4..=6), (60, 1..=2), (-60, 1..=2)] {
        let mut cluster = cluster(&[]);
        let creation = Timestamp::now() - jiff::SignedDuration::from_secs(age);
        let metadata = json!({"name": "n", "creationTimestamp": creation.to_string()});
        cluster.add("", "namespaces", json!({"metadata": metadata}));
        let begun = Instant::now();
        let created = cluster
            .create(&ServiceAccount, "pods", pod(json!({})))
            .await;
        assert!(refusal(created).ends_with("\"default\" not found"));
        let waited = begun.elapsed().as_secs();
        assert!(waits.contains(&waited), "age {age}: {waited} seconds");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_an_account_that_is_created_late() {
    let mut cluster = cluster(&[]);
    let metadata = json!({"name": "n", "creationTimestamp": Timestamp::now().to_string()});
    cluster.add("", "namespaces", json!({"metadata": metadata}));
    let created = cluster.create(&ServiceAccount, "pods", pod(json!({})));
    let controller = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (group, resource) = (String::new(), "serviceaccounts".to_owned());
        let entry = (group, resource, account("default", json!({})));
        cluster.objects.lock().push(entry);
    };
    let (created, ()) = tokio::join!(created, controller);
    assert_eq!(created.unwrap()["spec"]["serviceAccountName"], "default");
}

#[tokio::test]
async fn a_strict_account_lists_its_secrets() {
    let listed = json!({"secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "r"}]});
    let accounts = [strict(listed)];
    let with = |member: &str, value: Value| {
        let mut spec = json!({"serviceAccountName": "strict"});
        spec[member] = value;
        spec
    };
    let env = |secret: &str| {
        json!([{"name": "c", "env": [{
            "name": "E", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}},
        }]}])
    };
    let env_from =
        |secret: &str| json!([{"name": "c", "envFrom": [{"secretRef": {"name": secret}}]}]);
    let volume = |secret: &str| json!([{"name": "v", "secret": {"secretName": secret}}]);
    for spec in [
        with("containers", env("s")),
        with("containers", env_from("s")),
        with("volumes", volume("s")),
        with("imagePullSecrets", json!([{"name": "r"}])),
    ] {
        created(&accounts, spec).await;
    }
    let because = "is not allowed because service account strict does not reference that";
    for (spec, expected) in [
        (
            with("volumes", volume("x")),
            format!("volume with secret.secretName=\"x\" {because} secret"),
        ),
        (
            with("initContainers", env("x")),
            format!(
                "init container c with envVar E referencing secret.secretName=\"x\" {because} secret"
            ),
        ),
        (
            with("containers", env_from("x")),
            format!(
                "container c with envFrom referencing secret.secretName=\"x\" {because} secret"
            ),
        ),
        (
            with("imagePullSecrets", json!([{"name": "x"}])),
            format!("imagePullSecrets[0].name=\"x\" {because} imagePullSecret"),
        ),
    ] {
        check_refused(&accounts, pod(spec), &expected).await;
    }
    let new = pod(with("ephemeralContainers", env("x")));
    let old = pod(json!({"serviceAccountName": "strict"}));
    let mut update = attributes(Operation::Update, ("", "pods"), &new, &old);
    update.subresource = "ephemeralcontainers";
    let validated = cluster(&accounts).validate(&ServiceAccount, update).await;
    assert_eq!(
        refusal(validated),
        format!(
            "pods \"p\" is forbidden: ephemeral container c with envVar E referencing \
             secret.secretName=\"x\" {because} secret"
        )
    );
}

#[tokio::test]
async fn a_mirror_pod_has_no_identity_and_no_secrets() {
    let mirror = |spec: Value| {
        let mut pod = pod(spec);
        pod["metadata"]["annotations"] = json!({MIRROR: "x"});
        pod
    };
    let spec = json!({"containers": [{"name": "a"}]});
    let cluster = cluster(&[]);
    let created = cluster.create(&ServiceAccount, "pods", mirror(spec.clone()));
    assert_eq!(created.await.unwrap()["spec"], spec);
    let token = json!({"serviceAccountToken": {"path": "token"}});
    for (spec, expected) in [
        (
            json!({"serviceAccountName": "default"}),
            "a mirror pod may not reference service accounts",
        ),
        (
            json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}),
            "a mirror pod may not reference secrets",
        ),
        (
            json!({"containers": [{"name": "a", "envFrom": [{"secretRef": {"name": "s"}}]}]}),
            "a mirror pod may not reference secrets",
        ),
        (
            json!({"volumes": [{"name": "v", "projected": {"sources": [token]}}]}),
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ] {
        check_refused(&[], mirror(spec), expected).await;
    }
}
