//! Tests of the usage by objects, and of charges to quotas, also by many concurrent requests and servers.

mod limited;

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::super::resources::parse;
use super::super::testing::{FakeCluster, attributes, pod, refusal};
use super::*;

fn quota(name: &str, spec: Value, used: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name},
        "status": {"hard": spec["hard"], "used": used},
        "spec": spec,
    })
}

fn cluster(quotas: &[Value]) -> FakeCluster {
    let mut cluster = FakeCluster::default();
    for quota in quotas {
        cluster.add("", "resourcequotas", quota.clone());
    }
    cluster
}

async fn used(cluster: &FakeCluster, name: &str) -> Value {
    let quota = cluster.object(QUOTAS, "n", name, Freshness::Latest).await;
    quota.unwrap().unwrap()["status"]["used"].clone()
}

async fn create(
    cluster: &FakeCluster,
    resource: (&str, &str),
    object: Value,
) -> Result<(), AdmissionError> {
    let plugin = ResourceQuota::new(LimitedResources::default());
    cluster.validate_create(&plugin, resource, object).await
}

fn sized(requests: Value, limits: Value) -> Value {
    let resources = json!({"requests": requests, "limits": limits});
    pod(json!({"containers": [{"name": "c", "resources": resources}]}))
}

fn usage(group: &str, resource: &str, object: &Value) -> Value {
    let evaluator = Evaluator::of(group, resource).unwrap();
    quantities_json(&evaluator.usage(object, Timestamp::UNIX_EPOCH))
}

#[test]
fn usage_of_pods() {
    let mut pod = sized(
        json!({"cpu": "500m", "memory": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "2"}),
        json!({"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1G", "example.com/gpu": "2"}),
    );
    pod["spec"]["overhead"] = json!({"cpu": "250m"});
    let expected = json!({
        "count/pods": "1", "pods": "1",
        "cpu": "750m", "requests.cpu": "750m", "limits.cpu": "1250m",
        "memory": "1Gi", "requests.memory": "1Gi", "limits.memory": "1Gi",
        "limits.ephemeral-storage": "1G",
        "hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi", "requests.example.com/gpu": "2",
    });
    assert_eq!(usage("", "pods", &pod), expected);
    // During a resize the larger amount counts.
    let status = json!({"containerStatuses": [
        {"name": "c", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}},
    ]});
    pod["status"] = status;
    let resized = usage("", "pods", &pod);
    assert_eq!(
        (&resized["cpu"], &resized["limits.cpu"]),
        (&json!("2250m"), &json!("3250m"))
    );
    for (phase, deleted) in [
        ("Succeeded", None),
        ("Running", Some("1969-12-31T23:59:00Z")),
    ] {
        let mut ended = pod.clone();
        ended["status"]["phase"] = json!(phase);
        if let Some(deleted) = deleted {
            ended["metadata"]["deletionTimestamp"] = json!(deleted);
            ended["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        }
        assert_eq!(
            usage("", "pods", &ended),
            json!({"count/pods": "1"}),
            "{phase}"
        );
    }
}

#[test]
fn usage_of_other_resources() {
    let service = |spec: Value| usage("", "services", &json!({"spec": spec}));
    let ports = json!([{"port": 1, "nodePort": 30000}, {"port": 2}]);
    let expect = |balancers: &str, node_ports: &str| {
        json!({"count/services": "1", "services": "1", "services.loadbalancers": balancers,
            "services.nodeports": node_ports})
    };
    assert_eq!(service(json!({"ports": ports})), expect("0", "0"));
    assert_eq!(
        service(json!({"type": "NodePort", "ports": ports})),
        expect("0", "2")
    );
    let balancer = json!({"type": "LoadBalancer", "ports": ports});
    assert_eq!(service(balancer.clone()), expect("1", "2"));
    let mut without = balancer;
    without["allocateLoadBalancerNodePorts"] = json!(false);
    assert_eq!(service(without), expect("1", "1"));

    let claim = json!({
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1500m"}}},
        "status": {"allocatedResources": {"storage": "5"}},
    });
    let expected = json!({
        "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "5",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "fast.storageclass.storage.k8s.io/requests.storage": "5",
    });
    assert_eq!(usage("", "persistentvolumeclaims", &claim), expected);

    let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2});
    let all = json!({"deviceClassName": "gpu", "allocationMode": "All"});
    let devices = json!({"spec": {"devices": {"requests": [
        {"name": "a", "exactly": exactly}, {"name": "b", "firstAvailable": [exactly, all]},
    ]}}});
    let expected = json!({
        "count/resourceclaims.resource.k8s.io": "1", "gpu.deviceclass.resource.k8s.io/devices": "34",
    });
    assert_eq!(
        usage("resource.k8s.io", "resourceclaims", &devices),
        expected
    );

    let secrets = json!({"count/secrets": "1", "secrets": "1"});
    assert_eq!(usage("", "secrets", &json!({})), secrets);
    let widgets = json!({"count/widgets.example.com": "1"});
    assert_eq!(usage("example.com", "widgets", &json!({})), widgets);
    assert_eq!(Evaluator::of("", "events"), None);
}

#[tokio::test]
async fn created_objects_are_charged() {
    let hard = json!({"pods": "3", "requests.cpu": "1", "services": "1"});
    let begun = json!({"pods": "1", "requests.cpu": "300m", "services": "1"});
    let cluster = cluster(&[quota("q", json!({"hard": hard}), begun)]);
    create(
        &cluster,
        ("", "pods"),
        sized(json!({"cpu": "600m"}), json!({})),
    )
    .await
    .unwrap();
    let expected = json!({"pods": "2", "requests.cpu": "900m", "services": "1"});
    assert_eq!(used(&cluster, "q").await, expected);
    for (resource, object, why) in [
        (
            "pods",
            sized(json!({"cpu": "200m"}), json!({})),
            "pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=200m, used: \
             requests.cpu=900m, limited: requests.cpu=1",
        ),
        (
            "pods",
            sized(json!({}), json!({})),
            "pods \"p\" is forbidden: failed quota: q: must specify requests.cpu for: c",
        ),
        (
            "services",
            json!({"metadata": {"name": "s", "namespace": "n"}}),
            "services \"s\" is forbidden: exceeded quota: q, requested: services=1, used: services=1, \
             limited: services=1",
        ),
    ] {
        assert_eq!(refusal(create(&cluster, ("", resource), object).await), why);
    }
    create(&cluster, ("", "secrets"), pod(json!({})))
        .await
        .unwrap();
    assert_eq!(
        used(&cluster, "q").await,
        expected,
        "a refused request is not charged"
    );
}

#[tokio::test]
async fn a_dry_run_is_checked_and_not_charged() {
    let cluster = cluster(&[quota(
        "q",
        json!({"hard": {"pods": "1"}}),
        json!({"pods": "0"}),
    )]);
    let pod = pod(json!({}));
    let create = || AdmissionRequest {
        dry_run: true,
        ..attributes(Operation::Create, ("", "pods"), &pod, &Value::Null)
    };
    let plugin = ResourceQuota::new(LimitedResources::default());
    cluster.validate(&plugin, create()).await.unwrap();
    assert_eq!(used(&cluster, "q").await, json!({"pods": "0"}));
    let full = super::tests::cluster(&[quota(
        "q",
        json!({"hard": {"pods": "1"}}),
        json!({"pods": "1"}),
    )]);
    full.validate(&plugin, create()).await.unwrap_err();
}

#[tokio::test]
async fn a_quota_without_status_allows_all_and_one_without_usage_rejects_all() {
    let mut fresh = quota("q", json!({"hard": {"pods": "0"}}), json!({}));
    fresh["status"] = json!({});
    create(&cluster(&[fresh]), ("", "pods"), pod(json!({})))
        .await
        .unwrap();
    let unknown = quota("q", json!({"hard": {"pods": "9"}}), json!({}));
    let refused = create(&cluster(&[unknown]), ("", "pods"), pod(json!({}))).await;
    let expected = "pods \"p\" is forbidden: status unknown for quota: q, resources: pods";
    assert_eq!(refusal(refused), expected);
}

#[tokio::test]
async fn an_update_is_charged_its_increase() {
    let hard = json!({"services.nodeports": "2", "requests.cpu": "2", "requests.storage": "5"});
    let begun = json!({"services.nodeports": "1", "requests.cpu": "1", "requests.storage": "5"});
    let cluster = cluster(&[quota("q", json!({"hard": hard}), begun)]);
    let plugin = ResourceQuota::new(LimitedResources::default());
    let update = async |resource, subresource: &'static str, old: Value, new: Value| {
        let update = AdmissionRequest {
            subresource,
            ..attributes(Operation::Update, ("", resource), &new, &old)
        };
        cluster.validate(&plugin, update).await
    };
    let service = |ports: usize| {
        let ports = vec![json!({"port": 1}); ports];
        json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {"type": "NodePort", "ports": ports}})
    };
    update("services", "", service(1), service(2))
        .await
        .unwrap();
    assert_eq!(used(&cluster, "q").await["services.nodeports"], "2");
    update("services", "", service(1), service(2))
        .await
        .unwrap_err();
    update("services", "", service(2), service(1))
        .await
        .unwrap();
    assert_eq!(
        used(&cluster, "q").await["services.nodeports"],
        "2",
        "it frees nothing"
    );

    let cpu = |cpu: &str| sized(json!({"cpu": cpu}), json!({}));
    update("pods", "resize", cpu("500m"), cpu("1500m"))
        .await
        .unwrap();
    assert_eq!(used(&cluster, "q").await["requests.cpu"], "2");
    update("pods", "", cpu("1"), cpu("9")).await.unwrap();
    assert_eq!(
        used(&cluster, "q").await["requests.cpu"],
        "2",
        "a pod itself cannot ask for more"
    );

    // A status reports what has already happened, so quotas do not reject it.
    let claim = |allocated: &str| {
        let resources = json!({"requests": {"storage": "1"}});
        json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {"resources": resources},
            "status": {"allocatedResources": {"storage": allocated}}})
    };
    update("persistentvolumeclaims", "status", claim("1"), claim("4"))
        .await
        .unwrap();
    assert_eq!(used(&cluster, "q").await["requests.storage"], "8");
}

#[tokio::test]
async fn a_quota_counts_only_objects_in_its_scopes() {
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"namespaceSelector": {}, "topologyKey": "host"},
    ]}});
    let selector = |scope: &str, operator: &str, values: Value| {
        json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": scope, "operator": operator, "values": values},
        ]}})
    };
    let classes = json!(["high", "low"]);
    let of_class = json!({"priorityClassName": "high"});
    for (scope, inside, outside) in [
        (
            json!({"scopes": ["Terminating"]}),
            json!({"activeDeadlineSeconds": 9}),
            json!({}),
        ),
        (
            json!({"scopes": ["NotTerminating"]}),
            json!({}),
            json!({"activeDeadlineSeconds": 0}),
        ),
        (
            json!({"scopes": ["BestEffort"]}),
            json!({}),
            json!({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}),
        ),
        (
            json!({"scopes": ["NotBestEffort", "NotTerminating"]}),
            json!({"containers": [{"resources": {"requests": {"memory": "1"}}}]}),
            json!({"containers": [{"resources": {"requests": {"example.com/gpu": "1"}}}]}),
        ),
        (
            json!({"scopes": ["CrossNamespacePodAffinity"]}),
            json!({"affinity": affinity}),
            json!({"affinity": {}}),
        ),
        (
            selector("PriorityClass", "In", classes.clone()),
            of_class.clone(),
            json!({}),
        ),
        (
            selector("PriorityClass", "NotIn", classes),
            json!({}),
            of_class.clone(),
        ),
        (
            selector("PriorityClass", "Exists", Value::Null),
            of_class.clone(),
            json!({}),
        ),
        (
            selector("PriorityClass", "DoesNotExist", Value::Null),
            json!({}),
            of_class,
        ),
    ] {
        let mut spec = scope.clone();
        spec["hard"] = json!({"pods": "9"});
        let cluster = cluster(&[quota("q", spec, json!({"pods": "0"}))]);
        create(&cluster, ("", "pods"), pod(outside)).await.unwrap();
        assert_eq!(used(&cluster, "q").await, json!({"pods": "0"}), "{scope}");
        create(&cluster, ("", "pods"), pod(inside)).await.unwrap();
        assert_eq!(used(&cluster, "q").await, json!({"pods": "1"}), "{scope}");
    }
    let mut spec = selector("VolumeAttributesClass", "In", json!(["gold"]));
    spec["hard"] = json!({"persistentvolumeclaims": "1"});
    let cluster = cluster(&[quota("q", spec, json!({"persistentvolumeclaims": "0"}))]);
    let claim = |class: &str| {
        json!({"metadata": {"name": "c", "namespace": "n"},
            "spec": {"volumeAttributesClassName": class}})
    };
    let claims = ("", "persistentvolumeclaims");
    create(&cluster, claims, claim("silver")).await.unwrap();
    create(&cluster, claims, claim("gold")).await.unwrap();
    create(&cluster, claims, claim("silver")).await.unwrap();
    create(&cluster, claims, claim("gold")).await.unwrap_err();
}

#[test]
fn a_status_is_counted_from_objects() {
    let hard =
        json!({"pods": "9", "limits.cpu": "9", "count/widgets.example.com": "9", "odd": "1"});
    let mut quota = quota(
        "q",
        json!({"hard": hard}),
        json!({"pods": "7", "odd": "1", "old": "1"}),
    );
    quota["status"]["hard"] = json!({"pods": "1"});
    let mut usage = QuotaUsage::new(&quota);
    assert!(!usage.is_status_of(&quota));
    assert!(usage.is_about("", "pods") && !usage.is_about("", "secrets"));
    let pods = [
        sized(json!({}), json!({"cpu": "1500m"})),
        sized(json!({}), json!({"cpu": "1"})),
    ];
    usage.count("", "pods", &pods, Timestamp::UNIX_EPOCH);
    usage.count("example.com", "widgets", &[], Timestamp::UNIX_EPOCH);
    quota["status"] = usage.status();
    assert_eq!(quota["status"]["hard"], hard);
    // No evaluator counts `odd`, so its value in the status is retained.
    let expected = json!({
        "pods": "2", "limits.cpu": "2500m", "count/widgets.example.com": "0", "odd": "1",
    });
    assert_eq!(quota["status"]["used"], expected);
    assert!(usage.is_status_of(&quota));
}

/// Sends one create per item of `requests`, an amount in thousandths of a CPU, by `servers` plugins against one quota.
/// Returns which creates succeeded, and the usage in the status.
async fn race(hard: u64, requests: &[u64], servers: usize) -> (Vec<bool>, Value) {
    let spec = json!({"hard": {"requests.cpu": format!("{hard}m"), "pods": "1k"}});
    let begun = json!({"requests.cpu": "0", "pods": "0"});
    let cluster = Arc::new(cluster(&[quota("q", spec, begun)]));
    let servers: Vec<_> = (0..servers)
        .map(|_| ResourceQuota::new(LimitedResources::default()))
        .collect();
    let creates = requests.iter().enumerate().map(|(index, amount)| {
        let pod = sized(json!({"cpu": format!("{amount}m")}), json!({}));
        let (cluster, server) = (&cluster, &servers[index % servers.len()]);
        async move {
            let created = cluster.validate_create(server, ("", "pods"), pod).await;
            created.is_ok()
        }
    });
    let created = futures_util::future::join_all(creates).await;
    (created, used(&cluster, "q").await)
}

proptest! {
    #[test]
    fn concurrent_requests_never_exceed_a_quota(
        hard in 0..3000_u64,
        requests in prop::collection::vec(1..1000_u64, 1..40),
        servers in 1..4_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (created, used) = runtime.block_on(race(hard, &requests, servers));
        let pairs = requests.iter().zip(&created);
        let charged: u64 = pairs.clone().filter(|(_, created)| **created).map(|(cpu, _)| *cpu).sum();
        prop_assert!(charged <= hard);
        let used = parse(&used);
        prop_assert_eq!(used["requests.cpu"].milli_value() as u64, charged);
        let count = created.iter().filter(|created| **created).count() as i64;
        prop_assert_eq!(used["pods"].value(), count);
        // The plugin rejects a request only if it did not fit, and the usage never decreases.
        for (cpu, created) in pairs {
            prop_assert!(*created || charged + cpu > hard);
        }
    }
}

/// Objects of recent charges may not be stored yet, so their usage still counts.
#[test]
fn recently_charged_usage_is_retained_in_the_status() {
    let quota = |used: &str| json!({"spec": {"hard": {"secrets": "9"}}, "status": {"used": {"secrets": used}}});
    let secrets = |count: usize| vec![json!({}); count];
    for (said, before, counted, used, is_any) in [
        ("5", None, 1, "5", true),
        ("5", Some("5"), 1, "1", false),
        ("5", Some("3"), 1, "3", true),
        ("5", Some("0"), 1, "5", true),
        ("5", Some("3"), 5, "5", false),
        ("5", Some("3"), 7, "7", false),
    ] {
        let mut usage = QuotaUsage::new(&quota(said));
        usage.count("", "secrets", &secrets(counted), Timestamp::now());
        let before = before.map(|used| parse(&json!({"secrets": used})));
        let kept = usage.keep_charged(&quota(said), before.as_ref());
        assert_eq!(kept, is_any, "{said} {before:?} {counted}");
        assert_eq!(
            usage.status()["used"]["secrets"],
            used,
            "{said} {before:?} {counted}"
        );
    }
}
