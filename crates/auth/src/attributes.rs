//! `Attributes`: what an authorizer decides on.

use std::sync::Arc;

use watchet_api::{FieldSelector, LabelSelector, Status, StatusDetails, UserInfo};

/// A request, as upstream's `authorizer.Attributes`: a verb on a resource, or on a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// The user.
    pub user: Arc<UserInfo>,
    /// The verb on a resource, such as `get`, `list` or `impersonate`; empty if the method has none. For a
    /// path it is the method in lower case.
    pub verb: String,
    /// True for a request about a resource, false for one about a path.
    pub is_resource_request: bool,
    /// The API group; empty for the core group.
    pub api_group: String,
    /// The version, such as `v1`; `*` in reviews without a version.
    pub api_version: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty for all namespaces and for cluster-scoped resources. The namespace of a Namespace is its
    /// name.
    pub namespace: String,
    /// The name of the object; empty for collections.
    pub name: String,
    /// The decoded path of the request; empty for a resource that is not requested by a URL.
    pub path: String,
    /// The field selector of a list, watch or deletecollection; empty if it is absent or invalid.
    pub field_selector: FieldSelector,
    /// The label selector of a list, watch or deletecollection; empty if it is absent or invalid.
    pub label_selector: LabelSelector,
}

impl Attributes {
    /// Returns the error of a request that is not allowed, with upstream's message. `reason` may be empty.
    pub fn forbidden(&self, reason: &str) -> Status {
        let denied = self.denied_action();
        // A browser must not interpret the message as HTML, as upstream.
        let denied = denied
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let detail = match reason {
            "" => denied,
            reason => format!("{denied}: {reason}"),
        };
        let resource = match &*self.api_group {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        };
        let message = match (&*self.resource, &*self.name) {
            ("", _) => format!("forbidden: {detail}"),
            (_, "") => format!("{resource} is forbidden: {detail}"),
            (_, name) => format!("{resource} {name:?} is forbidden: {detail}"),
        };
        Status::failure(403, "Forbidden", message).with_details(StatusDetails {
            name: self.name.clone(),
            group: self.api_group.clone(),
            kind: self.resource.clone(),
            ..StatusDetails::default()
        })
    }

    fn denied_action(&self) -> String {
        let (user, verb) = (&self.user.name, &self.verb);
        if !self.is_resource_request {
            return format!("User {user:?} cannot {verb} path {:?}", self.path);
        }
        let resource = match &*self.subresource {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        };
        let group = &self.api_group;
        let scope = match &*self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jane() -> Arc<UserInfo> {
        let groups = Vec::new();
        Arc::new(UserInfo::authenticated(
            "jane".into(),
            String::new(),
            groups,
        ))
    }

    #[test]
    fn message_names_resource_and_scope() {
        let list = Attributes {
            user: jane(),
            verb: "list".into(),
            is_resource_request: true,
            resource: "pods".into(),
            namespace: "d".into(),
            ..Attributes::default()
        };
        assert_eq!(
            list.forbidden("").message,
            r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "d""#
        );
        let scale = Attributes {
            verb: "update".into(),
            api_group: "apps".into(),
            resource: "deployments".into(),
            subresource: "scale".into(),
            namespace: String::new(),
            name: "a<b".into(),
            ..list
        };
        let status = scale.forbidden("no role");
        assert_eq!(
            status.message,
            r#"deployments.apps "a<b" is forbidden: User "jane" cannot update resource "deployments/scale" in API group "apps" at the cluster scope: no role"#
        );
        let details = status.details.unwrap();
        assert_eq!((&*details.kind, &*details.group), ("deployments", "apps"));
        assert_eq!((status.code, &*details.name), (403, "a<b"));
    }

    #[test]
    fn message_names_path() {
        let metrics = Attributes {
            user: jane(),
            verb: "get".into(),
            path: "/metrics<x>".into(),
            ..Attributes::default()
        };
        assert_eq!(
            metrics.forbidden("").message,
            r#"forbidden: User "jane" cannot get path "/metrics&lt;x&gt;""#
        );
    }
}
