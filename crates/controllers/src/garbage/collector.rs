//! The garbage collector as a controller: follows every resource, applies its events to the graph, and queues the
//! objects that must be examined.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::follower::FollowerEvent;
use crate::framework::Controller;
use crate::garbage::graph::{Consequences, Graph, Location, Work};
use crate::garbage::metadata::{Metadata, OwnerReference};
use crate::garbage::monitors::{Monitor, Monitors};
use crate::queue::{Next, Pauses, WorkQueue};
use watchet_api::{Object, ObjectKey, ResourceVersion};
use watchet_metrics::Metrics;
use watchet_registry::{ApiError, Registry, Resource};

const NAME: &str = "garbage-collector-controller";

/// The name of upstream's service account for this controller.
pub(super) const ACCOUNT: &str = "generic-garbage-collector";

const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(10),
    max: Duration::from_secs(30),
};

/// The maximum wait for the initial state of all resources before the first object is examined:
/// most objects need no examination then. A resource that cannot be listed does not block the
/// others for longer.
const START_MAX: Duration = Duration::from_secs(30);

/// The maximum time that an examination waits for the watches to catch up before it frees the
/// worker.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);

/// How often to check for added and removed resources.
const RESOURCES_PERIOD: Duration = Duration::from_millis(500);

/// Deletes garbage.
#[derive(Debug)]
pub(crate) struct GarbageCollector {
    pub(super) registry: Arc<Registry>,
    pub(super) graph: Mutex<Graph>,
    pub(super) queue: WorkQueue<Work>,
    /// Whether the initial state of all resources is complete.
    started: watch::Sender<bool>,
    /// The version that examinations wait for; from examinations to monitors.
    goal: watch::Sender<ResourceVersion>,
    /// The version that all monitors have reached; from monitors to examinations.
    reached: watch::Sender<ResourceVersion>,
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
        // Waits for the definitions in storage, so that custom resources are watched from the start.
        if let Err(error) = self.registry.definitions_up_to(ResourceVersion::ZERO).await {
            tracing::warn!(%error, "custom resources are not yet reached, their watches may start later");
        }
        let mut monitors = Monitors::new(self.registry.clone(), self.goal.subscribe());
        let started = Instant::now();
        let mut next_update = started;
        loop {
            // The timer comes first: it is rare, and events may arrive without a pause.
            let progress = tokio::select! {
                biased;
                () = tokio::time::sleep_until(next_update) => {
                    next_update = Instant::now() + RESOURCES_PERIOD;
                    monitors.log_if_behind();
                    self.renew(&mut monitors)
                }
                next = monitors.next() => match next {
                    Some((monitor, events)) => self.handle_events(monitor, events, &mut monitors),
                    None => self.renew(&mut monitors),
                },
            };
            if progress && let Some(version) = monitors.reached() {
                self.reached.send_replace(version);
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
    pub(crate) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self {
            registry,
            graph: Mutex::default(),
            queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
            started: watch::Sender::new(false),
            goal: watch::Sender::new(ResourceVersion::ZERO),
            reached: watch::Sender::new(ResourceVersion::ZERO),
        }
    }

    /// Updates the set of resources. Returns true: a goal that waited for a removed resource may be
    /// reached.
    fn renew(&self, monitors: &mut Monitors) -> bool {
        for prefix in monitors.renew() {
            self.abandon(&prefix);
        }
        true
    }

    /// Waits until the graph contains everything up to `version`; returns false on a timeout. While
    /// a resource cannot be read, no owner that waits for dependents is deleted: they may be of
    /// that resource.
    pub(super) async fn catch_up(&self, version: ResourceVersion) -> Result<bool, ApiError> {
        // Before the goal changes, because the monitors then read the set of resources.
        self.registry.definitions_up_to(version).await?;
        self.goal.send_if_modified(|goal| {
            let more = *goal < version;
            *goal = version.max(*goal);
            more
        });
        let mut reached = self.reached.subscribe();
        let waited = reached.wait_for(|reached| *reached >= version);
        match tokio::time::timeout(CATCH_UP_MAX, waited).await {
            Ok(waited) => {
                waited.expect("the sender lives in `self`");
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    /// Applies the events of a monitor to the graph and continues the monitor; returns whether it
    /// has reached a new goal.
    fn handle_events(
        &self,
        mut monitor: Monitor,
        events: Vec<FollowerEvent>,
        monitors: &mut Monitors,
    ) -> bool {
        for event in events {
            match event {
                FollowerEvent::SyncStarted => {
                    monitor.missing = self.graph.lock().of_resource(&monitor.prefix);
                }
                FollowerEvent::Object(object) => {
                    if !monitor.missing.is_empty() {
                        monitor.missing.remove(object.uid());
                    }
                    self.observe(&monitor.prefix, &object);
                }
                FollowerEvent::Deleted(object) => {
                    let then = self.graph.lock().remove(object.uid());
                    self.enqueue(then);
                }
                FollowerEvent::SyncComplete => {
                    // Their deletion was missed, unless they are newer than the list.
                    for missing in std::mem::take(&mut monitor.missing) {
                        self.queue.add(Work::Examine(missing));
                    }
                    monitors.complete(&monitor.prefix);
                }
            }
        }
        monitors.resume(monitor)
    }

    fn observe(&self, prefix: &Arc<str>, object: &Object) {
        let metadata = Metadata::of(object);
        let location = Location {
            prefix: prefix.clone(),
            key: object.key().clone(),
        };
        let then = self.graph.lock().observe(location, &metadata);
        let needs_examination = then.new_owners
            && !self.are_owners_present(&metadata, object.key())
            && !metadata.uid.is_empty();
        self.enqueue(then);
        if needs_examination {
            self.queue.add(Work::Examine(metadata.uid.as_ref().into()));
        }
    }

    pub(super) fn enqueue(&self, then: Consequences) {
        for work in then.work {
            self.queue.add(work);
        }
    }

    /// Queues the objects of a resource that is no longer served, so that storage is checked for
    /// each.
    fn abandon(&self, prefix: &str) {
        let uids = self.graph.lock().of_resource(prefix);
        for uid in uids {
            self.queue.add(Work::Examine(uid));
        }
    }

    /// Returns whether the caches contain all owners of an object and none of them waits for its
    /// dependents: then nothing needs to be done before one of them changes, which causes an event.
    pub(super) fn are_owners_present(
        &self,
        metadata: &Metadata<'_>,
        dependent: &ObjectKey,
    ) -> bool {
        metadata.owners.iter().all(|owner| {
            let Some((resource, key)) = self.location_of(owner, dependent) else {
                return false;
            };
            let cached = self.registry.peek(&resource, &key);
            if cached.is_none_or(|cached| *cached.uid() != *owner.uid) {
                return false;
            }
            let mut graph = self.graph.lock();
            graph.found(&owner.uid, || Location {
                prefix: resource.storage_prefix.as_str().into(),
                key,
            });
            !graph.deletes_dependents(&owner.uid)
        })
    }

    /// Returns the resource and key of an owner of `dependent`; `None` if its kind is not served,
    /// or if it is namespaced and the dependent is not.
    pub(super) fn location_of(
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
