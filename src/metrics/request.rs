//! The metrics of requests: how many, how they went and what they took, and what watches were sent.
//! Labels come from a bounded set: who asks for what is not there makes no new ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::exposition::{Exposition, Kind, Label};
use super::resource::REQUEST_SECONDS;
use super::value::{Counter, Gauge, Held, Histogram};

/// Upper bounds of a frame's size, in bytes.
const FRAME_BYTES: &[f64] = &[
    1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0,
];

/// Upper bounds of what an initial state takes, in seconds.
const WATCH_LIST_SECONDS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// Upper bounds of what a request takes of whom a service level is asked, in seconds.
const LEVEL_SECONDS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0,
    30.0, 45.0, 60.0,
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

/// The requests with the same labels.
#[derive(Debug)]
pub struct RequestMetrics {
    /// From the head to the end of the answer.
    duration: Histogram,
    /// How many ended with which code. Bounded by the codes that there are.
    codes: Mutex<BTreeMap<u16, u64>>,
    /// Those of which nobody asks whether they are dry runs.
    kind: Arc<KindMetrics>,
}

#[derive(Debug)]
struct KindMetrics {
    /// The same again under another name, for whoever measures a service level.
    level: Histogram,
    /// Clients that left before they got the answer's head.
    aborts: Counter,
    /// Requests that last, like watches.
    long_running: Gauge,
}

impl RequestMetrics {
    /// One was answered with this code, and its answer took so long to be sent or given up.
    pub fn answered(&self, code: u16, elapsed: Duration) {
        *self.codes.lock().entry(code).or_default() += 1;
        self.duration.observe_duration(elapsed);
        self.kind.level.observe_duration(elapsed);
    }

    /// One was given up by its client before there was an answer.
    pub fn aborted(&self) {
        self.kind.aborts.inc();
    }

    /// One goes on until the answer is dropped.
    #[must_use]
    pub fn long_running(&self) -> Held {
        self.kind.long_running.hold()
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
    /// By labels that say nothing of dry runs.
    kinds: Mutex<BTreeMap<RequestLabels, Arc<KindMetrics>>>,
    watches: Mutex<BTreeMap<WatchLabels, Arc<WatchMetrics>>>,
    /// Reads in progress, other than watches.
    pub reads_in_flight: Gauge,
    /// Writes in progress.
    pub writes_in_flight: Gauge,
}

impl HttpMetrics {
    /// The requests with these labels.
    pub fn requests(&self, labels: RequestLabels) -> Arc<RequestMetrics> {
        let mut requests = self.requests.lock();
        if let Some(known) = requests.get(&labels) {
            return known.clone();
        }
        let new = Arc::new(RequestMetrics {
            duration: Histogram::new(REQUEST_SECONDS),
            codes: Mutex::default(),
            kind: self.kind(&labels),
        });
        requests.insert(labels, new.clone());
        new
    }

    fn kind(&self, labels: &RequestLabels) -> Arc<KindMetrics> {
        let labels = RequestLabels {
            dry_run: "",
            ..labels.clone()
        };
        let none = || KindMetrics {
            level: Histogram::new(LEVEL_SECONDS),
            aborts: Counter::default(),
            long_running: Gauge::default(),
        };
        let mut kinds = self.kinds.lock();
        let kind = kinds.entry(labels).or_insert_with(|| Arc::new(none()));
        kind.clone()
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
        write_requests(&copied(&self.requests), out);
        write_kinds(&copied(&self.kinds), out);
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
        write_watches(&copied(&self.watches), out);
    }
}

/// What is in the map, to be written without holding up who counts.
fn copied<L: Clone, M>(families: &Mutex<BTreeMap<L, Arc<M>>>) -> Vec<(L, Arc<M>)> {
    let families = families.lock();
    families
        .iter()
        .map(|(labels, metrics)| (labels.clone(), metrics.clone()))
        .collect()
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
        "apiserver_request_duration_seconds",
        Kind::Histogram,
        "What requests took until their answers were sent or given up.",
    );
    for (labels, metrics) in requests {
        family.histogram(&[&labels.all()], &metrics.duration);
    }
}

fn write_kinds(kinds: &[(RequestLabels, Arc<KindMetrics>)], out: &mut Exposition) {
    let mut family = out.family(
        "apiserver_request_sli_duration_seconds",
        Kind::Histogram,
        "What requests took until their answers were sent or given up, without watches.",
    );
    for (labels, metrics) in kinds.iter().filter(|(labels, _)| !labels.is_watch()) {
        let component = [("component", labels.component)];
        family.histogram(&[&labels.short(), &component], &metrics.level);
    }
    let mut family = out.family(
        "apiserver_request_aborts_total",
        Kind::Counter,
        "Requests whose clients left before there was an answer.",
    );
    for (labels, metrics) in kinds {
        if metrics.aborts.get() > 0 {
            family.value(&[&labels.short()], metrics.aborts.get());
        }
    }
    let mut family = out.family(
        "apiserver_longrunning_requests",
        Kind::Gauge,
        "Watches in progress.",
    );
    for (labels, metrics) in kinds.iter().filter(|(labels, _)| labels.is_watch()) {
        let component = [("component", labels.component)];
        let running = metrics.long_running.get();
        family.value(&[&labels.short(), &component], running);
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
    /// Whether they are of requests that last.
    pub fn is_watch(&self) -> bool {
        self.verb == "WATCH"
    }

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
