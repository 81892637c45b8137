//! Delete: immediately, after a grace period, or when the finalizers are removed; of one object or of all that a list
//! selects. Controllers complete the deletion of an object that is marked as being deleted.

use std::sync::Arc;

use futures_util::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::error::ApiError;
use super::guaranteed_update::{Change, Decide, WriteOutcome};
use super::location::ObjectLocation;
use super::registry::Registry;
use super::resource::Resource;
use super::rules::Grace;
use super::stored_form::Current;
use super::target::{Deleted, Target};
use super::unsafe_delete_authorization::authorize_unsafe_delete;
use super::{metadata, namespaces, read};
use watchet_api::{DeleteOptions, EventType, ListOptions, Object, PropagationPolicy, StatusCause};
use watchet_cacher::ObjectList;
use watchet_storage::{Outcome, Storage as _};

/// Page size of the list of a collection delete.
const COLLECTION_PAGE: usize = 10_000;

const UNSAFE_DELETE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// The number of concurrent deletes of a collection. Storage can commit them in groups.
const COLLECTION_DELETES_MAX: usize = 16;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Deletes an object, or marks it as being deleted.
pub(crate) async fn delete(
    registry: &Registry,
    target: &Target,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    run(registry, target, options, Admission::Required).await
}

/// Deletes a pod whose eviction the admission chain has admitted. As upstream, the delete itself is not admitted again.
///
/// # Errors
/// The errors of [`delete`] except those of admission.
pub(crate) async fn delete_evicted(
    registry: &Registry,
    pod: &Target,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    run(registry, pod, options, Admission::DoneByEviction).await
}

/// Specifies whether the admission chain must still admit the delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Required,
    /// The chain has admitted the eviction that includes the delete.
    DoneByEviction,
}

async fn run(
    registry: &Registry,
    target: &Target,
    options: &DeleteOptions,
    admission: Admission,
) -> Result<Deleted, ApiError> {
    if let Some(subresource) = &target.subresource {
        return Err(ApiError::MethodNotAllowed(format!(
            "{}/{subresource} cannot be deleted",
            target.resource.qualified()
        )));
    }
    check_options(options)?;
    let location = ObjectLocation::of(target)?;
    let resource = &target.resource;
    if options.ignore_store_read_error_with_cluster_breaking_potential {
        authorize_unsafe_delete(registry, target, options).await?;
        return delete_corrupt(registry, &location).await;
    }
    let has_no_policy = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
    let warning = resource.strategy.default_propagation_warning();
    if let Some(warning) = warning.filter(|_| has_no_policy) {
        options.warnings.add(warning.to_owned());
    }
    let dry_run = !options.dry_run.is_empty();
    let mut write = Deleting {
        registry,
        target,
        options,
        admission,
    };
    let written = registry
        .guaranteed_write(&location, dry_run, &mut write)
        .await?;
    if resource.strategy.rules().is_namespaces && !dry_run {
        let (WriteOutcome::Deleted(object) | WriteOutcome::Stored(object)) = &written;
        namespaces::record_deletion(registry, object)?;
    }
    Ok(match written {
        WriteOutcome::Deleted(object) if resource.strategy.rules().returns_deleted_object => {
            Deleted::LastState(object)
        }
        WriteOutcome::Deleted(object) => Deleted::Immediately(object),
        WriteOutcome::Stored(object) => Deleted::Pending(object),
    })
}

/// A DELETE.
struct Deleting<'a> {
    registry: &'a Registry,
    target: &'a Target,
    options: &'a DeleteOptions,
    admission: Admission,
}

impl Decide for Deleting<'_> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let Target { resource, name, .. } = self.target;
        let current = current.ok_or_else(|| ApiError::not_found(resource, name))?;
        check_preconditions(resource, name, current, self.options)?;
        if self.admission == Admission::Required {
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
async fn delete_corrupt(
    registry: &Registry,
    location: &ObjectLocation,
) -> Result<Deleted, ApiError> {
    let store = registry.store(&location.resource);
    loop {
        let (stored, _) = store.get(&location.storage_key).await?;
        let stored = stored.ok_or_else(|| location.not_found())?;
        let columns = &location.resource.columns;
        let at = stored.mod_revision;
        let key = location.key.clone();
        // An object that can be read may still be impossible to update.
        if Object::decode(key, at, EventType::Modified, &stored.value, columns).is_ok()
            && Current::stored(&stored).is_ok()
        {
            let why = "is exclusively used to delete corrupt object(s), try again by removing this \
                       option";
            return Err(ApiError::Invalid {
                group: location.resource.group.clone(),
                kind: location.resource.plural.clone(),
                name: location.name.clone(),
                causes: vec![StatusCause::invalid_flag(UNSAFE_DELETE, true, why)],
            });
        }
        // A conflicting write has stored an object that can be decoded, or has deleted the object.
        if let Outcome::Done(_) = store.delete(&location.storage_key, at).await? {
            tracing::warn!(key = %location.storage_key, "deleted an object that cannot be decoded");
            return Ok(Deleted::Corrupt);
        }
    }
}

/// Adds the problems of options that cannot be combined with the deletion of a corrupt object.
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

/// Checks for options that contradict each other (WC-072).
///
/// # Errors
/// 422
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
    reject_if_any(causes)
}

/// Returns an error if there are `causes`.
fn reject_if_any(causes: Vec<StatusCause>) -> Result<(), ApiError> {
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

/// Checks the uid and the resourceVersion of the preconditions (WC-073).
///
/// # Errors
/// 409 if they differ from those of the object.
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
    if let Some(expected) = preconditions
        .uid
        .as_deref()
        .filter(|expected| *expected != uid)
    {
        let detail = format!(
            "the UID in the precondition ({expected}) does not match the UID in record ({uid}). The \
             object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(resource, name, detail));
    }
    let version = current.at.to_string();
    let expected = preconditions.resource_version.as_deref();
    if let Some(expected) = expected.filter(|expected| *expected != version) {
        let detail = format!(
            "the ResourceVersion in the precondition ({expected}) does not match the \
             ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(ApiError::conflict(resource, name, detail));
    }
    Ok(())
}

/// Returns the change that a delete at `now` makes to an object.
pub fn decide(
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
    let has_finalizers =
        !metadata::finalizers(&object).is_empty() || strategy.has_finalizers(&object);
    if grace == 0 && !has_finalizers {
        return Change::Delete(object);
    }
    mark(&mut object, grace, now);
    strategy.mark_terminating(&mut object);
    Change::Put(object)
}

/// Marks `object` as being deleted. An object that is marked already keeps its time (WC-070), except that a shorter grace
/// period counts from the time of the first delete.
fn mark(object: &mut Value, grace: i64, now: Timestamp) {
    let first = !metadata::is_terminating(object);
    if first {
        metadata::bump_generation(object);
    }
    let metadata = &mut object["metadata"];
    let recorded = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let marked = metadata["deletionTimestamp"].as_str();
    let marked: Option<Timestamp> = marked.and_then(|text| text.parse().ok());
    let start = match marked {
        Some(marked) => shifted(marked, -recorded),
        None => now,
    };
    metadata["deletionTimestamp"] = shifted(start, grace).to_string().into();
    metadata["deletionGracePeriodSeconds"] = grace.into();
}

/// Returns `time` plus `seconds`, saturating at the ends of the range.
fn shifted(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(time)
}

/// Sets the finalizers that the garbage collector removes, by the propagation policy.
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
    let finalizer = match policy {
        Orphan => Some(ORPHAN),
        Foreground => Some(FOREGROUND),
        Background => None,
    };
    let is_propagation = |f: &&str| matches!(*f, ORPHAN | FOREGROUND);
    let before: Vec<&str> = metadata::finalizers(object);
    if before
        .iter()
        .copied()
        .filter(|f| is_propagation(f))
        .eq(finalizer)
    {
        return;
    }
    let mut after: Vec<Value> = before
        .into_iter()
        .filter(|f| !is_propagation(f))
        .map(Value::from)
        .collect();
    after.extend(finalizer.map(Value::from));
    object["metadata"]["finalizers"] = after.into();
}

/// Deletes the objects that a list selects, page by page; not atomic (WC-074).
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
        reject_if_any(vec![StatusCause::invalid_flag(UNSAFE_DELETE, true, why)])?;
    }
    let mut page = selection.clone();
    // With a limit the request deletes one page of that size, otherwise everything.
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
        while let Some(object) = deletes.next().await {
            deleted.extend(object?);
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
