//! Delete: immediately, after a grace period, or when the finalizers are removed; of one object or of all that a list
//! selects. Controllers complete the deletion of an object that is marked as being deleted.

use std::sync::Arc;

use futures_util::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::guaranteed_update::{Change, Current, Decide, Place, Written};
use super::strategy::Grace;
use super::{ApiError, Deleted, Registry, Resource, Target, metadata, namespaces, read};
use crate::api::{DeleteOptions, EventType, ListOptions, Object, PropagationPolicy, StatusCause};
use crate::cacher::ObjectList;
use crate::storage::{Outcome, Storage as _};

/// Page size of the list of a collection delete.
const COLLECTION_PAGE: usize = 10_000;

const UNSAFE_DELETE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// How many objects of a collection are deleted at once, so that a store that commits in groups can.
const COLLECTION_DELETES_MAX: usize = 16;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

pub(crate) async fn delete(
    registry: &Registry,
    target: &Target,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    run(registry, target, options, Asked::ToDelete).await
}

/// Deletes a pod of which those who may refuse have let its eviction be: nobody is asked again whether it may be
/// deleted, as upstream.
///
/// # Errors
/// Those of a delete that nobody refuses.
pub(crate) async fn delete_evicted(
    registry: &Registry,
    pod: &Target,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    run(registry, pod, options, Asked::ToEvict).await
}

/// What admission is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The delete.
    ToDelete,
    /// Something that it is part of, before.
    ToEvict,
}

async fn run(
    registry: &Registry,
    target: &Target,
    options: &DeleteOptions,
    asked: Asked,
) -> Result<Deleted, ApiError> {
    if let Some(subresource) = &target.subresource {
        return Err(ApiError::MethodNotAllowed(format!(
            "{}/{subresource} cannot be deleted",
            target.resource.qualified()
        )));
    }
    check_options(options)?;
    let place = Place::of(target)?;
    let resource = &target.resource;
    if options.ignore_store_read_error_with_cluster_breaking_potential {
        return delete_corrupt(registry, &place).await;
    }
    let silent = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
    let warning = resource.strategy.default_propagation_warning();
    if let Some(warning) = warning.filter(|_| silent) {
        options.warnings.add(warning.to_owned());
    }
    let dry_run = !options.dry_run.is_empty();
    let mut write = Deleting {
        registry,
        target,
        options,
        asked,
    };
    let written = registry
        .guaranteed_write(&place, dry_run, &mut write)
        .await?;
    if resource.strategy.rules().is_namespaces && !dry_run {
        let (Written::Deleted(object) | Written::Stored(object)) = &written;
        namespaces::note_deleted(registry, object)?;
    }
    Ok(match written {
        Written::Deleted(object) if resource.strategy.rules().returns_deleted_object => {
            Deleted::Last(object)
        }
        Written::Deleted(object) => Deleted::Gone(object),
        Written::Stored(object) => Deleted::Pending(object),
    })
}

/// A DELETE.
struct Deleting<'a> {
    registry: &'a Registry,
    target: &'a Target,
    options: &'a DeleteOptions,
    asked: Asked,
}

impl Decide for Deleting<'_> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let Target { resource, name, .. } = self.target;
        let current = current.ok_or_else(|| ApiError::not_found(resource, name))?;
        check_preconditions(resource, name, current, self.options)?;
        if self.asked == Asked::ToDelete {
            let admitted = self
                .registry
                .admit_delete(self.target, current, self.options);
            admitted.await?;
        }
        let now = metadata::now();
        Ok(decide(resource, &current.value, self.options, now))
    }
}

/// Deletes an object that cannot be decoded (KEP-3926), without its preconditions and finalizers, which cannot be decoded
/// either. An object that can be decoded is rejected, so that nothing is deleted this way by mistake (WC-075).
async fn delete_corrupt(registry: &Registry, place: &Place) -> Result<Deleted, ApiError> {
    let store = registry.store(&place.resource);
    loop {
        let (stored, _) = store.get(&place.storage_key).await?;
        let stored = stored.ok_or_else(|| place.not_found())?;
        let columns = &place.resource.columns;
        let at = stored.mod_revision;
        let key = place.key.clone();
        // What can be shown may still be nothing that a write can begin with.
        if Object::decode(key, at, EventType::Modified, &stored.value, columns).is_ok()
            && Current::stored(&stored).is_ok()
        {
            let why = "is exclusively used to delete corrupt object(s), try again by removing this \
                       option";
            return Err(ApiError::Invalid {
                group: place.resource.group.clone(),
                kind: place.resource.plural.clone(),
                name: place.name.clone(),
                causes: vec![StatusCause::invalid_flag(UNSAFE_DELETE, true, why)],
            });
        }
        // Whoever was faster has written something that can be read, or deleted it.
        if let Outcome::Done(_) = store.delete(&place.storage_key, at).await? {
            tracing::warn!(key = %place.storage_key, "an object that cannot be read was deleted");
            return Ok(Deleted::Unread);
        }
    }
}

/// Nothing that a delete may be told goes with the one that reads nothing.
fn check_unsafe_options(options: &DeleteOptions, causes: &mut Vec<StatusCause>) {
    if !options.ignore_store_read_error_with_cluster_breaking_potential {
        return;
    }
    for (given, other) in [
        (!options.dry_run.is_empty(), "dryRun"),
        (options.propagation_policy.is_some(), "propagationPolicy"),
        (options.orphan_dependents.is_some(), "orphanDependents"),
        (options.grace_period_seconds.is_some(), "gracePeriodSeconds"),
        (options.preconditions.is_some(), "preconditions"),
    ] {
        if given {
            let why = format!("cannot be set together with .{other}");
            causes.push(StatusCause::invalid_flag(UNSAFE_DELETE, true, &why));
        }
    }
}

/// WC-072 and its kind: options that contradict themselves.
fn check_options(options: &DeleteOptions) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    check_unsafe_options(options, &mut causes);
    if let (Some(policy), Some(_)) = (options.propagation_policy, options.orphan_dependents) {
        causes.push(StatusCause::invalid(
            "propagationPolicy",
            &format!("{policy:?}"),
            "orphanDependents and deletionPropagation cannot be both set",
        ));
    }
    if options.dry_run.iter().any(|value| value != "All") {
        let cause = StatusCause::none_supported("dryRun", &options.dry_run, &["All"]);
        causes.push(cause);
    }
    refuse(causes)
}

fn refuse(causes: Vec<StatusCause>) -> Result<(), ApiError> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid {
        group: "meta.k8s.io".to_owned(),
        kind: "DeleteOptions".to_owned(),
        name: String::new(),
        causes,
    })
}

/// WC-073
fn check_preconditions(
    resource: &Resource,
    name: &str,
    current: &Current,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let Some(preconditions) = &options.preconditions else {
        return Ok(());
    };
    let uid = metadata::text(&current.value, "uid");
    if let Some(wanted) = preconditions.uid.as_deref().filter(|w| *w != uid) {
        let detail = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The \
             object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(resource, name, detail));
    }
    let version = current.at.to_string();
    let wanted = preconditions.resource_version.as_deref();
    if let Some(wanted) = wanted.filter(|w| *w != version) {
        let detail = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the \
             ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(ApiError::conflict(resource, name, detail));
    }
    Ok(())
}

/// What a delete at `now` makes of an object.
pub(crate) fn decide(
    resource: &Resource,
    stored: &Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> Change {
    let mut object = stored.clone();
    let strategy = &resource.strategy;
    let grace = match strategy.grace(stored, options) {
        Grace::Pending => return Change::Put(object),
        Grace::Seconds(seconds) => seconds,
    };
    set_propagation_finalizers(resource, &mut object, options);
    strategy.begin_deletion(&mut object);
    let held = !metadata::finalizers(&object).is_empty() || strategy.has_finalizers(&object);
    if grace == 0 && !held {
        return Change::Delete(object);
    }
    mark(&mut object, grace, now);
    strategy.mark_terminating(&mut object);
    Change::Put(object)
}

/// Marks `object` as being deleted. A mark that is there keeps its time (WC-070), except that a
/// shorter grace counts from the moment of the first delete.
fn mark(object: &mut Value, grace: i64, now: Timestamp) {
    let first = !metadata::is_terminating(object);
    if first {
        metadata::bump_generation(object);
    }
    let metadata = &mut object["metadata"];
    let recorded = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let marked = metadata["deletionTimestamp"].as_str();
    let marked: Option<Timestamp> = marked.and_then(|text| text.parse().ok());
    let begun = match marked {
        Some(marked) => shifted(marked, -recorded),
        None => now,
    };
    metadata["deletionTimestamp"] = shifted(begun, grace).to_string().into();
    metadata["deletionGracePeriodSeconds"] = grace.into();
}

/// `time` and so many seconds; the end of time when there are not so many.
fn shifted(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(time)
}

/// Adds or removes the finalizers by which the dependents hold the object back.
fn set_propagation_finalizers(resource: &Resource, object: &mut Value, options: &DeleteOptions) {
    use PropagationPolicy::{Background, Foreground, Orphan};
    if !resource.strategy.rules().is_garbage_collected {
        return;
    }
    let has = |finalizer: &str| metadata::finalizers(object).contains(&finalizer);
    let policy = match (options.orphan_dependents, options.propagation_policy) {
        (Some(true), _) => Orphan,
        (Some(false), _) => Background,
        (None, Some(policy)) => policy,
        (None, None) if has(ORPHAN) => Orphan,
        (None, None) if has(FOREGROUND) => Foreground,
        (None, None) if resource.strategy.rules().orphans_by_default => Orphan,
        (None, None) => Background,
    };
    let wanted = match policy {
        Orphan => Some(ORPHAN),
        Foreground => Some(FOREGROUND),
        Background => None,
    };
    let ours = |f: &&str| matches!(*f, ORPHAN | FOREGROUND);
    let before: Vec<&str> = metadata::finalizers(object);
    if before.iter().copied().filter(|f| ours(f)).eq(wanted) {
        return;
    }
    let mut after: Vec<Value> = before
        .into_iter()
        .filter(|f| !ours(f))
        .map(Value::from)
        .collect();
    after.extend(wanted.map(Value::from));
    object["metadata"]["finalizers"] = after.into();
}

/// Deletes page by page; not atomic (WC-074).
pub(crate) async fn delete_collection(
    registry: &Registry,
    resource: &Arc<Resource>,
    namespace: Option<&str>,
    selection: &ListOptions,
    options: &DeleteOptions,
) -> Result<ObjectList, ApiError> {
    if !resource.verbs.iter().any(|verb| verb == "deletecollection") {
        return Err(ApiError::MethodNotAllowed(format!(
            "{} cannot be deleted as a collection",
            resource.qualified()
        )));
    }
    check_options(options)?;
    if options.ignore_store_read_error_with_cluster_breaking_potential {
        let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
        refuse(vec![StatusCause::invalid_flag(UNSAFE_DELETE, true, why)])?;
    }
    let mut page = selection.clone();
    // A client's own limit is how many it wants deleted, one page; without one it is everything.
    if page.limit == 0 {
        page.limit = COLLECTION_PAGE;
    }
    let mut deleted = Vec::new();
    loop {
        let list = read::list(registry, resource, namespace, &page).await?;
        let deletes = list.items.into_iter().map(|object| async move {
            let key = object.key();
            let target = Target {
                resource: resource.clone(),
                namespace: resource.namespaced.then(|| key.namespace().to_owned()),
                name: key.name().to_owned(),
                subresource: None,
            };
            match delete(registry, &target, options).await {
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
                Ok(_) => Ok(Some(object)),
            }
        });
        let mut deletes = futures_util::stream::iter(deletes).buffered(COLLECTION_DELETES_MAX);
        while let Some(gone) = deletes.next().await {
            deleted.extend(gone?);
        }
        match list.continue_token {
            Some(token) if selection.limit == 0 => {
                page.continue_token = Some(token);
                page.resource_version = None;
                page.resource_version_match = None;
            }
            continue_token => {
                return Ok(ObjectList {
                    resource_version: list.resource_version,
                    items: deleted,
                    continue_token,
                    remaining: list.remaining,
                });
            }
        }
    }
}
