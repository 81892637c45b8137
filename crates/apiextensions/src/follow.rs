//! Watches the definitions in their cache, and updates the registry's table and the statuses of the definitions. Every
//! server does so independently: if another server has already written a status, writing it again changes nothing.
//!
//! The resources of a definition are in the table before its status shows them as established, so a client that reads
//! the status can use them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::conditions;
use super::conditions::{ComputedStatus, NAMES_ACCEPTED, UsedNames};
use super::custom::Custom;
use super::definition::{Definition, Names};
use super::definitions::{Definitions, definitions_resource};
use super::versions::Versions;
use super::{checks, cleanup, resources};
use watchet_api::{EventType, ListOptions, Object, ResourceVersion, SelectionPredicate};
use watchet_cacher::{CacheWatcher, WatchItem};
use watchet_registry::{ApiError, Registry, Resource, metadata};
use watchet_registry::{Edited, ObjectLocation};

/// The pause before a failed watch or a failed write of a status is retried.
const RETRY: Duration = Duration::from_secs(1);

/// One definition, its status and its resources.
#[derive(Debug)]
struct Entry {
    definition: Definition,
    /// The stored status.
    status: Value,
    computed: Option<ComputedStatus>,
    /// The resources, valid for this generation, these names and this state of deletion.
    resources: Vec<Arc<Resource>>,
    /// The versions, valid for this specification and these names.
    versions: Option<Arc<Versions>>,
}

/// The definitions, by name.
#[derive(Debug, Default)]
struct Following {
    state: Arc<Definitions>,
    definitions: BTreeMap<String, Entry>,
    /// The groups with changes since their statuses were computed.
    changed_groups: BTreeSet<String>,
    /// The definitions whose computed status must be written to storage.
    unwritten: BTreeSet<String>,
    /// `definitions` contains every change up to this version.
    seen: ResourceVersion,
    /// The custom resources that are served.
    served: Vec<Arc<Custom>>,
}

/// The status of a stored definition.
#[derive(Deserialize)]
struct WithStatus {
    #[serde(default)]
    status: Value,
}

/// Follows the definitions until the registry's tasks are cancelled.
pub(super) async fn follow(registry: Arc<Registry>, state: Arc<Definitions>) {
    let token = registry.tasks().token();
    tokio::select! {
        // Cancellation has priority: the next start computes everything again.
        biased;
        () = token.cancelled() => {}
        () = run(&registry, state) => {}
    }
}

async fn run(registry: &Arc<Registry>, state: Arc<Definitions>) {
    let mut following = Following {
        state,
        ..Following::default()
    };
    loop {
        match watch(registry).await {
            Ok(watcher) => following.follow_watch(registry, watcher).await,
            Err(error) => tracing::debug!(%error, "cannot watch the definitions yet"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn watch(registry: &Registry) -> Result<CacheWatcher, ApiError> {
    let options = ListOptions {
        resource_version: Some(ResourceVersion::ZERO),
        send_initial_events: Some(true),
        allow_watch_bookmarks: true,
        ..ListOptions::default()
    };
    let cache = registry.cache(&definitions_resource(registry))?;
    Ok(cache.watch(SelectionPredicate::default(), &options).await?)
}

impl Following {
    /// Follows one watch until it ends.
    async fn follow_watch(&mut self, registry: &Arc<Registry>, mut watcher: CacheWatcher) {
        let mut initial = Some(BTreeSet::new());
        loop {
            let items = match self.unwritten.is_empty() {
                true => watcher.next().await,
                false => match tokio::time::timeout(RETRY, watcher.next()).await {
                    Ok(items) => items,
                    Err(_) => {
                        self.write_statuses(registry).await;
                        continue;
                    }
                },
            };
            let Some(items) = items else { return };
            for item in items.iter() {
                self.apply(item, &mut initial);
            }
            if initial.is_some() {
                continue;
            }
            self.compute_statuses(registry).await;
            self.serve(registry).await;
            self.state.served.send_replace(Some(self.seen));
            self.write_statuses(registry).await;
        }
    }

    /// Applies an item of the watch. `initial` collects the names in the first state of the watch; at its end, other
    /// definitions are removed.
    fn apply(&mut self, item: &WatchItem, initial: &mut Option<BTreeSet<String>>) {
        match item {
            WatchItem::Initial(object) => {
                if let Some(seen) = initial {
                    seen.insert(object.key().name().to_owned());
                }
                self.insert(object);
            }
            WatchItem::Event(event) => {
                self.seen = event.resource_version();
                match event.event_type() {
                    EventType::Deleted => drop(self.remove(event.object().key().name())),
                    _ => self.insert(event.object()),
                }
            }
            WatchItem::Bookmark {
                initial_events_end,
                resource_version,
            } => {
                self.seen = *resource_version;
                if let Some(seen) = initial.take_if(|_| *initial_events_end) {
                    let is_deleted = |name: &&String| !seen.contains(*name);
                    let deleted: Vec<String> = self
                        .definitions
                        .keys()
                        .filter(is_deleted)
                        .cloned()
                        .collect();
                    for name in deleted {
                        self.remove(&name);
                    }
                }
            }
            WatchItem::Error(error) => tracing::warn!(%error, "the watch of definitions ended"),
        }
    }

    fn insert(&mut self, object: &Object) {
        let name = object.key().name();
        let before = self.remove(name);
        let read = Definition::parse(object.body_slice()).and_then(|definition| {
            let status: WithStatus = serde_json::from_slice(object.body_slice())?;
            Ok((definition, status.status))
        });
        let (definition, status) = match read {
            Ok(read) => read,
            Err(error) => {
                // The definition is not served. A client can replace or delete it.
                tracing::error!(%error, name, "a definition cannot be read");
                return;
            }
        };
        self.changed_groups.insert(definition.spec.group.clone());
        let versions = before
            .as_ref()
            .and_then(|entry| entry.versions_for(&definition));
        let before = before.filter(|entry| entry.has_resources_of(&definition));
        let (computed, resources) = match before {
            Some(before) => (before.computed, before.resources),
            None => (None, Vec::new()),
        };
        let entry = Entry {
            definition,
            status,
            computed,
            resources,
            versions,
        };
        self.definitions.insert(name.to_owned(), entry);
    }

    fn remove(&mut self, name: &str) -> Option<Entry> {
        let entry = self.definitions.remove(name)?;
        self.changed_groups
            .insert(entry.definition.spec.group.clone());
        Some(entry)
    }

    /// Computes the statuses of each group that has changed. If one definition releases a name, another one can accept
    /// it.
    async fn compute_statuses(&mut self, registry: &Registry) {
        for group in std::mem::take(&mut self.changed_groups) {
            let of_group = |(_, entry): &(&String, &Entry)| entry.definition.spec.group == group;
            let members = self.definitions.iter().filter(of_group);
            let mut members: Vec<String> = members.map(|(name, _)| name.clone()).collect();
            // Accepted definitions come first, so that new ones that conflict with their names are rejected.
            members.sort_by_key(|name| !self.definitions[name].definition.has(NAMES_ACCEPTED));
            let builtins = resources::names_of(registry.builtins(), &group);
            let mut accepted: BTreeMap<String, Names> = members
                .iter()
                .map(|name| (name.clone(), self.definitions[name].accepted_names()))
                .collect();
            for name in members {
                let mut used = UsedNames::default();
                builtins.iter().for_each(|names| used.add(names));
                let others = accepted.iter().filter(|(other, _)| **other != name);
                others.for_each(|(_, names)| used.add(names));
                let entry = self.definitions.get_mut(&name);
                let entry = entry.expect("it is of the group");
                entry.compute_status(&used, registry, &self.state).await;
                if entry.is_status_outdated() {
                    self.unwritten.insert(name.clone());
                }
                accepted.insert(name, entry.accepted_names());
            }
        }
    }

    /// Serves the established definitions. When this function returns, no write that depends on the previous
    /// definitions is stored any more.
    async fn serve(&mut self, registry: &Arc<Registry>) {
        let all = self.definitions.values().flat_map(|d| d.resources.clone());
        let resources: Vec<Arc<Resource>> = all.collect();
        registry.serve_defined(resources::ordered(resources.clone()));
        let replaced =
            self.replace_served(resources.iter().filter_map(|r| Custom::of(r)).collect());
        let ends = replaced.iter().map(|custom| custom.writes.end());
        futures_util::future::join_all(ends).await;
        let terminating = self
            .definitions
            .iter()
            .filter(|(_, entry)| entry.definition.is_terminating());
        for (name, _) in terminating {
            cleanup::start(registry, &self.state, name);
        }
    }

    /// Replaces the served custom resources by `now`, and returns those that are no longer served. Cancels the tokens of
    /// outdated versions, which ends their watches.
    fn replace_served(&mut self, now: Vec<Arc<Custom>>) -> Vec<Arc<Custom>> {
        let before = std::mem::replace(&mut self.served, now);
        let of = |custom: &Custom| Arc::as_ptr(&custom.versions);
        let served: HashSet<_> = self.served.iter().map(Arc::as_ptr).collect();
        let versions: HashSet<_> = self.served.iter().map(|now| of(now)).collect();
        let is_served = |custom: &Arc<Custom>| served.contains(&Arc::as_ptr(custom));
        let replaced: Vec<_> = before.into_iter().filter(|c| !is_served(c)).collect();
        for custom in &replaced {
            if !versions.contains(&of(custom)) {
                custom.versions.outdated().cancel();
            }
        }
        replaced
    }

    /// Writes the statuses that differ from those in storage.
    async fn write_statuses(&mut self, registry: &Registry) {
        for name in std::mem::take(&mut self.unwritten) {
            let Some(entry) = self.definitions.get(&name) else {
                continue;
            };
            if let Err(error) = entry.write_status(registry, &name).await {
                // An outage of storage itself is logged once.
                match error.is_outage() {
                    true => {
                        tracing::debug!(%error, name, "cannot write the status of a definition yet")
                    }
                    false => {
                        tracing::warn!(%error, name, "cannot write the status of a definition yet")
                    }
                }
                self.unwritten.insert(name);
            }
        }
    }
}

/// Returns the resources of a definition with these accepted names, its versions, and the structural problems of its
/// schemas. Reuses `versions` if they are still valid. Compiles expressions and patterns, which can take long.
async fn compile(
    registry: &Registry,
    state: &Definitions,
    definition: Definition,
    names: Names,
    versions: Option<Arc<Versions>>,
) -> Option<(Vec<Arc<Resource>>, Arc<Versions>, Option<String>)> {
    let (client, tasks) = (registry.webhooks().clone(), registry.tasks().clone());
    let pool = state.converted.clone();
    let types = registry.types().clone();
    let body_strategy = definitions_resource(registry).strategy.clone();
    let compile = move || {
        let new = || resources::versions(&definition, &names, &types, &client, &tasks, &pool);
        let versions = versions.unwrap_or_else(|| Arc::new(new()));
        let all = resources::resources(&definition, &versions, &names, &body_strategy);
        (all, versions, checks::violations(&definition))
    };
    let compiled = registry
        .tasks()
        .spawn_blocking("custom-resource-schemas", compile);
    // The task panicked. The task group ends and reports the panic.
    compiled
        .await
        .inspect_err(|error| tracing::error!(%error, "a definition cannot be read"))
        .ok()
}

impl Entry {
    /// Returns the accepted names.
    fn accepted_names(&self) -> Names {
        let computed = self.computed.as_ref().map(|computed| &computed.names);
        computed
            .unwrap_or(&self.definition.status.accepted_names)
            .clone()
    }

    /// Computes the status, and compiles the resources if the status has changed.
    async fn compute_status(&mut self, used: &UsedNames, registry: &Registry, state: &Definitions) {
        let mut computed = conditions::compute(&self.definition, used);
        let before = self.computed.take();
        computed.violations = before.as_ref().and_then(|before| before.violations.clone());
        let names = computed.names.clone();
        let computed = self.computed.insert(computed);
        if before.as_ref() == Some(computed) {
            return;
        }
        if !computed.established {
            (self.resources, self.versions) = (Vec::new(), None);
            return;
        }
        let versions = self.versions.take().filter(|v| v.has_names(&names));
        let compiled = compile(registry, state, self.definition.clone(), names, versions).await;
        let Some((resources, versions, violations)) = compiled else {
            return;
        };
        (self.resources, self.versions) = (resources, Some(versions));
        computed.violations = violations;
    }

    /// Returns the versions, if they are also valid for `newer`.
    fn versions_for(&self, newer: &Definition) -> Option<Arc<Versions>> {
        let same = self.definition.metadata.uid == newer.metadata.uid
            && self.definition.spec == newer.spec;
        self.versions.clone().filter(|_| same)
    }

    /// Returns true if the stored status differs from the computed one.
    fn is_status_outdated(&self) -> bool {
        let mut object = json!({"status": self.status});
        if let Some(computed) = &self.computed {
            computed.write(&mut object, "");
        }
        object["status"] != self.status
    }

    /// Returns true if the resources are also valid for `newer`.
    fn has_resources_of(&self, newer: &Definition) -> bool {
        let (old, new) = (&self.definition.metadata, &newer.metadata);
        (&old.uid, old.generation) == (&new.uid, new.generation)
            && self.definition.is_terminating() == newer.is_terminating()
    }

    /// Writes the computed status, unless the definition has changed since.
    async fn write_status(&self, registry: &Registry, name: &str) -> Result<(), ApiError> {
        let Some(computed) = &self.computed else {
            return Ok(());
        };
        let location = ObjectLocation::new(&definitions_resource(registry), None, name)?;
        let own = &self.definition.metadata;
        let now = metadata::now().to_string();
        let edit = |object: &mut Value| {
            let generation = object["metadata"]["generation"].as_i64();
            let same = metadata::text(object, "uid") == own.uid
                && generation.unwrap_or_default() == own.generation;
            if same {
                computed.write(object, &now);
            }
            Edited::Store
        };
        registry.edit_metadata_and_status(&location, edit).await
    }
}
