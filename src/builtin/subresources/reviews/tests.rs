//! Tests of reviews: the answer, or what is wrong with the question.

use super::*;
use crate::api::SYSTEM_MASTERS;
use crate::builtin::subresources::questions;

fn ask(kind: &str, user: UserInfo, namespace: Option<&str>, body: Value) -> Result<Value, String> {
    let resource = questions().into_iter().find(|r| r.kind == kind).unwrap();
    let target = Target {
        resource,
        namespace: namespace.map(str::to_owned),
        name: String::new(),
        subresource: None,
    };
    let options = WriteOptions {
        user: Arc::new(user),
        ..WriteOptions::default()
    };
    let mut body = body;
    metadata::check_shape(&target.resource, &mut body).unwrap();
    metadata::check_namespace(namespace, &mut body).map_err(|error| error.to_string())?;
    match answer(&target, body, &options) {
        Ok(object) => {
            let body: Value = serde_json::from_slice(object.body_slice()).unwrap();
            assert!(body["metadata"]["resourceVersion"].is_null());
            Ok(body["status"].clone())
        }
        Err(ApiError::Invalid { causes, .. }) => {
            let told: Vec<_> = causes
                .iter()
                .map(|cause| format!("{}: {}", cause.field, cause.message))
                .collect();
            Err(told.join("; "))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn admin() -> UserInfo {
    let groups = vec![SYSTEM_MASTERS.to_owned()];
    UserInfo::authenticated("kubernetes-admin".to_owned(), String::new(), groups)
}

#[test]
fn who_am_i() {
    let mut user = admin();
    let told = ask("SelfSubjectReview", user.clone(), None, json!({}));
    assert_eq!(
        told.unwrap(),
        json!({"userInfo": {
            "username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"],
        }})
    );
    user.uid = "u".to_owned();
    user.extra = [("k".to_owned(), vec!["v".to_owned()])].into();
    let told = ask("SelfSubjectReview", user, None, json!({})).unwrap();
    assert_eq!(told["userInfo"]["uid"], "u");
    assert_eq!(told["userInfo"]["extra"], json!({"k": ["v"]}));
    let named = json!({"metadata": {"name": "x"}});
    let told = ask("SelfSubjectReview", admin(), None, named);
    assert_eq!(
        told.unwrap_err(),
        r#"metadata: Invalid value: "": must be empty"#
    );
}

#[test]
fn what_may_i_do() {
    let kind = "SelfSubjectAccessReview";
    let objects = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let spec = json!({"spec": {"resourceAttributes": objects}});
    let told = ask(kind, admin(), None, spec.clone()).unwrap();
    assert_eq!(told["allowed"], true);
    assert!(!told["reason"].as_str().unwrap().is_empty());
    let told = ask(kind, UserInfo::anonymous(), None, spec).unwrap();
    assert_eq!(told["allowed"], false);
    for (path, allowed) in [("/readyz", true), ("/metrics", false)] {
        let spec = json!({"spec": {"nonResourceAttributes": {"path": path, "verb": "get"}}});
        let told = ask(kind, UserInfo::anonymous(), None, spec).unwrap();
        assert_eq!(told["allowed"], allowed, "{path}");
    }
    let both = json!({"spec": {"resourceAttributes": {}, "nonResourceAttributes": {}}});
    let told = ask(kind, admin(), None, both).unwrap_err();
    assert!(
        told.contains("cannot be specified in combination with resourceAttributes"),
        "{told}"
    );
    let told = ask(kind, admin(), None, json!({})).unwrap_err();
    assert!(
        told.contains("exactly one of nonResourceAttributes or resourceAttributes"),
        "{told}"
    );
    let wrong = json!({"spec": {"resourceAttributes": "pods"}});
    let told = ask(kind, admin(), None, wrong).unwrap_err();
    assert!(
        told.contains("cannot be handled as a SelfSubjectAccessReview"),
        "{told}"
    );
}

#[test]
fn what_may_somebody_do() {
    let kind = "SubjectAccessReview";
    let spec = json!({"spec": {"user": "jane", "resourceAttributes": {"verb": "get"}}});
    assert_eq!(ask(kind, admin(), None, spec).unwrap()["allowed"], true);
    let groups = ["system:unauthenticated"];
    let spec = json!({"spec": {"groups": groups, "resourceAttributes": {"verb": "get"}}});
    assert_eq!(ask(kind, admin(), None, spec).unwrap()["allowed"], false);
    let spec = json!({"spec": {"resourceAttributes": {"verb": "get"}}});
    let told = ask(kind, admin(), None, spec).unwrap_err();
    assert!(told.starts_with("spec.user: ") && told.contains("at least one of user or group"));
}

#[test]
fn a_local_review_stays_in_its_namespace() {
    let kind = "LocalSubjectAccessReview";
    let about = |namespace: &str| {
        json!({
            "metadata": {"namespace": "a"},
            "spec": {"user": "jane", "resourceAttributes": {"namespace": namespace}},
        })
    };
    assert_eq!(
        ask(kind, admin(), Some("a"), about("a")).unwrap()["allowed"],
        true
    );
    let told = ask(kind, admin(), Some("a"), about("b")).unwrap_err();
    assert_eq!(
        told,
        "spec.resourceAttributes.namespace must match namespace: a"
    );
    let told = ask(kind, admin(), Some("b"), about("b")).unwrap_err();
    assert!(
        told.starts_with("the namespace of the provided object does not match"),
        "{told}"
    );
    let paths = json!({"spec": {"user": "jane", "nonResourceAttributes": {"path": "/"}}});
    let told = ask(kind, admin(), Some("a"), paths).unwrap_err();
    assert!(
        told.contains("disallowed on this kind of request"),
        "{told}"
    );
}

#[test]
fn the_rules_are_those_of_the_answers() {
    let kind = "SelfSubjectRulesReview";
    let spec = json!({"spec": {"namespace": "default"}});
    let told = ask(kind, admin(), None, spec.clone()).unwrap();
    assert_eq!(
        told["resourceRules"],
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])
    );
    assert_eq!(told["incomplete"], false);
    let told = ask(kind, UserInfo::anonymous(), None, spec).unwrap();
    assert_eq!(told["resourceRules"], json!([]));
    let paths = &told["nonResourceRules"][0]["nonResourceURLs"];
    assert!(paths.as_array().unwrap().contains(&json!("/readyz")));
    let told = ask(kind, admin(), None, json!({})).unwrap_err();
    assert_eq!(told, "no namespace on request");
}
