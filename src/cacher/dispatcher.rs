//! The Dispatcher: reads history as it grows and puts each event into the inboxes of the watchers
//! that see it. It is a cursor on the published snapshots, so nothing queues before it and it makes
//! nobody wait. Watchers that ask for the same thing form a group and share one verdict an event;
//! the index keeps an event from groups that cannot match.

use std::collections::{HashMap, HashSet, VecDeque};
use std::iter::Peekable;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::event::{CacheEvent, Received};
use super::inbox::{EventBatch, INBOX_EVENTS_MAX, Inbox, Offer};
use super::snapshot::Snapshot;
use super::source::ProgressSlot;
use super::watch_cache::Published;
use crate::api::{FieldRef, Object, ResourceVersion, SelectionPredicate, WatchEvent};
use crate::metrics::ResourceMetrics;

/// Events in one batch to an inbox, up to the end of the last one's revision.
const BATCH_EVENTS_MAX: usize = 256;

// A batch of small single-event revisions finds room in an empty inbox.
const _: () = assert!(BATCH_EVENTS_MAX <= INBOX_EVENTS_MAX);

/// Verdicts and offers under one hold of the index's lock, about a millisecond's: watchers that join,
/// leave or ask for a bookmark wait no longer, nor does any other task of the thread, however many
/// groups an event meets.
const HOLD_WORK_MAX: usize = 4096;

/// Watchers woken at a time, at every look at what else there is to do. Those that are yet to be woken
/// gather events, which they send in one write; and no task, a write's for example, ever waits for
/// the writes of a crowd, which would have it gather nothing.
const WAVE_MAX: usize = 32;

type Map<K, V> = HashMap<K, V, RandomState>;

/// Identifies a group while it has members.
type GroupId = u64;

/// Identifies a member of a group.
pub(super) type MemberId = u64;

/// The watchers of one resource. Shared by the task that dispatches and the watchers that join and
/// leave; the lock is held for a bounded piece of work and never across an await.
#[derive(Debug)]
pub(super) struct Dispatcher {
    triggers: Vec<FieldRef>,
    metrics: Arc<ResourceMetrics>,
    index: Mutex<Index>,
}

/// A place among the live watchers. Dropping it leaves.
#[derive(Debug)]
pub(super) struct Membership {
    dispatcher: Arc<Dispatcher>,
    group: GroupId,
    member: MemberId,
    pub(super) inbox: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct Index {
    /// The history that is followed; `None` before the first snapshot.
    generation: Option<u64>,
    /// A relist is not for live watches: each must see for itself whether it can go on over it.
    relists: u64,
    /// Every event up to here has been offered to all who were members at the time.
    dispatched: ResourceVersion,
    groups: Map<GroupId, Group>,
    by_predicate: Map<Arc<SelectionPredicate>, GroupId>,
    routes: Map<Route, HashSet<GroupId, RandomState>>,
    next_id: u64,
}

/// Watchers of one predicate.
#[derive(Debug)]
struct Group {
    predicate: Arc<SelectionPredicate>,
    route: Route,
    members: Map<MemberId, Arc<Inbox>>,
    /// What the batch under way has for them. Who has joined since it began reads it from history
    /// too, and passes over what is here.
    pending: Vec<Arc<WatchEvent>>,
}

/// Where an event can find a group: each group has one route, each event a few.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Route {
    All,
    Namespace(Box<str>),
    Name(Box<str>),
    /// `namespace/name`
    Key(Box<str>),
    /// A pinned trigger field, by its index among the resource's triggers.
    Trigger(usize, Box<str>),
}

impl Dispatcher {
    pub(super) fn new(triggers: Vec<FieldRef>, metrics: Arc<ResourceMetrics>) -> Arc<Self> {
        Arc::new(Self {
            triggers,
            metrics,
            index: Mutex::default(),
        })
    }

    /// Joins the live watchers: every event that is yet to be dispatched comes into the inbox, if the
    /// predicate sees it. Read a snapshot afterwards: it holds all that was dispatched before, so that
    /// nothing falls between.
    pub(super) fn join(self: &Arc<Self>, predicate: &Arc<SelectionPredicate>) -> Membership {
        let inbox = Arc::new(Inbox::default());
        let mut index = self.index.lock();
        let member = index.new_id();
        let group = index.group(predicate, || self.route(predicate));
        let members = &mut index
            .groups
            .get_mut(&group)
            .expect("just found or made")
            .members;
        members.insert(member, inbox.clone());
        Membership {
            dispatcher: self.clone(),
            group,
            member,
            inbox,
        }
    }

    /// Every event up to here was offered.
    pub(super) fn dispatched(&self) -> ResourceVersion {
        self.index.lock().dispatched
    }

    /// Live watchers.
    pub(super) fn members(&self) -> usize {
        self.index
            .lock()
            .groups
            .values()
            .map(|group| group.members.len())
            .sum()
    }

    /// Follows the published snapshots until `stop`. While there are watchers it also asks the
    /// source for progress each `progress_every`, so that bookmarks move on an idle resource.
    pub(super) async fn run(
        self: Arc<Self>,
        published: Arc<Published>,
        progress: ProgressSlot,
        progress_every: Duration,
        stop: CancellationToken,
    ) {
        let mut tick = tokio::time::interval(progress_every);
        let mut asleep = VecDeque::new();
        loop {
            // Biased: stop first, events before the timer, and before those who have some are woken.
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = published.changed.notified() => {
                    let snapshot = published.snapshot.load_full();
                    if let Some(snapshot) = snapshot {
                        self.dispatch(&snapshot, &mut asleep).await;
                    }
                }
                // Each sees for itself that it ends, after all that came before.
                () = published.unreadable_told.notified() => self.index.lock().park_all(),
                _ = tick.tick() => {
                    if self.members() > 0 {
                        progress.load().request();
                    }
                }
                () = std::future::ready(()), if !asleep.is_empty() => {}
            }
            wake_some(&mut asleep);
            if !asleep.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Offers every event of `snapshot` that was not offered yet, and lets others run and join and
    /// leave in between.
    async fn dispatch(&self, snapshot: &Snapshot, asleep: &mut VecDeque<Waker>) {
        let Some(dispatched) = self.follow(snapshot) else {
            return;
        };
        let Ok(events) = snapshot.events_after(dispatched) else {
            return;
        };
        let mut events = events.peekable();
        let mut batch = Batch::after(dispatched);
        while self.work(&mut events, &mut batch, snapshot.at, asleep) {
            wake_some(asleep);
            tokio::task::yield_now().await;
        }
    }

    /// Where to go on, when `snapshot` continues the last one. Otherwise, or at the first, whoever is
    /// live reads on from history, if that can be.
    fn follow(&self, snapshot: &Snapshot) -> Option<ResourceVersion> {
        let mut index = self.index.lock();
        let continues =
            index.generation == Some(snapshot.generation) && index.relists == snapshot.relists;
        if continues && index.dispatched >= snapshot.reaches_back_to() {
            return Some(index.dispatched);
        }
        index.park_all();
        index.generation = Some(snapshot.generation);
        index.relists = snapshot.relists;
        index.dispatched = snapshot.at;
        None
    }

    /// One piece of work under the lock; says whether there is more. `at` is what the events lead to.
    fn work<'a>(
        &self,
        events: &mut Peekable<impl Iterator<Item = &'a Arc<CacheEvent>>>,
        batch: &mut Batch,
        at: ResourceVersion,
        asleep: &mut VecDeque<Waker>,
    ) -> bool {
        let mut index = self.index.lock();
        let mut work = 0;
        while work < HOLD_WORK_MAX {
            if batch.closed {
                let (Some(id), Some(received)) = (batch.touched.pop(), batch.received) else {
                    // Progress without an event counts for one.
                    let progress = batch.up_to > index.dispatched;
                    let taken = batch.events.max(progress.into());
                    self.metrics.events_dispatched.add(taken);
                    index.dispatched = batch.up_to;
                    *batch = Batch::after(batch.up_to);
                    if events.peek().is_none() {
                        return false;
                    }
                    continue;
                };
                work += index.flush(id, received, asleep);
                continue;
            }
            // Only at a border: `dispatched` says what bookmarks may tell.
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

    /// Returns how many groups it met.
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
                if let Some(seen) = event.seen_by(&group.predicate) {
                    if group.pending.is_empty() {
                        batch.touched.push(*id);
                    }
                    group.pending.push(seen);
                } else if event.is_of_another_shard(&group.predicate) {
                    self.metrics.filtered_events.add(group.members.len());
                }
            }
        }
        met
    }

    /// The route of a group: its pinned trigger field if it has one, else its scope.
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

    /// Where groups that may see the event are. No two are equal, so that no group is met twice.
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

/// Wakes those who have been `asleep` for longest.
fn wake_some(asleep: &mut VecDeque<Waker>) {
    let count = asleep.len().min(WAVE_MAX);
    asleep.drain(..count).for_each(Waker::wake);
}

/// A batch under way.
struct Batch {
    /// Groups that see some of it.
    touched: Vec<GroupId>,
    events: usize,
    /// When the first of them came.
    received: Option<Received>,
    /// The version of its last event, or what follows that without one.
    up_to: ResourceVersion,
    /// It takes no more events; the groups that it touched are offered their parts.
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
            members: Map::default(),
            pending: Vec::new(),
        };
        self.groups.insert(id, group);
        id
    }

    /// Offers a group its part of the batch; returns to how many members. Who parks leaves.
    fn flush(&mut self, id: GroupId, received: Received, asleep: &mut VecDeque<Waker>) -> usize {
        // Its last member may have left meanwhile.
        let Some(group) = self.groups.get_mut(&id) else {
            return 1;
        };
        let batch = EventBatch::new(std::mem::take(&mut group.pending), received);
        let members = group.members.len();
        group
            .members
            .retain(|_, inbox| inbox.offer(&batch, asleep) == Offer::Accepted);
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
