//! The garbage collector: deletes what only absent owners owned, and carries out foreground and orphaning
//! deletions, by upstream's rules. It follows the metadata of every resource and never scans them.
//!
//! ```text
//!  Follower of each resource ─▶ Graph ─▶ WorkQueue ─▶ examine: get, decide, delete or patch
//!                                                 └─▶ orphan:  patch the dependents, then the owner
//! ```
//!
//! The graph says only whom to look at. What is done is decided on what storage has, and holds only for
//! that: every delete and every patch names the uid and the version that it was decided on.

mod examine;
mod graph;
mod metadata;
mod warning;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::graph::{Consequences, Graph, Place, Uid, Work};
use self::metadata::{Metadata, OwnerReference};
use super::follower::{Follower, News};
use super::frame::Controller;
use super::queue::{Next, Pauses, WorkQueue};
use crate::api::{Object, ObjectKey};
use crate::metrics::Metrics;
use crate::registry::{ApiError, Registry, Resource};

pub(super) const NAME: &str = "garbage-collector-controller";

/// Upstream's service account for it.
const ACCOUNT: &str = "generic-garbage-collector";

const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(10),
    max: Duration::from_secs(30),
};

/// How long the deletion of an owner that waits for its dependents is let rest at first: those that were
/// made just before may still be on their way, since each resource has a watch of its own.
const SETTLE: Duration = Duration::from_millis(100);

/// How long is waited for the first state of all resources before anything is decided. One that cannot be
/// listed stops nobody for longer: what needs it is tried again.
const START_MAX: Duration = Duration::from_secs(30);

/// How often is asked whether resources came or went.
const RESOURCES_PERIOD: Duration = Duration::from_millis(500);

/// Deletes garbage.
#[derive(Debug)]
pub(super) struct GarbageCollector {
    registry: Arc<Registry>,
    graph: Mutex<Graph>,
    queue: WorkQueue<Work>,
    /// Whether the graph is complete enough to decide by.
    started: watch::Sender<bool>,
}

impl Controller for GarbageCollector {
    type Key = Work;
    const NAME: &'static str = NAME;
    /// As upstream's `--concurrent-gc-syncs`.
    const WORKERS: usize = 20;

    fn queue(&self) -> &WorkQueue<Work> {
        &self.queue
    }

    async fn follow(&self) {
        let mut monitors = Monitors::default();
        let started = Instant::now();
        let mut next_look = started;
        loop {
            // The resources come first: they are asked for seldom, and news may never pause.
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(next_look) => {
                    for prefix in monitors.renew(&self.registry) {
                        self.abandon(&prefix);
                    }
                    next_look = Instant::now() + RESOURCES_PERIOD;
                }
                Some((monitor, news)) = monitors.running.next() => {
                    self.heed(monitor, news, &mut monitors);
                }
            }
            if !*self.started.borrow() && (monitors.are_complete() || started.elapsed() > START_MAX)
            {
                self.started.send_replace(true);
            }
        }
    }

    async fn reconcile(&self, work: &Work) -> Result<Next, ApiError> {
        let mut started = self.started.subscribe();
        // The sender lives in `self`, so this cannot fail.
        started.wait_for(|started| *started).await.ok();
        match work {
            Work::Examine(uid) => self.examine(uid).await,
            Work::Orphan(uid) => self.orphan(uid).await,
        }
    }
}

impl GarbageCollector {
    pub(super) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self {
            registry,
            graph: Mutex::default(),
            queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
            started: watch::Sender::new(false),
        }
    }

    /// Takes what a monitor was told into the graph, and lets it go on.
    fn heed(&self, mut monitor: Monitor, news: Vec<News>, monitors: &mut Monitors) {
        for news in news {
            match news {
                News::Begin => {
                    monitor.missing = self.graph.lock().of_resource(&monitor.prefix);
                }
                News::Object(object) => {
                    if !monitor.missing.is_empty() {
                        monitor.missing.remove(object.uid());
                    }
                    self.observe(&monitor.prefix, &object);
                }
                News::Deleted(object) => {
                    let then = self.graph.lock().remove(object.uid());
                    self.enqueue(then);
                }
                News::Complete => {
                    // Of those the deletion was missed, unless they are newer than the list.
                    for missing in std::mem::take(&mut monitor.missing) {
                        self.queue.add(Work::Examine(missing));
                    }
                    monitors.complete(&monitor.prefix);
                }
            }
        }
        monitors.running.push(monitor.next());
    }

    fn observe(&self, prefix: &Arc<str>, object: &Object) {
        let metadata = Metadata::of(object);
        let place = Place {
            prefix: prefix.clone(),
            key: object.key().clone(),
        };
        let then = self.graph.lock().observe(place, &metadata);
        let doubtful = then.new_owners
            && !self.owners_are_there(&metadata, object.key())
            && !metadata.uid.is_empty();
        self.enqueue(then);
        if doubtful {
            self.queue.add(Work::Examine(metadata.uid.as_ref().into()));
        }
    }

    fn enqueue(&self, then: Consequences) {
        for work in then.now {
            self.queue.add(work);
        }
        for work in then.soon {
            self.queue.add_after(work, SETTLE);
        }
    }

    /// What was known of a resource that is no longer served has to be asked for.
    fn abandon(&self, prefix: &str) {
        let known = self.graph.lock().of_resource(prefix);
        for uid in known {
            self.queue.add(Work::Examine(uid));
        }
    }

    /// Whether the caches have all owners of an object, and none of them waits for its dependents: then
    /// there is nothing to do before one of them changes, of which we are told.
    fn owners_are_there(&self, metadata: &Metadata<'_>, dependent: &ObjectKey) -> bool {
        metadata.owners.iter().all(|owner| {
            let Some((resource, key)) = self.place_of(owner, dependent) else {
                return false;
            };
            let cached = self.registry.peek(&resource, &key);
            if cached.is_none_or(|cached| *cached.uid() != *owner.uid) {
                return false;
            }
            let mut graph = self.graph.lock();
            graph.found(&owner.uid, || Place {
                prefix: resource.storage_prefix.as_str().into(),
                key,
            });
            !graph.deletes_dependents(&owner.uid)
        })
    }

    /// Where an owner of `dependent` should be; `None` when there is no such kind, or when it lives in
    /// a namespace and its dependent does not.
    fn place_of(
        &self,
        owner: &OwnerReference<'_>,
        dependent: &ObjectKey,
    ) -> Option<(Arc<Resource>, ObjectKey)> {
        let resource = self.registry.served_kind(&owner.api_version, &owner.kind)?;
        let namespace = match resource.namespaced {
            true if dependent.namespace().is_empty() => return None,
            true => Some(dependent.namespace()),
            false => None,
        };
        let key = ObjectKey::new(namespace, &owner.name);
        Some((resource, key))
    }
}

/// The followers of all resources.
#[derive(Default)]
struct Monitors {
    running: FuturesUnordered<Told>,
    /// By storage prefix: resources that share one have the same objects.
    known: BTreeMap<String, Known>,
}

struct Known {
    resource: Arc<Resource>,
    complete: bool,
    stop: CancellationToken,
}

/// One of them.
struct Monitor {
    prefix: Arc<str>,
    follower: Follower,
    stop: CancellationToken,
    /// Objects in the graph that the state has not told yet.
    missing: HashSet<Uid>,
}

type Told = futures_util::future::BoxFuture<'static, (Monitor, Vec<News>)>;

impl Monitor {
    /// What it is told next; never, once it is stopped.
    fn next(mut self) -> Told {
        Box::pin(async move {
            // Stopping comes first: the resource is gone.
            let news = tokio::select! {
                biased;
                () = self.stop.cancelled() => None,
                news = self.follower.next() => Some(news),
            };
            match news {
                Some(news) => (self, news),
                None => {
                    drop(self);
                    std::future::pending().await
                }
            }
        })
    }
}

impl Monitors {
    /// Follows the resources that came or changed, and those that went no longer; the prefixes of the
    /// latter are returned.
    fn renew(&mut self, registry: &Arc<Registry>) -> Vec<String> {
        let mut served: BTreeMap<String, Arc<Resource>> = BTreeMap::new();
        for resource in registry.resources() {
            let prefix = &resource.storage_prefix;
            if is_collected(&resource)
                && !served.contains_key(prefix)
                && let Some(owner) = registry.resource_at(prefix)
            {
                served.insert(prefix.clone(), owner);
            }
        }
        let mut left = Vec::new();
        self.known.retain(|prefix, known| {
            let stays = served
                .get(prefix)
                .is_some_and(|r| Arc::ptr_eq(r, &known.resource));
            if !stays {
                known.stop.cancel();
                if !served.contains_key(prefix) {
                    left.push(prefix.clone());
                }
            }
            stays
        });
        for (prefix, resource) in served {
            if self.known.contains_key(&prefix) {
                continue;
            }
            let stop = CancellationToken::new();
            let monitor = Monitor {
                follower: Follower::new(registry.clone(), resource.clone()),
                prefix: prefix.as_str().into(),
                stop: stop.clone(),
                missing: HashSet::new(),
            };
            self.running.push(monitor.next());
            let known = Known {
                resource,
                complete: false,
                stop,
            };
            self.known.insert(prefix, known);
        }
        left
    }

    fn complete(&mut self, prefix: &str) {
        if let Some(known) = self.known.get_mut(prefix) {
            known.complete = true;
        }
    }

    fn are_complete(&self) -> bool {
        !self.known.is_empty() && self.known.values().all(|known| known.complete)
    }
}

/// Whether the objects of a resource can be garbage: events are not, they go by themselves.
fn is_collected(resource: &Resource) -> bool {
    let has = |verb: &str| resource.verbs.iter().any(|v| v == verb);
    resource.plural != "events" && ["list", "watch", "delete"].into_iter().all(has)
}
