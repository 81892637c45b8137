//! Tests of the operations between sets of pods.

use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use watchet_tasks::Tasks;

/// Parses a pod `name/uid` with changes: `web/1 image=2 phase=Running deleted`.
fn pod(text: &str) -> Arc<Pod> {
    let mut words = text.split(' ');
    let (name, uid) = words.next().unwrap().split_once('/').unwrap();
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": uid},
        "spec": {"containers": [{"name": "c", "image": "1"}]},
    });
    for word in words {
        let (what, value) = word.split_once('=').unwrap_or((word, ""));
        let value = Value::from(value);
        match what {
            "image" => pod["spec"]["containers"][0]["image"] = value,
            "label" => pod["metadata"]["labels"] = json!({"l": value}),
            "annotation" => pod["metadata"]["annotations"] = json!({"a": value}),
            "phase" => pod["status"] = json!({"phase": value}),
            "version" => pod["metadata"]["resourceVersion"] = value,
            "grace" => pod["metadata"]["deletionGracePeriodSeconds"] = json!(7),
            "deleted" => pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            what => panic!("{what}"),
        }
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

struct Kubelet {
    config: PodConfig,
    rejected: Arc<Mutex<Vec<String>>>,
}

impl Kubelet {
    fn new() -> Self {
        let rejected = Arc::new(Mutex::new(Vec::new()));
        let log = rejected.clone();
        let config = PodConfig {
            sources: HashMap::new(),
            updates: mpsc::channel(1).0,
            on_rejected: Box::new(move |rejected| {
                assert_eq!(rejected.reason, "FailedValidation");
                log.lock().push(rejected.message);
            }),
        };
        Self { config, rejected }
    }

    /// Sets the pods of a source; returns the updates as `Add web/1`.
    fn set(&mut self, source: &str, pods: &[&str]) -> Vec<String> {
        let pods = pods.iter().map(|text| pod(text)).collect();
        let updates = self.config.changes(source, pods).into_iter();
        let actual = updates.map(|update| {
            assert_eq!(&*update.source, source);
            let mut pods: Vec<String> = update
                .pods
                .iter()
                .map(|pod| {
                    let metadata = &pod.metadata;
                    let name = metadata.name.as_deref().unwrap();
                    format!(" {name}/{}", metadata.uid.as_deref().unwrap())
                })
                .collect();
            pods.sort();
            format!("{:?}{}", update.operation, pods.concat())
        });
        actual.collect()
    }
}

#[test]
fn the_first_set_causes_an_update_even_if_empty() {
    let mut kubelet = Kubelet::new();
    assert_eq!(kubelet.set("api", &[]), ["Add"]);
    assert_eq!(kubelet.set("api", &[]), [""; 0]);
    assert_eq!(
        kubelet.set("file", &["a/1"]),
        ["Add a/1"],
        "each source has its own"
    );
    assert_eq!(kubelet.set("file", &["a/1"]), [""; 0]);
}

#[test]
fn changes_map_to_operations() {
    let cases = [
        ("a/1", "a/1 image=2", "Update a/1"),
        ("a/1", "a/1 label=x", "Update a/1"),
        ("a/1 label=x", "a/1 label=y", "Update a/1"),
        ("a/1", "a/1 annotation=x", "Update a/1"),
        ("a/1", "a/1 phase=Running", "Reconcile a/1"),
        ("a/1", "a/1 phase=Running image=2", "Update a/1"),
        ("a/1", "a/1 deleted", "Delete a/1"),
        ("a/1 deleted", "a/1 deleted grace", "Delete a/1"),
        ("a/1 deleted", "a/1 deleted phase=Failed", "Reconcile a/1"),
        ("a/1", "a/1 version=2", ""),
        ("a/1 phase=Running", "a/1 phase=Running", ""),
    ];
    for (before, now, expected) in cases {
        let mut kubelet = Kubelet::new();
        kubelet.set("api", &[before]);
        let actual = kubelet.set("api", &[now]).join(", ");
        assert_eq!(actual, expected, "{before} -> {now}");
        assert_eq!(kubelet.set("api", &[now]), [""; 0], "{now} again");
        assert_eq!(kubelet.set("api", &[]), ["Remove a/1"]);
    }
}

/// A new pod is added even if it is being deleted: the kubelet has not seen it before.
#[test]
fn a_new_pod_is_added_even_if_it_is_being_deleted() {
    assert_eq!(Kubelet::new().set("api", &["a/1 deleted"]), ["Add a/1"]);
}

#[test]
fn a_new_uid_is_another_pod() {
    let mut kubelet = Kubelet::new();
    kubelet.set("api", &["a/1"]);
    assert_eq!(kubelet.set("api", &["a/2"]), ["Remove a/1", "Add a/2"]);
}

#[test]
fn updates_are_in_upstreams_order() {
    let mut kubelet = Kubelet::new();
    kubelet.set("api", &["a/1", "b/2", "c/3", "d/4", "e/5"]);
    let now = [
        "e/5 phase=Running",
        "d/4 deleted",
        "c/3",
        "f/6",
        "b/2 image=2",
        "g/7",
    ];
    let expected = [
        "Remove a/1",
        "Add f/6 g/7",
        "Update b/2",
        "Delete d/4",
        "Reconcile e/5",
    ];
    assert_eq!(kubelet.set("api", &now), expected);
}

#[test]
fn sources_are_independent() {
    let mut kubelet = Kubelet::new();
    kubelet.set("api", &["a/1"]);
    assert_eq!(kubelet.set("file", &["a/9"]), ["Add a/9"]);
    assert_eq!(kubelet.set("file", &[]), ["Remove a/9"]);
    assert_eq!(kubelet.set("api", &["a/1"]), [""; 0]);
}

#[test]
fn duplicate_pods_are_rejected_with_an_event() {
    let mut kubelet = Kubelet::new();
    let actual = kubelet.set("file", &["a/1", "a/2", "b/1", "/3", "c/", "d/4"]);
    assert_eq!(actual, ["Add a/1 d/4"]);
    let expected = [
        "Error validating pod a_ns(2) from file due to duplicate pod name \"a\", ignoring",
        "Error validating pod b_ns(1) from file due to duplicate uid \"1\", ignoring",
        "Error validating pod _ns(3) from file due to it has no name or no uid, ignoring",
        "Error validating pod c_ns() from file due to it has no name or no uid, ignoring",
    ];
    assert_eq!(*kubelet.rejected.lock(), expected);
    assert_eq!(
        kubelet.set("file", &["a/2", "a/1"]),
        ["Remove a/1 d/4", "Add a/2"]
    );
}

proptest! {
    /// Applying the operations yields the last set.
    #[test]
    fn the_operations_lead_to_the_set(
        sets in prop::collection::vec(prop::collection::vec(
            ("[a-d]", 0..3u32, prop::option::of(prop::sample::select(vec![
                "image=2", "phase=Running", "deleted", "label=x",
            ]))), 0..5), 1..9),
    ) {
        let (mut kubelet, mut applied) = (Kubelet::new(), HashMap::new());
        for set in sets {
            let texts = set.iter().map(|(name, uid, change)| {
                let change = change.map(|change| format!(" {change}"));
                format!("{name}/{name}{uid}{}", change.unwrap_or_default())
            });
            let pods: Vec<_> = texts.map(|text| pod(&text)).collect();
            for update in kubelet.config.changes("api", pods.clone()) {
                for pod in update.pods {
                    let uid = pod.metadata.uid.clone();
                    let known = match update.operation {
                        PodOperation::Remove => applied.remove(&uid),
                        _ => applied.insert(uid, pod),
                    };
                    prop_assert_eq!(known.is_none(), update.operation == PodOperation::Add);
                }
            }
            let mut names = HashSet::new();
            let first = pods.into_iter().filter(|pod| names.insert(pod.metadata.name.clone()));
            let expected: HashMap<_, _> = first.map(|pod| (pod.metadata.uid.clone(), pod)).collect();
            prop_assert_eq!(&applied, &expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_kubelet_makes_the_sources_wait() {
    let (mux, mut updates) = PodConfig::new(|rejected| panic!("{rejected:?}"));
    let (source, tasks) = (mux.source("api"), Tasks::new());
    drop(tasks.spawn("pod-config", mux.run(tasks.token())));
    let mut sent = 0;
    loop {
        let set = vec![pod(&format!("a/1 image={sent}"))];
        let sending = tokio::time::timeout(Duration::from_secs(1), source.send(set));
        if sending.await.is_err() {
            break;
        }
        sent += 1;
    }
    // One update is being processed, one waits.
    assert_eq!(sent, UPDATES_MAX + 2);
    let mut actual = 0;
    while tokio::time::timeout(Duration::from_secs(1), updates.recv())
        .await
        .is_ok()
    {
        actual += 1;
    }
    assert_eq!(actual, sent);
    drop(updates);
    source.send(vec![]).await.unwrap();
    tasks.drain(Duration::from_secs(1)).await.unwrap();
    source.send(vec![]).await.unwrap_err();
}
