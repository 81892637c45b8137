//! Subresources and virtual resources (reviews): their list for discovery, and the handling of a POST to one. The verbs
//! and `strategy` handle subresources that are written like the whole object (`status`, `finalize`).

mod binding;
pub(crate) mod certificates;
mod conditions;
mod eviction;
pub(crate) mod pods;
mod review_selectors;
mod reviews;
mod token;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::strategies::{Builtin, IsKnownKind};
use watchet_api::WriteOptions;
use watchet_auth::TokenAuthenticator;
use watchet_registry::{ApiError, BodyKind, Posted, Registry, Resource, Subresource, Target};
use watchet_registry::{CHANGED, part};
use watchet_registry::{Plain, PostHandler, Rules};

const fn core(kind: &'static str) -> BodyKind {
    BodyKind {
        group: "",
        version: "v1",
        kind,
    }
}

const BINDING: BodyKind = core("Binding");
const EVICTION: BodyKind = BodyKind {
    group: "policy",
    version: "v1",
    kind: "Eviction",
};

const TOKEN_REQUEST: BodyKind = BodyKind {
    group: "authentication.k8s.io",
    version: "v1",
    kind: "TokenRequest",
};

const CONNECTED: &[&str] = &["create", "get"];
const PROXIED: &[&str] = &["create", "delete", "get", "patch", "update"];

const fn connection(
    name: &'static str,
    verbs: &'static [&'static str],
    options: &'static str,
) -> Subresource {
    part(name, verbs, Some(core(options)))
}

/// The subresources of built-in resources besides `status`.
const BUILT_IN: &[(&str, &str, &[Subresource])] = &[
    ("", "namespaces", &[Subresource::FINALIZE]),
    (
        "",
        "nodes",
        &[connection("proxy", PROXIED, "NodeProxyOptions")],
    ),
    (
        "",
        "pods",
        &[
            connection("attach", CONNECTED, "PodAttachOptions"),
            part("binding", &["create"], Some(BINDING)),
            part("ephemeralcontainers", CHANGED, None),
            part("eviction", &["create"], Some(EVICTION)),
            connection("exec", CONNECTED, "PodExecOptions"),
            part("log", &["get"], None),
            connection("portforward", CONNECTED, "PodPortForwardOptions"),
            connection("proxy", PROXIED, "PodProxyOptions"),
            part("resize", CHANGED, None),
        ],
    ),
    (
        "",
        "services",
        &[connection("proxy", PROXIED, "ServiceProxyOptions")],
    ),
    ("", "replicationcontrollers", &[Subresource::SCALE]),
    (
        "",
        "serviceaccounts",
        &[part("token", &["create"], Some(TOKEN_REQUEST))],
    ),
    ("apps", "deployments", &[Subresource::SCALE]),
    ("apps", "replicasets", &[Subresource::SCALE]),
    ("apps", "statefulsets", &[Subresource::SCALE]),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        &[part("approval", CHANGED, None)],
    ),
];

/// Returns the subresources of a built-in resource, sorted by name as in discovery.
pub(crate) fn of_builtin(group: &str, plural: &str, has_status: bool) -> Vec<Subresource> {
    let row = BUILT_IN
        .iter()
        .find(|(g, p, _)| (*g, *p) == (group, plural));
    let mut all = row.map(|(_, _, parts)| parts.to_vec()).unwrap_or_default();
    if has_status {
        all.push(Subresource::STATUS);
    }
    all.sort_by_key(|part| part.name);
    all
}

/// The resources that are created and never stored, such as reviews: group, plural, kind, and whether they are
/// namespaced.
const VIRTUAL_RESOURCES: &[(&str, &str, &str, bool)] = &[
    ("", "bindings", "Binding", true),
    (
        "authentication.k8s.io",
        "selfsubjectreviews",
        "SelfSubjectReview",
        false,
    ),
    (
        "authentication.k8s.io",
        "tokenreviews",
        "TokenReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "localsubjectaccessreviews",
        "LocalSubjectAccessReview",
        true,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "subjectaccessreviews",
        "SubjectAccessReview",
        false,
    ),
];

/// Returns true for the kind of a virtual resource, or one of the kinds that no resource has.
pub(crate) fn is_virtual_kind(group: &str, version: &str, kind: &str) -> bool {
    let common = ["DeleteOptions", "List", "Status"];
    let mut resources = VIRTUAL_RESOURCES.iter();
    let is = |of: &str, known: &str| (of, known) == (group, kind);
    version == "v1"
        && (resources.any(|(of, _, known, _)| is(of, known))
            || group.is_empty() && common.contains(&kind))
}

/// Returns the resources that are created and never stored.
pub(super) fn virtual_resources(is_known_kind: IsKnownKind) -> Vec<Arc<Resource>> {
    let resource = |&(group, plural, kind, namespaced): &(&str, &str, &str, bool)| {
        Arc::new(Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced,
            subresources: Vec::new(),
            verbs: vec!["create".to_owned()],
            storage_prefix: String::new(),
            columns: Arc::default(),
            triggers: Vec::new(),
            strategy: Arc::new(Builtin::new(
                (group, "v1", plural),
                Rules::DEFAULT,
                is_known_kind,
                Arc::new(Plain),
            )),
        })
    };
    VIRTUAL_RESOURCES.iter().map(resource).collect()
}

/// Inserts the virtual resources into the list of `stored` resources. Groups that have only virtual resources precede
/// `autoscaling`, as in upstream's discovery.
pub(crate) fn among(
    stored: &[Arc<Resource>],
    virtual_resources: &[Arc<Resource>],
) -> Vec<Arc<Resource>> {
    let after = stored.iter().position(|r| r.group == "autoscaling");
    let (before, after) = stored.split_at(after.unwrap_or(stored.len()));
    let (core, others): (Vec<_>, Vec<_>) = virtual_resources
        .iter()
        .cloned()
        .partition(|r| r.group.is_empty());
    [&core, before, &others, after].concat()
}

/// Handles the POST requests to the subresources of built-in resources and to reviews.
#[derive(Debug)]
pub(super) struct Posts;

#[async_trait]
impl PostHandler for Posts {
    async fn post(
        &self,
        registry: &Registry,
        target: &Target,
        body: Value,
        options: &WriteOptions,
        tokens: &TokenAuthenticator,
    ) -> Result<Posted, ApiError> {
        let resource = &target.resource;
        match (&*resource.plural, target.subresource.as_deref()) {
            ("bindings", None) | ("pods", Some("binding")) => {
                let body = registry.admitted_post(target, body, options).await?;
                let bound = binding::bind(registry, target, &body, options).await;
                bound.map(|status| Posted::Status(Box::new(status)))
            }
            ("pods", Some("eviction")) => {
                let body = registry.admitted_post(target, body, options).await?;
                let evicted = eviction::evict(registry, target, &body, options).await;
                evicted.map(|status| Posted::Status(Box::new(status)))
            }
            ("serviceaccounts", Some("token")) => {
                let made = token::request(registry, tokens, target, body, options).await;
                made.map(Posted::Object)
            }
            ("tokenreviews", None) => {
                let body = registry.admitted_post(target, body, options).await?;
                let reviewed = token::review(registry, tokens, target, body, options).await;
                reviewed.map(Posted::Object)
            }
            (_, None) => {
                let body = registry.admitted_post(target, body, options).await?;
                let reviewed = reviews::review(&**registry.authorizer(), target, body, options);
                reviewed.await.map(Posted::Object)
            }
            (_, Some(name)) => Err(ApiError::MethodNotAllowed(format!(
                "{} has no subresource {name:?} with the verb create",
                resource.qualified()
            ))),
        }
    }
}
