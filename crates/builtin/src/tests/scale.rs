//! Tests of the subresource `scale`.

use super::*;
use crate::table;
use watchet_registry::scale::{NAME, applied, of};

fn target(plural: &str) -> Target {
    let all = table::all();
    Target {
        resource: all.into_iter().find(|r| r.plural == plural).unwrap(),
        namespace: Some("ns".to_owned()),
        name: "a".to_owned(),
        subresource: Some(NAME.to_owned()),
    }
}

#[test]
fn scale_has_the_metadata_of_its_object() {
    let object = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "labels": {"x": "y"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"b": "1", "a": "2"}}},
        "status": {"replicas": 2},
    });
    let resource = target("deployments").resource;
    assert_eq!(
        of(&resource, &object, "7".parse().unwrap()).unwrap(),
        json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
            "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=2,b=1"},
        })
    );
    let object = json!({"metadata": {"name": "a"}, "spec": {"selector": {"app": "x"}}});
    let resource = target("replicationcontrollers").resource;
    let scale = of(&resource, &object, ResourceVersion::ZERO).unwrap();
    assert_eq!(scale["spec"], json!({}));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "app=x"}));
}

#[test]
fn scale_update_changes_only_the_replicas() {
    let target = target("statefulsets");
    let stored = json!({"metadata": {"name": "a"}, "spec": {"replicas": 1, "x": 1}});
    let scale = |replicas: Value| json!({"metadata": {"name": "a", "labels": {"l": "v"}}, "spec": {"replicas": replicas}});
    let object = applied(&target, &stored, &scale(5.into())).unwrap();
    assert_eq!(
        object,
        json!({"metadata": {"name": "a"}, "spec": {"replicas": 5, "x": 1}})
    );
    let object = applied(&target, &stored, &json!({})).unwrap();
    assert_eq!(object["spec"]["replicas"], 0);
    let ApiError::Invalid {
        group,
        kind,
        causes,
        ..
    } = applied(&target, &stored, &scale((-1).into())).unwrap_err()
    else {
        panic!("it is no number of replicas");
    };
    assert_eq!((&*group, &*kind), ("autoscaling", "Scale"));
    let expected = "Invalid value: -1: must be greater than or equal to 0";
    assert_eq!(
        (&*causes[0].field, &*causes[0].message),
        ("spec.replicas", expected)
    );
    for wrong in [json!("3"), json!(1.5), json!(1_u64 << 40)] {
        let refused = applied(&target, &stored, &scale(wrong));
        assert!(
            matches!(refused, Err(ApiError::BadRequest(_))),
            "{refused:?}"
        );
    }
}
