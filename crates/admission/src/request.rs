//! The attributes of a write that admission evaluates: the user, the operation, and the object.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use super::error::AdmissionError;
use watchet_api::{AuditAnnotations, UserInfo, Warnings};

/// The operation of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The creation of an object, or of a subresource (pods/eviction).
    Create,
    /// A PUT or a PATCH.
    Update,
    /// A DELETE; also each deletion of a deletecollection.
    Delete,
    /// A connection to the object, such as an exec.
    Connect,
}

impl Operation {
    /// Returns the name in rules and reviews.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The attributes of a request by which a plugin decides whether it handles the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The operation of the request.
    pub operation: Operation,
    /// The API group of the resource; empty for the core group.
    pub group: &'a str,
    /// The plural name of the resource.
    pub resource: &'a str,
    /// Empty for the resource itself.
    pub subresource: &'a str,
}

impl Request<'_> {
    /// Returns true if the request is for objects of this resource, and not for a subresource.
    pub fn is_of(&self, group: &str, resource: &str) -> bool {
        self.is_of_subresource(group, resource, "")
    }

    /// Returns true if the request is for this subresource.
    pub fn is_of_subresource(&self, group: &str, resource: &str, subresource: &str) -> bool {
        // The resource first: most calls are for another one, while most groups and subresources are empty.
        self.resource == resource && self.group == group && self.subresource == subresource
    }

    /// Returns true if the request creates an object of this resource.
    pub fn creates(&self, group: &str, resource: &str) -> bool {
        self.operation == Operation::Create && self.is_of(group, resource)
    }

    /// Returns true if the request updates an object of this resource.
    pub fn updates(&self, group: &str, resource: &str) -> bool {
        self.operation == Operation::Update && self.is_of(group, resource)
    }
}

/// A resource of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionResource {
    /// Empty for the core group.
    pub group: String,
    /// `v1`
    pub version: String,
    /// Plural.
    pub resource: String,
}

impl GroupVersionResource {
    /// Returns the plural name with its group, as in errors.
    pub fn qualified(&self) -> String {
        match self.group.is_empty() {
            true => self.resource.clone(),
            false => format!("{}.{}", self.resource, self.group),
        }
    }
}

/// A kind of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionKind {
    /// Empty for the core group.
    pub group: String,
    /// `v1`
    pub version: String,
    /// `Pod`
    pub kind: String,
}

impl GroupVersionKind {
    /// Returns the kind of `object`.
    pub fn of(object: &Value) -> Self {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let api_version = text("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text("kind"),
        }
    }
}

impl fmt::Display for GroupVersionKind {
    /// As Go prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// The options of a request, which are built when a webhook or a policy needs them.
#[derive(Clone, Copy)]
pub struct RequestOptions<'a>(pub &'a (dyn Fn() -> Value + Sync));

impl RequestOptions<'_> {
    /// Returns `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub fn build(&self) -> Value {
        (self.0)()
    }
}

impl fmt::Debug for RequestOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestOptions")
            .field(&self.build())
            .finish()
    }
}

/// One write. Webhooks and policies get the objects in the version of the client's request, in-process plugins get them
/// in the stored form.
#[derive(Debug)]
pub struct AdmissionRequest<'a> {
    /// The operation.
    pub operation: Operation,
    /// The resource of the object.
    pub resource: GroupVersionResource,
    /// The kind of the objects below; the kind of some subresources differs from that of the resource.
    pub kind: GroupVersionKind,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Empty if the server has not generated the name yet.
    pub name: &'a str,
    /// Empty for cluster-scoped objects; the name of a namespace for the namespace itself, as upstream.
    pub namespace: &'a str,
    /// The user.
    pub user: &'a UserInfo,
    /// True for a dry run.
    pub dry_run: bool,
    /// The options of the request.
    pub options: RequestOptions<'a>,
    /// Collects the warnings of the response.
    pub warnings: &'a Warnings,
    /// The audit annotations of the request.
    pub audit_annotations: &'a AuditAnnotations,
    /// The object to be stored; null for a delete.
    pub object: Cow<'a, Value>,
    /// The stored object; null for a create.
    pub old_object: Cow<'a, Value>,
}

impl AdmissionRequest<'_> {
    /// Returns the attributes by which a plugin decides whether it handles the request.
    pub fn request(&self) -> Request<'_> {
        Request {
            operation: self.operation,
            group: &self.resource.group,
            resource: &self.resource.resource,
            subresource: self.subresource,
        }
    }

    /// Returns the error of a plugin that refuses the request, which names the object as upstream does.
    pub fn forbidden(&self, why: impl Into<String>) -> AdmissionError {
        AdmissionError::Forbidden {
            resource: self.resource.qualified(),
            name: self.shown_name().to_owned(),
            why: why.into(),
            causes: Vec::new(),
        }
    }

    /// Returns the name of the object; before it is generated, its `generateName`.
    pub(super) fn shown_name(&self) -> &str {
        let metadata = &self.object["metadata"];
        let names = [
            Some(self.name),
            metadata["name"].as_str(),
            metadata["generateName"].as_str(),
        ];
        let mut names = names.into_iter().flatten();
        names.find(|name| !name.is_empty()).unwrap_or("Unknown")
    }

    /// Returns true for namespaces, which are cluster-scoped although `namespace` is set.
    pub(super) fn is_of_namespaces(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "namespaces"
    }

    /// Returns true for reviews of users and permissions. Policies are not evaluated for them, because one that
    /// denies them would lock out all clients.
    pub(super) fn is_review(&self) -> bool {
        matches!(
            (&*self.resource.group, &*self.resource.resource),
            (
                "authentication.k8s.io",
                "selfsubjectreviews" | "tokenreviews"
            ) | (
                "authorization.k8s.io",
                "localsubjectaccessreviews"
                    | "selfsubjectaccessreviews"
                    | "selfsubjectrulesreviews"
                    | "subjectaccessreviews"
            )
        )
    }

    /// Returns true if the object configures policies, which policies are not evaluated for, so that none
    /// can prevent its own removal.
    pub(super) fn is_of_policies(&self) -> bool {
        const POLICIES: [&str; 4] = [
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
        ];
        self.resource.group == "admissionregistration.k8s.io"
            && POLICIES.contains(&&*self.resource.resource)
    }

    /// Returns true for configurations of admission. Webhooks are not called for them, so that none can prevent its
    /// own removal.
    pub(super) fn is_exempt(&self) -> bool {
        const WEBHOOKS: [&str; 2] = [
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
        ];
        self.is_of_policies()
            || self.resource.group == "admissionregistration.k8s.io"
                && WEBHOOKS.contains(&&*self.resource.resource)
    }
}
