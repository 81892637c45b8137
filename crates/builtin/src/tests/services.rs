//! Tests of services: each address and node port is allocated to one service only. Also tests of the priorities of
//! pods.

use std::collections::BTreeSet;

use super::*;

fn service(name: &str, spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    for (member, value) in spec.as_object().unwrap() {
        service["spec"][member] = value.clone();
    }
    service
}

fn node_port(service: &Value) -> u64 {
    service["spec"]["ports"][0]["nodePort"].as_u64().unwrap()
}

#[tokio::test]
async fn each_service_has_an_address_of_its_own() {
    let fixture = fixture().await;
    let mut seen = BTreeSet::new();
    let creates = (0..20).map(|n| fixture.create("services", service(&format!("s{n}"), json!({}))));
    for created in futures_util::future::join_all(creates).await {
        let spec = &created["spec"];
        let ip = spec["clusterIP"].as_str().unwrap().to_owned();
        assert_eq!(spec["clusterIPs"], json!([ip]));
        assert_eq!(
            (&spec["ipFamilies"], &spec["ipFamilyPolicy"]),
            (&json!(["IPv4"]), &json!("SingleStack"))
        );
        let claim = fixture.stored(&format!("/ipaddresses/{ip}")).await.unwrap();
        assert_eq!(claim["kind"], "IPAddress");
        assert_eq!(
            claim["spec"]["parentRef"]["name"],
            created["metadata"]["name"]
        );
        let address: std::net::Ipv4Addr = ip.parse().unwrap();
        assert_eq!(
            u32::from(address) >> 20,
            u32::from_be_bytes([10, 96, 0, 0]) >> 20,
            "{ip}"
        );
        assert!(seen.insert(ip), "twice");
    }
}

#[tokio::test]
async fn requested_address_is_exclusive_until_released() {
    let fixture = fixture().await;
    let chosen = json!({"clusterIP": "10.96.0.10"});
    fixture
        .create("services", service("a", chosen.clone()))
        .await;
    let refused = async |name: &str, spec: Value| {
        causes(
            fixture
                .try_create("services", service(name, spec))
                .await
                .unwrap_err(),
        )
    };
    assert_eq!(
        refused("b", chosen.clone()).await,
        [(
            "spec.clusterIPs".to_owned(),
            "Invalid value: [\"10.96.0.10\"]: failed to allocate IP 10.96.0.10: provided IP is \
             already allocated"
                .to_owned()
        )]
    );
    let outside = refused("b", json!({"clusterIP": "192.168.0.1"})).await;
    assert!(
        outside[0].1.contains("is not in the valid range"),
        "{outside:?}"
    );
    // A create that fails because the name exists releases nothing.
    fixture
        .try_create("services", service("a", json!({})))
        .await
        .unwrap_err();
    assert!(fixture.stored("/ipaddresses/10.96.0.10").await.is_some());
    fixture.delete("services/a").await;
    assert_eq!(fixture.stored("/ipaddresses/10.96.0.10").await, None);
    fixture.create("services", service("b", chosen)).await;
}

#[tokio::test]
async fn node_ports_are_allocated_and_released_with_the_type() {
    let fixture = fixture().await;
    let a = fixture
        .create("services", service("a", json!({"type": "NodePort"})))
        .await;
    let port = node_port(&a);
    assert!((30_000..=32_767).contains(&port), "{port}");
    let key = format!("/ranges/servicenodeports/{port}");
    assert!(fixture.stored(&key).await.is_some());
    let chosen = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    let taken = fixture
        .try_create("services", service("b", chosen))
        .await
        .unwrap_err();
    let why = format!("Invalid value: {port}: provided port is already allocated");
    assert_eq!(causes(taken), [("spec.ports[0].nodePort".to_owned(), why)]);
    let wrong = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]});
    let wrong = fixture
        .try_create("services", service("b", wrong))
        .await
        .unwrap_err();
    assert!(
        causes(wrong)[0]
            .1
            .contains("The range of valid ports is 30000-32767")
    );
    // An update that omits an allocated value retains it.
    let same = fixture
        .update("services/a", service("a", json!({"type": "NodePort"})))
        .await;
    assert_eq!(
        (node_port(&same), &same["spec"]["clusterIP"]),
        (port, &a["spec"]["clusterIP"])
    );
    let inner = fixture
        .merge_patch("services/a", json!({"spec": {"type": "ClusterIP"}}))
        .await;
    assert!(inner["spec"]["ports"][0]["nodePort"].is_null(), "{inner}");
    assert_eq!(fixture.stored(&key).await, None);
    let named = json!({"spec": {"type": "ExternalName", "externalName": "e.x"}});
    let named = fixture.merge_patch("services/a", named).await;
    assert!(named["spec"]["clusterIP"].is_null(), "{named}");
    let address = a["spec"]["clusterIP"].as_str().unwrap();
    assert_eq!(
        fixture.stored(&format!("/ipaddresses/{address}")).await,
        None
    );
    let back = json!({"spec": {"type": "LoadBalancer", "externalName": null}});
    let back = fixture.merge_patch("services/a", back).await;
    assert!(
        back["spec"]["clusterIP"].is_string() && node_port(&back) >= 30_000,
        "{back}"
    );
}

/// A service with `externalTrafficPolicy: Local` once got the same port for its traffic and for its health checks.
#[tokio::test]
async fn health_check_port_differs_from_node_ports() {
    let fixture = fixture().await;
    let balanced = |more: Value| {
        let mut spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
        for (member, value) in more.as_object().unwrap() {
            spec[member] = value.clone();
        }
        spec
    };
    // The search for a free port starts at a position that is derived from the number of the service's port.
    let ports = json!([{"name": "a", "port": 65535}, {"name": "b", "port": 80}]);
    for n in 0..5 {
        let expected = balanced(json!({ "ports": ports }));
        let made = fixture
            .create("services", service(&format!("s{n}"), expected))
            .await;
        let spec = &made["spec"];
        let all: BTreeSet<u64> = [
            &spec["ports"][0]["nodePort"],
            &spec["ports"][1]["nodePort"],
            &spec["healthCheckNodePort"],
        ]
        .map(|port| port.as_u64().unwrap())
        .into();
        assert_eq!(all.len(), 3, "{spec}");
    }
    let same = json!({"healthCheckNodePort": 30123, "ports": [{"port": 80, "nodePort": 30123}]});
    let error = fixture
        .try_create("services", service("same", balanced(same)))
        .await
        .unwrap_err();
    let why = "Invalid value: 30123: provided port is already allocated".to_owned();
    assert_eq!(
        causes(error),
        [("spec.healthCheckNodePort".to_owned(), why)]
    );
    assert_eq!(fixture.stored("/ranges/servicenodeports/30123").await, None);
    // A chosen health check port is not allocated to another port of the service either, in this write or a later one.
    let chosen = balanced(json!({"healthCheckNodePort": 30124}));
    let made = fixture.create("services", service("h", chosen)).await;
    assert_eq!(made["spec"]["healthCheckNodePort"], 30124);
    let mut more = made.clone();
    more["spec"]["ports"] = json!([{"name": "x", "port": 80, "nodePort": 30124}]);
    let problems = causes(fixture.try_update("services/h", more).await.unwrap_err());
    assert_eq!(problems[0].0, "spec.healthCheckNodePort", "{problems:?}");
}

#[tokio::test]
async fn a_service_without_an_address_claims_none() {
    let fixture = fixture().await;
    let headless = fixture
        .create("services", service("h", json!({"clusterIP": "None"})))
        .await;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(headless["spec"]["ipFamilyPolicy"], "RequireDualStack");
    let named = json!({"type": "ExternalName", "externalName": "e.x"});
    let named = fixture.create("services", service("n", named)).await;
    assert!(named["spec"]["clusterIP"].is_null() && named["spec"]["ipFamilies"].is_null());
    let prefix = StorageKey::new("/ipaddresses/").unwrap();
    let request = watchet_storage::ListRequest {
        prefix,
        start: String::new(),
        at: None,
        limit: 10,
        count: false,
    };
    assert!(
        fixture
            .storage
            .list(request)
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

/// The allocations of a refused write are free for the next write immediately.
#[tokio::test]
async fn rejected_write_releases_its_claims() {
    let fixture = fixture().await;
    fixture.create("services", service("a", json!({}))).await;
    let key = "/ranges/servicenodeports/30123";
    let stale = fixture.get("services/a").await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    fixture.merge_patch("services/a", label).await;
    let mut wants = stale.clone();
    wants["spec"]["type"] = json!("NodePort");
    wants["spec"]["ports"][0]["nodePort"] = json!(30123);
    conflict(
        fixture
            .try_update("services/a", wants.clone())
            .await
            .unwrap_err(),
    );
    assert_eq!(fixture.stored(key).await, None);
    // The first port is allocated, then the second one is rejected, which releases the first.
    wants["metadata"]["resourceVersion"] = Value::Null;
    wants["spec"]["ports"] = json!([
        {"name": "a", "port": 80, "nodePort": 30123}, {"name": "b", "port": 81, "nodePort": 80},
    ]);
    causes(fixture.try_update("services/a", wants).await.unwrap_err());
    assert_eq!(fixture.stored(key).await, None);
}

/// An allocation that remained because a server stopped in the middle of a write.
#[tokio::test]
async fn an_abandoned_claim_is_taken_over() {
    let fixture = fixture().await;
    let made = fixture
        .create("services", service("a", json!({"clusterIP": "10.96.0.20"})))
        .await;
    assert_eq!(made["spec"]["clusterIP"], "10.96.0.20");
    let mut claim = fixture.stored("/ipaddresses/10.96.0.20").await.unwrap();
    claim["metadata"]["name"] = json!("10.96.0.21");
    let wants = || service("b", json!({"clusterIP": "10.96.0.21"}));
    let leave = async |claim: &Value| {
        let key = StorageKey::new("/ipaddresses/10.96.0.21").unwrap();
        let (stored, _) = fixture.storage.get(&key).await.unwrap();
        let put = watchet_storage::Put {
            key,
            value: claim.to_string().into(),
            expect: stored.map_or(watchet_storage::Expect::Absent, |s| {
                watchet_storage::Expect::At(s.mod_revision)
            }),
            ttl: None,
        };
        fixture.storage.put(put).await.unwrap();
    };
    // A recent allocation may belong to a write in progress, so another service cannot take it over yet.
    leave(&claim).await;
    fixture.try_create("services", wants()).await.unwrap_err();
    claim["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    leave(&claim).await;
    // The allocation is old, but another write has held it since.
    fixture.try_create("services", wants()).await.unwrap_err();
    let holds = &mut claim["metadata"]["annotations"]["services.watchet/holds"];
    let (hold, since) = holds.as_str().unwrap().rsplit_once('/').unwrap();
    let since: i64 = since.parse().unwrap();
    *holds = format!("{hold}/{}", since - 121).into();
    leave(&claim).await;
    fixture.create("services", wants()).await;
    let claim = fixture.stored("/ipaddresses/10.96.0.21").await.unwrap();
    assert_eq!(claim["spec"]["parentRef"]["name"], "b");
}

#[tokio::test]
async fn a_pod_has_the_priority_of_its_class() {
    let fixture = fixture().await;
    let a = fixture.create("pods", pod("a")).await;
    assert_eq!(
        (&a["spec"]["priority"], &a["spec"]["preemptionPolicy"]),
        (&json!(0), &json!("PreemptLowerPriority"))
    );
    let class = json!({"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"});
    fixture.create("priorityclasses", class).await;
    let of = |name: &str, class: &str| {
        let mut pod = pod(name);
        pod["spec"]["priorityClassName"] = class.into();
        pod
    };
    let b = fixture.create("pods", of("b", "high")).await;
    assert_eq!(
        (&b["spec"]["priority"], &b["spec"]["preemptionPolicy"]),
        (&json!(1000), &json!("Never"))
    );
    let c = fixture
        .create("pods", of("c", "system-node-critical"))
        .await;
    assert_eq!(c["spec"]["priority"], 2_000_001_000);
    // The global default applies to pods without a class; there can be only one.
    let common = json!({"metadata": {"name": "common"}, "value": 7, "globalDefault": true});
    fixture.create("priorityclasses", common).await;
    let second = json!({"metadata": {"name": "second"}, "value": 8, "globalDefault": true});
    match fixture
        .try_create("priorityclasses", second)
        .await
        .unwrap_err()
    {
        ApiError::Forbidden { detail, .. } => assert_eq!(
            detail,
            "PriorityClass common is already marked as default. Only one default can exist"
        ),
        other => panic!("{other}"),
    }
    let mut tries = 0..1000;
    loop {
        let e = fixture
            .create("pods", pod(&format!("e{}", tries.start)))
            .await;
        // The cache may not have reached that version yet.
        if e["spec"]["priorityClassName"] == "common" {
            assert_eq!(e["spec"]["priority"], 7);
            break;
        }
        tries.next().expect("it is seen some time");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    match fixture
        .try_create("pods", of("d", "none"))
        .await
        .unwrap_err()
    {
        ApiError::Forbidden { detail, .. } => {
            assert_eq!(detail, "no PriorityClass with name none was found");
        }
        other => panic!("{other}"),
    }
}

/// The bit of a node port in the bitmap of a kube-apiserver remained set if the creation of the port's claim failed: no
/// service could have the port any more.
#[tokio::test]
async fn a_port_whose_claim_was_not_created_is_free() {
    let fixture = fixture().await;
    let bitmap = json!({
        "apiVersion": "v1", "kind": "RangeAllocation", "metadata": {}, "range": "30000-32767", "data": "",
    });
    let put = Before::Put("/ranges/servicenodeports", bitmap);
    fixture.storage.write_concurrently(put).await;
    let claim = StorageKey::new("/ranges/servicenodeports/30123").unwrap();
    let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]});
    let create = async || {
        fixture
            .try_create("services", service("a", spec.clone()))
            .await
    };
    let unavailable = StorageError::Unavailable("the test says so".to_owned());
    *fixture.storage.failing.lock() = Some((claim.clone(), unavailable));
    let failed = create().await.unwrap_err();
    assert!(failed.is_outage(), "{failed}");
    let created = create().await.unwrap();
    assert_eq!(node_port(&created), 30123);
    fixture.delete("services/a").await;

    // The claim may have been created, and then the bit is right.
    let unknown = StorageError::OutcomeUnknown("the test says so".to_owned());
    *fixture.storage.failing.lock() = Some((claim, unknown));
    create().await.unwrap_err();
    let bitmap = fixture.stored("/ranges/servicenodeports").await.unwrap();
    assert_ne!(bitmap["data"], "", "{bitmap}");
}
