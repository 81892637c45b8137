//! `CacheWatcher`: one client's watch, from the initial state through history to live events. It
//! advances its position as the client reads; if the client stops reading, the inbox fills and the
//! watch is parked. `http` encodes the items.
//!
//! ```text
//!   Initial ──all sent──▶ CatchUp ──caught up, joined──▶ Live
//!                            ▲ │                          │
//!                            │ └─ history trimmed: 410 ▶ Ended ◀─ deadline, shutdown
//!                            └──────── parked ────────────┘
//! ```
//!
//! # Invariants
//!
//! 1. Every matching event with a version of at most `position` was returned or is part of the
//!    initial state; no event with a greater version was returned.
//! 2. `position` never decreases, and no bookmark is greater than the position.
//! 3. Between two calls `position` is at the boundary of a revision (see `snapshot`).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::dispatcher::Membership;
use super::inbox::{EventBatch, TakeResult};
use super::interrupts::{Interrupt, Interrupts};
use super::object_map::ObjectMap;
use super::received_events::{Received, ReceivedEvents};
use super::select::select;
use super::snapshot::TooOld;
#[cfg(feature = "planted-bugs")]
use super::watch_cache::SourceState;
use super::watch_context::{Start, WatchContext};
use super::watch_monitor::{WatchMonitor, WatchProgress};
use super::watch_status::WatchPhase;
use super::{ReadError, WatchItem};
#[cfg(feature = "planted-bugs")]
use watchet_api::planted_bug::{PlantedBug, is_planted};
use watchet_api::{ResourceVersion, SelectionPredicate};
use watchet_metrics::{GaugeGuard, Stage};
use watchet_tasks::PollOnWake;

/// Initial objects returned per call, so that a slow client does not hold a second copy of a large
/// collection.
const INITIAL_ITEMS_MAX: usize = 500;

/// Events of history examined per call while catching up, rounded up to a whole revision; other
/// tasks run between two calls.
const CATCH_UP_EVENTS_MAX: usize = 256;

/// The last bookmark is sent this long before the deadline, for the client to resume from.
const BOOKMARK_BEFORE_DEADLINE: Duration = Duration::from_secs(2);

/// One client's watch.
#[derive(Debug)]
pub struct CacheWatcher {
    context: WatchContext,
    predicate: Arc<SelectionPredicate>,
    /// The generation of the snapshots that `position` is valid in.
    generation: u64,
    /// The position at the start, which can be a future version.
    origin: ResourceVersion,
    phase: Phase,
    /// The count of unreadable values in storage when the watch began.
    times_unreadable: u64,
    bookmarks: bool,
    deadline: Instant,
    next_bookmark: Instant,
    interrupts: PollOnWake<Interrupts>,
    /// True after the watch has returned its first items or found none.
    begun: bool,
    /// The live events that were returned since the last [`Self::take_received`].
    received: Received,
    /// The position, and the phase for a [`WatchMonitor`].
    progress: Arc<WatchProgress>,
    _counted: GaugeGuard,
    _counted_sharded: Option<GaugeGuard>,
}

/// The data of phases other than [`Phase::Live`] is boxed, because most watches are live.
#[derive(Debug)]
enum Phase {
    Initial(Box<InitialState>),
    CatchUp,
    Live(Membership),
    Failed(Box<ReadError>),
    Ended,
}

/// The state at the position, from a key on.
#[derive(Debug)]
struct InitialState {
    objects: ObjectMap,
    next_key: String,
    end_bookmark: bool,
}

impl Phase {
    /// Returns the phase that a [`WatchMonitor`] reports.
    fn watch_phase(&self) -> WatchPhase {
        match self {
            Self::Initial(_) => WatchPhase::Initial,
            Self::CatchUp => WatchPhase::CatchingUp,
            Self::Live(_) => WatchPhase::Live,
            Self::Failed(_) | Self::Ended => WatchPhase::Ended,
        }
    }
}

impl CacheWatcher {
    pub(super) fn new(
        context: WatchContext,
        predicate: SelectionPredicate,
        generation: u64,
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
                let state = InitialState {
                    objects,
                    next_key: String::new(),
                    end_bookmark,
                };
                (at, Phase::Initial(Box::new(state)))
            }
            Start::After(version) => (version, Phase::CatchUp),
            Start::Failed(error) => (ResourceVersion::ZERO, Phase::Failed(Box::new(error))),
        };
        let deadline = Instant::now() + timeout;
        let stop = context.stop.clone();
        let mut watcher = Self {
            begun: false,
            received: Received::default(),
            progress: WatchProgress::new(position, phase.watch_phase()),
            _counted: context.metrics.watchers.hold(),
            _counted_sharded: predicate
                .shard
                .as_ref()
                .map(|_| context.metrics.sharded_watchers.hold()),
            times_unreadable: context.published.times_unreadable(),
            context,
            predicate: Arc::new(predicate),
            generation,
            origin: position,
            phase,
            bookmarks,
            deadline,
            next_bookmark: deadline,
            interrupts: PollOnWake::new(Interrupts {
                ends: vec![Box::pin(stop.cancelled_owned())],
                timer: Box::pin(tokio::time::sleep_until(deadline)),
            }),
        };
        watcher.schedule_bookmark();
        watcher
    }

    /// Returns the time at which the watch ends.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Ends the watch without an error once `token` is cancelled.
    pub fn end_with(&mut self, token: CancellationToken) {
        let end = Box::pin(token.cancelled_owned());
        self.interrupts
            .change(|mut interrupts| interrupts.ends.push(end));
    }

    /// Waits for the next items and returns all that are ready, in order; `None` after the watch
    /// has ended (deadline, shutdown, or an error). Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<WatchItem>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Returns a monitor that shows the state of this watch.
    pub fn monitor(&self) -> WatchMonitor {
        WatchMonitor {
            progress: self.progress.clone(),
            generation: self.generation,
            published: self.context.published.clone(),
            backfill: self.context.backfill.clone(),
        }
    }

    /// Polls for the next items; see [`Self::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<WatchItem>>> {
        // Reasons to end the watch come first.
        let interrupted = self.interrupts.poll(cx);
        if let Poll::Ready(Interrupt::End) = interrupted {
            self.enter(Phase::Ended);
        }
        let items = match &mut self.phase {
            // The timer of a live watch also covers its deadline, which saves reading the clock.
            Phase::Live(_) => ready!(self.poll_live(cx, interrupted.map(drop))),
            Phase::Ended => return Poll::Ready(None),
            _ if Instant::now() >= self.deadline => self.end(),
            Phase::Initial(_) => self.initial(),
            Phase::CatchUp => self.catch_up(),
            Phase::Failed(error) => {
                let error = (**error).clone();
                self.fail(error)
            }
        };
        if !items.is_empty() {
            return Poll::Ready(Some(items));
        }
        // Yields after a call without items. All state is in `self`.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns the next part of the initial state.
    fn initial(&mut self) -> Vec<WatchItem> {
        let Phase::Initial(state) = &mut self.phase else {
            unreachable!("only called in phase Initial");
        };
        let page = select(
            &state.objects,
            &self.predicate,
            &state.next_key,
            INITIAL_ITEMS_MAX,
        );
        let mut items: Vec<_> = page.items.into_iter().map(WatchItem::Initial).collect();
        self.context.metrics.init_events.add(items.len());
        self.begun = true;
        match page.more_after {
            Some(last) => state.next_key = format!("{last}\0"),
            None => {
                if state.end_bookmark {
                    let resource_version = self.position();
                    items.push(WatchItem::Bookmark {
                        resource_version,
                        initial_events_end: true,
                    });
                }
                self.enter(Phase::CatchUp);
            }
        }
        items
    }

    /// Returns the next part of history. If little is left, the watch joins the live watchers first
    /// and reads the rest afterwards, so that no event is missed.
    fn catch_up(&mut self) -> Vec<WatchItem> {
        match self.history(CATCH_UP_EVENTS_MAX) {
            Err(error) => return self.fail(error),
            Ok((items, true)) => return items,
            Ok((items, false)) if !items.is_empty() => return items,
            Ok(_) => {}
        }
        let membership = self.context.dispatcher.join(&mut self.predicate);
        self.progress.joined(&membership.inbox);
        #[cfg(feature = "planted-bugs")]
        if is_planted(PlantedBug::WatchDuringRelist)
            && matches!(
                &*self.context.published.source.borrow(),
                SourceState::Lost { .. }
            )
        {
            membership.inbox.keep_live();
        }
        match self.history(usize::MAX) {
            Err(error) => self.fail(error),
            Ok((mut items, _)) => {
                // Checked after joining: an unreadable value does not park watchers that join
                // later.
                let published = &self.context.published;
                match published.unreadable_since(self.times_unreadable) {
                    None => self.enter(Phase::Live(membership)),
                    Some(error) => items.extend(self.fail(error)),
                }
                items
            }
        }
    }

    /// Advances the position by `limit` events and by the rest of the last revision. Returns the
    /// matching items, and true if there is more history.
    fn history(&mut self, limit: usize) -> Result<(Vec<WatchItem>, bool), ReadError> {
        let mut position = self.position();
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
        if snapshot.generation != self.generation {
            return expired(position, snapshot.at);
        }
        let older;
        let (events, covered): (&mut dyn Iterator<Item = _>, _) =
            match snapshot.events_after(position) {
                Ok(events) => (&mut { events }, snapshot.at),
                Err(TooOld(oldest)) => {
                    let backfill = &self.context.backfill;
                    match backfill.events_after(position, self.generation, oldest) {
                        Ok((events, up_to)) => {
                            older = events;
                            (&mut older.iter(), up_to)
                        }
                        Err(TooOld(oldest)) => {
                            // A watch that starts at a trimmed version is not a slow reader.
                            let slow = usize::from(self.begun);
                            self.context.metrics.terminated_watchers.add(slow);
                            return expired(position, oldest);
                        }
                    }
                }
            };
        let mut items = Vec::new();
        let mut events = events.peekable();
        let mut examined = 0;
        while let Some(event) =
            events.next_if(|e| examined < limit || e.resource_version() == position)
        {
            examined += 1;
            position = event.resource_version();
            items.extend(event.watch_event_for(&self.predicate).map(WatchItem::Event));
        }
        let more = events.peek().is_some();
        if !more {
            position = position.max(covered);
        }
        self.progress.set_position(position);
        self.begun = true;
        Ok((items, more || covered < snapshot.at))
    }

    /// Waits for the inbox or the timer. Events precede a bookmark of their version.
    fn poll_live(&mut self, cx: &mut Context<'_>, timer: Poll<()>) -> Poll<Vec<WatchItem>> {
        let Phase::Live(membership) = &self.phase else {
            unreachable!("only called in phase Live");
        };
        #[cfg(feature = "planted-bugs")]
        if timer.is_ready() && is_planted(PlantedBug::BookmarkAheadOfEvents) {
            return timer.map(|()| self.timer_fired());
        }
        match membership.inbox.poll_take(cx.waker()) {
            Poll::Ready(TakeResult::Batches(batches)) => Poll::Ready(self.receive(batches)),
            Poll::Ready(TakeResult::Parked) => {
                tracing::debug!(position = %self.position(), "watch parked, reading from history");
                self.enter(Phase::CatchUp);
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
            let to_watcher = now - received.at;
            metrics.observe_dispatch(Stage::CacheToWatcher, to_watcher, events);
            metrics.observe_dispatch(Stage::Total, batch.to_cache + to_watcher, events);
        }
        // History read after joining can overlap with the inbox, by whole revisions.
        let known = self.position();
        let mut position = known;
        let events = batches.iter().map(|batch| batch.events());
        let mut items = Vec::with_capacity(events.clone().map(<[_]>::len).sum());
        for event in events.flatten() {
            let is_new = event.resource_version() > known;
            #[cfg(feature = "planted-bugs")]
            let is_new = is_new || is_planted(PlantedBug::EventsSentTwice);
            if is_new {
                position = event.resource_version();
                items.push(WatchItem::Event(event.clone()));
            }
        }
        self.progress.set_position(position);
        if !items.is_empty()
            && let Some(oldest) = batches.front()
        {
            self.received.add(oldest.received.arrived, items.len());
        }
        items
    }

    /// Returns the live events that [`Self::poll_next`] has returned since the last call; `None` if there are none. Excludes
    /// events of history, whose changes arrived before the watch read them.
    pub fn take_received(&mut self) -> Option<ReceivedEvents> {
        self.received.take()
    }

    /// Returns a bookmark if one is due and its version is known; the next call handles the
    /// deadline. A bookmark stays due while events are waiting, and follows them.
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
        // The order matters: dispatched events were offered before, and a drained inbox means that
        // all of them were returned.
        let dispatched = self.context.dispatcher.dispatched();
        let is_drained = membership.inbox.is_drained();
        // The version of the cache, whatever the inbox has yet to receive or to return.
        #[cfg(feature = "planted-bugs")]
        let (dispatched, is_drained) = match self.context.published.snapshot.load_full() {
            Some(snapshot) if is_planted(PlantedBug::BookmarkAheadOfEvents) => (snapshot.at, true),
            _ => (dispatched, is_drained),
        };
        if !is_drained {
            return Vec::new();
        }
        self.schedule_bookmark();
        if dispatched < self.origin {
            // The watch starts at a future version; no bookmark is possible yet.
            return Vec::new();
        }
        let resource_version = self.position().max(dispatched);
        self.progress.set_position(resource_version);
        vec![WatchItem::Bookmark {
            resource_version,
            initial_events_end: false,
        }]
    }

    /// Schedules the next bookmark in one period, or shortly before the deadline if that is sooner.
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
        self.interrupts
            .change(|mut interrupts| interrupts.timer.as_mut().reset(at));
    }

    fn position(&self) -> ResourceVersion {
        self.progress.position()
    }

    fn enter(&mut self, phase: Phase) {
        self.progress.set_phase(phase.watch_phase());
        self.phase = phase;
    }

    /// Ends the watch without an error; the next call returns `None`.
    fn end(&mut self) -> Vec<WatchItem> {
        self.enter(Phase::Ended);
        Vec::new()
    }

    fn fail(&mut self, error: ReadError) -> Vec<WatchItem> {
        self.enter(Phase::Ended);
        vec![WatchItem::Error(error)]
    }
}
