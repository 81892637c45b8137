//! Metrics of API Priority and Fairness.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::exposition::{Exposition, Kind, Label};
use super::value::{Counter, Histogram};

/// Bucket bounds of the time that requests wait and run, in seconds.
const SECONDS: &[f64] = &[
    0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
];

/// Bucket bounds of the seats of a request.
const SEATS: &[f64] = &[1.0, 2.0, 4.0, 10.0];

/// Why a request was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowRejection {
    /// Its queue is full.
    QueueFull,
    /// All seats are in use, and the level has no queues.
    ConcurrencyLimit,
    /// It waited for too long.
    TimeOut,
    /// Its client disconnected while it waited.
    Cancelled,
}

impl FlowRejection {
    const ALL: [(Self, &'static str); 4] = [
        (Self::QueueFull, "queue-full"),
        (Self::ConcurrencyLimit, "concurrency-limit"),
        (Self::TimeOut, "time-out"),
        (Self::Cancelled, "cancelled"),
    ];
}

/// The metrics of the requests of a FlowSchema in a priority level.
#[derive(Debug)]
pub struct FlowMetrics {
    requests_waiting: AtomicI64,
    seats_waiting: AtomicI64,
    requests_executing: AtomicI64,
    seats_executing: AtomicI64,
    dispatched: Counter,
    rejected: [Counter; FlowRejection::ALL.len()],
    seats: Histogram,
    /// Of dispatched requests and of rejected ones.
    wait_seconds: [Histogram; 2],
    /// Of requests without watches and of the initialization of watches.
    execution_seconds: [Histogram; 2],
}

impl FlowMetrics {
    /// Returns metrics without values.
    pub fn new() -> Self {
        Self {
            requests_waiting: AtomicI64::new(0),
            seats_waiting: AtomicI64::new(0),
            requests_executing: AtomicI64::new(0),
            seats_executing: AtomicI64::new(0),
            dispatched: Counter::default(),
            rejected: FlowRejection::ALL.map(|_| Counter::default()),
            seats: Histogram::new(SEATS),
            wait_seconds: [(); 2].map(|()| Histogram::new(SECONDS)),
            execution_seconds: [(); 2].map(|()| Histogram::new(SECONDS)),
        }
    }

    /// A request of `seats` seats begins to wait.
    pub fn waiting(&self, seats: i64) {
        self.requests_waiting.fetch_add(1, Ordering::Relaxed);
        self.seats_waiting.fetch_add(seats, Ordering::Relaxed);
    }

    /// A request of `seats` seats leaves its queue.
    pub fn no_longer_waiting(&self, seats: i64) {
        self.requests_waiting.fetch_sub(1, Ordering::Relaxed);
        self.seats_waiting.fetch_sub(seats, Ordering::Relaxed);
    }

    /// A request of `seats` seats begins to run.
    pub fn executing(&self, seats: i64) {
        self.requests_executing.fetch_add(1, Ordering::Relaxed);
        self.seats_executing.fetch_add(seats, Ordering::Relaxed);
    }

    /// A request of `seats` seats has run for `elapsed`; of a watch, its initialization.
    pub fn finished(&self, seats: i64, is_watch: bool, elapsed: Duration) {
        self.requests_executing.fetch_sub(1, Ordering::Relaxed);
        self.seats_executing.fetch_sub(seats, Ordering::Relaxed);
        self.execution_seconds[usize::from(is_watch)].observe_duration(elapsed);
    }

    /// A request of `seats` seats was dispatched after it has waited for `waited`.
    pub fn dispatched(&self, seats: usize, waited: Duration) {
        self.dispatched.inc();
        self.seats.observe(seats as f64);
        self.wait_seconds[0].observe_duration(waited);
    }

    /// A request was rejected after it has waited for `waited`.
    pub fn rejected(&self, rejection: FlowRejection, waited: Duration) {
        self.rejected[rejection as usize].inc();
        self.wait_seconds[1].observe_duration(waited);
    }

    /// Returns true if there was any request.
    fn is_used(&self) -> bool {
        let waiting = self.requests_waiting.load(Ordering::Relaxed);
        waiting > 0 || self.outcomes().iter().any(|count| *count > 0)
    }

    /// Returns the numbers of requests that were dispatched, rejected for any reason, rejected because they waited for
    /// too long, and cancelled.
    pub fn outcomes(&self) -> [u64; 4] {
        let of = |rejection: FlowRejection| self.rejected[rejection as usize].get();
        let all = self.rejected.iter().map(Counter::get).sum();
        let (timed_out, cancelled) = (of(FlowRejection::TimeOut), of(FlowRejection::Cancelled));
        [self.dispatched.get(), all, timed_out, cancelled]
    }
}

impl Default for FlowMetrics {
    fn default() -> Self {
        Self::new()
    }
}

/// The seats of a priority level.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LevelSeats {
    /// The share of the level in the server's seats.
    pub nominal: usize,
    /// The seats that it does not lend.
    pub lower: usize,
    /// The most seats that it may have.
    pub upper: usize,
    /// The present limit.
    pub current: usize,
    /// The highest demand of the last period of adjustment.
    pub demand_high_watermark: f64,
    /// The demand that determines the present limit.
    pub demand_smoothed: f64,
}

/// The metrics of API Priority and Fairness. The series of a FlowSchema exist from its first request, and remain when it is
/// deleted.
#[derive(Debug, Default)]
pub struct FlowControlMetrics {
    /// By priority level and FlowSchema.
    flows: Mutex<BTreeMap<(String, String), Arc<FlowMetrics>>>,
    levels: Mutex<BTreeMap<String, LevelSeats>>,
}

impl FlowControlMetrics {
    /// Returns the metrics of a FlowSchema in a level: the existing ones, or new ones.
    pub fn flow(&self, level: &str, schema: &str) -> Arc<FlowMetrics> {
        let name = (level.to_owned(), schema.to_owned());
        Arc::clone(self.flows.lock().entry(name).or_default())
    }

    /// Replaces the seats of all levels.
    pub fn set_levels(&self, levels: BTreeMap<String, LevelSeats>) {
        *self.levels.lock() = levels;
    }

    /// Writes all metrics.
    pub(super) fn write(&self, out: &mut Exposition) {
        let flows: Vec<_> = {
            let flows = self.flows.lock();
            let used = flows.iter().filter(|(_, flow)| flow.is_used());
            used.map(|(name, flow)| (name.clone(), Arc::clone(flow)))
                .collect()
        };
        write_flow_values(&flows, out);
        write_flow_histograms(&flows, out);
        let levels = self.levels.lock().clone();
        for (name, help, value) in LEVEL_GAUGES {
            let mut family = out.family(name, Kind::Gauge, help);
            for (level, seats) in &levels {
                family.value(&[&[("priority_level", level)]], value(seats));
            }
        }
    }
}

type Flow = ((String, String), Arc<FlowMetrics>);

fn labels_of(((level, schema), _): &Flow) -> [Label<'_>; 2] {
    [("flow_schema", schema), ("priority_level", level)]
}

type FlowGauge = (&'static str, &'static str, fn(&FlowMetrics) -> &AtomicI64);

/// Name, help and value of the gauges of a flow schema.
const FLOW_GAUGES: [FlowGauge; 4] = [
    (
        "apiserver_flowcontrol_current_executing_requests",
        "Number of requests that run; of watches only until they are initialized.",
        |flow| &flow.requests_executing,
    ),
    (
        "apiserver_flowcontrol_current_executing_seats",
        "Number of seats of the requests that run.",
        |flow| &flow.seats_executing,
    ),
    (
        "apiserver_flowcontrol_current_inqueue_requests",
        "Number of requests that wait in queues.",
        |flow| &flow.requests_waiting,
    ),
    (
        "apiserver_flowcontrol_current_inqueue_seats",
        "Number of seats of the requests that wait in queues.",
        |flow| &flow.seats_waiting,
    ),
];

type LevelGauge = (&'static str, &'static str, fn(&LevelSeats) -> f64);

/// Name, help and value of the gauges of a level.
const LEVEL_GAUGES: [LevelGauge; 6] = [
    (
        "apiserver_flowcontrol_current_limit_seats",
        "Number of seats of the priority level, with those that it borrows and without those that it lends.",
        |seats| seats.current as f64,
    ),
    (
        "apiserver_flowcontrol_demand_seats_high_watermark",
        "Highest demand for seats in the last ten seconds of observation.",
        |seats| seats.demand_high_watermark,
    ),
    (
        "apiserver_flowcontrol_demand_seats_smoothed",
        "Smoothed demand for seats.",
        |seats| seats.demand_smoothed,
    ),
    (
        "apiserver_flowcontrol_lower_limit_seats",
        "Number of seats that the priority level does not lend.",
        |seats| seats.lower as f64,
    ),
    (
        "apiserver_flowcontrol_nominal_limit_seats",
        "Number of seats of the priority level by its shares.",
        |seats| seats.nominal as f64,
    ),
    (
        "apiserver_flowcontrol_upper_limit_seats",
        "Highest number of seats that the priority level may have by borrowing.",
        |seats| seats.upper as f64,
    ),
];

fn write_flow_values(flows: &[Flow], out: &mut Exposition) {
    for (name, help, value) in FLOW_GAUGES {
        let mut family = out.family(name, Kind::Gauge, help);
        for flow in flows {
            let value = value(&flow.1).load(Ordering::Relaxed);
            family.value(&[&labels_of(flow)], value);
        }
    }
    let mut family = out.family(
        "apiserver_flowcontrol_dispatched_requests_total",
        Kind::Counter,
        "Number of requests that were admitted.",
    );
    for flow in flows {
        family.value(&[&labels_of(flow)], flow.1.dispatched.get());
    }
    let mut family = out.family(
        "apiserver_flowcontrol_rejected_requests_total",
        Kind::Counter,
        "Number of requests that were not admitted, by reason.",
    );
    for flow in flows {
        for (rejection, reason) in FlowRejection::ALL {
            let count = flow.1.rejected[rejection as usize].get();
            if count > 0 {
                family.value(&[&labels_of(flow), &[("reason", reason)]], count);
            }
        }
    }
}

fn write_flow_histograms(flows: &[Flow], out: &mut Exposition) {
    let mut family = out.family(
        "apiserver_flowcontrol_request_wait_duration_seconds",
        Kind::Histogram,
        "Time that requests waited in their queues, in seconds.",
    );
    for flow in flows {
        for (execute, histogram) in ["true", "false"].iter().zip(&flow.1.wait_seconds) {
            family.histogram(&[&labels_of(flow), &[("execute", execute)]], histogram);
        }
    }
    let mut family = out.family(
        "apiserver_flowcontrol_request_execution_seconds",
        Kind::Histogram,
        "Time that admitted requests ran; of watches their initialization; in seconds.",
    );
    for flow in flows {
        for (kind, histogram) in ["regular", "watch"].iter().zip(&flow.1.execution_seconds) {
            family.histogram(&[&labels_of(flow), &[("type", kind)]], histogram);
        }
    }
    let mut family = out.family(
        "apiserver_flowcontrol_work_estimated_seats",
        Kind::Histogram,
        "Number of seats of admitted requests.",
    );
    for flow in flows {
        family.histogram(&[&labels_of(flow)], &flow.1.seats);
    }
}
