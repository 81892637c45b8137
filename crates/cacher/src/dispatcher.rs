//! The Dispatcher: reads history as it grows and puts each event into the inboxes of the watchers
//! whose predicate matches. It is a cursor on the published snapshots, so it needs no input queue
//! and never blocks the writer. Watchers with equal predicates form a group and share one match
//! result per event; an index limits each event to the groups that can match.

use std::collections::{HashMap, HashSet, VecDeque};
use std::iter::Peekable;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use foldhash::fast::{FixedState, RandomState};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::event::{CacheEvent, EventTimes};
use super::inbox::{EventBatch, Inbox, OfferResult};
use super::snapshot::Snapshot;
use super::source::ProgressSlot;
use super::watch_cache::Published;
#[cfg(feature = "planted-bugs")]
use watchet_api::planted_bug::{PlantedBug, is_planted};
use watchet_api::{FieldRef, Object, ResourceVersion, SelectionPredicate, WatchEvent};
use watchet_metrics::ResourceMetrics;

/// Events in one batch to an inbox, rounded up to a whole revision. Less than an inbox has by default.
const BATCH_EVENTS_MAX: usize = 256;

/// Match operations and offers per acquisition of the index lock, about a millisecond of work. It
/// bounds the wait of watchers that join, leave or need a bookmark, and of other tasks on the
/// thread.
const LOCK_WORK_MAX: usize = 4096;

/// Watchers woken at a time; the Dispatcher yields in between. Watchers that are not yet woken
/// accumulate events and send them in one write, and no other task waits for the writes of a large
/// number of watchers.
const WAKE_BATCH_MAX: usize = 32;

type Map<K, V> = HashMap<K, V, RandomState>;

/// A map by numbers that the server assigns. Its order, in which watchers are notified, is that of every run, so that
/// simulations are deterministic.
type NumberMap<V> = HashMap<u64, V, FixedState>;

/// Identifies a group while it has members.
type GroupId = u64;

/// Identifies a member of a group.
pub(super) type MemberId = u64;

/// The watchers of one resource. The dispatching task and the watchers that join and leave share
/// it; the lock is held for a bounded amount of work and never across an await.
#[derive(Debug)]
pub(super) struct Dispatcher {
    triggers: Vec<FieldRef>,
    metrics: Arc<ResourceMetrics>,
    /// [`CacherConfig::inbox_events_max`](super::CacherConfig::inbox_events_max).
    inbox_events_max: usize,
    index: Mutex<Index>,
}

/// Membership of the live watchers; ends on drop.
#[derive(Debug)]
pub(super) struct Membership {
    dispatcher: Arc<Dispatcher>,
    group: GroupId,
    member: MemberId,
    pub(super) inbox: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct Index {
    /// The generation of the followed history; `None` before the first snapshot.
    generation: Option<u64>,
    /// The version up to which every event was offered to all members.
    dispatched: ResourceVersion,
    groups: NumberMap<Group>,
    by_predicate: Map<Arc<SelectionPredicate>, GroupId>,
    routes: Map<Route, HashSet<GroupId, FixedState>>,
    next_id: u64,
}

/// The watchers of one predicate.
#[derive(Debug)]
struct Group {
    predicate: Arc<SelectionPredicate>,
    route: Route,
    members: NumberMap<Arc<Inbox>>,
    /// Events of the current batch for the members. A member that joined after the batch began also
    /// reads them from history and skips them here.
    pending: Vec<Arc<WatchEvent>>,
}

/// The key under which an event finds groups: each group has one route, each event a few.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Route {
    All,
    Namespace(Box<str>),
    Name(Box<str>),
    /// `namespace/name`
    Key(Box<str>),
    /// A trigger column that the predicate fixes, by its index in the resource's triggers.
    Trigger(usize, Box<str>),
}

impl Dispatcher {
    pub(super) fn new(
        triggers: Vec<FieldRef>,
        metrics: Arc<ResourceMetrics>,
        inbox_events_max: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            triggers,
            metrics,
            inbox_events_max,
            index: Mutex::default(),
        })
    }

    /// Joins the live watchers: the inbox receives every matching event that is dispatched from now
    /// on. Read a snapshot afterwards: it contains all events that were dispatched before.
    ///
    /// Replaces `predicate` with the equal predicate of its group, so that all watchers of the group share one allocation.
    pub(super) fn join(self: &Arc<Self>, predicate: &mut Arc<SelectionPredicate>) -> Membership {
        let inbox = Arc::new(Inbox::new(self.inbox_events_max, self.metrics.clone()));
        let mut index = self.index.lock();
        let member = index.new_id();
        let id = index.group(predicate, || self.route(predicate));
        let group = index.groups.get_mut(&id).expect("found or inserted above");
        group.members.insert(member, inbox.clone());
        let shared = group.predicate.clone();
        drop(index);
        *predicate = shared;
        Membership {
            dispatcher: self.clone(),
            group: id,
            member,
            inbox,
        }
    }

    /// Returns the version up to which all events were offered.
    pub(super) fn dispatched(&self) -> ResourceVersion {
        self.index.lock().dispatched
    }

    /// Returns the number of live watchers.
    pub(super) fn members(&self) -> usize {
        self.index
            .lock()
            .groups
            .values()
            .map(|group| group.members.len())
            .sum()
    }

    /// Follows the published snapshots until `stop`. While there are watchers it also requests
    /// progress from the source every `progress_every`, so that bookmarks advance on an idle
    /// resource.
    pub(super) async fn run(
        self: Arc<Self>,
        published: Arc<Published>,
        progress: ProgressSlot,
        progress_every: Duration,
        stop: CancellationToken,
    ) {
        let mut tick = tokio::time::interval(progress_every);
        let mut to_wake = VecDeque::new();
        loop {
            // Biased: stop first, then events, then the timer, then waking watchers.
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = published.changed.notified() => {
                    let snapshot = published.snapshot.load_full();
                    if let Some(snapshot) = snapshot {
                        self.dispatch(&snapshot, &mut to_wake).await;
                    }
                }
                // Each watcher finds out itself that it ends, after all earlier events.
                () = published.unreadable_reported.notified() => self.index.lock().park_all(),
                _ = tick.tick() => {
                    if self.members() > 0 {
                        progress.load().request();
                    }
                }
                () = std::future::ready(()), if !to_wake.is_empty() => {}
            }
            wake_some(&mut to_wake);
            if !to_wake.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Offers every new event of `snapshot`; yields in between, so that watchers can join and
    /// leave.
    async fn dispatch(&self, snapshot: &Snapshot, to_wake: &mut VecDeque<Waker>) {
        let Some(dispatched) = self.follow(snapshot) else {
            return;
        };
        let Ok(events) = snapshot.events_after(dispatched) else {
            return;
        };
        let mut events = events.peekable();
        let mut batch = Batch::after(dispatched);
        while self.work(&mut events, &mut batch, snapshot.at, to_wake) {
            wake_some(to_wake);
            tokio::task::yield_now().await;
        }
    }

    /// Returns the version to continue from if `snapshot` continues the last one. Otherwise, and
    /// for the first snapshot, the live watchers are parked and continue from history if possible.
    fn follow(&self, snapshot: &Snapshot) -> Option<ResourceVersion> {
        let mut index = self.index.lock();
        let continues = index.generation == Some(snapshot.generation);
        if continues && index.dispatched >= snapshot.reaches_back_to() {
            return Some(index.dispatched);
        }
        // Watches that began meanwhile continue after the relist.
        #[cfg(feature = "planted-bugs")]
        if is_planted(PlantedBug::WatchDuringRelist) {
            index.park_others();
        } else {
            index.park_all();
        }
        #[cfg(not(feature = "planted-bugs"))]
        index.park_all();
        index.generation = Some(snapshot.generation);
        index.dispatched = snapshot.at;
        None
    }

    /// Does one piece of work under the lock; returns true if there is more. `at` is the version
    /// that the events lead to.
    fn work<'a>(
        &self,
        events: &mut Peekable<impl Iterator<Item = &'a Arc<CacheEvent>>>,
        batch: &mut Batch,
        at: ResourceVersion,
        to_wake: &mut VecDeque<Waker>,
    ) -> bool {
        let mut index = self.index.lock();
        let mut work = 0;
        while work < LOCK_WORK_MAX {
            if batch.closed {
                let (Some(id), Some(received)) = (batch.touched.pop(), batch.received) else {
                    // Progress without an event counts as one.
                    let progress = batch.up_to > index.dispatched;
                    let accepted = batch.events.max(progress.into());
                    self.metrics.events_dispatched.add(accepted);
                    index.dispatched = batch.up_to;
                    *batch = Batch::after(batch.up_to);
                    if events.peek().is_none() {
                        return false;
                    }
                    continue;
                };
                work += index.flush(id, received, to_wake);
                continue;
            }
            // Only at the boundary of a revision: `dispatched` limits bookmarks.
            let next = |e: &&Arc<CacheEvent>| {
                batch.events < BATCH_EVENTS_MAX || e.resource_version() == batch.up_to
            };
            match events.next_if(next) {
                Some(event) => work += 1 + self.offer_to_groups(&mut index, event, batch),
                None => {
                    batch.closed = true;
                    if events.peek().is_none() {
                        batch.up_to = batch.up_to.max(at);
                    }
                }
            }
        }
        true
    }

    /// Offers an event to its groups and returns how many there were.
    fn offer_to_groups(&self, index: &mut Index, event: &CacheEvent, batch: &mut Batch) -> usize {
        batch.events += 1;
        batch.up_to = event.resource_version();
        batch.received.get_or_insert(event.received);
        let mut met = 0;
        for route in self.routes_of(event) {
            for id in index.routes.get(&route).into_iter().flatten() {
                let group = index
                    .groups
                    .get_mut(id)
                    .expect("routes name groups that exist");
                met += 1;
                if let Some(matched) = event.watch_event_for(&group.predicate) {
                    if group.pending.is_empty() {
                        batch.touched.push(*id);
                    }
                    group.pending.push(matched);
                } else if event.is_of_another_shard(&group.predicate) {
                    self.metrics.filtered_events.add(group.members.len());
                }
            }
        }
        met
    }

    /// Returns the route of a group: its trigger column if the predicate fixes one, else its scope.
    fn route(&self, predicate: &SelectionPredicate) -> Route {
        for (trigger, field) in self.triggers.iter().enumerate() {
            if let Some(value) = predicate.fields.exact(*field) {
                return Route::Trigger(trigger, value.into());
            }
        }
        match (&predicate.scope.namespace, &predicate.scope.name) {
            (None, None) => Route::All,
            (Some(namespace), None) => Route::Namespace(namespace.clone()),
            (None, Some(name)) => Route::Name(name.clone()),
            (Some(namespace), Some(name)) => Route::Key(format!("{namespace}/{name}").into()),
        }
    }

    /// Returns the routes of the groups that may match the event. They are distinct, so that no
    /// group occurs twice.
    fn routes_of(&self, event: &CacheEvent) -> impl Iterator<Item = Route> {
        let key = event.object().key();
        let namespaced = !key.namespace().is_empty();
        let scopes = [
            Some(Route::All),
            namespaced.then(|| Route::Namespace(key.namespace().into())),
            Some(Route::Name(key.name().into())),
            namespaced.then(|| Route::Key(key.as_str().into())),
        ];
        let mut triggers = Vec::new();
        for (trigger, field) in self.triggers.iter().enumerate() {
            let value = |object: &Arc<Object>| object.field(*field).to_owned();
            let now = event.current().map(value);
            let before = event
                .previous()
                .map(value)
                .filter(|value| Some(value) != now.as_ref());
            let values = now.into_iter().chain(before);
            triggers.extend(values.map(|value| Route::Trigger(trigger, value.into())));
        }
        scopes.into_iter().flatten().chain(triggers)
    }
}

/// Wakes the watchers that have waited longest.
fn wake_some(to_wake: &mut VecDeque<Waker>) {
    let count = to_wake.len().min(WAKE_BATCH_MAX);
    to_wake.drain(..count).for_each(Waker::wake);
}

/// The current batch.
struct Batch {
    /// Groups with matching events.
    touched: Vec<GroupId>,
    events: usize,
    /// When the first event arrived.
    received: Option<EventTimes>,
    /// The version of its last event, or the start version if it has none.
    up_to: ResourceVersion,
    /// True if the batch is full; its groups then receive their parts.
    closed: bool,
}

impl Batch {
    fn after(version: ResourceVersion) -> Self {
        Self {
            touched: Vec::new(),
            events: 0,
            received: None,
            up_to: version,
            closed: false,
        }
    }
}

impl Index {
    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn group(
        &mut self,
        predicate: &Arc<SelectionPredicate>,
        route: impl FnOnce() -> Route,
    ) -> GroupId {
        if let Some(id) = self.by_predicate.get(predicate) {
            return *id;
        }
        let id = self.new_id();
        let route = route();
        self.routes.entry(route.clone()).or_default().insert(id);
        self.by_predicate.insert(predicate.clone(), id);
        let predicate = predicate.clone();
        let group = Group {
            predicate,
            route,
            members: NumberMap::default(),
            pending: Vec::new(),
        };
        self.groups.insert(id, group);
        id
    }

    /// Offers a group its part of the batch and returns the number of members. Members that park
    /// leave the group.
    fn flush(&mut self, id: GroupId, received: EventTimes, to_wake: &mut VecDeque<Waker>) -> usize {
        // The last member may have left meanwhile.
        let Some(group) = self.groups.get_mut(&id) else {
            return 1;
        };
        let batch = EventBatch::new(std::mem::take(&mut group.pending), received);
        let members = group.members.len();
        group
            .members
            .retain(|_, inbox| inbox.offer(&batch, to_wake) == OfferResult::Accepted);
        self.drop_if_empty(id);
        members
    }

    fn park_all(&mut self) {
        for inbox in self
            .groups
            .values()
            .flat_map(|group| group.members.values())
        {
            inbox.park();
        }
        self.groups.clear();
        self.by_predicate.clear();
        self.routes.clear();
    }

    /// Parks the watchers that a relist must not miss, except those that stay live.
    #[cfg(feature = "planted-bugs")]
    fn park_others(&mut self) {
        for group in self.groups.values_mut() {
            group.members.retain(|_, inbox| {
                let stays = inbox.stays_live();
                if !stays {
                    inbox.park();
                }
                stays
            });
        }
        for id in self.groups.keys().copied().collect::<Vec<_>>() {
            self.drop_if_empty(id);
        }
    }

    fn leave(&mut self, group: GroupId, member: MemberId) {
        if let Some(found) = self.groups.get_mut(&group) {
            found.members.remove(&member);
            self.drop_if_empty(group);
        }
    }

    fn drop_if_empty(&mut self, id: GroupId) {
        if self
            .groups
            .get(&id)
            .is_none_or(|group| !group.members.is_empty())
        {
            return;
        }
        if let Some(group) = self.groups.remove(&id) {
            self.by_predicate.remove(&group.predicate);
            if let Some(groups) = self.routes.get_mut(&group.route) {
                groups.remove(&id);
                if groups.is_empty() {
                    self.routes.remove(&group.route);
                }
            }
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.dispatcher.index.lock().leave(self.group, self.member);
    }
}
