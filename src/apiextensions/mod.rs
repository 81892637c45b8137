//! Custom resources: what a CustomResourceDefinition makes the server serve. Definitions are objects
//! like others; `follow` watches them in their own cache, so that it makes no difference which server
//! took them in, judges their names and puts what they define into the registry's table.
//!
//! # Definitions
//!
//! - *Definition*: a CustomResourceDefinition. Its *versions* are resources of the registry that share
//!   a storage prefix, `<group>/<plural>`, and with that a cache.
//! - *Storage version*: the one that new objects are stored in.
//!
//! # Invariants
//!
//! 1. What is served is made from definitions as storage has them: never from a request's body.
//! 2. Whoever reads from this server that a definition is established can use what it defines here; and who
//!    was answered that it is written finds what it says in force.
//! 3. A definition goes after its objects: one of that name that comes later finds none.
//! 4. What is written is decided by the definition that is served when it is stored (`writes`, which says how
//!    far that goes with several servers).

mod batches;
mod checks;
mod cleanup;
mod columns;
mod conditions;
mod converted;
mod definition;
mod follow;
mod json_path;
mod resources;
mod review;
mod schema;
mod structural;
mod versions;
mod write_barrier;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use self::columns::Printer;
pub use self::definition::Scale;
use self::schema::Schema;
use self::write_barrier::Writes;
use crate::api::{EventType, Object, ResourceVersion};
use crate::cacher::{ReadError, StoredTransform as _};
use crate::registry::error::Causes;
use crate::registry::guaranteed_update::{Change, Current, Decide, Place};
use crate::registry::{ApiError, Registry, Resource};
use crate::schema::KindType;

pub(crate) use self::cleanup::begin as begin_deletion;
pub(crate) use self::definition::prepare_create as prepare_definition_create;
pub(crate) use self::definition::prepare_update as prepare_definition_update;
pub(crate) use self::versions::{ConversionError, Versions};
pub(crate) use self::write_barrier::UnderWay;

/// How long a server that starts waits for the definitions that storage has; as long as a cache that
/// fills itself may take.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// How long whoever wrote a definition waits for it to be served.
const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// What a custom resource is besides what every resource is.
#[derive(Debug)]
pub struct Custom {
    /// Its definition is being deleted: nothing new may come.
    pub(crate) terminating: bool,
    /// What to tell those who use a version that is going away.
    pub deprecation: Option<String>,
    /// Where its objects keep their scale, if the version has one.
    pub scale: Option<Scale>,
    /// Which of its definition's versions it is, counted from 1: they share a cache, and what is made of
    /// its events is kept by this.
    pub ordinal: u32,
    /// Whether clients can ask for it. One that is not served is known when objects are stored in it.
    pub(crate) served: bool,
    /// Whether objects are stored in it.
    pub(crate) stores: bool,
    pub(crate) printer: Printer,
    /// It and its siblings.
    pub(crate) versions: Arc<Versions>,
    /// Whether storage may have objects of another version.
    converts: bool,
    /// The type of its objects, by its schema.
    pub(crate) kind: KindType,
    /// Its `openAPIV3Schema`, null if it has none, as the documents of OpenAPI show it.
    pub schema: Arc<Value>,
    /// The same, as objects are held to it.
    structure: Arc<Schema>,
    /// Those that were decided by all of this.
    writes: Writes,
}

/// What the registry knows of definitions as such.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// Every definition up to this version is served; none before those that storage had at the start are.
    served: watch::Sender<Option<ResourceVersion>>,
    cleanup: cleanup::Cleanup,
    /// What webhooks made of the objects of all of them.
    converted: Arc<converted::Shelf>,
}

/// Whether this is the resource of definitions.
pub(crate) fn is_definitions(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "customresourcedefinitions")
}

/// Whether stored bytes are of the resource's own version. What this server writes, and others do, begins
/// with it; it is right to say no.
pub(crate) fn is_in_version(resource: &Resource, body: &[u8]) -> bool {
    let beginning = format!(r#"{{"apiVersion":"{}","#, resource.api_version());
    resource.custom.is_some() && body.starts_with(beginning.as_bytes())
}

/// Whether a webhook has to be asked how an object of a cache reads to clients of `resource`.
pub(crate) fn needs_a_webhook(resource: &Resource, body: &[u8]) -> bool {
    let custom = resource.custom.as_ref();
    custom.is_some_and(|custom| custom.versions.ask_a_webhook()) && !is_in_version(resource, body)
}

/// Whether objects of `resource` are shown under another name than they may be stored with, and nothing else
/// converts them.
pub(crate) fn is_renamed(resource: &Resource) -> bool {
    let custom = resource.custom.as_ref();
    custom.is_some_and(|custom| custom.converts && !custom.versions.ask_a_webhook())
}

/// What clients of `resource`, which [is renamed](is_renamed), see of a stored object.
pub(crate) fn renamed(resource: &Resource, object: Value) -> Value {
    match &resource.custom {
        Some(custom) => custom.versions.renamed(object, &resource.api_version()),
        None => object,
    }
}

/// The object of a write as the resource that is written sees it.
///
/// # Errors
/// It cannot be converted.
pub(crate) async fn current(
    resource: &Resource,
    mut current: Current,
) -> Result<Current, ApiError> {
    if let Some(custom) = &resource.custom {
        let mut value = current.value.clone();
        custom.versions.settle(&mut value);
        let as_it_is = value == current.value && value["apiVersion"] == custom.versions.stored_as();
        let converted = by_today(&custom.versions, converted(resource, value)).await?;
        let raw = std::mem::replace(&mut current.value, converted);
        current.raw = Some(raw).filter(|_| !as_it_is);
    }
    Ok(current)
}

/// `object`, which is of one of the versions of `resource`, as one of its own.
///
/// # Errors
/// It cannot be converted.
pub(crate) async fn converted(
    resource: &Resource,
    object: Value,
) -> Result<Value, ConversionError> {
    match &resource.custom {
        Some(custom) => {
            let to = resource.api_version();
            Ok(one(custom.versions.convert(vec![object], &to).await?))
        }
        None => Ok(object),
    }
}

/// `objects`, which are of one of the versions of `custom`, as ones of `api_version`: all of them or none.
///
/// # Errors
/// [`ApiError::NotServed`] when the definition says something else by now.
pub(crate) async fn converted_all(
    custom: &Custom,
    objects: Vec<Value>,
    api_version: &str,
) -> Result<Vec<Result<Value, ConversionError>>, ApiError> {
    let (versions, count) = (&custom.versions, objects.len());
    let converting = async { Ok(versions.convert(objects, api_version).await) };
    Ok(match by_today(versions, converting).await? {
        Ok(objects) => objects.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); count],
    })
}

/// What of an object that a client of `resource` wrote is stored; none: what it wrote.
///
/// # Errors
/// It cannot be converted.
pub(crate) async fn stored_form(
    resource: &Resource,
    object: &Value,
) -> Result<Option<Value>, ApiError> {
    match &resource.custom {
        Some(custom) if !custom.stores => {
            let to = custom.versions.stored_as();
            let converting = custom.versions.convert(vec![object.clone()], to);
            let converted = by_today(&custom.versions, converting).await?;
            Ok(Some(one(converted)))
        }
        _ => Ok(None),
    }
}

/// What was just stored as it reads; none: as it is.
pub(crate) fn reread(resource: &Resource, stored: &[u8]) -> Option<Vec<u8>> {
    let custom = resource.custom.as_ref()?;
    // What was filled by the schema of the version that it is stored in reads as it is.
    match custom.stores {
        true => None,
        false => custom.versions.transform(stored),
    }
}

/// Objects of a cache as clients of `resource` see them.
///
/// # Errors
/// One of them cannot be converted.
pub(crate) async fn presented(
    resource: &Resource,
    objects: Vec<Arc<Object>>,
) -> Result<Vec<Arc<Object>>, ApiError> {
    let Some(versions) = asking_a_webhook(resource) else {
        return Ok(objects);
    };
    let objects = objects.into_iter().map(|o| (EventType::Added, o)).collect();
    by_today(versions, versions.present(resource, objects)).await
}

/// [`presented`], of one.
///
/// # Errors
/// As there.
pub(crate) async fn presented_one(
    resource: &Resource,
    object: Arc<Object>,
) -> Result<Arc<Object>, ApiError> {
    let Some(versions) = asking_a_webhook(resource) else {
        return Ok(object);
    };
    let objects = vec![(EventType::Added, object)];
    let presented = by_today(versions, versions.present(resource, objects)).await?;
    Ok(one(presented))
}

/// What comes of a conversion while its definition says who converts. Who waits for one that hangs has not
/// long to wait when it is replaced.
///
/// # Errors
/// The conversion's; [`ApiError::NotServed`] when the definition says something else by now.
async fn by_today<T>(
    versions: &Versions,
    converting: impl Future<Output = Result<T, ConversionError>>,
) -> Result<T, ApiError> {
    let converted = tokio::select! {
        // What is there first: most of it is kept, and right at the time that it was asked for.
        biased;
        converted = converting => converted,
        () = versions.outdated().cancelled() => return Err(ApiError::NotServed),
    };
    match converted {
        Err(_) if versions.outdated().is_cancelled() => Err(ApiError::NotServed),
        converted => Ok(converted?),
    }
}

fn asking_a_webhook(resource: &Resource) -> Option<&Arc<Versions>> {
    let versions = resource.custom.as_ref().map(|custom| &custom.versions)?;
    versions.ask_a_webhook().then_some(versions)
}

/// What comes of one.
fn one<T>(mut all: Vec<T>) -> T {
    all.pop().expect("a conversion answers each question")
}

/// Fills in what a definition or a custom resource's schema says of an object about to be written, and
/// drops what that does not know.
///
/// # Errors
/// 413 when what a schema says is too much.
pub(crate) fn fill(resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
    if let Some(custom) = &resource.custom {
        let filled = custom.structure.fill_all(object);
        filled.map_err(|too_many| ApiError::TooLarge(too_many.to_string()))?;
    }
    if is_definitions(resource) {
        definition::fill_in(object);
    }
    Ok(())
}

/// What a schema, or what definitions are, does not allow of an object; `old` is what it replaces.
///
/// # Errors
/// The server is shutting down.
pub(crate) async fn problems(
    registry: &Registry,
    resource: &Resource,
    old: Option<&Value>,
    object: &Value,
    causes: &mut Causes,
) -> Result<(), ApiError> {
    let custom = resource.custom.as_ref();
    let structure = custom.map(|custom| custom.structure.clone());
    if structure.is_none() && !is_definitions(resource) {
        return Ok(());
    }
    if let Some(structure) = structure
        .as_ref()
        .filter(|structure| !structure.has_rules())
    {
        schema::validate(structure, object, old, causes);
        return Ok(());
    }
    // Rules may take their budget's time, and a definition may have thousands of them to be compiled, which is
    // not the other requests' time.
    let (object, old) = (object.clone(), old.cloned());
    let judging = registry
        .tasks
        .spawn_blocking("custom-resource-checks", move || {
            let mut causes = Causes::default();
            match structure {
                Some(structure) => schema::validate(&structure, &object, old.as_ref(), &mut causes),
                None => checks::problems(&object, old.as_ref(), &mut causes),
            }
            causes
        });
    // It panics, which the group is told, or is not begun any more.
    let judged = judging.await.map_err(|_| ReadError::Stopped)?;
    judged
        .into_vec()
        .into_iter()
        .for_each(|cause| causes.push(cause));
    Ok(())
}

/// Refuses new objects of a definition that is being deleted.
///
/// # Errors
/// [`ApiError::MethodNotAllowed`].
pub(crate) fn check_creatable(resource: &Resource) -> Result<(), ApiError> {
    match &resource.custom {
        Some(custom) if custom.terminating => Err(ApiError::MethodNotAllowed(
            "create not allowed while custom resource definition is terminating".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Lets a write of `resource` that is decided go into storage; until what is returned is dropped it is waited
/// for by whoever changes what is served.
///
/// # Errors
/// [`ApiError::NotServed`]: the definition says something else since, and the write has to be decided again.
pub(crate) fn begin_write(resource: &Resource) -> Result<Option<UnderWay>, ApiError> {
    let custom = resource.custom.as_ref();
    custom.map(|custom| custom.writes.begin()).transpose()
}

/// Starts to serve what is defined, in tasks of the registry.
pub(crate) fn start(registry: &Arc<Registry>) {
    let tasks = &registry.tasks;
    tasks.spawn("custom-resources", follow::follow(registry.clone()));
}

/// Waits until what storage defines is served.
///
/// # Errors
/// [`ApiError::Timeout`] when storage does not tell in time.
pub(crate) async fn served(registry: &Registry) -> Result<(), ApiError> {
    wait_until_served(registry, ResourceVersion::ZERO).await
}

/// Waits until what storage defined at `version` is served.
///
/// # Errors
/// [`ApiError::Timeout`], and those of a cache that does not get there.
pub(crate) async fn served_up_to(
    registry: &Registry,
    version: ResourceVersion,
) -> Result<(), ApiError> {
    let changed = registry
        .changed_up_to(&follow::definitions(registry), version)
        .await?;
    // Of an etcd that cannot tell what is not told yet, what is there is all that is known.
    wait_until_served(registry, changed.unwrap_or_default()).await
}

/// After a write of `object`: when it is a definition, waits until that is what is served, so that who wrote it
/// finds its next request answered by it. What is written is written, served in time or not; other servers hear
/// of it when their watches tell them.
pub(crate) async fn settled(registry: &Registry, resource: &Resource, object: &Object) {
    if !is_definitions(resource) {
        return;
    }
    let at = object.resource_version();
    let mut served = registry.definitions.served.subscribe();
    let there = served.wait_for(|served| served.is_some_and(|served| served >= at));
    if tokio::time::timeout(SETTLED_WITHIN, there).await.is_err() {
        let name = object.key().name();
        tracing::warn!(name, %at, "a definition is not served yet as it was written");
    }
}

async fn wait_until_served(registry: &Registry, version: ResourceVersion) -> Result<(), ApiError> {
    let mut served = registry.definitions.served.subscribe();
    let there = served.wait_for(|served| served.is_some_and(|served| served >= version));
    match tokio::time::timeout(SERVED_WITHIN, there).await {
        Ok(Ok(_)) => Ok(()),
        // The sender lives in the registry, so only time can run out.
        _ => Err(ApiError::Timeout(format!(
            "the custom resource definitions were not read within {SERVED_WITHIN:?}"
        ))),
    }
}

/// A write of the server's own: what it makes of an object that is there.
struct Edit<'a, F> {
    place: &'a Place,
    edit: F,
}

impl<F: FnMut(&Value) -> Change + Send> Decide for Edit<'_, F> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let current = current.ok_or_else(|| self.place.not_found())?;
        Ok((self.edit)(&current.value))
    }
}

impl Registry {
    /// Changes the object at `place`, unless it is gone.
    async fn edit(
        &self,
        place: &Place,
        edit: impl FnMut(&Value) -> Change + Send,
    ) -> Result<(), ApiError> {
        let mut edit = Edit { place, edit };
        match self.guaranteed_write(place, false, &mut edit).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}
