//! The processor: distributes notifications to the handlers of an informer, and schedules their
//! resyncs. It waits for none of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::listener::{HandlerMetrics, Listener};
use super::registration::HandlerId;
use super::registration::HandlerRegistration;
use crate::{FOREVER, KubeObject, Notification};

/// The minimum resync period of a handler.
pub(super) const RESYNC_MIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Processor<T> {
    handlers: BTreeMap<HandlerId, Handler<T>>,
    next_id: HandlerId,
}

#[derive(Debug)]
struct Handler<T> {
    listener: Arc<Listener<T>>,
    resync: Option<Schedule>,
    /// Whether it was due a resync at the last check: it then receives unchanged objects.
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
    /// Adds a handler that is resynced each `period`; never, if that is zero.
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

    /// Removes a handler, if it belongs to this processor.
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

    /// Returns the metrics of each handler.
    pub(super) fn metrics(&self) -> Vec<(String, Arc<HandlerMetrics>)> {
        let handlers = self.handlers.iter();
        let measured = handlers.map(|(id, h)| (id.to_string(), h.listener.metrics().clone()));
        measured.collect()
    }

    /// Returns the smallest resync period; zero if there is none.
    pub(super) fn resync_check_period(&self) -> Duration {
        let schedules = self.handlers.values().filter_map(|h| h.resync.as_ref());
        schedules.map(|s| s.period).min().unwrap_or_default()
    }

    /// Returns true if any handler is due a resync at `now`, and schedules its next one.
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

    /// Queues a notification for all handlers; an unchanged object only for those that are due a
    /// resync.
    pub(super) fn distribute(&self, notification: &Notification<T>) {
        let unchanged = is_unchanged(notification);
        let handlers = self.handlers.values();
        for handler in handlers.filter(|handler| !unchanged || handler.syncing) {
            handler.listener.add(notification.clone());
        }
    }
}

/// Returns true for a resync, or an unchanged object in a new list.
fn is_unchanged<T: KubeObject>(notification: &Notification<T>) -> bool {
    match notification {
        Notification::Updated { old, new } => {
            old.metadata().resource_version == new.metadata().resource_version
        }
        Notification::Added { .. } | Notification::Deleted(_) => false,
    }
}
