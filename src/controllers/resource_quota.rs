//! The resource quota controller: keeps the status of every ResourceQuota up to date. Admission charges what is
//! created; this counts what a new quota begins with, and what is left after deletions and other changes.
//!
//! It follows the resources that the quotas are about and no others, so that a cluster without quotas fills no
//! cache for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select_all;
use serde_json::Value;

use super::follower::{Follower, News};
use super::frame::{self, Controller};
use super::queue::{Next, Pauses, WorkQueue};
use crate::api::{Object, ObjectKey};
use crate::metrics::Metrics;
use crate::registry::{ApiError, Registry, Resource};

pub(super) const NAME: &str = "resourcequota-controller";

const ACCOUNT: &str = "resourcequota-controller";

const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(50),
    max: Duration::from_secs(10),
};

/// How often every quota is counted, whatever has happened; upstream's default.
const RESYNC: Duration = Duration::from_secs(5 * 60);

/// A resource by its group and plural name.
type Name = (String, String);

/// The quotas of a namespace by name, each with the resources that it is about.
type Quotas = HashMap<String, BTreeSet<Name>>;

/// A resource that quotas are about.
#[derive(Debug)]
struct Counted {
    resource: Arc<Resource>,
    follower: Follower,
    /// What the objects of namespaces with quotas count for, as a hash.
    footprints: HashMap<ObjectKey, u64>,
}

/// What the controller knows while it follows.
#[derive(Debug, Default)]
struct Known {
    /// By namespace.
    quotas: HashMap<String, Quotas>,
    counted: BTreeMap<Name, Counted>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ResourceQuotas {
    registry: Arc<Registry>,
    queue: WorkQueue<ObjectKey>,
}

fn name_of(resource: &Resource) -> Name {
    (resource.group.clone(), resource.plural.clone())
}

fn parse(object: &Object) -> Value {
    serde_json::from_slice(object.body_slice()).unwrap_or_default()
}

impl ResourceQuotas {
    pub(super) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
        }
    }

    /// Handles changes of quotas, and follows what they are about.
    fn handle_quotas(&self, known: &mut Known, news: Vec<News>) {
        for news in news {
            match news {
                News::Begin => known.quotas.clear(),
                News::Complete => {}
                News::Object(quota) => self.handle_quota(known, &quota),
                News::Deleted(quota) => {
                    let namespace = quota.key().namespace();
                    if let Some(quotas) = known.quotas.get_mut(namespace) {
                        quotas.remove(quota.key().name());
                        if quotas.is_empty() {
                            known.quotas.remove(namespace);
                        }
                    }
                }
            }
        }
    }

    fn handle_quota(&self, known: &mut Known, quota: &Object) {
        let value = parse(quota);
        let resources = self.registry.resources_of_quota(&value);
        let names = resources.iter().map(|resource| name_of(resource)).collect();
        for resource in resources {
            known.follow(&self.registry, resource);
        }
        let key = quota.key();
        let quotas = known.quotas.entry(key.namespace().to_owned()).or_default();
        let is_new = quotas.insert(key.name().to_owned(), names).is_none();
        // Most changes of a quota are charges.
        if is_new || self.registry.is_quota_uncounted(&value) {
            self.queue.add(key.clone());
        }
    }

    /// Handles changes of objects of a resource: queues the quotas of which less is used, or more by other ways
    /// than admission.
    fn handle_objects(&self, known: &mut Known, name: &Name, news: Vec<News>) {
        let Known { quotas, counted } = known;
        let Some(counted) = counted.get_mut(name) else {
            return;
        };
        for news in news {
            let is_changed = match &news {
                News::Begin => {
                    counted.footprints.clear();
                    continue;
                }
                News::Complete => {
                    // Which objects were deleted before that, nobody knows.
                    for namespace in quotas.keys() {
                        self.queue_quotas(quotas, namespace, name);
                    }
                    continue;
                }
                News::Object(object) => {
                    quotas.contains_key(object.key().namespace())
                        && counted.is_changed(&self.registry, object)
                }
                News::Deleted(object) => {
                    counted.footprints.remove(object.key());
                    true
                }
            };
            if let (true, News::Object(object) | News::Deleted(object)) = (is_changed, &news) {
                self.queue_quotas(quotas, object.key().namespace(), name);
            }
        }
    }

    /// Queues the quotas of a namespace that are about a resource.
    fn queue_quotas(&self, quotas: &HashMap<String, Quotas>, namespace: &str, name: &Name) {
        for (quota, names) in quotas.get(namespace).into_iter().flatten() {
            if names.contains(name) {
                self.queue.add(ObjectKey::new(Some(namespace), quota));
            }
        }
    }

    /// Queues every quota, and follows what is served now.
    async fn resync(&self, known: &mut Known) {
        let resource = self.resource();
        let any = crate::api::ListOptions::default();
        match self.registry.list(&resource, None, &any).await {
            Ok(list) => {
                known.quotas.clear();
                for quota in &list.items {
                    self.handle_quota(known, quota);
                }
                known.unfollow_unused();
            }
            Err(error) => tracing::warn!(%error, "cannot list quotas to count them again"),
        }
    }

    fn resource(&self) -> Arc<Resource> {
        let resource = self.registry.resource("", "v1", "resourcequotas");
        resource.expect("the table of built-ins has it")
    }
}

impl Known {
    fn follow(&mut self, registry: &Arc<Registry>, resource: Arc<Resource>) {
        let name = name_of(&resource);
        // A definition of custom resources may have been replaced.
        let counted = self.counted.get(&name);
        if counted.is_some_and(|counted| Arc::ptr_eq(&counted.resource, &resource)) {
            return;
        }
        let counted = Counted {
            follower: Follower::new(registry.clone(), resource.clone()),
            resource,
            footprints: HashMap::new(),
        };
        self.counted.insert(name, counted);
    }

    fn unfollow_unused(&mut self) {
        let all = self.quotas.values().flat_map(HashMap::values).flatten();
        let used: BTreeSet<&Name> = all.collect();
        self.counted.retain(|name, _| used.contains(name));
    }

    /// What comes next of the resources that are followed. Cancel safe.
    async fn next(&mut self) -> (Name, Vec<News>) {
        if self.counted.is_empty() {
            return std::future::pending().await;
        }
        let next = self.counted.iter_mut().map(|(name, counted)| {
            let next = counted.follower.next();
            next.map(move |news| (name.clone(), news)).boxed()
        });
        select_all(next).await.0
    }
}

impl Counted {
    /// Returns true if the object counts for something else than before.
    fn is_changed(&mut self, registry: &Registry, object: &Object) -> bool {
        let Some(footprint) = registry.quota_footprint(&self.resource, object) else {
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
        let mut known = Known::default();
        let mut resync = tokio::time::interval(RESYNC);
        // The first tick is immediate, and the follower begins with every quota.
        resync.tick().await;
        loop {
            // The resync comes first because it is rare, and quotas before what is followed for them.
            tokio::select! {
                biased;
                _ = resync.tick() => self.resync(&mut known).await,
                news = quotas.next() => self.handle_quotas(&mut known, news),
                (name, news) = known.next() => self.handle_objects(&mut known, &name, news),
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        let options = frame::write_options(ACCOUNT);
        self.registry.count_quota(key, &options).await?;
        Ok(Next::Done)
    }
}
