//! Watches all resources that can have owners, and tracks how far each watch is: an owner may be
//! released only when all its dependents are monitored.
//!
//! # Definitions
//!
//! - *Goal*: the version up to which an examination needs all changes. It only grows.
//! - A monitor has *reached* a goal when it has returned every change of its resource up to it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::follower::{Follower, FollowerEvent};
use crate::garbage::graph::Uid;
use watchet_api::ResourceVersion;
use watchet_registry::{Registry, Resource};

/// The pause before progress is requested again from a cache that failed to report it.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The wait for an etcd without progress notifications: longer than its events take.
const SETTLE: Duration = Duration::from_millis(500);

/// How often to log which resources a goal waits for, if it is not reached.
const BEHIND_MAX: Duration = Duration::from_secs(30);

/// How many monitors may initialize concurrently: each makes a cache list storage on its own
/// thread, and at a start there are many small ones.
const FILLING_MAX: usize = 4;

/// The monitors of all resources.
pub(super) struct Monitors {
    registry: Arc<Registry>,
    running: FuturesUnordered<NextEvents>,
    /// By storage prefix: resources with the same prefix have the same objects.
    monitored: BTreeMap<String, MonitoredResource>,
    goals: watch::Receiver<ResourceVersion>,
    /// The current goal; all resources that existed when it was set are monitored, possibly also later
    /// ones.
    goal: ResourceVersion,
    /// Since when the goal is not reached, or when that was last logged.
    behind_since: Option<Instant>,
    filling: Arc<Semaphore>,
}

struct MonitoredResource {
    resource: Arc<Resource>,
    complete: bool,
    reached: ResourceVersion,
    stop: CancellationToken,
}

/// A monitor of one resource.
pub(super) struct Monitor {
    registry: Arc<Registry>,
    resource: Arc<Resource>,
    pub(super) prefix: Arc<str>,
    follower: Follower,
    stop: CancellationToken,
    /// Objects in the graph that the initial state has not contained so far.
    pub(super) missing: HashSet<Uid>,
    goals: watch::Receiver<ResourceVersion>,
    ahead: Option<Ahead>,
    reached: ResourceVersion,
    turn: Turn,
}

/// Whether a monitor may initialize.
enum Turn {
    Awaited(Arc<Semaphore>),
    /// Until its initial state is complete, or it failed to start.
    Acquired(#[expect(dead_code, reason = "a guard")] OwnedSemaphorePermit),
    Over,
}

/// The distance of a monitor to a goal.
#[derive(Debug, Clone, Copy)]
struct Ahead {
    goal: ResourceVersion,
    /// The cache has reached the goal; this is its last change.
    last_change: ResourceVersion,
}

/// A monitor and its next events.
type NextEvents = BoxFuture<'static, (Monitor, Vec<FollowerEvent>)>;

enum MonitorInput {
    Stop,
    FollowerEvent(Vec<FollowerEvent>),
    Ahead(Ahead),
}

/// Returns the next events of a follower, once its turn has come. Cancel safe.
async fn next_events(follower: &mut Follower, turn: &mut Turn) -> Vec<FollowerEvent> {
    if let Turn::Awaited(filling) = turn {
        let permit = filling.clone().acquire_owned().await;
        *turn = Turn::Acquired(permit.expect("the semaphore is never closed"));
    }
    let events = follower.next().await;
    let complete = events
        .iter()
        .any(|events| matches!(events, FollowerEvent::SyncComplete));
    if complete || !follower.is_open() {
        *turn = Turn::Over;
    }
    events
}

impl Monitor {
    /// Returns the next events; never, if it is stopped.
    fn next(mut self) -> NextEvents {
        Box::pin(async move {
            let ahead = ahead(
                &self.registry,
                &self.resource,
                &mut self.goals,
                self.reached,
            );
            // Stopping comes first, since the resource was removed; then events, which goals wait
            // for.
            let input = tokio::select! {
                biased;
                () = self.stop.cancelled() => MonitorInput::Stop,
                events = next_events(&mut self.follower, &mut self.turn) => MonitorInput::FollowerEvent(events),
                ahead = ahead, if self.ahead.is_none() => MonitorInput::Ahead(ahead),
            };
            match input {
                MonitorInput::FollowerEvent(events) => (self, events),
                MonitorInput::Ahead(ahead) => {
                    self.ahead = Some(ahead);
                    (self, Vec::new())
                }
                MonitorInput::Stop => {
                    drop(self);
                    std::future::pending().await
                }
            }
        })
    }

    /// Returns the goal if it has just been reached. The returned events must have been applied.
    fn reaches(&mut self) -> Option<ResourceVersion> {
        let version = self.follower.version()?;
        let ahead = self.ahead.take_if(|ahead| ahead.last_change <= version)?;
        self.reached = ahead.goal;
        Some(ahead.goal)
    }
}

/// Waits for a goal beyond `reached`, and for the cache of `resource` to reach it. Cancel safe.
async fn ahead(
    registry: &Registry,
    resource: &Resource,
    goals: &mut watch::Receiver<ResourceVersion>,
    reached: ResourceVersion,
) -> Ahead {
    let goal = goals.wait_for(|goal| *goal > reached).await;
    let Ok(goal) = goal.map(|goal| *goal) else {
        // The sender was dropped: there will be no more goals.
        return std::future::pending().await;
    };
    loop {
        match registry.changed_up_to(resource, goal).await {
            Ok(Some(last_change)) => return Ahead { goal, last_change },
            Ok(None) => {
                tokio::time::sleep(SETTLE).await;
                let last_change = ResourceVersion::ZERO;
                return Ahead { goal, last_change };
            }
            Err(error) => {
                let resource = resource.qualified();
                tracing::debug!(resource, %error, "cache progress unknown");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

impl Monitors {
    /// Creates an empty set; `goals` receives the goals.
    pub(super) fn new(registry: Arc<Registry>, goals: watch::Receiver<ResourceVersion>) -> Self {
        Self {
            registry,
            running: FuturesUnordered::new(),
            monitored: BTreeMap::new(),
            goals,
            goal: ResourceVersion::ZERO,
            behind_since: None,
            filling: Arc::new(Semaphore::new(FILLING_MAX)),
        }
    }

    /// Returns the next events of any monitor; `None` if the goal has changed, which
    /// [`Self::renew`] must apply. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<(Monitor, Vec<FollowerEvent>)> {
        // Goals come first: they are rare, and examinations wait for them.
        tokio::select! {
            biased;
            Ok(()) = self.goals.changed() => None,
            Some(next) = self.running.next() => Some(next),
            else => std::future::pending().await,
        }
    }

    /// Starts monitors of added or replaced resources and stops those of removed ones; returns the
    /// storage prefixes of the latter.
    pub(super) fn renew(&mut self) -> Vec<String> {
        // Read before the resources, so that these include all that could have objects up to the
        // goal.
        self.goal = *self.goals.borrow_and_update();
        let mut served: BTreeMap<String, Arc<Resource>> = BTreeMap::new();
        for resource in self.registry.resources() {
            let prefix = &resource.storage_prefix;
            if is_collected(&resource)
                && !served.contains_key(prefix)
                && let Some(owner) = self.registry.resource_at(prefix)
            {
                served.insert(prefix.clone(), owner);
            }
        }
        let mut left = Vec::new();
        self.monitored.retain(|prefix, monitored| {
            let stays = served
                .get(prefix)
                .is_some_and(|r| Arc::ptr_eq(r, &monitored.resource));
            if !stays {
                monitored.stop.cancel();
                if !served.contains_key(prefix) {
                    left.push(prefix.clone());
                }
            }
            stays
        });
        for (prefix, resource) in served {
            if !self.monitored.contains_key(&prefix) {
                self.follow(prefix, resource);
            }
        }
        left
    }

    fn follow(&mut self, prefix: String, resource: Arc<Resource>) {
        let stop = CancellationToken::new();
        let monitor = Monitor {
            registry: self.registry.clone(),
            resource: resource.clone(),
            prefix: prefix.as_str().into(),
            follower: Follower::new(self.registry.clone(), resource.clone()),
            stop: stop.clone(),
            missing: HashSet::new(),
            goals: self.goals.clone(),
            ahead: None,
            reached: ResourceVersion::ZERO,
            turn: Turn::Awaited(self.filling.clone()),
        };
        self.running.push(monitor.next());
        let monitored = MonitoredResource {
            resource,
            complete: false,
            reached: ResourceVersion::ZERO,
            stop,
        };
        self.monitored.insert(prefix, monitored);
    }

    /// Continues a monitor whose events were applied; returns whether it has reached a new goal.
    pub(super) fn resume(&mut self, mut monitor: Monitor) -> bool {
        let reached = monitor.reaches();
        let monitored = self.monitored.get_mut(&*monitor.prefix);
        if let (Some(goal), Some(monitored)) = (reached, monitored)
            && Arc::ptr_eq(&monitored.resource, &monitor.resource)
        {
            monitored.reached = goal;
        }
        self.running.push(monitor.next());
        reached.is_some()
    }

    /// Records that the initial state of a resource is complete.
    pub(super) fn complete(&mut self, prefix: &str) {
        if let Some(monitored) = self.monitored.get_mut(prefix) {
            monitored.complete = true;
        }
    }

    /// Returns whether the initial state of every resource is complete.
    pub(super) fn are_complete(&self) -> bool {
        !self.monitored.is_empty() && self.monitored.values().all(|monitored| monitored.complete)
    }

    /// Returns the goal, if all monitors have reached it.
    pub(super) fn reached(&self) -> Option<ResourceVersion> {
        let all = self
            .monitored
            .values()
            .all(|monitored| monitored.reached >= self.goal);
        all.then_some(self.goal)
    }

    /// Logs which resources the goal waits for, if that takes long.
    pub(super) fn log_if_behind(&mut self) {
        if self.reached().is_some() {
            self.behind_since = None;
            return;
        }
        let now = Instant::now();
        if now - *self.behind_since.get_or_insert(now) >= BEHIND_MAX {
            let behind = self.monitored.values().filter(|k| k.reached < self.goal);
            let resources: Vec<_> = behind
                .map(|monitored| monitored.resource.qualified())
                .collect();
            tracing::warn!(
                ?resources,
                "owners wait: the dependents in some resources are not yet monitored"
            );
            self.behind_since = Some(now);
        }
    }
}

/// Returns whether objects of a resource are collected: events are not, they expire.
fn is_collected(resource: &Resource) -> bool {
    let offered = resource.offered();
    let has = |verb: &&str| offered.contains(verb);
    resource.plural != "events" && ["list", "watch", "delete"].iter().all(has)
}
