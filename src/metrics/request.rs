//! The metrics of requests: how many, how they went and what they took, and what watches were sent.
//! Labels come from a bounded set: who asks for what is not there makes no new ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::exposition::{Exposition, Kind, Label};
use super::resource::REQUEST_SECONDS;
use super::value::{Counter, Gauge, Histogram};

/// Upper bounds of a frame's size, in bytes.
const FRAME_BYTES: &[f64] = &[
    1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0,
];

/// Upper bounds of what an initial state takes, in seconds.
const WATCH_LIST_SECONDS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// What part of a resource a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestScope {
    /// It is not about objects.
    None,
    /// One object, also one to be made.
    Resource,
    /// Those of a namespace.
    Namespace,
    /// All.
    Cluster,
}

impl RequestScope {
    const ALL: [(Self, &'static str); 4] = [
        (Self::None, ""),
        (Self::Resource, "resource"),
        (Self::Namespace, "namespace"),
        (Self::Cluster, "cluster"),
    ];

    const fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// What tells requests apart. Each text must be one of a bounded set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestLabels {
    /// `GET`, `LIST`, `WATCH`, …
    pub verb: &'static str,
    /// `All`, or nothing.
    pub dry_run: &'static str,
    /// Nothing for the core group.
    pub group: String,
    /// `v1`
    pub version: String,
    /// `pods`; nothing when it is not about objects.
    pub resource: String,
    /// `status`; or the path of what is no resource.
    pub subresource: String,
    /// Which part of it.
    pub scope: RequestScope,
    /// Who answers: `apiserver`; nothing for health checks.
    pub component: &'static str,
}

/// The requests of one kind.
#[derive(Debug)]
pub struct RequestMetrics {
    /// From the head to the end of the answer.
    duration: Histogram,
    /// How many ended with which code. Bounded by the codes that there are.
    codes: Mutex<BTreeMap<u16, u64>>,
    /// Clients that left before they got the answer's head.
    aborts: Counter,
    /// Requests that last, like watches.
    pub long_running: Gauge,
}

impl RequestMetrics {
    /// One was answered with this code, and its answer took so long to be sent or given up.
    pub fn answered(&self, code: u16, elapsed: Duration) {
        *self.codes.lock().entry(code).or_default() += 1;
        self.duration.observe_duration(elapsed);
    }

    /// One was given up by its client before there was an answer.
    pub fn aborted(&self) {
        self.aborts.inc();
    }
}

/// The watches of one resource, as they are sent.
#[derive(Debug)]
pub struct WatchMetrics {
    frame_bytes: Histogram,
    initial_seconds: [Histogram; RequestScope::ALL.len()],
}

impl WatchMetrics {
    /// A frame of this size was sent.
    pub fn sent(&self, bytes: usize) {
        self.frame_bytes.observe(bytes as f64);
    }

    /// The end of an initial state was sent so long after the request came.
    pub fn initial_state_sent(&self, scope: RequestScope, elapsed: Duration) {
        self.initial_seconds[scope as usize].observe_duration(elapsed);
    }
}

/// Group, version and plural name.
type WatchLabels = (String, String, String);

/// All requests. Families grow with the resources that are asked for, and with nothing else.
#[derive(Debug, Default)]
pub struct HttpMetrics {
    requests: Mutex<BTreeMap<RequestLabels, Arc<RequestMetrics>>>,
    watches: Mutex<BTreeMap<WatchLabels, Arc<WatchMetrics>>>,
    /// Reads in progress, other than watches.
    pub reads_in_flight: Gauge,
    /// Writes in progress.
    pub writes_in_flight: Gauge,
}

impl HttpMetrics {
    /// The requests with these labels.
    pub fn requests(&self, labels: RequestLabels) -> Arc<RequestMetrics> {
        let none = || RequestMetrics {
            duration: Histogram::new(REQUEST_SECONDS),
            codes: Mutex::default(),
            aborts: Counter::default(),
            long_running: Gauge::default(),
        };
        let mut requests = self.requests.lock();
        requests
            .entry(labels)
            .or_insert_with(|| Arc::new(none()))
            .clone()
    }

    /// The watches of this resource.
    pub fn watches(&self, group: &str, version: &str, resource: &str) -> Arc<WatchMetrics> {
        let none = || WatchMetrics {
            frame_bytes: Histogram::new(FRAME_BYTES),
            initial_seconds: RequestScope::ALL.map(|_| Histogram::new(WATCH_LIST_SECONDS)),
        };
        let labels = (group.to_owned(), version.to_owned(), resource.to_owned());
        let mut watches = self.watches.lock();
        watches
            .entry(labels)
            .or_insert_with(|| Arc::new(none()))
            .clone()
    }

    /// Writes what was counted.
    pub(super) fn write(&self, out: &mut Exposition) {
        let requests: Vec<_> = {
            let requests = self.requests.lock();
            requests
                .iter()
                .map(|(l, m)| (l.clone(), m.clone()))
                .collect()
        };
        write_requests(&requests, out);
        let mut family = out.family(
            "apiserver_current_inflight_requests",
            Kind::Gauge,
            "Requests in progress, other than watches.",
        );
        family.value(
            &[&[("request_kind", "mutating")]],
            self.writes_in_flight.get(),
        );
        family.value(
            &[&[("request_kind", "readOnly")]],
            self.reads_in_flight.get(),
        );
        let watches: Vec<_> = {
            let watches = self.watches.lock();
            watches
                .iter()
                .map(|(l, m)| (l.clone(), m.clone()))
                .collect()
        };
        write_watches(&watches, out);
    }
}

fn write_requests(requests: &[(RequestLabels, Arc<RequestMetrics>)], out: &mut Exposition) {
    let mut family = out.family(
        "apiserver_request_total",
        Kind::Counter,
        "Requests, counted when their answers were sent or given up.",
    );
    for (labels, metrics) in requests {
        for (code, count) in &*metrics.codes.lock() {
            let code = code.to_string();
            family.value(&[&labels.all(), &[("code", &code)]], *count);
        }
    }
    let mut family = out.family(
        "apiserver_request_aborts_total",
        Kind::Counter,
        "Requests whose clients left before there was an answer.",
    );
    for (labels, metrics) in requests {
        if metrics.aborts.get() > 0 {
            family.value(&[&labels.short()], metrics.aborts.get());
        }
    }
    let mut family = out.family(
        "apiserver_request_duration_seconds",
        Kind::Histogram,
        "What requests took until their answers were sent or given up.",
    );
    for (labels, metrics) in requests {
        family.histogram(&[&labels.all()], &metrics.duration);
    }
    let mut family = out.family(
        "apiserver_longrunning_requests",
        Kind::Gauge,
        "Watches in progress.",
    );
    for (labels, metrics) in requests {
        if labels.verb == "WATCH" {
            let component = [("component", labels.component)];
            let running = metrics.long_running.get();
            family.value(&[&labels.short(), &component], running);
        }
    }
}

fn write_watches(watches: &[(WatchLabels, Arc<WatchMetrics>)], out: &mut Exposition) {
    fn told((group, version, resource): &WatchLabels) -> [Label<'_>; 3] {
        [
            ("group", group),
            ("version", version),
            ("resource", resource),
        ]
    }
    let mut family = out.family(
        "apiserver_watch_events_total",
        Kind::Counter,
        "Frames that watches were sent, bookmarks included.",
    );
    for (labels, metrics) in watches {
        family.value(&[&told(labels)], metrics.frame_bytes.count());
    }
    let mut family = out.family(
        "apiserver_watch_events_sizes",
        Kind::Histogram,
        "Their bytes, before compression.",
    );
    for (labels, metrics) in watches {
        family.histogram(&[&told(labels)], &metrics.frame_bytes);
    }
    let mut family = out.family(
        "apiserver_watch_list_duration_seconds",
        Kind::Histogram,
        "From a request for an initial state to the bookmark that ends it.",
    );
    for (labels, metrics) in watches {
        for (scope, name) in RequestScope::ALL {
            let taken = &metrics.initial_seconds[scope as usize];
            family.histogram(&[&told(labels), &[("scope", name)]], taken);
        }
    }
}

impl RequestLabels {
    /// In upstream's order; the code comes after them.
    fn all(&self) -> [Label<'_>; 8] {
        [
            ("verb", self.verb),
            ("dry_run", self.dry_run),
            ("group", &self.group),
            ("version", &self.version),
            ("resource", &self.resource),
            ("subresource", &self.subresource),
            ("scope", self.scope.as_str()),
            ("component", self.component),
        ]
    }

    fn short(&self) -> [Label<'_>; 6] {
        [
            ("verb", self.verb),
            ("group", &self.group),
            ("version", &self.version),
            ("resource", &self.resource),
            ("subresource", &self.subresource),
            ("scope", self.scope.as_str()),
        ]
    }
}
