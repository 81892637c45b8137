//! The processor: all handlers of an informer, which of them hears what, and when each is due a resync.
//! It waits for none of them. It does not touch the indexer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::listener::{HandlerMetrics, Listener};
use super::registration::HandlerRegistration;
use crate::informer::{FOREVER, KubeObject, Notification};

/// A handler that wants to be told of everything anew more often than this is told so often.
pub(super) const RESYNC_MIN: Duration = Duration::from_secs(1);

/// Names a handler of one informer.
pub(super) type HandlerId = u64;

#[derive(Debug)]
pub(super) struct Processor<T> {
    handlers: BTreeMap<HandlerId, Handler<T>>,
    next_id: HandlerId,
}

#[derive(Debug)]
struct Handler<T> {
    listener: Arc<Listener<T>>,
    resync: Option<Schedule>,
    /// It was due when that was checked last: it hears of objects that did not change.
    syncing: bool,
}

#[derive(Debug)]
struct Schedule {
    period: Duration,
    next: Instant,
}

impl<T> Default for Processor<T> {
    fn default() -> Self {
        Self {
            handlers: BTreeMap::new(),
            next_id: 0,
        }
    }
}

impl<T: KubeObject> Processor<T> {
    /// Adds a handler that wants a resync each `period`; none, if that is zero.
    pub(super) fn add(&mut self, listener: Arc<Listener<T>>, period: Duration) -> HandlerId {
        let id = self.next_id;
        self.next_id += 1;
        let period = (!period.is_zero()).then(|| period.clamp(RESYNC_MIN, FOREVER));
        let handler = Handler {
            listener,
            resync: period.map(|period| Schedule {
                period,
                next: Instant::now() + period,
            }),
            syncing: false,
        };
        self.handlers.insert(id, handler);
        id
    }

    /// Removes a handler, if it is one of these.
    pub(super) fn remove(&mut self, registered: &HandlerRegistration) -> Option<Arc<Listener<T>>> {
        let handler = self.handlers.get(&registered.id())?;
        if !registered.is_of(&handler.listener) {
            return None;
        }
        self.handlers
            .remove(&registered.id())
            .map(|handler| handler.listener)
    }

    pub(super) fn listeners(&self) -> impl Iterator<Item = &Arc<Listener<T>>> {
        self.handlers.values().map(|handler| &handler.listener)
    }

    /// What each handler is measured by.
    pub(super) fn metrics(&self) -> Vec<(String, Arc<HandlerMetrics>)> {
        let handlers = self.handlers.iter();
        let measured = handlers.map(|(id, h)| (id.to_string(), h.listener.metrics().clone()));
        measured.collect()
    }

    /// The smallest period that is asked for; zero if none is.
    pub(super) fn resync_check_period(&self) -> Duration {
        let schedules = self.handlers.values().filter_map(|h| h.resync.as_ref());
        schedules.map(|s| s.period).min().unwrap_or_default()
    }

    /// Whether any handler is due a resync at `now`. Those that are get the next one, and are due again
    /// a period later.
    pub(super) fn should_resync(&mut self, now: Instant) -> bool {
        let mut any = false;
        for handler in self.handlers.values_mut() {
            handler.syncing = false;
            if let Some(schedule) = &mut handler.resync
                && schedule.next <= now
            {
                schedule.next = now + schedule.period;
                handler.syncing = true;
                any = true;
            }
        }
        any
    }

    /// Tells everybody; those who are not due a resync only if something changed.
    pub(super) fn distribute(&self, notification: &Notification<T>) {
        let unchanged = is_unchanged(notification);
        let handlers = self.handlers.values();
        for handler in handlers.filter(|handler| !unchanged || handler.syncing) {
            handler.listener.add(notification.clone());
        }
    }
}

/// A resync, or what a new list says of an object that is as it was.
fn is_unchanged<T: KubeObject>(notification: &Notification<T>) -> bool {
    match notification {
        Notification::Updated { old, new } => {
            old.metadata().resource_version == new.metadata().resource_version
        }
        Notification::Added { .. } | Notification::Deleted(_) => false,
    }
}
