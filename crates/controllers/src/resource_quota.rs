//! The resource quota controller: updates the status of ResourceQuotas. Admission charges
//! creations; this controller counts the initial usage of a new quota, and the usage after
//! deletions and other changes.
//!
//! It watches only resources that some quota limits, so that a cluster without quotas fills no
//! cache for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select_all;
use serde_json::Value;

use crate::follower::{Follower, FollowerEvent};
use crate::framework::{self, Controller};
use crate::queue::{Next, Pauses, WorkQueue};
use crate::quota_counter::QuotaCounter;
use watchet_api::{Object, ObjectKey};
use watchet_metrics::Metrics;
use watchet_registry::{ApiError, Registry, Resource};

const NAME: &str = "resourcequota-controller";

const ACCOUNT: &str = "resourcequota-controller";

const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(50),
    max: Duration::from_secs(10),
};

/// How often every quota is recounted; upstream's default.
const RESYNC: Duration = Duration::from_secs(5 * 60);

/// A resource by its group and plural name.
type Name = (String, String);

/// The quotas of a namespace by name, each with the resources that it limits.
type Quotas = HashMap<String, BTreeSet<Name>>;

/// A watched resource.
#[derive(Debug)]
struct WatchedResource {
    resource: Arc<Resource>,
    follower: Follower,
    /// A hash of the usage of each object, for objects in namespaces with quotas.
    footprints: HashMap<ObjectKey, u64>,
}

/// The state of the watches.
#[derive(Debug, Default)]
struct WatchState {
    /// By namespace.
    quotas: HashMap<String, Quotas>,
    watched: BTreeMap<Name, WatchedResource>,
}

/// The resource quota controller.
#[derive(Debug)]
pub(super) struct ResourceQuotas {
    registry: Arc<Registry>,
    queue: WorkQueue<ObjectKey>,
    counter: Arc<dyn QuotaCounter>,
}

fn name_of(resource: &Resource) -> Name {
    (resource.group.clone(), resource.plural.clone())
}

fn parse(object: &Object) -> Value {
    serde_json::from_slice(object.body_slice()).unwrap_or_default()
}

impl ResourceQuotas {
    pub(super) fn new(
        registry: Arc<Registry>,
        metrics: &Metrics,
        counter: Arc<dyn QuotaCounter>,
    ) -> Self {
        Self {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
            counter,
        }
    }

    /// Handles events of quotas, and watches the resources that they limit.
    fn handle_quotas(&self, state: &mut WatchState, events: Vec<FollowerEvent>) {
        for event in events {
            match event {
                FollowerEvent::SyncStarted => state.quotas.clear(),
                FollowerEvent::SyncComplete => {}
                FollowerEvent::Object(quota) => self.handle_quota(state, &quota),
                FollowerEvent::Deleted(quota) => {
                    let namespace = quota.key().namespace();
                    if let Some(quotas) = state.quotas.get_mut(namespace) {
                        quotas.remove(quota.key().name());
                        if quotas.is_empty() {
                            state.quotas.remove(namespace);
                        }
                    }
                }
            }
        }
    }

    fn handle_quota(&self, state: &mut WatchState, quota: &Object) {
        let value = parse(quota);
        let resources = self.counter.resources(&value);
        let names = resources.iter().map(|resource| name_of(resource)).collect();
        for resource in resources {
            state.follow(&self.registry, resource);
        }
        let key = quota.key();
        let quotas = state.quotas.entry(key.namespace().to_owned()).or_default();
        let is_new = quotas.insert(key.name().to_owned(), names).is_none();
        // Most changes of a quota are charges by admission.
        if is_new || self.counter.is_uncounted(&value) {
            self.queue.add(key.clone());
        }
    }

    /// Handles events of objects of a resource: queues the quotas whose usage has decreased, or has
    /// increased other than by admission.
    fn handle_objects(&self, state: &mut WatchState, name: &Name, events: Vec<FollowerEvent>) {
        let WatchState { quotas, watched } = state;
        let Some(watched) = watched.get_mut(name) else {
            return;
        };
        for event in events {
            let is_changed = match &event {
                FollowerEvent::SyncStarted => {
                    watched.footprints.clear();
                    continue;
                }
                FollowerEvent::SyncComplete => {
                    // Deletions before the new state are unknown.
                    for namespace in quotas.keys() {
                        self.queue_quotas(quotas, namespace, name);
                    }
                    continue;
                }
                FollowerEvent::Object(object) => {
                    quotas.contains_key(object.key().namespace())
                        && watched.is_changed(&*self.counter, object)
                }
                FollowerEvent::Deleted(object) => {
                    watched.footprints.remove(object.key());
                    true
                }
            };
            if let (true, FollowerEvent::Object(object) | FollowerEvent::Deleted(object)) =
                (is_changed, &event)
            {
                self.queue_quotas(quotas, object.key().namespace(), name);
            }
        }
    }

    /// Queues the quotas of a namespace that limit a resource.
    fn queue_quotas(&self, quotas: &HashMap<String, Quotas>, namespace: &str, name: &Name) {
        for (quota, names) in quotas.get(namespace).into_iter().flatten() {
            if names.contains(name) {
                self.queue.add(ObjectKey::new(Some(namespace), quota));
            }
        }
    }

    /// Queues every quota, and watches the resources that are served now.
    async fn resync(&self, state: &mut WatchState) {
        let resource = self.resource();
        let any = watchet_api::ListOptions::default();
        match self.registry.list(&resource, None, &any).await {
            Ok(list) => {
                state.quotas.clear();
                for quota in &list.items {
                    self.handle_quota(state, quota);
                }
                state.unfollow_unused();
            }
            Err(error) => tracing::warn!(%error, "cannot list quotas to recount them"),
        }
    }

    fn resource(&self) -> Arc<Resource> {
        let resource = self.registry.resource("", "v1", "resourcequotas");
        resource.expect("the table of built-ins has it")
    }
}

impl WatchState {
    fn follow(&mut self, registry: &Arc<Registry>, resource: Arc<Resource>) {
        let name = name_of(&resource);
        // The definition of a custom resource may have been replaced.
        let watched = self.watched.get(&name);
        if watched.is_some_and(|watched| Arc::ptr_eq(&watched.resource, &resource)) {
            return;
        }
        let watched = WatchedResource {
            follower: Follower::new(registry.clone(), resource.clone()),
            resource,
            footprints: HashMap::new(),
        };
        self.watched.insert(name, watched);
    }

    fn unfollow_unused(&mut self) {
        let all = self.quotas.values().flat_map(HashMap::values).flatten();
        let used: BTreeSet<&Name> = all.collect();
        self.watched.retain(|name, _| used.contains(name));
    }

    /// Returns the next events of any watched resource. Cancel safe.
    async fn next(&mut self) -> (Name, Vec<FollowerEvent>) {
        if self.watched.is_empty() {
            return std::future::pending().await;
        }
        let next = self.watched.iter_mut().map(|(name, watched)| {
            let next = watched.follower.next();
            next.map(move |events| (name.clone(), events)).boxed()
        });
        select_all(next).await.0
    }
}

impl WatchedResource {
    /// Returns true if the usage of the object has changed.
    fn is_changed(&mut self, counter: &dyn QuotaCounter, object: &Object) -> bool {
        let Some(footprint) = counter.footprint(&self.resource, object) else {
            return false;
        };
        let before = self.footprints.insert(object.key().clone(), footprint);
        before.is_some_and(|before| before != footprint)
    }
}

impl Controller for ResourceQuotas {
    type Key = ObjectKey;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 2;

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn follow(&self) {
        let mut quotas = Follower::new(self.registry.clone(), self.resource());
        let mut state = WatchState::default();
        let mut resync = tokio::time::interval(RESYNC);
        // The first tick is immediate, but the follower starts with every quota anyway.
        resync.tick().await;
        loop {
            // The resync comes first because it is rare; quotas come before the resources watched
            // for them.
            tokio::select! {
                biased;
                _ = resync.tick() => self.resync(&mut state).await,
                events = quotas.next() => self.handle_quotas(&mut state, events),
                (name, events) = state.next() => self.handle_objects(&mut state, &name, events),
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        let options = framework::write_options(ACCOUNT);
        let counted = self.counter.count(key, &options).await;
        Ok(counted?.map_or(Next::Done, Next::After))
    }
}
