//! Tests of the decision whether a delete removes an object immediately, or marks it as being deleted.

use super::*;
use crate::table;
use watchet_registry::Change;
use watchet_registry::decide_delete as decide;

fn resource(plural: &str) -> Arc<Resource> {
    let all = table::all();
    all.into_iter().find(|r| r.plural == plural).unwrap()
}

fn decided(plural: &str, object: &Value, options: Value) -> Change {
    let options = serde_json::from_value(options).unwrap();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    decide(&resource(plural), object, &options, now)
}

fn bound(metadata: Value) -> Value {
    json!({"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}})
}

fn marked(change: Change) -> (Value, Value) {
    match change {
        Change::Put(object) => {
            let metadata = &object["metadata"];
            let grace = metadata["deletionGracePeriodSeconds"].clone();
            (metadata["deletionTimestamp"].clone(), grace)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn pod_grace_period_and_deletion_time() {
    let mut pod = bound(json!({"generation": 1}));
    let mark = |pod: &Value, options: Value| marked(decided("pods", pod, options));
    let at = |time: &str, grace: i64| (json!(time), json!(grace));
    assert_eq!(mark(&pod, json!({})), at("2026-01-01T00:00:30Z", 30));
    let negative = json!({"gracePeriodSeconds": -5});
    assert_eq!(mark(&pod, negative), at("2026-01-01T00:00:01Z", 1));
    pod["spec"]["terminationGracePeriodSeconds"] = json!(90);
    assert_eq!(mark(&pod, json!({})), at("2026-01-01T00:01:30Z", 90));
    pod["status"]["phase"] = json!("Succeeded");
    assert!(matches!(
        decided("pods", &pod, json!({})),
        Change::Delete(_)
    ));
    pod["metadata"]["finalizers"] = json!(["x.y/z"]);
    assert_eq!(mark(&pod, json!({})), at("2026-01-01T00:00:00Z", 0));
}

#[test]
fn grace_period_of_a_terminating_pod_can_only_be_shortened() {
    let time = "2025-12-31T23:59:50Z";
    let pod = bound(json!({"deletionTimestamp": time, "deletionGracePeriodSeconds": 20}));
    for options in [
        json!({}),
        json!({"gracePeriodSeconds": 20}),
        json!({"gracePeriodSeconds": 99}),
    ] {
        assert_eq!(decided("pods", &pod, options), Change::Put(pod.clone()));
    }
    let sooner = marked(decided("pods", &pod, json!({"gracePeriodSeconds": 5})));
    assert_eq!(sooner, (json!("2025-12-31T23:59:35Z"), json!(5)));
    // A negative period was once treated as zero.
    let negative = marked(decided("pods", &pod, json!({"gracePeriodSeconds": -5})));
    assert_eq!(negative, (json!("2025-12-31T23:59:31Z"), json!(1)));
    let now = decided("pods", &pod, json!({"gracePeriodSeconds": 0}));
    assert!(matches!(now, Change::Delete(_)));
    let unrecorded = bound(json!({"deletionTimestamp": time}));
    assert!(matches!(
        decided("pods", &unrecorded, json!({})),
        Change::Delete(_)
    ));
}

#[test]
fn delete_options_set_or_retain_propagation_finalizers() {
    let object = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    let finalizers = |change: Change| match change {
        Change::Put(object) => object["metadata"]["finalizers"].clone(),
        Change::Delete(object) | Change::Finish(object) => {
            json!({"deleted with": object["metadata"]["finalizers"]})
        }
    };
    let check = |before: Value, options: Value, after: Value| {
        let change = decided("deployments", &object(before), options);
        assert_eq!(finalizers(change), after);
    };
    check(json!(["orphan"]), json!({}), json!(["orphan"]));
    check(
        json!(["foregroundDeletion"]),
        json!({}),
        json!(["foregroundDeletion"]),
    );
    check(
        json!(["a.b/c"]),
        json!({"orphanDependents": true}),
        json!(["a.b/c", "orphan"]),
    );
    check(
        json!(["orphan"]),
        json!({"orphanDependents": false}),
        json!({"deleted with": []}),
    );
    check(
        json!(["orphan", "a.b/c"]),
        json!({"propagationPolicy": "Foreground"}),
        json!(["a.b/c", "foregroundDeletion"]),
    );
}

/// The first versions of Kubernetes orphaned the dependents of these two resources by default, and clients depend on
/// it.
#[test]
fn jobs_and_replication_controllers_leave_orphans_by_default() {
    let object = json!({"metadata": {"name": "a"}});
    for plural in ["jobs", "replicationcontrollers"] {
        let Change::Put(marked) = decided(plural, &object, json!({})) else {
            panic!("{plural} are deleted immediately");
        };
        assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
        let asked = json!({"propagationPolicy": "Background"});
        let gone = decided(plural, &object, asked);
        assert!(matches!(gone, Change::Delete(_)), "{gone:?}");
        let foreground = json!({"metadata": {"finalizers": ["foregroundDeletion"]}});
        let kept = decided(plural, &foreground, json!({}));
        assert!(matches!(kept, Change::Put(kept)
            if kept["metadata"]["finalizers"] == json!(["foregroundDeletion"])));
    }
    let gone = decided("cronjobs", &object, json!({}));
    assert!(matches!(gone, Change::Delete(_)), "{gone:?}");
}

/// The propagation policy may change once the grace period is over; during the grace period of a pod it does not
/// change.
#[test]
fn propagation_policy_may_change_after_the_grace_period() {
    let pod = |grace: i64| {
        bound(json!({
            "deletionTimestamp": "2025-12-31T23:59:50Z", "deletionGracePeriodSeconds": grace,
            "finalizers": ["x.y/z"],
        }))
    };
    let policy = json!({"propagationPolicy": "Foreground"});
    let Change::Put(after) = decided("pods", &pod(0), policy.clone()) else {
        panic!("it is held");
    };
    let finalizers = &after["metadata"]["finalizers"];
    assert_eq!(*finalizers, json!(["x.y/z", "foregroundDeletion"]));
    let times = ["deletionTimestamp", "deletionGracePeriodSeconds"];
    for time in times {
        assert_eq!(after["metadata"][time], pod(0)["metadata"][time], "{time}");
    }
    assert_eq!(decided("pods", &pod(9), policy), Change::Put(pod(9)));
}
