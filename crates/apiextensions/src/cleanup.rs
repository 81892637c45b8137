//! The deletion of a definition: deletes its objects as a client would, and then removes the finalizer of the definition. The
//! finalizer ensures that another server, or this one after a restart, continues.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::conditions;
use super::conditions::{ESTABLISHED, TERMINATING};
use super::definition::Definition;
use super::definitions::{Definitions, definitions_resource};
use watchet_api::{
    DeleteOptions, ListOptions, Preconditions, PropagationPolicy, SelectionPredicate,
};
use watchet_cacher::ReadError;
use watchet_registry::{ApiError, Deleted, Registry, Target, metadata};
use watchet_registry::{Current, Edited, ObjectLocation};

const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The number of objects on a page of a pass, and the maximum number of concurrent deletes.
const PAGE: usize = 500;
const DELETES_MAX: usize = 32;

/// The first and the longest pause before the next pass. The pause doubles after each pass, because the finalizers of
/// objects may take long.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Starts a task that deletes the objects of a definition and then the definition. Each definition has its own task, because
/// its objects may be undecodable or have finalizers.
pub(super) fn start(registry: &Arc<Registry>, definitions: &Arc<Definitions>, name: &str) {
    if !definitions.cleanups.begin(name) {
        return;
    }
    let (registry, name) = (registry.clone(), name.to_owned());
    let state = definitions.clone();
    let token = registry.tasks().token();
    registry
        .tasks()
        .clone()
        .spawn("custom-resource-cleanup", async move {
            // The cleanup continues at the next start of a server.
            let cleaning = clean_up(&registry, &state, &name);
            token.run_until_cancelled(cleaning).await;
        });
}

/// Adds the finalizer and the condition `Terminating` to a definition, at its first delete.
pub(crate) fn begin(object: &mut Value) {
    if metadata::is_terminating(object) {
        return;
    }
    if !metadata::finalizers(object).contains(&FINALIZER) {
        match object["metadata"]["finalizers"].as_array_mut() {
            Some(list) => list.push(FINALIZER.into()),
            None => object["metadata"]["finalizers"] = json!([FINALIZER]),
        }
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will be \
                   initiated soon";
    terminating(object, "True", "InstanceDeletionPending", message);
}

fn terminating(object: &mut Value, status: &str, reason: &str, message: &str) {
    let now = metadata::now().to_string();
    conditions::set(object, TERMINATING, status, reason, message, &now);
}

/// Runs passes over a definition until its cleanup is complete.
async fn clean_up(registry: &Registry, definitions: &Definitions, name: &str) {
    let cleanup = &definitions.cleanups;
    let mut wait = RETRY_MIN;
    loop {
        let turn = cleanup.passes.acquire().await;
        cleanup.begin_pass(name);
        let cleaned = clean(registry, name).await;
        drop(turn.expect("the semaphore is never closed"));
        match cleaned {
            Ok(true) if cleanup.end(name) => return,
            Ok(true) => {
                wait = RETRY_MIN;
                continue;
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(name, %error, "cannot clean up a definition yet"),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY_MAX);
    }
}

/// Runs one pass over a definition. Returns true if its cleanup is complete.
async fn clean(registry: &Registry, name: &str) -> Result<bool, ApiError> {
    let location = ObjectLocation::new(&definitions_resource(registry), None, name)?;
    let current = match registry.read_stored(&location).await {
        Ok(current) => current,
        Err(error) if error.is_not_found() => return Ok(true),
        Err(error) => return Err(error),
    };
    let uid = metadata::text(&current.value, "uid").to_owned();
    if !is_being_cleaned(&current.value, &uid) {
        return Ok(true);
    }
    let (reason, message) = if is(&current.value, ESTABLISHED) || is_served(registry, &current) {
        let message = "CustomResource deletion is in progress";
        set_progress(
            registry,
            &location,
            &uid,
            "InstanceDeletionInProgress",
            message,
        )
        .await?;
        if !delete_objects(registry, &location, &current).await? {
            return Ok(false);
        }
        ("InstanceDeletionCompleted", "removed all instances")
    } else {
        ("NeverEstablished", "resource was never established")
    };
    let finish = |object: &mut Value| {
        if !is_being_cleaned(object, &uid) {
            return Edited::Store;
        }
        terminating(object, "False", reason, message);
        if let Some(list) = object["metadata"]["finalizers"].as_array_mut() {
            list.retain(|finalizer| finalizer != FINALIZER);
        }
        match metadata::finalizers(object).is_empty() {
            true => Edited::Delete,
            false => Edited::Store,
        }
    };
    registry.edit_metadata_and_status(&location, finish).await?;
    Ok(true)
}

/// Returns true if `definition` has this uid and its cleanup is not complete. Another server may have completed it, and a
/// client may have created a new definition with the same name.
fn is_being_cleaned(definition: &Value, uid: &str) -> bool {
    metadata::text(definition, "uid") == uid
        && metadata::is_terminating(definition)
        && metadata::finalizers(definition).contains(&FINALIZER)
}

fn is(definition: &Value, condition: &str) -> bool {
    let all = definition["status"]["conditions"].as_array();
    all.into_iter()
        .flatten()
        .any(|c| c["type"] == condition && c["status"] == "True")
}

/// Returns true if this server serves the resource of a definition. The server serves it before the status says so, so
/// objects may already exist.
fn is_served(registry: &Registry, definition: &Current) -> bool {
    let read = Definition::deserialize(&definition.value);
    let prefix = read.map(|definition| definition.storage_prefix());
    let served = prefix.ok().and_then(|prefix| registry.resource_at(&prefix));
    // A definition whose names are those of a built-in resource does not define the objects of that resource.
    served.is_some_and(|resource| !resource.is_builtin())
}

/// Sets the reason and message of the condition `Terminating`.
async fn set_progress(
    registry: &Registry,
    location: &ObjectLocation,
    uid: &str,
    reason: &str,
    message: &str,
) -> Result<(), ApiError> {
    let edit = |object: &mut Value| {
        if is_being_cleaned(object, uid) {
            terminating(object, "True", reason, message);
        }
        Edited::Store
    };
    registry.edit_metadata_and_status(location, edit).await
}

/// Deletes the objects of a definition. Returns true if it found none: only such a pass proves that none is left.
async fn delete_objects(
    registry: &Registry,
    location: &ObjectLocation,
    definition: &Current,
) -> Result<bool, ApiError> {
    let uid = metadata::text(&definition.value, "uid");
    let read = Definition::deserialize(&definition.value)
        .map_err(|error| ReadError::Undecodable(error.to_string()))?;
    // Finds the resource by its storage prefix, because any version may be served.
    let Some(resource) = registry.resource_at(&read.storage_prefix()) else {
        // Either the definition is established and about to be served, or it has no versions and no object of it was
        // ever stored.
        return Ok(read.spec.versions.is_empty());
    };
    let mut options = ListOptions {
        limit: PAGE,
        ..ListOptions::default()
    };
    let mut found = false;
    loop {
        // The stored form is sufficient: names and uids need no conversion.
        let cache = registry.cache(&resource)?;
        let list = cache.list(&SelectionPredicate::default(), &options).await?;
        found |= !list.items.is_empty();
        // The objects that were listed while the definition existed belong to it. Deletes by uid do not affect later
        // objects.
        if !is_being_cleaned(&registry.read_stored(location).await?.value, uid) {
            return Ok(false);
        }
        let deletes = list.items.into_iter().map(|object| {
            let key = object.key();
            let target = Target {
                resource: resource.clone(),
                namespace: resource.namespaced.then(|| key.namespace().to_owned()),
                name: key.name().to_owned(),
                subresource: None,
            };
            delete_one(registry, target, object.uid().to_owned())
        });
        let mut deletes = futures_util::stream::iter(deletes).buffer_unordered(DELETES_MAX);
        while let Some(deleted) = deletes.next().await {
            deleted?;
        }
        match list.continue_token {
            Some(token) => options.continue_token = Some(token),
            None => return Ok(!found),
        }
    }
}

async fn delete_one(registry: &Registry, target: Target, uid: String) -> Result<(), ApiError> {
    let options = DeleteOptions {
        preconditions: Some(Preconditions {
            uid: Some(uid),
            ..Preconditions::default()
        }),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteOptions::default()
    };
    match registry.delete(&target, &options).await {
        Ok(
            Deleted::Immediately(_)
            | Deleted::LastState(_)
            | Deleted::Pending(_)
            | Deleted::Corrupt,
        ) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}
