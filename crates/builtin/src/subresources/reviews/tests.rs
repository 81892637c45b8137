//! Tests of reviews.

use super::*;
use crate::subresources::virtual_resources;
use watchet_api::SYSTEM_MASTERS;
use watchet_auth::AllowAuthenticated;

async fn ask(
    kind: &str,
    user: UserInfo,
    namespace: Option<&str>,
    body: Value,
) -> Result<Value, String> {
    let resource = virtual_resources(crate::table::is_kind)
        .into_iter()
        .find(|r| r.kind == kind)
        .unwrap();
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
    match review(&AllowAuthenticated, &target, body, &options).await {
        Ok(object) => {
            let body: Value = serde_json::from_slice(object.body_slice()).unwrap();
            assert!(body["metadata"]["resourceVersion"].is_null());
            Ok(body["status"].clone())
        }
        Err(ApiError::Invalid { causes, .. }) => {
            let reviewed: Vec<_> = causes
                .iter()
                .map(|cause| format!("{}: {}", cause.field, cause.message))
                .collect();
            Err(reviewed.join("; "))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn admin() -> UserInfo {
    let groups = vec![SYSTEM_MASTERS.to_owned()];
    UserInfo::authenticated("kubernetes-admin".to_owned(), String::new(), groups)
}

#[tokio::test]
async fn self_subject_review_returns_the_user() {
    let mut user = admin();
    let reviewed = ask("SelfSubjectReview", user.clone(), None, json!({})).await;
    assert_eq!(
        reviewed.unwrap(),
        json!({"userInfo": {
            "username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"],
        }})
    );
    user.uid = "u".to_owned();
    user.extra = [("k".to_owned(), vec!["v".to_owned()])].into();
    let reviewed = ask("SelfSubjectReview", user, None, json!({}))
        .await
        .unwrap();
    assert_eq!(reviewed["userInfo"]["uid"], "u");
    assert_eq!(reviewed["userInfo"]["extra"], json!({"k": ["v"]}));
    let named = json!({"metadata": {"name": "x"}});
    let reviewed = ask("SelfSubjectReview", admin(), None, named).await;
    assert_eq!(
        reviewed.unwrap_err(),
        r#"metadata: Invalid value: "": must be empty"#
    );
}

#[tokio::test]
async fn self_subject_access_review_asks_the_authorizer() {
    let kind = "SelfSubjectAccessReview";
    let objects = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let spec = json!({"spec": {"resourceAttributes": objects}});
    let reviewed = ask(kind, admin(), None, spec.clone()).await.unwrap();
    assert_eq!(reviewed["allowed"], true);
    assert!(!reviewed["reason"].as_str().unwrap().is_empty());
    let reviewed = ask(kind, UserInfo::anonymous(), None, spec).await.unwrap();
    assert_eq!(reviewed["allowed"], false);
    for (path, allowed) in [("/readyz", true), ("/metrics", false)] {
        let spec = json!({"spec": {"nonResourceAttributes": {"path": path, "verb": "get"}}});
        let reviewed = ask(kind, UserInfo::anonymous(), None, spec).await.unwrap();
        assert_eq!(reviewed["allowed"], allowed, "{path}");
    }
    let both = json!({"spec": {"resourceAttributes": {}, "nonResourceAttributes": {}}});
    let reviewed = ask(kind, admin(), None, both).await.unwrap_err();
    assert!(
        reviewed.contains("cannot be specified in combination with resourceAttributes"),
        "{reviewed}"
    );
    let reviewed = ask(kind, admin(), None, json!({})).await.unwrap_err();
    assert!(
        reviewed.contains("exactly one of nonResourceAttributes or resourceAttributes"),
        "{reviewed}"
    );
    let wrong = json!({"spec": {"resourceAttributes": "pods"}});
    let reviewed = ask(kind, admin(), None, wrong).await.unwrap_err();
    assert!(
        reviewed.contains("cannot be handled as a SelfSubjectAccessReview"),
        "{reviewed}"
    );
}

#[tokio::test]
async fn subject_access_review_needs_a_user_or_group() {
    let kind = "SubjectAccessReview";
    let spec = json!({"spec": {"user": "jane", "resourceAttributes": {"verb": "get"}}});
    assert_eq!(
        ask(kind, admin(), None, spec).await.unwrap()["allowed"],
        true
    );
    let groups = ["system:unauthenticated"];
    let spec = json!({"spec": {"groups": groups, "resourceAttributes": {"verb": "get"}}});
    assert_eq!(
        ask(kind, admin(), None, spec).await.unwrap()["allowed"],
        false
    );
    let spec = json!({"spec": {"resourceAttributes": {"verb": "get"}}});
    let reviewed = ask(kind, admin(), None, spec).await.unwrap_err();
    assert!(
        reviewed.starts_with("spec.user: ") && reviewed.contains("at least one of user or group")
    );
}

#[tokio::test]
async fn local_review_is_limited_to_its_namespace() {
    let kind = "LocalSubjectAccessReview";
    let about = |namespace: &str| {
        json!({
            "metadata": {"namespace": "a"},
            "spec": {"user": "jane", "resourceAttributes": {"namespace": namespace}},
        })
    };
    assert_eq!(
        ask(kind, admin(), Some("a"), about("a")).await.unwrap()["allowed"],
        true
    );
    let reviewed = ask(kind, admin(), Some("a"), about("b")).await.unwrap_err();
    assert_eq!(
        reviewed,
        "spec.resourceAttributes.namespace must match namespace: a"
    );
    let reviewed = ask(kind, admin(), Some("b"), about("b")).await.unwrap_err();
    assert!(
        reviewed.starts_with("the namespace of the provided object does not match"),
        "{reviewed}"
    );
    let paths = json!({"spec": {"user": "jane", "nonResourceAttributes": {"path": "/"}}});
    let reviewed = ask(kind, admin(), Some("a"), paths).await.unwrap_err();
    assert!(
        reviewed.contains("disallowed on this kind of request"),
        "{reviewed}"
    );
}

#[tokio::test]
async fn selectors_of_a_review_are_validated() {
    let at = "spec.resourceAttributes";
    let why = "requirements or rawSelector is required";
    for (selectors, expected) in [
        (
            json!({"fieldSelector": {}}),
            format!(
                "{at}.fieldSelector.requirements: Required value: when {at}.fieldSelector is specified, \
                 {why}"
            ),
        ),
        (
            json!({"labelSelector": {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "Exists"}]}}),
            format!(
                "{at}.labelSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same \
                 time as requirements"
            ),
        ),
        (
            json!({"fieldSelector": {"requirements": [{"key": "", "operator": "Odd"}]}}),
            format!("{at}.fieldSelector.requirements[0].key: Required value: must be specified"),
        ),
        (
            json!({"labelSelector": {"requirements": [{"key": "a", "operator": "In"}]}}),
            format!(
                "{at}.labelSelector.requirements[0].values: Required value: must be specified when \
                 `operator` is 'In' or 'NotIn'"
            ),
        ),
        (
            json!({"fieldSelector": {"requirements": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}),
            format!(
                "{at}.fieldSelector.requirements[0].values: Forbidden: may not be specified when \
                 `operator` is 'Exists' or 'DoesNotExist'"
            ),
        ),
    ] {
        for kind in ["SelfSubjectAccessReview", "SubjectAccessReview"] {
            let mut spec = json!({"resourceAttributes": selectors});
            if kind == "SubjectAccessReview" {
                spec["user"] = json!("jane");
            }
            let refused = ask(kind, admin(), None, json!({"spec": spec})).await;
            let refused = refused.unwrap_err();
            assert!(refused.contains(&expected), "{refused}");
        }
    }
}

#[tokio::test]
async fn rules_are_those_of_the_authorizer() {
    let kind = "SelfSubjectRulesReview";
    let spec = json!({"spec": {"namespace": "default"}});
    let reviewed = ask(kind, admin(), None, spec.clone()).await.unwrap();
    assert_eq!(
        reviewed["resourceRules"],
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])
    );
    assert_eq!(reviewed["incomplete"], false);
    let reviewed = ask(kind, UserInfo::anonymous(), None, spec).await.unwrap();
    assert_eq!(reviewed["resourceRules"], json!([]));
    let paths = &reviewed["nonResourceRules"][0]["nonResourceURLs"];
    assert!(paths.as_array().unwrap().contains(&json!("/readyz")));
    let reviewed = ask(kind, admin(), None, json!({})).await.unwrap_err();
    assert_eq!(reviewed, "no namespace on request");
}

/// Records the attributes and denies.
#[derive(Debug, Default)]
struct Recorder(parking_lot::Mutex<Vec<Attributes>>);

#[async_trait::async_trait]
impl Authorizer for Recorder {
    async fn authorize(&self, attributes: &Attributes) -> watchet_auth::Decision {
        self.0.lock().push(attributes.clone());
        watchet_auth::Decision::Deny("never".into())
    }
}

#[tokio::test]
async fn attributes_of_a_review_reach_the_authorizer() {
    let review_of = |kind: &str| {
        let resource = virtual_resources(crate::table::is_kind)
            .into_iter()
            .find(|r| r.kind == kind)
            .unwrap();
        Target {
            resource,
            namespace: None,
            name: String::new(),
            subresource: None,
        }
    };
    let authorizer = Recorder::default();
    let options = WriteOptions::default();
    let mut body = json!({"spec": {"user": "jane", "groups": ["dev"], "resourceAttributes": {
        "verb": "list", "group": "apps", "resource": "deployments", "subresource": "scale",
        "namespace": "n", "name": "d",
        "fieldSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
        "labelSelector": {"rawSelector": "x in (y)"},
    }}});
    let target = review_of("SubjectAccessReview");
    metadata::check_shape(&target.resource, &mut body).unwrap();
    let reviewed = review(&authorizer, &target, body, &options).await.unwrap();
    let reviewed: Value = serde_json::from_slice(reviewed.body_slice()).unwrap();
    let expected = json!({"allowed": false, "denied": true, "reason": "never"});
    assert_eq!(reviewed["status"], expected);
    let attributes = authorizer.0.lock().pop().unwrap();
    assert_eq!(
        (&*attributes.user.name, &*attributes.user.groups),
        ("jane", &["dev".to_owned()][..])
    );
    let (group, version) = (&*attributes.api_group, &*attributes.api_version);
    assert_eq!((&*attributes.verb, group, version), ("list", "apps", "*"));
    let (resource, subresource) = (&*attributes.resource, &*attributes.subresource);
    assert_eq!((resource, subresource), ("deployments", "scale"));
    assert_eq!((&*attributes.namespace, &*attributes.name), ("n", "d"));
    assert!(attributes.is_resource_request);
    assert_eq!(attributes.field_selector, "a=b".parse().unwrap());
    assert_eq!(attributes.label_selector, "x in (y)".parse().unwrap());
    let mut body = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/x"}}});
    let target = review_of("SelfSubjectAccessReview");
    metadata::check_shape(&target.resource, &mut body).unwrap();
    review(&authorizer, &target, body, &options).await.unwrap();
    let attributes = authorizer.0.lock().pop().unwrap();
    assert!(!attributes.is_resource_request);
    assert_eq!((&*attributes.verb, &*attributes.path), ("get", "/x"));
}
