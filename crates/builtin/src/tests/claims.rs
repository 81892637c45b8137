//! Allocations of services' addresses and ports by concurrent writers through two servers over one storage: each
//! allocation has one owner at every revision, and none remains after the deletion of all services.

use std::collections::{BTreeMap, HashMap};

use futures_util::StreamExt as _;

use super::*;

const SERVICES: &str = "/services/specs/";
const ADDRESSES: &str = "/ipaddresses/";
const PORTS: &str = "/ranges/servicenodeports/";
const WRITERS: usize = 8;
const WRITES: usize = 25;

/// Two servers over one storage that yields to other tasks before and after each operation.
struct Pair {
    servers: Vec<Fixture>,
}

async fn pair(seed: u64) -> Pair {
    let first = fixture().await;
    *first.storage.jitter.lock() = Some(fastrand::Rng::with_seed(seed));
    // The range is so small that addresses run out.
    let ranges = ServiceRanges::parse("10.0.0.0/28").unwrap();
    let server = || {
        let (storage, tasks) = (first.storage.clone(), Tasks::new());
        let config = RegistryConfig {
            service_ranges: ranges,
            ..RegistryConfig::default()
        };
        let registry = new_registry_with_config(
            storage.clone(),
            None,
            &tasks,
            Metrics::new(),
            config,
            Arc::new(watchet_auth::AllowAuthenticated),
        );
        Fixture(TestRegistry {
            registry,
            storage,
            tasks,
        })
    };
    Pair {
        servers: vec![server(), server()],
    }
}

/// Returns a random service spec of few names, addresses and ports, so that writers conflict.
fn random_spec(random: &mut fastrand::Rng) -> Value {
    let mut spec = json!({"ports": [{"name": "a", "port": 80}], "selector": {"a": "b"}});
    let mut one = |choice: &[u64]| choice[random.usize(..choice.len())];
    spec["type"] = json!(["ClusterIP", "NodePort", "LoadBalancer"][one(&[0, 1, 1, 2]) as usize]);
    if spec["type"] != "ClusterIP" {
        // Port 0 requests any free port.
        spec["ports"][0]["nodePort"] = one(&[0, 30001, 30002, 30003]).into();
        // The last port is out of range, so the write fails and its earlier allocations are released.
        let second = match one(&[0, 0, 1, 2, 3]) {
            0 => None,
            1 => Some(json!({"name": "b", "port": 81})),
            2 => Some(json!({"name": "b", "port": 81, "nodePort": 30003})),
            _ => Some(json!({"name": "b", "port": 81, "nodePort": 1})),
        };
        let ports = spec["ports"].as_array_mut().unwrap();
        ports.extend(second);
    }
    if spec["type"] == "LoadBalancer" {
        spec["externalTrafficPolicy"] = json!("Local");
        if one(&[0, 1]) == 1 {
            spec["healthCheckNodePort"] = one(&[30001, 30004]).into();
        }
    }
    if one(&[0, 1]) == 1 {
        spec["clusterIP"] = format!("10.0.0.{}", one(&[1, 2, 3])).into();
    }
    spec
}

/// Checks that an error is one of a write that lost a conflict.
fn check_lost(error: &ApiError) {
    match error {
        ApiError::NotFound { .. } | ApiError::AlreadyExists { .. } | ApiError::Conflict { .. } => {}
        ApiError::Invalid { causes, .. } => {
            for cause in causes {
                let known = [
                    "already allocated",
                    "not in the valid range",
                    "range is full",
                ]
                .iter()
                .any(|known| cause.message.contains(known))
                    || cause.field.starts_with("spec.clusterIP")
                    || cause.message.starts_with("Duplicate value");
                assert!(known, "{cause:?}");
            }
        }
        ApiError::Unsupported(why) if why.ends_with("range is full") => {}
        other => panic!("{other}"),
    }
}

async fn write_some(server: &Fixture, mut random: fastrand::Rng) -> usize {
    let mut done = 0;
    for _ in 0..WRITES {
        let name = format!("s{}", random.u8(..5));
        let path = format!("services/{name}");
        let spec = random_spec(&mut random);
        let result = match random.u8(..8) {
            0 | 1 => {
                let body = json!({"metadata": {"name": name}, "spec": spec});
                server.try_create("services", body).await.map(drop)
            }
            2..=4 => {
                let patch = Patch::Merge(json!({ "spec": spec }));
                server.try_patch(&path, patch).await.map(drop)
            }
            5 | 6 => match server.try_get(&path).await {
                Err(error) => Err(error),
                Ok(mut body) => {
                    let ip = body["spec"]["clusterIP"].take();
                    body["spec"] = spec;
                    body["spec"]["clusterIP"] = ip;
                    server.try_update(&path, body).await.map(drop)
                }
            },
            _ => server.try_delete(&path, json!({})).await.map(drop),
        };
        match result {
            Ok(()) => done += 1,
            Err(error) => check_lost(&error),
        }
    }
    done
}

/// Returns the keys of the allocations that a service must have.
fn keys_of(service: &Value) -> Vec<String> {
    let spec = &service["spec"];
    let ips = spec["clusterIPs"].as_array().into_iter().flatten();
    let ips = ips.map(|ip| format!("{ADDRESSES}{}", ip.as_str().unwrap()));
    let ports = spec["ports"].as_array().unwrap().iter();
    let ports = ports.map(|port| &port["nodePort"]);
    let ports = ports.chain([&spec["healthCheckNodePort"]]);
    let ports = ports.filter_map(Value::as_u64).filter(|port| *port != 0);
    ips.chain(ports.map(|port| format!("{PORTS}{port}")))
        .collect()
}

/// Checks that each allocation has one owner, and that the owner has the allocated value.
fn check(state: &BTreeMap<String, Value>, at: ResourceVersion) {
    let mut owners: HashMap<String, &str> = HashMap::new();
    let services = state.iter().filter(|(key, _)| key.starts_with(SERVICES));
    for (key, service) in services {
        let uid = &service["metadata"]["uid"];
        for good in keys_of(service) {
            if let Some(other) = owners.insert(good.clone(), key) {
                panic!("at {at} both {key} and {other} have {good}");
            }
            let claim = state.get(&good);
            let claim = claim.unwrap_or_else(|| panic!("at {at} {key} has no claim of {good}"));
            let owner = &claim["metadata"]["annotations"]["services.watchet/uid"];
            assert_eq!(
                owner, uid,
                "at {at} the claim of {good} is not that of {key}"
            );
        }
    }
}

/// Checks every revision in the history of storage and returns the last state.
async fn check_history(storage: &ConcurrentWriter) -> BTreeMap<String, Value> {
    let last = storage.current_revision().await.unwrap();
    let mut events = Vec::new();
    for prefix in [SERVICES, ADDRESSES, PORTS] {
        let prefix = StorageKey::new(prefix).unwrap();
        let first = ResourceVersion::new(1);
        let mut watch = storage.watch(&prefix, first).await.unwrap();
        watch.progress.request();
        let mut seen = ResourceVersion::ZERO;
        while seen < last {
            let batch = watch.batches.next().await.unwrap().unwrap();
            seen = batch.revision;
            events.extend(batch.events);
        }
    }
    events.sort_by_key(|event| event.revision);
    let mut state = BTreeMap::new();
    for event in events {
        let key = event.key.as_str().to_owned();
        match event.value {
            Some(value) => state.insert(key, serde_json::from_slice(&value).unwrap()),
            None => state.remove(&key),
        };
        check(&state, event.revision);
    }
    state
}

async fn write_concurrently(seed: u64) {
    let pair = pair(seed).await;
    let mut random = fastrand::Rng::with_seed(seed);
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| write_some(&pair.servers[n % 2], random.fork()))
        .collect();
    let done: usize = futures_util::future::join_all(writers).await.iter().sum();
    assert!(done > WRITERS, "seed {seed}: hardly a write was made");
    let server = &pair.servers[0];
    for n in 0..5 {
        if let Err(error) = server
            .try_delete(&format!("services/s{n}"), json!({}))
            .await
        {
            assert!(error.is_not_found(), "{error}");
        }
    }
    let end = check_history(&server.storage).await;
    let claims = end
        .iter()
        .filter(|(key, _)| key.starts_with(ADDRESSES) || key.starts_with(PORTS));
    let left: Vec<_> = claims.collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// Runs random seeds and prints each; `WATCHET_SEED` repeats a run.
#[tokio::test]
async fn allocations_have_one_owner_at_every_revision() {
    for seed in watchet_test_util::seeds::seeds(6) {
        write_concurrently(seed).await;
    }
}
