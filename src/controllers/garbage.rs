//! The garbage collector: deletes what only absent owners owned, and carries out foreground and orphaning
//! deletions, by upstream's rules. It follows the metadata of every resource and never scans them.
//!
//! ```text
//!  Follower of each resource ─▶ Graph ─▶ WorkQueue ─▶ examine: get, decide, delete or patch
//!                                                 └─▶ orphan:  patch the dependents, then the owner
//! ```
//!
//! The graph says only whom to look at. What is done is decided on what storage has, and holds only for
//! that: every delete and every patch names the uid and the version that it was decided on. An owner that
//! waits for its dependents is let go when every resource that there was at the version of that decision
//! is followed, and was told up to it: who came before is known then.

mod examine;
mod graph;
mod metadata;
mod monitors;
mod warning;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use self::graph::{Consequences, Graph, Place, Work};
use self::metadata::{Metadata, OwnerReference};
use self::monitors::{Monitor, Monitors};
use super::follower::News;
use super::frame::Controller;
use super::queue::{Next, Pauses, WorkQueue};
use crate::api::{Object, ObjectKey, ResourceVersion};
use crate::metrics::Metrics;
use crate::registry::{ApiError, Registry, Resource};

pub(super) const NAME: &str = "garbage-collector-controller";

/// Upstream's service account for it.
const ACCOUNT: &str = "generic-garbage-collector";

const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(10),
    max: Duration::from_secs(30),
};

/// How long is waited for the first state of all resources before anything is looked at: most of it needs
/// no look then. One that cannot be listed stops nobody for longer.
const START_MAX: Duration = Duration::from_secs(30);

/// How long a look waits for what is yet to be told before it makes room for others.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);

/// How often is asked whether resources came or went.
const RESOURCES_PERIOD: Duration = Duration::from_millis(500);

/// Deletes garbage.
#[derive(Debug)]
pub(super) struct GarbageCollector {
    registry: Arc<Registry>,
    graph: Mutex<Graph>,
    queue: WorkQueue<Work>,
    /// Whether the first state of all resources was told.
    started: watch::Sender<bool>,
    /// Up to which version a look wants the graph to know everything; from looks to monitors.
    wanted: watch::Sender<ResourceVersion>,
    /// Up to which version it does; from monitors to looks.
    known: watch::Sender<ResourceVersion>,
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
        // A server that starts has something better to do than to look for garbage.
        if let Err(error) = self.registry.definitions_up_to(ResourceVersion::ZERO).await {
            tracing::warn!(%error, "some resources may be followed later");
        }
        let mut monitors = Monitors::new(self.registry.clone(), self.wanted.subscribe());
        let started = Instant::now();
        let mut next_look = started;
        loop {
            // The time comes first: it is seldom, and news may never pause.
            let progress = tokio::select! {
                biased;
                () = tokio::time::sleep_until(next_look) => {
                    next_look = Instant::now() + RESOURCES_PERIOD;
                    monitors.complain();
                    self.renew(&mut monitors)
                }
                told = monitors.next() => match told {
                    Some((monitor, news)) => self.heed(monitor, news, &mut monitors),
                    None => self.renew(&mut monitors),
                },
            };
            if progress && let Some(reached) = monitors.reached() {
                self.known.send_replace(reached);
            }
            if !*self.started.borrow() && (monitors.are_complete() || started.elapsed() > START_MAX)
            {
                self.started.send_replace(true);
            }
        }
    }

    async fn reconcile(&self, work: &Work) -> Result<Next, ApiError> {
        let mut started = self.started.subscribe();
        let waited = started.wait_for(|started| *started).await;
        waited.expect("the sender lives in `self`");
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
            wanted: watch::Sender::new(ResourceVersion::ZERO),
            known: watch::Sender::new(ResourceVersion::ZERO),
        }
    }

    /// Looks which resources there are; true, because that may be all that a goal has waited for.
    fn renew(&self, monitors: &mut Monitors) -> bool {
        for prefix in monitors.renew() {
            self.abandon(&prefix);
        }
        true
    }

    /// Waits until the graph has everything that there was at `version`; whether it does. A resource
    /// that cannot be read keeps every owner that waits for its dependents: it may have some.
    async fn catch_up(&self, version: ResourceVersion) -> Result<bool, ApiError> {
        // First the resources themselves: the monitors look for them when they are told of the goal.
        self.registry.definitions_up_to(version).await?;
        self.wanted.send_if_modified(|wanted| {
            let more = *wanted < version;
            *wanted = version.max(*wanted);
            more
        });
        let mut known = self.known.subscribe();
        let there = known.wait_for(|known| *known >= version);
        match tokio::time::timeout(CATCH_UP_MAX, there).await {
            Ok(there) => {
                there.expect("the sender lives in `self`");
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    /// Takes what a monitor was told into the graph, and lets it go on; whether it is further now.
    fn heed(&self, mut monitor: Monitor, news: Vec<News>, monitors: &mut Monitors) -> bool {
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
        monitors.go_on(monitor)
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
        for work in then.work {
            self.queue.add(work);
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
