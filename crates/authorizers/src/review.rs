//! `SubjectAccessReview`: the request to a webhook, and its response.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use watchet_api::{FieldOperator, FieldSelector, LabelSelector};
use watchet_auth::Attributes;

const KIND: &str = "SubjectAccessReview";

/// The version of `SubjectAccessReview`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `authorization.k8s.io/v1`
    V1,
    /// `authorization.k8s.io/v1beta1`
    V1Beta1,
}

impl ReviewVersion {
    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "authorization.k8s.io/v1",
            Self::V1Beta1 => "authorization.k8s.io/v1beta1",
        }
    }

    /// Returns the name of the member with the groups of the user.
    fn groups(self) -> &'static str {
        match self {
            Self::V1 => "groups",
            Self::V1Beta1 => "group",
        }
    }
}

/// Returns the review of a request.
pub(crate) fn review(attributes: &Attributes, version: ReviewVersion) -> Value {
    json!({
        "kind": KIND,
        "apiVersion": version.api_version(),
        "metadata": {},
        "spec": spec(attributes, version),
        "status": {"allowed": false},
    })
}

fn spec(attributes: &Attributes, version: ReviewVersion) -> Value {
    let user = &attributes.user;
    let mut spec = Map::new();
    add(&mut spec, "user", &user.name);
    add(&mut spec, "uid", &user.uid);
    if !user.groups.is_empty() {
        spec.insert(version.groups().to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
    let mut members = Map::new();
    for (name, value) in members_of(attributes) {
        add(&mut members, name, value);
    }
    if attributes.is_resource_request {
        for (name, requirements) in selectors(attributes) {
            members.insert(name.to_owned(), json!({"requirements": requirements}));
        }
    }
    spec.insert(attributes_name(attributes).to_owned(), members.into());
    spec.into()
}

/// Returns the `spec` of the review for expressions, with all members except those of the other kind of request.
pub(crate) fn expression_request(attributes: &Attributes) -> Value {
    let mut members = Map::new();
    for (name, value) in members_of(attributes) {
        members.insert(name.to_owned(), value.into());
    }
    if attributes.is_resource_request {
        for (name, requirements) in selectors(attributes) {
            members.insert(name.to_owned(), json!({"requirements": requirements}));
        }
    }
    let user = &attributes.user;
    json!({
        "user": user.name,
        "uid": user.uid,
        "groups": user.groups,
        "extra": user.extra,
        attributes_name(attributes): members,
    })
}

fn attributes_name(attributes: &Attributes) -> &'static str {
    match attributes.is_resource_request {
        true => "resourceAttributes",
        false => "nonResourceAttributes",
    }
}

fn members_of(attributes: &Attributes) -> Vec<(&'static str, &str)> {
    if !attributes.is_resource_request {
        return vec![("path", &attributes.path), ("verb", &attributes.verb)];
    }
    vec![
        ("namespace", &attributes.namespace),
        ("verb", &attributes.verb),
        ("group", &attributes.api_group),
        ("version", &attributes.api_version),
        ("resource", &attributes.resource),
        ("subresource", &attributes.subresource),
        ("name", &attributes.name),
    ]
}

/// Adds a member unless it is empty.
fn add(members: &mut Map<String, Value>, name: &str, value: &str) {
    if !value.is_empty() {
        members.insert(name.to_owned(), value.into());
    }
}

/// Returns the selectors that have requirements.
fn selectors(attributes: &Attributes) -> impl Iterator<Item = (&'static str, Vec<Value>)> {
    let both = [
        (
            "fieldSelector",
            field_requirements(&attributes.field_selector),
        ),
        (
            "labelSelector",
            label_requirements(&attributes.label_selector),
        ),
    ];
    both.into_iter()
        .filter(|(_, requirements)| !requirements.is_empty())
}

fn field_requirements(selector: &FieldSelector) -> Vec<Value> {
    let requirement = |term: &watchet_api::FieldTerm| {
        let operator = match term.operator {
            FieldOperator::Equals => "In",
            FieldOperator::NotEquals => "NotIn",
        };
        json!({"key": term.field, "operator": operator, "values": [term.value]})
    };
    selector.terms.iter().map(requirement).collect()
}

/// Returns the requirements without comparisons of numbers, which a review cannot express. The review then covers more
/// objects than the request, as upstream.
fn label_requirements(selector: &LabelSelector) -> Vec<Value> {
    let requirements = selector.requirements();
    let expressible = requirements.filter(|one| !matches!(one.operator, "Gt" | "Lt"));
    let requirement = expressible.map(|one| match one.values.is_empty() {
        true => json!({"key": one.key, "operator": one.operator}),
        false => json!({"key": one.key, "operator": one.operator, "values": one.values}),
    });
    requirement.collect()
}

/// A review that a webhook returned.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReviewResponse {
    kind: String,
    api_version: String,
    status: Status,
}

/// The decision of a webhook.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) allowed: bool,
    pub(crate) denied: bool,
    pub(crate) reason: String,
}

impl ReviewResponse {
    /// Returns the decision.
    ///
    /// # Errors
    /// The response is not a review of `version`.
    pub(crate) fn status(self, version: ReviewVersion) -> Result<Status, String> {
        let expected = version.api_version();
        if self.kind != KIND || self.api_version != expected {
            return Err(format!(
                "it has the kind {:?} of {:?} instead of {KIND} of {expected:?}",
                self.kind, self.api_version
            ));
        }
        Ok(self.status)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use watchet_api::UserInfo;

    use super::*;

    fn jane() -> Arc<UserInfo> {
        let groups = vec!["dev".to_owned()];
        let mut user = UserInfo::authenticated("jane".to_owned(), "7".to_owned(), groups);
        user.extra.insert("k".to_owned(), vec!["v".to_owned()]);
        Arc::new(user)
    }

    #[test]
    fn a_review_has_the_attributes_that_are_set() {
        let list = Attributes {
            user: jane(),
            verb: "list".to_owned(),
            is_resource_request: true,
            api_group: "apps".to_owned(),
            api_version: "v1".to_owned(),
            resource: "deployments".to_owned(),
            path: "/apis/apps/v1/deployments".to_owned(),
            field_selector: "metadata.name=a,spec.x!=b".parse().unwrap(),
            label_selector: "a in (2,1),!b,c,d!=e,f>3".parse().unwrap(),
            ..Attributes::default()
        };
        let groups = ["dev", "system:authenticated"];
        let resource = json!({
            "verb": "list", "group": "apps", "version": "v1", "resource": "deployments",
            "fieldSelector": {"requirements": [
                {"key": "metadata.name", "operator": "In", "values": ["a"]},
                {"key": "spec.x", "operator": "NotIn", "values": ["b"]},
            ]},
            "labelSelector": {"requirements": [
                {"key": "a", "operator": "In", "values": ["1", "2"]},
                {"key": "b", "operator": "DoesNotExist"},
                {"key": "c", "operator": "Exists"},
                {"key": "d", "operator": "NotIn", "values": ["e"]},
            ]},
        });
        let extra = json!({"k": ["v"]});
        assert_eq!(
            review(&list, ReviewVersion::V1),
            json!({
                "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
                "spec": {
                    "user": "jane", "uid": "7", "groups": groups, "extra": extra,
                    "resourceAttributes": resource,
                },
                "status": {"allowed": false},
            })
        );
        let older = review(&list, ReviewVersion::V1Beta1);
        assert_eq!(older["apiVersion"], "authorization.k8s.io/v1beta1");
        assert_eq!(older["spec"]["group"], json!(groups));
        assert_eq!(older["spec"]["groups"], Value::Null);

        let request = expression_request(&list);
        assert_eq!(request["resourceAttributes"]["namespace"], "");
        assert_eq!(
            request["resourceAttributes"]["labelSelector"],
            resource["labelSelector"]
        );
        assert_eq!(request["nonResourceAttributes"], Value::Null);
    }

    #[test]
    fn a_review_of_a_path_has_no_resource() {
        let get = Attributes {
            verb: "get".to_owned(),
            path: "/metrics".to_owned(),
            ..Attributes::default()
        };
        let attributes = json!({"path": "/metrics", "verb": "get"});
        assert_eq!(
            review(&get, ReviewVersion::V1)["spec"],
            json!({"nonResourceAttributes": attributes})
        );
        assert_eq!(
            expression_request(&get),
            json!({
                "user": "", "uid": "", "groups": [], "extra": {}, "nonResourceAttributes": attributes,
            })
        );
    }

    #[test]
    fn only_reviews_of_the_version_are_decisions() {
        let status = |text: &str, version: ReviewVersion| {
            serde_json::from_str::<ReviewResponse>(text)
                .unwrap()
                .status(version)
        };
        let text = r#"{"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": {"allowed": true, "reason": "r"}}"#;
        let expected = Status {
            allowed: true,
            denied: false,
            reason: "r".to_owned(),
        };
        assert_eq!(status(text, ReviewVersion::V1), Ok(expected));
        assert_eq!(
            status(text, ReviewVersion::V1Beta1).unwrap_err(),
            r#"it has the kind "SubjectAccessReview" of "authorization.k8s.io/v1" instead of SubjectAccessReview of "authorization.k8s.io/v1beta1""#
        );
        assert!(status(r#"{"status": {"allowed": true}}"#, ReviewVersion::V1).is_err());
    }
}
