//! The end of a definition: its objects are deleted, each as a client would delete it, and when none is
//! left the definition goes. A finalizer holds it until then, so that whatever happens to this server
//! another one, or this one after a restart, goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::conditions;
use super::conditions::{ESTABLISHED, TERMINATING};
use super::definition::Definition;
use super::follow::definitions;
use super::{Definitions, write_edited};
use crate::api::{
    DeleteOptions, ListOptions, Preconditions, PropagationPolicy, SelectionPredicate,
};
use crate::cacher::ReadError;
use crate::registry::{ApiError, Deleted, Registry, Target, metadata};
use crate::registry::{Change, Current, ObjectLocation};

const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// How many objects a pass lists at once, and how many of them it deletes at once.
const PAGE: usize = 500;
const DELETES_MAX: usize = 32;

/// How soon what was not empty yet is looked at again; the wait doubles up to the second value, because
/// the objects' own finalizers may take their time.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// How many definitions are looked at at once. One that waits for a webhook keeps its place for half a minute.
const PASSES_MAX: usize = 64;

/// The definitions that are being deleted.
#[derive(Debug)]
pub(super) struct Cleanup {
    /// Those that have a task, which are no more than there are; and whether one was begun once more since its
    /// last pass began.
    names: Mutex<BTreeMap<String, bool>>,
    passes: Semaphore,
}

impl Default for Cleanup {
    fn default() -> Self {
        Self {
            names: Mutex::default(),
            passes: Semaphore::new(PASSES_MAX),
        }
    }
}

impl Cleanup {
    /// Notes that the definition of this name is being deleted; whether nobody is at it.
    fn begin(&self, name: &str) -> bool {
        let mut names = self.names.lock();
        names.insert(name.to_owned(), true).is_none()
    }

    fn begin_pass(&self, name: &str) {
        self.names.lock().insert(name.to_owned(), false);
    }

    /// Notes that a pass found nothing to do; whether that is all. Another definition of that name may have
    /// come and begun to go since.
    fn end(&self, name: &str) -> bool {
        let mut names = self.names.lock();
        let again = names.get(name).copied().unwrap_or_default();
        if !again {
            names.remove(name);
        }
        !again
    }
}

/// Has a definition's objects deleted, and then itself, in a task of its own: its objects may be such that
/// nobody can read, or delete, which is not the other definitions' business.
pub(super) fn start(registry: &Arc<Registry>, definitions: &Arc<Definitions>, name: &str) {
    if !definitions.cleanup.begin(name) {
        return;
    }
    let (registry, name) = (registry.clone(), name.to_owned());
    let state = definitions.clone();
    let token = registry.tasks().token();
    registry
        .tasks()
        .clone()
        .spawn("custom-resource-cleanup", async move {
            // What is left when the server stops is found again at the next start.
            let cleaning = clean_up(&registry, &state, &name);
            token.run_until_cancelled(cleaning).await;
        });
}

/// What the first delete makes of a definition before it is marked: something to wait for.
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

/// Passes over a definition, until there is nothing more to do about it.
async fn clean_up(registry: &Registry, definitions: &Definitions, name: &str) {
    let cleanup = &definitions.cleanup;
    let mut wait = RETRY_MIN;
    loop {
        let turn = cleanup.passes.acquire().await;
        cleanup.begin_pass(name);
        let cleaned = clean(registry, name).await;
        drop(turn.expect("nobody closes it"));
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

/// One pass over a definition: whether there is nothing more to do about it.
async fn clean(registry: &Registry, name: &str) -> Result<bool, ApiError> {
    let location = ObjectLocation::new(&definitions(registry), None, name)?;
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
        say(
            registry,
            &location,
            &uid,
            "InstanceDeletionInProgress",
            message,
        )
        .await?;
        if !empty(registry, &location, &current).await? {
            return Ok(false);
        }
        ("InstanceDeletionCompleted", "removed all instances")
    } else {
        ("NeverEstablished", "resource was never established")
    };
    let finish = |current: &Value| {
        let mut object = current.clone();
        if !is_being_cleaned(current, &uid) {
            return Change::Put(object);
        }
        terminating(&mut object, "False", reason, message);
        if let Some(list) = object["metadata"]["finalizers"].as_array_mut() {
            list.retain(|finalizer| finalizer != FINALIZER);
        }
        match metadata::finalizers(&object).is_empty() {
            true => Change::Delete(object),
            false => Change::Put(object),
        }
    };
    write_edited(registry, &location, finish).await?;
    Ok(true)
}

/// Whether this is the definition of that uid, and not yet through. Another server may have been faster,
/// and somebody may have made it anew since.
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

/// Whether this server serves what it defines: it does so before the status says it, and objects may be
/// there.
fn is_served(registry: &Registry, definition: &Current) -> bool {
    let read = Definition::deserialize(&definition.value);
    let prefix = read.map(|definition| definition.storage_prefix());
    let served = prefix.ok().and_then(|prefix| registry.resource_at(&prefix));
    // A definition that wanted the names of a built-in resource defines none of its objects.
    served.is_some_and(|resource| !resource.is_builtin())
}

async fn say(
    registry: &Registry,
    location: &ObjectLocation,
    uid: &str,
    reason: &str,
    message: &str,
) -> Result<(), ApiError> {
    let edit = |current: &Value| {
        let mut object = current.clone();
        if is_being_cleaned(current, uid) {
            terminating(&mut object, "True", reason, message);
        }
        Change::Put(object)
    };
    write_edited(registry, location, edit).await
}

/// Deletes what there is of a definition: whether there was nothing. Only a pass that finds nothing
/// proves that nothing is left.
async fn empty(
    registry: &Registry,
    location: &ObjectLocation,
    definition: &Current,
) -> Result<bool, ApiError> {
    let uid = metadata::text(&definition.value, "uid");
    let read = Definition::deserialize(&definition.value)
        .map_err(|error| ReadError::Undecodable(error.to_string()))?;
    // By where they are stored, whatever version of them is served.
    let Some(resource) = registry.resource_at(&read.storage_prefix()) else {
        // It is established, and will be followed in a moment; or it has no versions at all, and nothing of
        // it was ever stored by its rules.
        return Ok(read.spec.versions.is_empty());
    };
    let mut options = ListOptions {
        limit: PAGE,
        ..ListOptions::default()
    };
    let mut found = false;
    loop {
        // As they are stored: a name and a uid need no conversion.
        let cache = registry.cache(&resource)?;
        let list = cache.list(&SelectionPredicate::default(), &options).await?;
        found |= !list.items.is_empty();
        // What was listed while the definition was there is its own, and goes by its uid.
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
        Ok(Deleted::Gone(_) | Deleted::Last(_) | Deleted::Pending(_) | Deleted::Unread) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A definition of the same name may come and go while the end of the one before is noted.
    #[test]
    fn who_goes_again_is_looked_at_again() {
        let cleanup = Cleanup::default();
        assert!(cleanup.begin("a"));
        cleanup.begin_pass("a");
        assert!(!cleanup.begin("a"), "somebody is at it");
        assert!(!cleanup.end("a"), "who has to look once more");
        cleanup.begin_pass("a");
        assert!(cleanup.end("a"));
        assert!(cleanup.begin("a"));
    }
}
