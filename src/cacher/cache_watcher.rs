//! `CacheWatcher`: one client's watch, from initial state through history to live events. It owns
//! its position and moves it as the client reads; a client that does not read costs an inbox that
//! fills and parks. How its items become bytes is `http`'s business.
//!
//! ```text
//!   Initial ──all sent──▶ CatchUp ──caught up, joined──▶ Live
//!                            ▲ │                          │
//!                            │ └─ history is gone: 410 ─▶ Ended ◀─ deadline, shutdown
//!                            └──────── parked ────────────┘
//! ```
//!
//! # Invariants
//!
//! 1. Every event that the predicate sees and whose version is at most `position` was returned, or
//!    was part of the initial state; none with a greater version was.
//! 2. `position` never goes back, and no bookmark is beyond what was returned before it.
//! 3. Between two calls `position` is at the border of a revision (see `snapshot`).

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::backfill::Backfill;
use super::dispatcher::{Dispatcher, Membership};
use super::inbox::{EventBatch, Taken};
use super::select::select;
use super::snapshot::{Lineage, ObjectMap, TooOld};
use super::watch_cache::Published;
use super::{ReadError, WatchItem};
use crate::api::{ResourceVersion, SelectionPredicate};
use crate::metrics::{Held, ResourceMetrics, Stage};
use crate::tasks::OnCall;

/// Initial objects returned at a time, so that a client that reads slowly holds no second copy of a
/// large collection, and one that leaves early wastes little.
const INITIAL_ITEMS_MAX: usize = 500;

/// Events of history looked at in one go while catching up, up to the end of the last one's revision;
/// between two goes, or the writes of what one had to tell, others may run.
const CATCH_UP_EVENTS_MAX: usize = 256;

/// The last bookmark comes this long before the deadline, for the client to resume from.
const BOOKMARK_BEFORE_DEADLINE: Duration = Duration::from_secs(2);

/// Where a watch begins.
#[derive(Debug)]
pub(super) enum Start {
    /// The state at a version, then what follows. `end_bookmark` marks the border.
    Initial {
        objects: ObjectMap,
        at: ResourceVersion,
        end_bookmark: bool,
    },
    /// What follows a version.
    After(ResourceVersion),
    /// A failure that is told inside of the stream.
    Failed(ReadError),
}

/// What a watch shares with its Cacher.
#[derive(Debug, Clone)]
pub(super) struct WatchContext {
    pub(super) published: Arc<Published>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) backfill: Arc<Backfill>,
    pub(super) stop: CancellationToken,
    pub(super) bookmark_period: Duration,
    pub(super) metrics: Arc<ResourceMetrics>,
}

/// One client's watch.
#[derive(Debug)]
pub struct CacheWatcher {
    context: WatchContext,
    predicate: Arc<SelectionPredicate>,
    /// Of the snapshots that `position` is a version of.
    lineage: Lineage,
    /// The position that it began with; the only one that was not told by this cache.
    origin: ResourceVersion,
    position: ResourceVersion,
    phase: Phase,
    /// How often the source had sent what cannot be read when the watch began.
    times_unreadable: u64,
    bookmarks: bool,
    deadline: Instant,
    next_bookmark: Instant,
    calls: OnCall<Calls>,
    /// It has been told something, or that there is nothing yet.
    begun: bool,
    _counted: Held,
    _counted_sharded: Option<Held>,
}

/// What calls a watch besides its events.
#[derive(Debug)]
struct Calls {
    ends: Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Wakes at the deadline or at the next bookmark, whichever comes first.
    timer: Pin<Box<Sleep>>,
}

enum Call {
    End,
    Timer,
}

impl Future for Calls {
    type Output = Call;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Call> {
        let mut ends = self.ends.iter_mut();
        if ends.any(|end| end.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Call::End);
        }
        self.timer.as_mut().poll(cx).map(|()| Call::Timer)
    }
}

#[derive(Debug)]
enum Phase {
    /// The state at the position, from a key on.
    Initial {
        objects: ObjectMap,
        next_key: String,
        end_bookmark: bool,
    },
    CatchUp,
    Live(Membership),
    Failed(ReadError),
    Ended,
}

impl CacheWatcher {
    pub(super) fn new(
        context: WatchContext,
        predicate: SelectionPredicate,
        lineage: Lineage,
        start: Start,
        bookmarks: bool,
        timeout: Duration,
    ) -> Self {
        let (position, phase) = match start {
            Start::Initial {
                objects,
                at,
                end_bookmark,
            } => {
                let phase = Phase::Initial {
                    objects,
                    next_key: String::new(),
                    end_bookmark,
                };
                (at, phase)
            }
            Start::After(version) => (version, Phase::CatchUp),
            Start::Failed(error) => (ResourceVersion::ZERO, Phase::Failed(error)),
        };
        let deadline = Instant::now() + timeout;
        let stop = context.stop.clone();
        let mut watcher = Self {
            begun: false,
            _counted: context.metrics.watchers.hold(),
            _counted_sharded: predicate
                .shard
                .as_ref()
                .map(|_| context.metrics.sharded_watchers.hold()),
            times_unreadable: context.published.times_unreadable(),
            context,
            predicate: Arc::new(predicate),
            lineage,
            origin: position,
            position,
            phase,
            bookmarks,
            deadline,
            next_bookmark: deadline,
            calls: OnCall::new(Calls {
                ends: vec![Box::pin(stop.cancelled_owned())],
                timer: Box::pin(tokio::time::sleep_until(deadline)),
            }),
        };
        watcher.schedule_bookmark();
        watcher
    }

    /// When it ends at the latest.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Has it end, without a word, when `token` is cancelled.
    pub fn end_with(&mut self, token: CancellationToken) {
        let end = Box::pin(token.cancelled_owned());
        self.calls.change(|mut calls| calls.ends.push(end));
    }

    /// Waits for what comes next and returns all of it that is ready, in order; `None` when the
    /// watch has ended: its deadline, the server's shutdown, after an error. Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<WatchItem>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`Self::next`], for who is polled himself.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<WatchItem>>> {
        // What ends the watch comes first.
        let called = self.calls.poll(cx);
        if let Poll::Ready(Call::End) = called {
            self.phase = Phase::Ended;
        }
        let items = match &mut self.phase {
            // The timer of a live one tells its end too, and a clock is not read for nothing.
            Phase::Live(_) => ready!(self.poll_live(cx, called.map(drop))),
            Phase::Ended => return Poll::Ready(None),
            _ if Instant::now() >= self.deadline => self.end(),
            Phase::Initial { .. } => self.initial(),
            Phase::CatchUp => self.catch_up(),
            Phase::Failed(error) => {
                let error = error.clone();
                self.fail(error)
            }
        };
        if !items.is_empty() {
            return Poll::Ready(Some(items));
        }
        // Between two goes that told nothing others may run. All state is in `self`.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The next part of the initial state.
    fn initial(&mut self) -> Vec<WatchItem> {
        let Phase::Initial {
            objects,
            next_key,
            end_bookmark,
        } = &mut self.phase
        else {
            unreachable!("called in this phase only");
        };
        let page = select(objects, &self.predicate, next_key, INITIAL_ITEMS_MAX);
        let mut items: Vec<_> = page.items.into_iter().map(WatchItem::Initial).collect();
        self.context.metrics.init_events.add(items.len());
        self.begun = true;
        match page.more_after {
            Some(last) => *next_key = format!("{last}\0"),
            None => {
                if *end_bookmark {
                    let resource_version = self.position;
                    items.push(WatchItem::Bookmark {
                        resource_version,
                        initial_events_end: true,
                    });
                }
                self.phase = Phase::CatchUp;
            }
        }
        items
    }

    /// The next part of history after the position. When little is left the watch joins the live
    /// ones first and reads the rest after that, so that nothing falls between.
    fn catch_up(&mut self) -> Vec<WatchItem> {
        match self.history(CATCH_UP_EVENTS_MAX) {
            Err(error) => return self.fail(error),
            Ok((items, true)) => return items,
            Ok((items, false)) if !items.is_empty() => return items,
            Ok(_) => {}
        }
        let membership = self.context.dispatcher.join(&self.predicate);
        match self.history(usize::MAX) {
            Err(error) => self.fail(error),
            Ok((mut items, _)) => {
                // Looked at after joining: whoever joins later than it happens is not parked by it.
                let published = &self.context.published;
                match published.unreadable_since(self.times_unreadable) {
                    None => self.phase = Phase::Live(membership),
                    Some(error) => items.extend(self.fail(error)),
                }
                items
            }
        }
    }

    /// What the predicate sees of the next `limit` events after the position, and of the rest of the
    /// last one's revision; the position moves. And whether there are more.
    fn history(&mut self, limit: usize) -> Result<(Vec<WatchItem>, bool), ReadError> {
        let snapshot = self
            .context
            .published
            .snapshot
            .load_full()
            .ok_or(ReadError::Stopped)?;
        let expired = |requested, oldest| {
            Err(ReadError::Expired {
                requested,
                oldest,
                fresh_token: None,
            })
        };
        if snapshot.generation != self.lineage.generation {
            return expired(self.position, snapshot.at);
        }
        if let Some(TooOld(oldest)) = snapshot.refuses(self.origin, self.lineage) {
            return expired(self.position, oldest);
        }
        let older;
        let (events, covered): (&mut dyn Iterator<Item = _>, _) =
            match snapshot.events_after(self.position) {
                Ok(events) => (&mut { events }, snapshot.at),
                Err(TooOld(oldest)) => {
                    let backfill = &self.context.backfill;
                    match backfill.events_after(self.position, self.lineage.generation, oldest) {
                        Ok((events, up_to)) => {
                            older = events;
                            (&mut older.iter(), up_to)
                        }
                        Err(TooOld(oldest)) => {
                            // One that only asks for too much has not read too slowly.
                            let slow = usize::from(self.begun);
                            self.context.metrics.terminated_watchers.add(slow);
                            return expired(self.position, oldest);
                        }
                    }
                }
            };
        let mut items = Vec::new();
        let mut events = events.peekable();
        let mut examined = 0;
        while let Some(event) =
            events.next_if(|e| examined < limit || e.resource_version() == self.position)
        {
            examined += 1;
            self.position = event.resource_version();
            items.extend(event.seen_by(&self.predicate).map(WatchItem::Event));
        }
        let more = events.peek().is_some();
        if !more {
            self.position = self.position.max(covered);
        }
        self.begun = true;
        Ok((items, more || covered < snapshot.at))
    }

    /// Waits for the inbox or for the timer: events come before a bookmark that tells of them.
    fn poll_live(&mut self, cx: &mut Context<'_>, timer: Poll<()>) -> Poll<Vec<WatchItem>> {
        let Phase::Live(membership) = &self.phase else {
            unreachable!("called in this phase only");
        };
        match membership.inbox.poll_take(cx.waker()) {
            Poll::Ready(Taken::Batches(batches)) => Poll::Ready(self.receive(batches)),
            Poll::Ready(Taken::Parked) => {
                self.context.metrics.parked_watchers.inc();
                tracing::debug!(position = %self.position, "watch parked, reading from history");
                self.phase = Phase::CatchUp;
                Poll::Ready(Vec::new())
            }
            Poll::Pending => timer.map(|()| self.timer_fired()),
        }
    }

    fn receive(&mut self, batches: VecDeque<Arc<EventBatch>>) -> Vec<WatchItem> {
        let now = Instant::now();
        if now >= self.deadline {
            return self.end();
        }
        let metrics = &self.context.metrics;
        for batch in &batches {
            let (received, events) = (batch.received, batch.events().len());
            metrics.dispatched(Stage::CacheToWatcher, now - received.at, events);
            metrics.dispatched(Stage::Total, now - received.arrived, events);
        }
        // Joining overlaps with the history read after it, by whole revisions.
        let known = self.position;
        let events = batches.iter().map(|batch| batch.events());
        let mut items = Vec::with_capacity(events.clone().map(<[_]>::len).sum());
        for event in events.flatten() {
            if event.resource_version() > known {
                self.position = event.resource_version();
                items.push(WatchItem::Event(event.clone()));
            }
        }
        items
    }

    /// A bookmark if one is due and can be told truthfully now; the next turn sees to a deadline. One
    /// that meets events stays due, and follows them.
    pub(super) fn timer_fired(&mut self) -> Vec<WatchItem> {
        let now = Instant::now();
        if now >= self.deadline {
            return self.end();
        }
        if now < self.next_bookmark {
            self.rearm();
            return Vec::new();
        }
        let Phase::Live(membership) = &self.phase else {
            return Vec::new();
        };
        // In this order: what was dispatched by now has been offered, and a drained inbox says that
        // all of it was returned.
        let dispatched = self.context.dispatcher.dispatched();
        if !membership.inbox.is_drained() {
            return Vec::new();
        }
        self.schedule_bookmark();
        if dispatched < self.origin {
            // It began in the future: nothing has happened yet that a bookmark could tell.
            return Vec::new();
        }
        self.position = self.position.max(dispatched);
        let resource_version = self.position;
        vec![WatchItem::Bookmark {
            resource_version,
            initial_events_end: false,
        }]
    }

    /// The next one is a period away, or shortly before the deadline if that is sooner.
    fn schedule_bookmark(&mut self) {
        let now = Instant::now();
        self.next_bookmark = self.deadline + Duration::from_secs(1);
        if self.bookmarks {
            let last = self.deadline.checked_sub(BOOKMARK_BEFORE_DEADLINE);
            let period = now + self.context.bookmark_period;
            match last {
                Some(last) if last > now => self.next_bookmark = period.min(last),
                _ => {}
            }
        }
        self.rearm();
    }

    fn rearm(&mut self) {
        let at = self.next_bookmark.min(self.deadline);
        self.calls
            .change(|mut calls| calls.timer.as_mut().reset(at));
    }

    /// Ends it without a word; the next turn says so.
    fn end(&mut self) -> Vec<WatchItem> {
        self.phase = Phase::Ended;
        Vec::new()
    }

    fn fail(&mut self, error: ReadError) -> Vec<WatchItem> {
        self.phase = Phase::Ended;
        vec![WatchItem::Error(error)]
    }
}
