//! The followers of all resources that can have owners, and how far each has told: whoever lets an owner
//! go must have heard of every dependent. What is told is made sense of elsewhere.
//!
//! # Definitions
//!
//! - *Goal*: a version up to which somebody wants to know everything. It only grows.
//! - A monitor has *reached* a goal when it has told every change of its resource up to it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::graph::Uid;
use crate::api::ResourceVersion;
use crate::controllers::follower::{Follower, News};
use crate::registry::{Registry, Resource};

/// How long is waited before a cache that could not say how far it is is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How long an etcd that cannot tell its progress is given to tell what it has: longer than that takes.
const SETTLE: Duration = Duration::from_millis(500);

/// How long a goal may take before people are told what it waits for, and then again.
const BEHIND_MAX: Duration = Duration::from_secs(30);

/// How many caches fill at a time because of us: each reads storage on a thread of its own, and at a start
/// there are many that have next to nothing to read.
const FILLING_MAX: usize = 4;

/// The followers of all resources.
pub(super) struct Monitors {
    registry: Arc<Registry>,
    running: FuturesUnordered<Told>,
    /// By storage prefix: resources that share one have the same objects.
    known: BTreeMap<String, Known>,
    wanted: watch::Receiver<ResourceVersion>,
    /// The goal of the moment; the resources that there were then, and perhaps later ones, are known.
    goal: ResourceVersion,
    /// Since when, at the last complaint, it was not reached.
    behind_since: Option<Instant>,
    filling: Arc<Semaphore>,
}

struct Known {
    resource: Arc<Resource>,
    complete: bool,
    reached: ResourceVersion,
    stop: CancellationToken,
}

/// One of them.
pub(super) struct Monitor {
    registry: Arc<Registry>,
    resource: Arc<Resource>,
    pub(super) prefix: Arc<str>,
    follower: Follower,
    stop: CancellationToken,
    /// Objects in the graph that the state has not told yet.
    pub(super) missing: HashSet<Uid>,
    wanted: watch::Receiver<ResourceVersion>,
    ahead: Option<Ahead>,
    reached: ResourceVersion,
    turn: Turn,
}

/// Whether a monitor may begin.
enum Turn {
    Awaited(Arc<Semaphore>),
    /// Until its first state was told, or it failed to begin.
    Taken(#[expect(dead_code, reason = "it is held")] OwnedSemaphorePermit),
    Over,
}

/// What is between a monitor and a goal.
#[derive(Debug, Clone, Copy)]
struct Ahead {
    goal: ResourceVersion,
    /// The cache has reached the goal, and this is its last change.
    last_change: ResourceVersion,
}

/// A monitor, and what it was told.
type Told = BoxFuture<'static, (Monitor, Vec<News>)>;

enum Heard {
    Stop,
    News(Vec<News>),
    Ahead(Ahead),
}

/// What a follower is told next, once it is its turn. Cancel safe.
async fn told(follower: &mut Follower, turn: &mut Turn) -> Vec<News> {
    if let Turn::Awaited(filling) = turn {
        let permit = filling.clone().acquire_owned().await;
        *turn = Turn::Taken(permit.expect("nobody closes it"));
    }
    let news = follower.next().await;
    let complete = news.iter().any(|news| matches!(news, News::Complete));
    if complete || !follower.is_open() {
        *turn = Turn::Over;
    }
    news
}

impl Monitor {
    /// What it is told next; never, once it is stopped.
    fn next(mut self) -> Told {
        Box::pin(async move {
            let ahead = ahead(
                &self.registry,
                &self.resource,
                &mut self.wanted,
                self.reached,
            );
            // Stopping comes first: the resource is gone. Then news, which goals wait for.
            let heard = tokio::select! {
                biased;
                () = self.stop.cancelled() => Heard::Stop,
                news = told(&mut self.follower, &mut self.turn) => Heard::News(news),
                ahead = ahead, if self.ahead.is_none() => Heard::Ahead(ahead),
            };
            match heard {
                Heard::News(news) => (self, news),
                Heard::Ahead(ahead) => {
                    self.ahead = Some(ahead);
                    (self, Vec::new())
                }
                Heard::Stop => {
                    drop(self);
                    std::future::pending().await
                }
            }
        })
    }

    /// The goal that it has reached, if that is news. What it was told must have been heeded.
    fn reaches(&mut self) -> Option<ResourceVersion> {
        let told = self.follower.told()?;
        let ahead = self.ahead.take_if(|ahead| ahead.last_change <= told)?;
        self.reached = ahead.goal;
        Some(ahead.goal)
    }
}

/// Waits for a goal beyond `reached`, and for the cache of `resource` to reach it. Cancel safe.
async fn ahead(
    registry: &Registry,
    resource: &Resource,
    wanted: &mut watch::Receiver<ResourceVersion>,
    reached: ResourceVersion,
) -> Ahead {
    let goal = wanted.wait_for(|goal| *goal > reached).await;
    let Ok(goal) = goal.map(|goal| *goal) else {
        // Nobody is left who could want anything.
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
                tracing::debug!(resource, %error, "a cache is not as far as a deletion");
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }
}

impl Monitors {
    /// None yet; the goals come by `wanted`.
    pub(super) fn new(registry: Arc<Registry>, wanted: watch::Receiver<ResourceVersion>) -> Self {
        Self {
            registry,
            running: FuturesUnordered::new(),
            known: BTreeMap::new(),
            wanted,
            goal: ResourceVersion::ZERO,
            behind_since: None,
            filling: Arc::new(Semaphore::new(FILLING_MAX)),
        }
    }

    /// What one of them was told; `None` when there is another goal, which [`Self::renew`] heeds. Cancel
    /// safe.
    pub(super) async fn next(&mut self) -> Option<(Monitor, Vec<News>)> {
        // Goals come first: they are few, and somebody waits.
        tokio::select! {
            biased;
            Ok(()) = self.wanted.changed() => None,
            Some(told) = self.running.next() => Some(told),
            else => std::future::pending().await,
        }
    }

    /// Follows the resources that came or changed, and those that went no longer; the prefixes of the
    /// latter are returned.
    pub(super) fn renew(&mut self) -> Vec<String> {
        // Before the table is looked at: what could have objects up to the goal is in it.
        self.goal = *self.wanted.borrow_and_update();
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
            if !self.known.contains_key(&prefix) {
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
            wanted: self.wanted.clone(),
            ahead: None,
            reached: ResourceVersion::ZERO,
            turn: Turn::Awaited(self.filling.clone()),
        };
        self.running.push(monitor.next());
        let known = Known {
            resource,
            complete: false,
            reached: ResourceVersion::ZERO,
            stop,
        };
        self.known.insert(prefix, known);
    }

    /// Lets a monitor go on whose news were heeded; whether it has reached another goal by them.
    pub(super) fn go_on(&mut self, mut monitor: Monitor) -> bool {
        let reached = monitor.reaches();
        let known = self.known.get_mut(&*monitor.prefix);
        if let (Some(goal), Some(known)) = (reached, known)
            && Arc::ptr_eq(&known.resource, &monitor.resource)
        {
            known.reached = goal;
        }
        self.running.push(monitor.next());
        reached.is_some()
    }

    /// The state of a resource was told.
    pub(super) fn complete(&mut self, prefix: &str) {
        if let Some(known) = self.known.get_mut(prefix) {
            known.complete = true;
        }
    }

    /// Whether the state of every resource was told.
    pub(super) fn are_complete(&self) -> bool {
        !self.known.is_empty() && self.known.values().all(|known| known.complete)
    }

    /// The goal, if all have reached it.
    pub(super) fn reached(&self) -> Option<ResourceVersion> {
        let all = self.known.values().all(|known| known.reached >= self.goal);
        all.then_some(self.goal)
    }

    /// Tells people what owners wait for, when that takes long.
    pub(super) fn complain(&mut self) {
        if self.reached().is_some() {
            self.behind_since = None;
            return;
        }
        let now = Instant::now();
        if now - *self.behind_since.get_or_insert(now) >= BEHIND_MAX {
            let behind = self.known.values().filter(|k| k.reached < self.goal);
            let resources: Vec<_> = behind.map(|known| known.resource.qualified()).collect();
            tracing::warn!(
                ?resources,
                "owners are not let go before it is known what of these they own"
            );
            self.behind_since = Some(now);
        }
    }
}

/// Whether the objects of a resource can be garbage: events are not, they go by themselves.
fn is_collected(resource: &Resource) -> bool {
    let has = |verb: &str| resource.verbs.iter().any(|v| v == verb);
    resource.plural != "events" && ["list", "watch", "delete"].into_iter().all(has)
}
