//! Follows the definitions in their cache, and keeps the registry's table and their statuses in step.
//! Every server does so by itself; that another one has written the same status already is no change.
//!
//! What a definition defines is in the table before its status says so: whoever reads of it can use it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::conditions;
use super::conditions::{NAMES_ACCEPTED, Taken, Verdict};
use super::definition::{Definition, Names};
use super::{Custom, Definitions, Versions, checks, cleanup, resources, write_edited};
use crate::api::{EventType, ListOptions, Object, ResourceVersion, SelectionPredicate};
use crate::cacher::{CacheWatcher, WatchItem};
use crate::registry::{ApiError, Registry, Resource, metadata};
use crate::registry::{Change, ObjectLocation};

/// How long until a watch that failed, or a status that could not be written, is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// One definition, and what was made of it.
#[derive(Debug)]
struct Known {
    definition: Definition,
    /// As it is stored.
    status: Value,
    verdict: Option<Verdict>,
    /// Made for this generation, these names and this state of its deletion.
    resources: Vec<Arc<Resource>>,
    /// Made for what its author says and for these names.
    versions: Option<Arc<Versions>>,
}

/// The definitions, by name.
#[derive(Debug, Default)]
struct Following {
    state: Arc<Definitions>,
    known: BTreeMap<String, Known>,
    /// Groups in which something has changed since they were judged.
    touched: BTreeSet<String>,
    /// Those whose status storage has not been told of.
    untold: BTreeSet<String>,
    /// Every change up to this version is known here.
    seen: ResourceVersion,
    /// What is served as of the last time.
    published: Vec<Arc<Custom>>,
}

/// The status of an object, as it is.
#[derive(Deserialize)]
struct WithStatus {
    #[serde(default)]
    status: Value,
}

/// Follows, until the registry's tasks are cancelled.
pub(super) async fn follow(registry: Arc<Registry>, state: Arc<Definitions>) {
    let token = registry.tasks().token();
    tokio::select! {
        // Stopping comes first: everything here is worked out again at the next start.
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
            Ok(watcher) => following.heed_all(registry, watcher).await,
            Err(error) => tracing::debug!(%error, "cannot watch the definitions yet"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The definitions' own resource.
pub(super) fn definitions(registry: &Registry) -> Arc<Resource> {
    let resource = registry.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    resource.expect("the table has definitions")
}

async fn watch(registry: &Registry) -> Result<CacheWatcher, ApiError> {
    let options = ListOptions {
        resource_version: Some(ResourceVersion::ZERO),
        send_initial_events: Some(true),
        allow_watch_bookmarks: true,
        ..ListOptions::default()
    };
    let cache = registry.cache(&definitions(registry))?;
    Ok(cache.watch(SelectionPredicate::default(), &options).await?)
}

impl Following {
    /// Follows one watch to its end.
    async fn heed_all(&mut self, registry: &Arc<Registry>, mut watcher: CacheWatcher) {
        let mut initial = Some(BTreeSet::new());
        loop {
            let items = match self.untold.is_empty() {
                true => watcher.next().await,
                false => match tokio::time::timeout(RETRY, watcher.next()).await {
                    Ok(items) => items,
                    Err(_) => {
                        self.tell(registry).await;
                        continue;
                    }
                },
            };
            let Some(items) = items else { return };
            for item in items.iter() {
                self.heed(item, &mut initial);
            }
            if initial.is_some() {
                continue;
            }
            self.judge(registry).await;
            self.publish(registry).await;
            self.state.served.send_replace(Some(self.seen));
            self.tell(registry).await;
        }
    }

    /// Takes note of one definition. While `initial` names the definitions of the watch's first state,
    /// it is not known which of the others are gone.
    fn heed(&mut self, item: &WatchItem, initial: &mut Option<BTreeSet<String>>) {
        match item {
            WatchItem::Initial(object) => {
                if let Some(seen) = initial {
                    seen.insert(object.key().name().to_owned());
                }
                self.learn(object);
            }
            WatchItem::Event(event) => {
                self.seen = event.resource_version();
                match event.event_type() {
                    EventType::Deleted => drop(self.forget(event.object().key().name())),
                    _ => self.learn(event.object()),
                }
            }
            WatchItem::Bookmark {
                initial_events_end,
                resource_version,
            } => {
                self.seen = *resource_version;
                if let Some(seen) = initial.take_if(|_| *initial_events_end) {
                    let gone = |name: &&String| !seen.contains(*name);
                    let gone: Vec<String> = self.known.keys().filter(gone).cloned().collect();
                    for name in gone {
                        self.forget(&name);
                    }
                }
            }
            WatchItem::Error(error) => tracing::warn!(%error, "the watch of definitions ended"),
        }
    }

    fn learn(&mut self, object: &Object) {
        let name = object.key().name();
        let before = self.forget(name);
        let read = Definition::parse(object.body_slice()).and_then(|definition| {
            let status: WithStatus = serde_json::from_slice(object.body_slice())?;
            Ok((definition, status.status))
        });
        let (definition, status) = match read {
            Ok(read) => read,
            Err(error) => {
                // It is not served, and can be put right or deleted.
                tracing::error!(%error, name, "a definition cannot be read");
                return;
            }
        };
        self.touched.insert(definition.spec.group.clone());
        let versions = before
            .as_ref()
            .and_then(|known| known.versions_of(&definition));
        let before = before.filter(|known| known.is_as_good_for(&definition));
        let (verdict, resources) = match before {
            Some(before) => (before.verdict, before.resources),
            None => (None, Vec::new()),
        };
        let known = Known {
            definition,
            status,
            verdict,
            resources,
            versions,
        };
        self.known.insert(name.to_owned(), known);
    }

    fn forget(&mut self, name: &str) -> Option<Known> {
        let known = self.known.remove(name)?;
        self.touched.insert(known.definition.spec.group.clone());
        Some(known)
    }

    /// Judges the definitions of each group that changed: names that one lets go of are another's.
    async fn judge(&mut self, registry: &Registry) {
        for group in std::mem::take(&mut self.touched) {
            let of_group = |(_, known): &(&String, &Known)| known.definition.spec.group == group;
            let members = self.known.iter().filter(of_group);
            let mut members: Vec<String> = members.map(|(name, _)| name.clone()).collect();
            // Who has been accepted before comes first, so that new ones find the names taken.
            members.sort_by_key(|name| !self.known[name].definition.has(NAMES_ACCEPTED));
            let builtins = resources::names_of(registry.builtins(), &group);
            let mut accepted: BTreeMap<String, Names> = members
                .iter()
                .map(|name| (name.clone(), self.known[name].accepted()))
                .collect();
            for name in members {
                let mut taken = Taken::default();
                builtins.iter().for_each(|names| taken.add(names));
                let others = accepted.iter().filter(|(other, _)| **other != name);
                others.for_each(|(_, names)| taken.add(names));
                let known = self.known.get_mut(&name).expect("it is of the group");
                known.judge(&taken, registry, &self.state).await;
                if known.is_untold() {
                    self.untold.insert(name.clone());
                }
                accepted.insert(name, known.accepted());
            }
        }
    }

    /// Serves what is established. When this is through, nothing is written any more by what was served
    /// before.
    async fn publish(&mut self, registry: &Arc<Registry>) {
        let all = self.known.values().flat_map(|k| k.resources.clone());
        let now: Vec<Arc<Resource>> = all.collect();
        registry.serve_defined(resources::ordered(now.clone()));
        let replaced = self.replace(now.iter().filter_map(|r| Custom::of(r)).collect());
        let ends = replaced.iter().map(|custom| custom.writes.end());
        futures_util::future::join_all(ends).await;
        let terminating = self
            .known
            .iter()
            .filter(|(_, k)| k.definition.is_terminating());
        for (name, _) in terminating {
            cleanup::start(registry, &self.state, name);
        }
    }

    /// Notes what is served now. What was before and is no longer is returned; who follows objects as it has
    /// them has been told.
    fn replace(&mut self, now: Vec<Arc<Custom>>) -> Vec<Arc<Custom>> {
        let before = std::mem::replace(&mut self.published, now);
        let of = |custom: &Custom| Arc::as_ptr(&custom.versions);
        let served: HashSet<_> = self.published.iter().map(Arc::as_ptr).collect();
        let versions: HashSet<_> = self.published.iter().map(|now| of(now)).collect();
        let is_served = |custom: &Arc<Custom>| served.contains(&Arc::as_ptr(custom));
        let replaced: Vec<_> = before.into_iter().filter(|c| !is_served(c)).collect();
        for custom in &replaced {
            if !versions.contains(&of(custom)) {
                custom.versions.outdated().cancel();
            }
        }
        replaced
    }

    /// Writes the statuses that are not as they should be.
    async fn tell(&mut self, registry: &Registry) {
        for name in std::mem::take(&mut self.untold) {
            let Some(known) = self.known.get(&name) else {
                continue;
            };
            if let Err(error) = known.tell(registry, &name).await {
                tracing::warn!(%error, name, "cannot write the status of a definition yet");
                self.untold.insert(name);
            }
        }
    }
}

/// Makes what a definition of these names defines, of `versions` if those are still right; and what is wrong
/// with its structure. Expressions and patterns are compiled, which can take a while.
async fn make(
    registry: &Registry,
    state: &Definitions,
    definition: Definition,
    names: Names,
    versions: Option<Arc<Versions>>,
) -> Option<(Vec<Arc<Resource>>, Arc<Versions>, Option<String>)> {
    let (client, tasks) = (registry.webhooks().clone(), registry.tasks().clone());
    let pool = state.converted.clone();
    let types = registry.types().clone();
    let body_strategy = definitions(registry).strategy.clone();
    let make = move || {
        let new = || resources::versions(&definition, &names, &types, &client, &tasks, &pool);
        let versions = versions.unwrap_or_else(|| Arc::new(new()));
        let all = resources::resources(&definition, &versions, &names, &body_strategy);
        (all, versions, checks::violations(&definition))
    };
    let made = registry
        .tasks()
        .spawn_blocking("custom-resource-schemas", make);
    // A panic is the group's end, and is told there.
    made.await
        .inspect_err(|error| tracing::error!(%error, "a definition cannot be read"))
        .ok()
}

impl Known {
    /// The names that are its own.
    fn accepted(&self) -> Names {
        let verdict = self.verdict.as_ref().map(|verdict| &verdict.names);
        verdict
            .unwrap_or(&self.definition.status.accepted_names)
            .clone()
    }

    async fn judge(&mut self, taken: &Taken, registry: &Registry, state: &Definitions) {
        let mut verdict = conditions::judge(&self.definition, taken);
        let before = self.verdict.take();
        verdict.violations = before.as_ref().and_then(|before| before.violations.clone());
        let names = verdict.names.clone();
        let verdict = self.verdict.insert(verdict);
        if before.as_ref() == Some(verdict) {
            return;
        }
        if !verdict.established {
            (self.resources, self.versions) = (Vec::new(), None);
            return;
        }
        let versions = self.versions.take().filter(|v| v.are_called(&names));
        let made = make(registry, state, self.definition.clone(), names, versions).await;
        let Some((resources, versions, violations)) = made else {
            return;
        };
        (self.resources, self.versions) = (resources, Some(versions));
        verdict.violations = violations;
    }

    /// What was made of its versions, if it serves a newer state of it too.
    fn versions_of(&self, newer: &Definition) -> Option<Arc<Versions>> {
        let same = self.definition.metadata.uid == newer.metadata.uid
            && self.definition.spec == newer.spec;
        self.versions.clone().filter(|_| same)
    }

    /// Whether storage says something else of it.
    fn is_untold(&self) -> bool {
        let mut told = json!({"status": self.status});
        if let Some(verdict) = &self.verdict {
            verdict.write(&mut told, "");
        }
        told["status"] != self.status
    }

    /// Whether what was made of it serves a newer state of it too.
    fn is_as_good_for(&self, newer: &Definition) -> bool {
        let (old, new) = (&self.definition.metadata, &newer.metadata);
        (&old.uid, old.generation) == (&new.uid, new.generation)
            && self.definition.is_terminating() == newer.is_terminating()
    }

    /// Has its status say what was found, unless the definition has changed since.
    async fn tell(&self, registry: &Registry, name: &str) -> Result<(), ApiError> {
        let Some(verdict) = &self.verdict else {
            return Ok(());
        };
        let location = ObjectLocation::new(&definitions(registry), None, name)?;
        let own = &self.definition.metadata;
        let now = metadata::now().to_string();
        let edit = |current: &Value| {
            let mut object = current.clone();
            let generation = object["metadata"]["generation"].as_i64();
            let same = metadata::text(&object, "uid") == own.uid
                && generation.unwrap_or_default() == own.generation;
            if same {
                verdict.write(&mut object, &now);
            }
            Change::Put(object)
        };
        write_edited(registry, &location, edit).await
    }
}
