//! [`UnsentEvents`]: measures the time from the arrival of a change from storage until its event is written to a client's
//! socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::WatchMetrics;

/// The watch events of one connection that have not been written to its socket yet.
///
/// ```
/// use tokio::time::Instant;
/// use watchet_metrics::{Format, Metrics, UnsentEvents};
///
/// let (metrics, connection) = (Metrics::new(), UnsentEvents::default());
/// let pods = metrics.http().watches("", "v1", "pods");
/// connection.add(&pods, Instant::now(), 2);
/// connection.written();
/// let page = metrics.render(Format::Prometheus);
/// let count = r#"watchet_watch_event_write_duration_seconds_count{group="",version="v1",resource="pods"} 2"#;
/// assert!(page.contains(count), "{page}");
/// ```
#[derive(Debug, Default)]
pub struct UnsentEvents {
    /// True if `by_resource` is not empty. Most writes contain no watch events, and then do not lock `by_resource`.
    has_events: AtomicBool,
    /// One entry for each resource.
    by_resource: Mutex<Vec<Unsent>>,
}

#[derive(Debug)]
struct Unsent {
    metrics: Arc<WatchMetrics>,
    /// When the oldest change arrived from storage.
    arrived: Instant,
    events: usize,
}

impl UnsentEvents {
    /// Adds events whose frames the connection writes next. `arrived` is the time at which the oldest of their changes arrived from
    /// storage.
    pub fn add(&self, metrics: &Arc<WatchMetrics>, arrived: Instant, events: usize) {
        let mut unsent = self.by_resource.lock();
        match unsent
            .iter_mut()
            .find(|unsent| Arc::ptr_eq(&unsent.metrics, metrics))
        {
            Some(unsent) => {
                unsent.arrived = unsent.arrived.min(arrived);
                unsent.events += events;
            }
            None => unsent.push(Unsent {
                metrics: Arc::clone(metrics),
                arrived,
                events,
            }),
        }
        self.has_events.store(true, Ordering::Relaxed);
    }

    /// Observes all events in the histograms of their resources. Call it when the socket has accepted all bytes of the connection.
    pub fn written(&self) {
        if !self.has_events.load(Ordering::Relaxed) {
            return;
        }
        let mut unsent = self.by_resource.lock();
        self.has_events.store(false, Ordering::Relaxed);
        let now = Instant::now();
        for unsent in unsent.drain(..) {
            let elapsed = now.saturating_duration_since(unsent.arrived);
            unsent.metrics.written(elapsed, unsent.events);
        }
    }
}
