//! Parts of objects that have a path of their own, and resources that are only questions: what there
//! is of both, as discovery tells it, and what is done with a POST to one. Parts that are written like
//! the whole object (`status`, `finalize`) are the business of the verbs and of `strategy`.

mod binding;
pub(super) mod certificates;
mod conditions;
mod eviction;
pub(super) mod pods;
mod reviews;
pub(super) mod scale;
mod token;

use std::sync::Arc;

use serde_json::Value;

use super::{ApiError, Credentials, Registry, Resource, Target, metadata};
use crate::api::{
    ColumnSet, EventType, GetOptions, Object, ObjectKey, ResourceVersion, Status, WriteOptions,
};

/// A part of an object that has a path of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    /// `status`, …
    pub name: &'static str,
    /// As of [`Resource::verbs`].
    pub verbs: &'static [&'static str],
    /// What its bodies are, when they are no objects of the resource itself.
    pub body: Option<BodyKind>,
}

/// A kind, with its group and version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyKind {
    /// Empty for core.
    pub group: &'static str,
    /// `v1`
    pub version: &'static str,
    /// `Scale`
    pub kind: &'static str,
}

impl BodyKind {
    const fn core(kind: &'static str) -> Self {
        Self {
            group: "",
            version: "v1",
            kind,
        }
    }
}

const SCALE: BodyKind = BodyKind {
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
};

const BINDING: BodyKind = BodyKind::core("Binding");
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

const CHANGED: &[&str] = &["get", "patch", "update"];
const CONNECTED: &[&str] = &["create", "get"];
const PROXIED: &[&str] = &["create", "delete", "get", "patch", "update"];

const fn part(
    name: &'static str,
    verbs: &'static [&'static str],
    body: Option<BodyKind>,
) -> Subresource {
    Subresource { name, verbs, body }
}

const fn connection(
    name: &'static str,
    verbs: &'static [&'static str],
    options: &'static str,
) -> Subresource {
    part(name, verbs, Some(BodyKind::core(options)))
}

impl Subresource {
    /// What controllers report.
    pub const STATUS: Self = part("status", CHANGED, None);
    /// How many there are to be of what a controller makes.
    pub const SCALE: Self = part("scale", CHANGED, Some(SCALE));
    /// The finalizers of a namespace.
    pub const FINALIZE: Self = part("finalize", &["update"], None);

    /// Whether it is a way into a running container or process, of which there are none here.
    pub fn needs_kubelet(self) -> bool {
        matches!(
            self.name,
            "attach" | "exec" | "log" | "portforward" | "proxy"
        )
    }
}

/// What the built-ins have besides `status`.
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

/// The subresources of a built-in, by name as discovery lists them.
pub(super) fn of_builtin(group: &str, plural: &str, has_status: bool) -> Vec<Subresource> {
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

/// Questions and orders to the server: group, plural, kind, and whether they are asked in a namespace.
const QUESTIONS: &[(&str, &str, &str, bool)] = &[
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

/// Returns true if there is a question of this kind, or one of the kinds that no resource has.
pub(super) fn is_question(group: &str, version: &str, kind: &str) -> bool {
    let common = ["DeleteOptions", "List", "Status"];
    let mut questions = QUESTIONS.iter();
    let is = |of: &str, known: &str| (of, known) == (group, kind);
    version == "v1"
        && (questions.any(|(of, _, known, _)| is(of, known))
            || group.is_empty() && common.contains(&kind))
}

/// The resources that are created and never stored.
pub(super) fn questions() -> Vec<Arc<Resource>> {
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
            custom: None,
        })
    };
    QUESTIONS.iter().map(resource).collect()
}

/// The questions in their place among the `stored` resources: the groups that have nothing else come
/// before `autoscaling`, as upstream lists them.
pub(super) fn among(stored: &[Arc<Resource>], questions: &[Arc<Resource>]) -> Vec<Arc<Resource>> {
    let after = stored.iter().position(|r| r.group == "autoscaling");
    let (before, after) = stored.split_at(after.unwrap_or(stored.len()));
    let (core, others): (Vec<_>, Vec<_>) =
        questions.iter().cloned().partition(|r| r.group.is_empty());
    [&core, before, &others, after].concat()
}

/// What a POST that stores no object of its kind came to.
#[derive(Debug, Clone)]
pub enum Posted {
    /// An answer to what was asked.
    Answer(Arc<Object>),
    /// What was asked for is done.
    Done(Box<Status>),
}

/// Does or answers what a POST to a subresource or of a question asks for.
pub(super) async fn post(
    registry: &Registry,
    target: &Target,
    mut body: Value,
    options: &WriteOptions,
    credentials: &Credentials,
) -> Result<Posted, ApiError> {
    metadata::check_shape(&target.of_bodies(), &mut body)?;
    let resource = &target.resource;
    let namespace = target.namespace.as_deref();
    metadata::check_namespace(namespace.filter(|_| resource.namespaced), &mut body)?;
    match (&*resource.plural, target.subresource.as_deref()) {
        ("bindings", None) | ("pods", Some("binding")) => {
            let body = registry.admitted_part(target, body, options).await?;
            let bound = binding::bind(registry, target, &body, options).await;
            bound.map(|status| Posted::Done(Box::new(status)))
        }
        ("pods", Some("eviction")) => {
            let body = registry.admitted_part(target, body, options).await?;
            let evicted = eviction::evict(registry, target, &body, options).await;
            evicted.map(|status| Posted::Done(Box::new(status)))
        }
        ("serviceaccounts", Some("token")) => {
            let made = token::request(registry, credentials, target, body, options).await;
            made.map(Posted::Answer)
        }
        ("tokenreviews", None) => {
            let body = registry.admitted_part(target, body, options).await?;
            let told = token::review(registry, credentials, target, body).await;
            told.map(Posted::Answer)
        }
        (_, None) => {
            let body = registry.admitted_part(target, body, options).await?;
            reviews::answer(target, body, options).map(Posted::Answer)
        }
        (_, Some(name)) => Err(ApiError::MethodNotAllowed(format!(
            "{} has no subresource {name:?} with the verb create",
            resource.qualified()
        ))),
    }
}

/// Says why the subresource cannot be reached, of an object that there is.
pub(super) async fn connect(registry: &Registry, target: &Target) -> ApiError {
    let name = target.subresource.as_deref().unwrap_or_default();
    if let Err(error) = found(registry, target).await {
        return error;
    }
    let qualified = target.resource.qualified();
    ApiError::NotImplemented(format!(
        "{qualified} {:?}: {name} needs a kubelet, and there is none here: this server keeps objects \
         and runs no containers",
        target.name
    ))
}

/// Whether the object of which a subresource is asked for is there. A service's or a pod's may be named
/// with a scheme before and a port after it.
async fn found(registry: &Registry, target: &Target) -> Result<(), ApiError> {
    let name = match target.subresource.as_deref() {
        Some("proxy") => match target.name.split(':').collect::<Vec<_>>()[..] {
            [_, name, _] | [name, _] => name,
            _ => &target.name,
        },
        _ => &target.name,
    };
    let object = Target {
        name: name.to_owned(),
        ..target.clone()
    };
    registry.get(&object, GetOptions::default()).await.map(drop)
}

/// The object as a client is shown it who asks for the subresource of `target`.
pub(super) fn shown(target: &Target, object: Arc<Object>) -> Result<Arc<Object>, ApiError> {
    match scale::is_of(target) {
        true => scale::shown(target, &object),
        false => Ok(object),
    }
}

/// An object that is stored nowhere, as an answer.
pub(super) fn answer(target: &Target, value: &Value) -> Result<Arc<Object>, ApiError> {
    answer_at(target, value, ResourceVersion::ZERO)
}

/// The same of what is part of an object that is stored at `at`.
fn answer_at(target: &Target, value: &Value, at: ResourceVersion) -> Result<Arc<Object>, ApiError> {
    let key = match target.name.as_str() {
        "" => ObjectKey::new(target.namespace.as_deref(), "-"),
        name => ObjectKey::new(target.namespace.as_deref(), name),
    };
    let bytes = super::write::encode(value);
    let columns = ColumnSet::default();
    let object = Object::decode(key, at, EventType::Modified, &bytes, &columns)?;
    Ok(Arc::new(object))
}

impl Resource {
    /// What the bodies of requests are: its objects, or those of its subresource.
    pub fn of_bodies(self: &Arc<Self>, subresource: Option<&str>) -> Arc<Self> {
        let part = subresource.and_then(|name| self.subresource(name));
        let Some((part, body)) = part.and_then(|part| Some((part, part.body?))) else {
            return self.clone();
        };
        Arc::new(Self {
            group: body.group.to_owned(),
            version: body.version.to_owned(),
            kind: body.kind.to_owned(),
            plural: part.name.to_owned(),
            custom: None,
            ..Self::clone(self)
        })
    }
}

impl Target {
    /// See [`Resource::of_bodies`].
    pub(super) fn of_bodies(&self) -> Arc<Resource> {
        self.resource.of_bodies(self.subresource.as_deref())
    }
}
