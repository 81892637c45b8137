//! Defaults, and every bound.

use serde_json::json;

use super::super::testing::{FakeCluster, attributes, pod, refusal};
use super::*;

fn cluster(limits: &[Value]) -> FakeCluster {
    let mut cluster = FakeCluster::default();
    for (index, limit) in limits.iter().enumerate() {
        let range = json!({
            "metadata": {"name": format!("r{index}"), "namespace": "n"}, "spec": {"limits": [limit]},
        });
        cluster.add("", "limitranges", range);
    }
    cluster
}

fn container(name: &str, requests: Value, limits: Value) -> Value {
    json!({"name": name, "resources": {"requests": requests, "limits": limits}})
}

#[tokio::test]
async fn containers_get_default_requests_and_limits() {
    let cluster = cluster(&[json!({
        "type": "Container",
        "default": {"cpu": "1", "memory": "1Gi"},
        "defaultRequest": {"cpu": "100m", "memory": "64Mi"},
    })]);
    let created = pod(json!({
        "containers": [
            {"name": "a"},
            container("b", json!({"cpu": "2"}), json!({"cpu": "3", "memory": "3Gi"})),
        ],
        "initContainers": [container("i", json!({}), json!({"cpu": "2", "memory": "1"}))],
    }));
    let changed = cluster.create(&LimitRanger, "pods", created).await.unwrap();
    let spec = &changed["spec"];
    let expected = container(
        "a",
        json!({"cpu": "100m", "memory": "64Mi"}),
        json!({"cpu": "1", "memory": "1Gi"}),
    );
    assert_eq!(spec["containers"][0], expected);
    let expected = container(
        "b",
        json!({"cpu": "2", "memory": "64Mi"}),
        json!({"cpu": "3", "memory": "3Gi"}),
    );
    assert_eq!(spec["containers"][1], expected);
    assert_eq!(
        changed["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for container \
         a; memory request for container b; cpu, memory request for init container i"
    );
    let complete = pod(json!({"containers": [expected]}));
    let unchanged = cluster.create(&LimitRanger, "pods", complete.clone()).await;
    assert_eq!(unchanged.unwrap(), complete);
}

#[tokio::test]
async fn containers_are_within_the_bounds() {
    let cluster = cluster(&[json!({
        "type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1", "memory": "1Gi"},
        "maxLimitRequestRatio": {"memory": "2"},
    })]);
    let check = async |containers: Value| {
        let created = pod(json!({"containers": containers}));
        cluster
            .validate_create(&LimitRanger, ("", "pods"), created)
            .await
    };
    let sized = |cpu: &str, memory: &str, cpu_limit: &str, memory_limit: &str| {
        let requests = json!({"cpu": cpu, "memory": memory});
        container(
            "c",
            requests,
            json!({"cpu": cpu_limit, "memory": memory_limit}),
        )
    };
    let good = sized("100m", "512Mi", "1", "1Gi");
    check(json!([good])).await.unwrap();
    for (bad, expected) in [
        (
            sized("50m", "1Gi", "1", "1Gi"),
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        (
            sized("1", "1Gi", "2", "2Gi"),
            "[maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container \
             is 1Gi, but limit is 2Gi]",
        ),
        (
            sized("1", "300Mi", "1", "1000Mi"),
            "memory max limit to request ratio per Container is 2, but provided ratio is 3.333333",
        ),
        (
            json!({"name": "c"}),
            "[minimum cpu usage per Container is 100m.  No request is specified, maximum cpu usage per \
             Container is 1.  No limit is specified, maximum memory usage per Container is 1Gi.  No \
             limit is specified, memory max limit to request ratio per Container is 2, but no request is \
             specified or request is 0]",
        ),
    ] {
        // A problem that occurs twice is reported once.
        let refused = check(json!([bad, good, bad])).await;
        assert_eq!(
            refusal(refused),
            format!("pods \"p\" is forbidden: {expected}")
        );
    }
}

#[tokio::test]
async fn pods_are_within_the_bounds() {
    let cluster = cluster(&[json!({"type": "Pod", "max": {"cpu": "2"}})]);
    let of = |name: &str, cpu: &str| container(name, json!({"cpu": cpu}), json!({"cpu": cpu}));
    let check = async |spec: Value| {
        let validated = cluster.validate_create(&LimitRanger, ("", "pods"), pod(spec));
        validated.await
    };
    let two = json!([of("a", "1"), of("b", "1")]);
    check(json!({"containers": two, "initContainers": [of("i", "2")]}))
        .await
        .unwrap();
    let mut sidecar = of("s", "1m");
    sidecar["restartPolicy"] = json!("Always");
    let refused = check(json!({"containers": two, "initContainers": [sidecar]})).await;
    let expected = "pods \"p\" is forbidden: maximum cpu usage per Pod is 2, but limit is 2001m";
    assert_eq!(refusal(refused), expected);
    let of_pod = json!({"limits": {"cpu": "3"}, "requests": {"cpu": "1"}});
    let refused = check(json!({"containers": two, "resources": of_pod})).await;
    let expected = "pods \"p\" is forbidden: maximum cpu usage per Pod is 2, but limit is 3";
    assert_eq!(refusal(refused), expected);
}

#[tokio::test]
async fn claims_are_within_the_bounds() {
    let limit = json!({
        "type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"},
    });
    let cluster = cluster(&[limit]);
    let claim = |storage: &str| {
        let resources = json!({"requests": {"storage": storage}});
        json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {"resources": resources}})
    };
    let claims = ("", "persistentvolumeclaims");
    for (storage, expected) in [
        ("1Gi", None),
        ("2Gi", None),
        (
            "512Mi",
            Some("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi"),
        ),
        (
            "3Gi",
            Some("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
        ),
    ] {
        let (new, old) = (claim(storage), claim("1Gi"));
        let created = cluster
            .validate_create(&LimitRanger, claims, new.clone())
            .await;
        let update = attributes(Operation::Update, claims, &new, &old);
        for verdict in [created, cluster.validate(&LimitRanger, update).await] {
            match expected {
                None => verdict.unwrap(),
                Some(expected) => {
                    let expected = format!("persistentvolumeclaims \"c\" is forbidden: {expected}");
                    assert_eq!(refusal(verdict), expected);
                }
            }
        }
    }
}

#[tokio::test]
async fn update_of_a_terminating_claim_is_allowed() {
    let cluster = cluster(&[json!({"type": "PersistentVolumeClaim", "max": {"storage": "1"}})]);
    let claim = json!({"metadata": {
        "name": "c", "namespace": "n", "deletionTimestamp": "2026-01-01T00:00:00Z",
    }});
    let claims = ("", "persistentvolumeclaims");
    let update = attributes(Operation::Update, claims, &claim, &claim);
    cluster.validate(&LimitRanger, update).await.unwrap();
}

/// A LimitRange of 1 MiB and a pod of 1 MiB resulted in a pod of many gigabytes, and the server ran out of memory.
#[tokio::test]
async fn defaults_do_not_make_a_pod_huge() {
    let resources = |count: usize| -> Value {
        let names = (0..count).map(|number| (format!("example.com/r{number}"), json!("1")));
        names.collect::<serde_json::Map<_, _>>().into()
    };
    let containers = |count: usize| {
        let containers = (0..count).map(|number| json!({"name": format!("c{number}")}));
        pod(json!({"containers": containers.collect::<Vec<_>>()}))
    };
    let wide = cluster(&[json!({"type": "Container", "default": resources(10_000)})]);
    let refused = wide.create(&LimitRanger, "pods", containers(5_000)).await;
    assert_eq!(
        refusal(refused),
        "pods \"p\" is forbidden: the defaults of its limit ranges take more than 262144 bytes"
    );
    wide.create(&LimitRanger, "pods", containers(1))
        .await
        .unwrap();
    let wide = cluster(&[json!({"type": "Container", "max": resources(10_000)})]);
    let refused = wide.validate_create(&LimitRanger, ("", "pods"), containers(5_000));
    let problems = refusal(refused.await)
        .matches(".  No limit is specified")
        .count();
    assert_eq!(problems, PROBLEMS_MAX);
}
