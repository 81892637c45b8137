//! Namespaces: those that are always there, what may be made in one, and how one is emptied once
//! it is deleted. That last is a controller's work elsewhere; here the server does it itself.
//!
//! # Emptying
//!
//! A deleted namespace is `Terminating` and takes nothing new. One task follows the namespaces' own
//! cache, so that it learns of every deletion, whoever began it: a request whose client hung up,
//! another server, an earlier run of this one. It passes over all terminating namespaces: it deletes
//! what storage holds under each, and when a pass finds nothing left it takes the `kubernetes`
//! finalizer away, with which the namespace goes. What has finalizers or a grace period of its own is
//! waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::write::{Change, Current, Decide, Place};
use super::{ApiError, Registry, Resource, Target, create, delete, metadata, strategy};
use crate::api::{
    DeleteOptions, EventType, ListOptions, Object, PropagationPolicy, ResourceVersion,
    SelectionPredicate, StatusCause, WriteOptions,
};
use crate::cacher::{CacheWatcher, WatchItem};
use crate::storage::{ListRequest, Storage as _};

/// What exists from the first request on.
const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// What a client may not delete.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

const FINALIZER: &str = "kubernetes";

/// How many objects a pass reads at once: a few hundred keep memory flat and the store responsive.
const PAGE: usize = 500;

/// How many deletes of a pass are under way at once, so that a store that commits in groups can.
const DELETES_MAX: usize = 32;

/// How soon a namespace that was not empty yet is looked at again; the wait doubles up to the
/// second value, because what holds it back may take its time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// How long until a watch of the namespaces that failed is tried again.
const FOLLOW_PAUSE: Duration = Duration::from_secs(1);

/// The namespaces that are being emptied; bounded by how many there are. A name stays until the
/// cache does not have the namespace any more, so that nothing is let in by an old state of it.
#[derive(Debug, Default)]
pub(super) struct Terminating {
    /// With how often each was added: a pass lets go of a name only when nobody has added it since
    /// the pass began, because the namespace may have been made and deleted again meanwhile.
    names: Mutex<BTreeMap<String, u64>>,
    /// A name was added, or a pass can follow at once.
    news: Notify,
}

impl Terminating {
    /// Has the namespace emptied and removed, in the task.
    pub(super) fn add(&self, name: &str) {
        let mut names = self.names.lock();
        let times = names.entry(name.to_owned()).or_default();
        *times += 1;
        let first = *times == 1;
        drop(names);
        if first {
            self.news.notify_one();
        }
    }

    /// Lets go of a name that was added so often when its namespace was looked at.
    fn remove(&self, name: &str, times: u64) {
        let mut names = self.names.lock();
        if names.get(name) == Some(&times) {
            names.remove(name);
        }
    }
}

/// Makes the system namespaces, each unless it exists.
pub(super) async fn bootstrap(registry: &Registry) -> Result<(), ApiError> {
    for name in SYSTEM_NAMESPACES {
        let place = Place::new(&registry.namespaces, None, name)?;
        let store = registry.store(&registry.namespaces);
        if store.get(&place.storage_key).await?.0.is_some() {
            continue;
        }
        let body = json!({"metadata": {"name": name}});
        let options = WriteOptions::default();
        match create::create(registry, &registry.namespaces, None, body, &options).await {
            // Another server was faster.
            Ok(_) | Err(ApiError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Refuses content for a namespace that is absent (404) or terminating (403).
pub(super) async fn require_active(
    registry: &Registry,
    namespace: &str,
    resource: &Resource,
    name: &str,
) -> Result<(), ApiError> {
    let key = Place::key_of(&registry.namespaces, None, namespace)?;
    let being_emptied = registry.terminating.names.lock().contains_key(namespace);
    if !being_emptied {
        // The cache may be behind, as any admission by cache is; a namespace that it does not know
        // or that this server has seen go is asked for in storage.
        let cached = registry.cache(&registry.namespaces)?.peek(&key);
        if cached.is_some_and(|n| n.field(registry.namespace_phase) == "Active") {
            return Ok(());
        }
    }
    let place = Place::new(&registry.namespaces, None, namespace)?;
    let current = registry.read_stored(&place).await?;
    let phase = &current.value["status"]["phase"];
    if phase != "Terminating" && !metadata::is_terminating(&current.value) {
        return Ok(());
    }
    Err(ApiError::Forbidden {
        resource: resource.qualified(),
        name: name.to_owned(),
        detail: format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        ),
        causes: vec![StatusCause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        }],
    })
}

/// Refuses to delete what the system stands on.
pub(super) fn check_deletable(target: &Target) -> Result<(), ApiError> {
    if target.resource.is("", "namespaces") && IMMORTAL.contains(&&*target.name) {
        let detail = "this namespace may not be deleted";
        return Err(ApiError::forbidden(&target.resource, &target.name, detail));
    }
    Ok(())
}

/// Empties every namespace that is being deleted, until the registry's tasks are cancelled.
pub(super) async fn empty_deleted(registry: Arc<Registry>) {
    let token = registry.tasks.token();
    tokio::select! {
        // Stopping comes first: what is left is found again at the next start.
        biased;
        () = token.cancelled() => {}
        () = follow(&registry) => {}
        () = empty_all(&registry) => {}
    }
}

/// Adds every namespace that the cache learns is being deleted.
async fn follow(registry: &Registry) {
    loop {
        match watch(registry).await {
            Ok(mut watcher) => {
                while let Some(items) = watcher.next().await {
                    items.iter().for_each(|item| heed(registry, item));
                }
            }
            Err(error) => tracing::debug!(%error, "cannot watch the namespaces yet"),
        }
        tokio::time::sleep(FOLLOW_PAUSE).await;
    }
}

/// The namespaces as the cache has them, and what becomes of them.
async fn watch(registry: &Registry) -> Result<CacheWatcher, ApiError> {
    let options = ListOptions {
        resource_version: Some(ResourceVersion::ZERO),
        ..ListOptions::default()
    };
    let cache = registry.cache(&registry.namespaces)?;
    Ok(cache.watch(SelectionPredicate::default(), &options).await?)
}

fn heed(registry: &Registry, item: &WatchItem) {
    let object: &Object = match item {
        WatchItem::Initial(object) => object,
        WatchItem::Event(event) if event.event_type() == EventType::Deleted => return,
        WatchItem::Event(event) => event.object(),
        WatchItem::Bookmark { .. } => return,
        WatchItem::Error(error) => {
            tracing::warn!(%error, "the watch of the namespaces ended");
            return;
        }
    };
    match serde_json::from_slice::<Value>(object.body_slice()) {
        Ok(namespace) if metadata::is_terminating(&namespace) => {
            registry.terminating.add(object.key().name());
        }
        Ok(_) => {}
        Err(error) => tracing::error!(%error, key = %object.key(), "a namespace is not JSON"),
    }
}

/// Passes over the terminating namespaces, again and again.
async fn empty_all(registry: &Registry) {
    let mut wait = RETRY_MIN;
    loop {
        let names = registry.terminating.names.lock().clone();
        let none = names.is_empty();
        let mut progress = false;
        for (name, times) in names {
            // A panic about one namespace must not keep the others for ever.
            let pass = AssertUnwindSafe(empty(registry, &name)).catch_unwind();
            match pass.await {
                Ok(Ok(true)) => {
                    registry.terminating.remove(&name, times);
                    progress = true;
                }
                Ok(Ok(false)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(namespace = name, %error, "could not empty a namespace yet");
                }
                Err(_) => tracing::error!(namespace = name, "emptying a namespace panicked"),
            }
        }
        wait = if progress {
            RETRY_MIN
        } else {
            (wait * 2).min(RETRY_MAX)
        };
        tokio::select! {
            // News first: they make patience needless.
            biased;
            () = registry.terminating.news.notified() => wait = RETRY_MIN,
            () = tokio::time::sleep(wait), if !none => {}
        }
    }
}

/// One pass over a namespace: whether there is nothing more to do about it.
async fn empty(registry: &Registry, name: &str) -> Result<bool, ApiError> {
    let place = Place::new(&registry.namespaces, None, name)?;
    match registry.read_stored(&place).await {
        Ok(current) if !metadata::is_terminating(&current.value) => return Ok(true),
        Ok(_) => {}
        Err(error) if error.is_not_found() => return is_forgotten(registry, &place),
        Err(error) => return Err(error),
    }
    let mut left = Left::default();
    let mut prefixes = BTreeSet::new();
    for resource in registry
        .resources()
        .iter()
        .filter(|r| r.namespaced && r.is_stored())
    {
        // The second of two that share a prefix has nothing of its own.
        if prefixes.insert(resource.storage_prefix.clone()) {
            left.add(empty_of(registry, name, resource).await?);
        }
    }
    if left.gone > 0 {
        // Only a pass that finds nothing proves that nothing is left; it can follow at once.
        registry.terminating.news.notify_one();
    }
    if left.gone + left.pending > 0 {
        return Ok(false);
    }
    let finalized = registry
        .guaranteed_write(&place, false, &mut Finalizing(registry))
        .await;
    match finalized {
        Err(error) if !error.is_not_found() => Err(error),
        _ => is_forgotten(registry, &place),
    }
}

/// Takes the finalizer from a namespace that nothing is left of.
struct Finalizing<'a>(&'a Registry);

impl Decide for Finalizing<'_> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let gone = || ApiError::not_found(&self.0.namespaces, "");
        Ok(finalize(self.0, &current.ok_or_else(gone)?.value))
    }
}

/// Whether this server's cache knows that the namespace is gone: until it does, creations must go on
/// asking storage.
fn is_forgotten(registry: &Registry, place: &Place) -> Result<bool, ApiError> {
    Ok(registry
        .cache(&registry.namespaces)?
        .peek(&place.key)
        .is_none())
}

/// What a pass met.
#[derive(Debug, Default, Clone, Copy)]
struct Left {
    /// Objects that it deleted.
    gone: usize,
    /// Objects whose deletion goes on.
    pending: usize,
}

impl Left {
    fn add(&mut self, other: Self) {
        self.gone += other.gone;
        self.pending += other.pending;
    }
}

/// One pass over the objects of `resource` in a namespace.
async fn empty_of(
    registry: &Registry,
    namespace: &str,
    resource: &Arc<Resource>,
) -> Result<Left, ApiError> {
    let mut left = Left::default();
    let mut request = ListRequest {
        prefix: resource.prefix()?,
        start: format!("{namespace}/"),
        at: None,
        limit: PAGE,
        count: false,
    };
    let end = format!("{namespace}/");
    loop {
        let page = registry.store(resource).list(request.clone()).await?;
        let names: Vec<String> = page
            .items
            .iter()
            .filter_map(|stored| request.prefix.strip(stored.key.as_str()))
            .map_while(|rest| rest.strip_prefix(&end))
            .map(str::to_owned)
            .collect();
        let last = names.last().cloned();
        let whole_page = names.len() == page.items.len();
        let deletes = names
            .into_iter()
            .map(|name| delete_one(registry, namespace, resource, name));
        let mut deletes = futures_util::stream::iter(deletes).buffer_unordered(DELETES_MAX);
        while let Some(one) = deletes.next().await {
            left.add(one?);
        }
        match last {
            Some(last) if whole_page && page.more => {
                request.start = format!("{namespace}/{last}\0");
            }
            _ => return Ok(left),
        }
    }
}

async fn delete_one(
    registry: &Registry,
    namespace: &str,
    resource: &Arc<Resource>,
    name: String,
) -> Result<Left, ApiError> {
    let target = Target {
        resource: resource.clone(),
        namespace: Some(namespace.to_owned()),
        name,
        subresource: None,
    };
    let options = DeleteOptions {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteOptions::default()
    };
    match delete::delete(registry, &target, &options).await {
        Ok(super::Deleted::Pending(_)) => Ok(Left {
            gone: 0,
            pending: 1,
        }),
        Ok(_) => Ok(Left {
            gone: 1,
            pending: 0,
        }),
        Err(error) if error.is_not_found() => Ok(Left::default()),
        Err(error) => Err(error),
    }
}

fn finalize(registry: &Registry, stored: &Value) -> Change {
    let mut object = stored.clone();
    let finalizers = object.pointer_mut("/spec/finalizers");
    if let Some(list) = finalizers.and_then(Value::as_array_mut) {
        list.retain(|f| f != FINALIZER);
    }
    if strategy::is_finished(&registry.namespaces, &object) {
        Change::Delete(object)
    } else {
        Change::Put(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pass saw a namespace alive; before it could say so the namespace was deleted.
    #[test]
    fn a_name_that_was_added_again_stays() {
        let terminating = Terminating::default();
        terminating.add("a");
        let seen = terminating.names.lock()["a"];
        terminating.add("a");
        terminating.remove("a", seen);
        assert!(terminating.names.lock().contains_key("a"));
        let seen = terminating.names.lock()["a"];
        terminating.remove("a", seen);
        assert!(terminating.names.lock().is_empty());
    }
}
