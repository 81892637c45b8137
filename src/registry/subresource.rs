//! Subresources: parts of an object that have a path of their own, as data, and the responses to requests for them.

use std::sync::Arc;

use serde_json::Value;

use super::{ApiError, Registry, Resource, Target, guaranteed_update, scale};
use crate::api::{ColumnSet, EventType, GetOptions, Object, ObjectKey, ResourceVersion, Status};

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

const SCALE: BodyKind = BodyKind {
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
};

/// The verbs of a subresource that is written like the object itself.
pub(crate) const CHANGED: &[&str] = &["get", "patch", "update"];

/// Returns a subresource of this name.
pub(crate) const fn part(
    name: &'static str,
    verbs: &'static [&'static str],
    body: Option<BodyKind>,
) -> Subresource {
    Subresource { name, verbs, body }
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

/// What a POST that stores no object of its kind came to.
#[derive(Debug, Clone)]
pub enum Posted {
    /// An answer to what was asked.
    Answer(Arc<Object>),
    /// What was asked for is done.
    Done(Box<Status>),
}

/// The object as a client is shown it who asks for the subresource of `target`.
pub(crate) fn shown(target: &Target, object: Arc<Object>) -> Result<Arc<Object>, ApiError> {
    match scale::is_of(target) {
        true => scale::shown(target, &object),
        false => Ok(object),
    }
}

/// An object that is stored nowhere, as an answer.
pub(crate) fn answer(target: &Target, value: &Value) -> Result<Arc<Object>, ApiError> {
    answer_at(target, value, ResourceVersion::ZERO)
}

/// The same of what is part of an object that is stored at `at`.
pub(crate) fn answer_at(
    target: &Target,
    value: &Value,
    at: ResourceVersion,
) -> Result<Arc<Object>, ApiError> {
    let key = match target.name.as_str() {
        "" => ObjectKey::new(target.namespace.as_deref(), "-"),
        name => ObjectKey::new(target.namespace.as_deref(), name),
    };
    let bytes = guaranteed_update::encode(value);
    let columns = ColumnSet::default();
    let object = Object::decode(key, at, EventType::Modified, &bytes, &columns)?;
    Ok(Arc::new(object))
}

/// Says why the subresource cannot be reached, of an object that there is.
pub(crate) async fn connect(registry: &Registry, target: &Target) -> ApiError {
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

impl Resource {
    /// What the bodies of requests are: its objects, or those of its subresource.
    pub fn of_bodies(self: &Arc<Self>, subresource: Option<&str>) -> Arc<Self> {
        let part = subresource.and_then(|name| self.subresource(name));
        let Some((part, body)) = part.and_then(|part| Some((part, part.body?))) else {
            return self.clone();
        };
        let strategy = self.strategy.body_strategy();
        Arc::new(Self {
            group: body.group.to_owned(),
            version: body.version.to_owned(),
            kind: body.kind.to_owned(),
            plural: part.name.to_owned(),
            strategy: strategy.unwrap_or_else(|| self.strategy.clone()),
            ..Self::clone(self)
        })
    }
}

impl Target {
    /// See [`Resource::of_bodies`].
    pub(crate) fn of_bodies(&self) -> Arc<Resource> {
        self.resource.of_bodies(self.subresource.as_deref())
    }
}
