//! The classes that objects get that name none, as upstream's admission gives them: of priority, of storage
//! and of ingresses, by what a class says of itself. Which number a class of priority stands for is told by
//! `priority`.

use serde_json::Value;

use super::{ApiError, Registry, Resource, Target, metadata, read};
use crate::api::{ListOptions, ResourceVersion};

/// Fills in the class of a new claim or ingress that names none.
///
/// # Errors
/// The classes cannot be read.
pub(super) async fn choose(
    registry: &Registry,
    target: &Target,
    object: &mut Value,
) -> Result<(), ApiError> {
    let (group, plural, member, annotations, marks): (_, _, _, _, &[&str]) = match &target.resource
    {
        r if r.is("", "persistentvolumeclaims") => (
            "storage.k8s.io",
            "storageclasses",
            "storageClassName",
            "volume.beta.kubernetes.io/storage-class",
            &[
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            ],
        ),
        r if r.is("networking.k8s.io", "ingresses") => (
            "networking.k8s.io",
            "ingressclasses",
            "ingressClassName",
            "kubernetes.io/ingress.class",
            &["ingressclass.kubernetes.io/is-default-class"],
        ),
        _ => return Ok(()),
    };
    let old_style = metadata::of(object)["annotations"]
        .get(annotations)
        .is_some();
    // The empty name is one too: it is for who wants none.
    if old_style
        || object["spec"]
            .get(member)
            .is_some_and(|name| !name.is_null())
    {
        return Ok(());
    }
    let classes = listed(registry, group, plural, SEEN).await?;
    let is_default = |class: &&Value| {
        let annotations = &metadata::of(class)["annotations"];
        marks.iter().any(|mark| annotations[*mark] == "true")
    };
    let created = |class: &Value| metadata::text(class, "creationTimestamp").to_owned();
    let name = |class: &Value| metadata::text(class, "name").to_owned();
    // Of several the newest, and of those the first by name.
    let chosen = classes.iter().filter(is_default).min_by(|one, other| {
        let newer = created(other).cmp(&created(one));
        newer.then_with(|| name(one).cmp(&name(other)))
    });
    if let Some(class) = chosen
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert(member.to_owned(), name(class).into());
    }
    Ok(())
}

/// The class of priority of pods that name none: of several that one with the least value.
///
/// # Errors
/// The classes cannot be read.
pub(super) async fn default_priority(registry: &Registry) -> Result<Option<Value>, ApiError> {
    let classes = listed(registry, "scheduling.k8s.io", "priorityclasses", SEEN).await?;
    let defaults = classes
        .into_iter()
        .filter(|class| class["globalDefault"] == true);
    Ok(defaults.min_by_key(|class| class["value"].as_i64()))
}

/// Refuses a class of priority that would be a second default.
///
/// # Errors
/// 403 when there is another; the classes cannot be read.
pub(super) async fn check_only_default(
    registry: &Registry,
    resource: &Resource,
    class: &Value,
) -> Result<(), ApiError> {
    let is_class = resource.is("scheduling.k8s.io", "priorityclasses");
    if !is_class || class["globalDefault"] != true {
        return Ok(());
    }
    let own = metadata::text(class, "name");
    let classes = listed(registry, "scheduling.k8s.io", "priorityclasses", None).await?;
    let mut others = classes
        .iter()
        .filter(|other| metadata::text(other, "name") != own);
    match others.find(|other| other["globalDefault"] == true) {
        None => Ok(()),
        Some(other) => {
            let name = metadata::text(other, "name");
            let why = format!(
                "PriorityClass {name} is already marked as default. Only one default can exist"
            );
            Err(ApiError::forbidden(resource, own, why))
        }
    }
}

/// What the cache has, as upstream's admission looks at it: a write does not wait for it.
const SEEN: Option<ResourceVersion> = Some(ResourceVersion::ZERO);

async fn listed(
    registry: &Registry,
    group: &str,
    plural: &str,
    at: Option<ResourceVersion>,
) -> Result<Vec<Value>, ApiError> {
    let resource = registry.resource(group, "v1", plural);
    let resource = resource.expect("the table has classes");
    let options = ListOptions {
        resource_version: at,
        ..ListOptions::default()
    };
    let list = read::list(registry, &resource, None, &options).await?;
    let values = list
        .items
        .iter()
        .map(|object| serde_json::from_slice(object.body_slice()));
    values
        .collect::<Result<_, _>>()
        .map_err(|error| crate::cacher::ReadError::Undecodable(error.to_string()).into())
}
