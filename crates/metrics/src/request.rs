//! Metrics of requests and of watch frames. Labels come from a bounded set: requests for unknown
//! resources create no series.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::exposition::{Exposition, Kind, Label};
use super::resource::{DISPATCH_SECONDS, REQUEST_SECONDS};
use super::value::{Counter, Gauge, GaugeGuard, Histogram};

/// Bucket bounds of frame sizes in bytes.
const FRAME_BYTES: &[f64] = &[
    1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0,
];

/// Bucket bounds of the duration of an initial state in seconds.
const WATCH_LIST_SECONDS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// Bucket bounds of request durations for service level indicators in seconds.
const LEVEL_SECONDS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0,
    30.0, 45.0, 60.0,
];

/// The `scope` label of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestScope {
    /// The request is not about objects.
    None,
    /// One object, including a create.
    Resource,
    /// The collection of a namespace.
    Namespace,
    /// The collection of all namespaces.
    Cluster,
}

impl RequestScope {
    const ALL: [(Self, &'static str); 4] = [
        (Self::None, ""),
        (Self::Resource, "resource"),
        (Self::Namespace, "namespace"),
        (Self::Cluster, "cluster"),
    ];

    /// Returns the name as a label.
    pub const fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// The labels of a request. Each value must be from a bounded set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestLabels {
    /// `GET`, `LIST`, `WATCH`, …
    pub verb: &'static str,
    /// `All`, or empty.
    pub dry_run: &'static str,
    /// Empty for the core group.
    pub group: String,
    /// `v1`
    pub version: String,
    /// `pods`; empty if the request is not about objects.
    pub resource: String,
    /// `status`; the path of a non-resource request.
    pub subresource: String,
    /// The scope of the request.
    pub scope: RequestScope,
    /// `apiserver`; empty for health checks.
    pub component: &'static str,
}

/// The metrics of requests with the same labels.
#[derive(Debug)]
pub struct RequestMetrics {
    /// From the request head to the end of the response.
    duration: Histogram,
    /// The number of responses per status code; bounded by the number of codes.
    codes: Mutex<BTreeMap<u16, u64>>,
    /// Metrics without the dry-run label.
    kind: Arc<KindMetrics>,
}

#[derive(Debug)]
struct KindMetrics {
    /// The same durations, for `apiserver_request_sli_duration_seconds`.
    level: Histogram,
    /// Requests whose clients disconnected before the response head.
    aborts: Counter,
    /// Long-running requests such as watches.
    long_running: Gauge,
}

impl RequestMetrics {
    /// Counts a response with this code and the time until it was sent or dropped.
    pub fn count_response(&self, code: u16, elapsed: Duration) {
        *self.codes.lock().entry(code).or_default() += 1;
        self.duration.observe_duration(elapsed);
        self.kind.level.observe_duration(elapsed);
    }

    /// Counts a request whose client disconnected before the response.
    pub fn aborted(&self) {
        self.kind.aborts.inc();
    }

    /// Counts a long-running request until the guard is dropped.
    #[must_use]
    pub fn long_running(&self) -> GaugeGuard {
        self.kind.long_running.hold()
    }
}

/// The metrics of the watches of one resource.
#[derive(Debug)]
pub struct WatchMetrics {
    frame_bytes: Histogram,
    initial_seconds: [Histogram; RequestScope::ALL.len()],
    write_seconds: Histogram,
    ends: [Counter; WatchEnd::ALL.len()],
}

/// Why a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEnd {
    /// It timed out: after the client's `timeoutSeconds` or the server's maximum.
    Timeout,
    /// The client closed it or the connection.
    Client,
    /// Its object of the resource `watchers` was deleted.
    Deleted,
    /// The history no longer had its next event: 410.
    Expired,
    /// Its client lost access: 401 or 403.
    Access,
    /// Its client did not read while memory was scarce.
    Aborted,
    /// The server stopped.
    Shutdown,
    /// The definition of the resource changed.
    Definition,
    /// The events could not be sent, for example because a stored object cannot be decoded.
    Error,
}

impl WatchEnd {
    const ALL: [Self; 9] = [
        Self::Timeout,
        Self::Client,
        Self::Deleted,
        Self::Expired,
        Self::Access,
        Self::Aborted,
        Self::Shutdown,
        Self::Definition,
        Self::Error,
    ];

    /// Returns the value of the label `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Client => "client",
            Self::Deleted => "deleted",
            Self::Expired => "expired",
            Self::Access => "access",
            Self::Aborted => "aborted",
            Self::Shutdown => "shutdown",
            Self::Definition => "definition",
            Self::Error => "error",
        }
    }
}

impl WatchMetrics {
    /// Counts a watch that ended.
    pub fn ended(&self, end: WatchEnd) {
        self.ends[end as usize].inc();
    }

    /// Counts a frame of this size.
    pub fn sent(&self, bytes: usize) {
        self.frame_bytes.observe(bytes as f64);
    }

    /// Observes the time from the arrival of changes from storage until the socket accepted their events.
    pub(super) fn written(&self, elapsed: Duration, events: usize) {
        self.write_seconds
            .observe_many(elapsed.as_secs_f64(), events);
    }

    /// Observes the time from the request to the end of the initial state.
    pub fn initial_state_sent(&self, scope: RequestScope, elapsed: Duration) {
        self.initial_seconds[scope as usize].observe_duration(elapsed);
    }
}

/// Group, version and plural name.
type WatchLabels = (String, String, String);

/// The metrics of all requests. The number of series grows only with the number of requested
/// resources, which are removed some time after they are no longer served.
#[derive(Debug, Default)]
pub struct HttpMetrics {
    requests: Mutex<BTreeMap<RequestLabels, Arc<RequestMetrics>>>,
    /// By labels without `dry_run`.
    kinds: Mutex<BTreeMap<RequestLabels, Arc<KindMetrics>>>,
    watches: Mutex<BTreeMap<WatchLabels, Arc<WatchMetrics>>>,
    /// Reads in progress, other than watches.
    pub reads_in_flight: Gauge,
    /// Writes in progress.
    pub writes_in_flight: Gauge,
}

impl HttpMetrics {
    /// Returns the metrics of requests with these labels.
    pub fn requests(&self, labels: RequestLabels) -> Arc<RequestMetrics> {
        let mut requests = self.requests.lock();
        if let Some(existing) = requests.get(&labels) {
            return existing.clone();
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

    /// Returns the metrics of this resource's watches.
    pub fn watches(&self, group: &str, version: &str, resource: &str) -> Arc<WatchMetrics> {
        let none = || WatchMetrics {
            frame_bytes: Histogram::new(FRAME_BYTES),
            initial_seconds: RequestScope::ALL.map(|_| Histogram::new(WATCH_LIST_SECONDS)),
            write_seconds: Histogram::new(DISPATCH_SECONDS),
            ends: Default::default(),
        };
        let labels = (group.to_owned(), version.to_owned(), resource.to_owned());
        let mut watches = self.watches.lock();
        watches
            .entry(labels)
            .or_insert_with(|| Arc::new(none()))
            .clone()
    }

    /// Removes the series of resources that are no longer served, unless a request still records into them. `is_served`
    /// gets the group, the version and the plural name.
    pub fn retain_resources(&self, is_served: impl Fn(&str, &str, &str) -> bool) {
        let is_kept = |labels: &RequestLabels| {
            let resource = &labels.resource;
            resource.is_empty() || is_served(&labels.group, &labels.version, resource)
        };
        // A reference besides that of the map is a request's, or for kinds that of its requests.
        let mut requests = self.requests.lock();
        requests.retain(|labels, metrics| is_kept(labels) || Arc::strong_count(metrics) > 1);
        drop(requests);
        let mut kinds = self.kinds.lock();
        kinds.retain(|labels, metrics| is_kept(labels) || Arc::strong_count(metrics) > 1);
        drop(kinds);
        let mut watches = self.watches.lock();
        watches.retain(|(group, version, resource), metrics| {
            is_served(group, version, resource) || Arc::strong_count(metrics) > 1
        });
    }

    /// Writes all metrics.
    pub(super) fn write(&self, out: &mut Exposition) {
        write_requests(&snapshot(&self.requests), out);
        write_kinds(&snapshot(&self.kinds), out);
        let mut family = out.family(
            "apiserver_current_inflight_requests",
            Kind::Gauge,
            "Number of requests in progress, without watches.",
        );
        family.value(
            &[&[("request_kind", "mutating")]],
            self.writes_in_flight.get(),
        );
        family.value(
            &[&[("request_kind", "readOnly")]],
            self.reads_in_flight.get(),
        );
        write_watches(&snapshot(&self.watches), out);
    }
}

/// Copies the map, so that writing does not hold the lock.
fn snapshot<L: Clone, M>(families: &Mutex<BTreeMap<L, Arc<M>>>) -> Vec<(L, Arc<M>)> {
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
        "Number of requests, counted when the response was sent or dropped.",
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
        "Duration of requests until the response was sent or dropped, in seconds.",
    );
    for (labels, metrics) in requests {
        family.histogram(&[&labels.all()], &metrics.duration);
    }
}

fn write_kinds(kinds: &[(RequestLabels, Arc<KindMetrics>)], out: &mut Exposition) {
    let mut family = out.family(
        "apiserver_request_sli_duration_seconds",
        Kind::Histogram,
        "Duration of requests until the response was sent or dropped, in seconds, without watches.",
    );
    for (labels, metrics) in kinds.iter().filter(|(labels, _)| !labels.is_watch()) {
        let component = [("component", labels.component)];
        family.histogram(&[&labels.short(), &component], &metrics.level);
    }
    let mut family = out.family(
        "apiserver_request_aborts_total",
        Kind::Counter,
        "Number of requests whose client disconnected before the response.",
    );
    for (labels, metrics) in kinds {
        if metrics.aborts.get() > 0 {
            family.value(&[&labels.short()], metrics.aborts.get());
        }
    }
    let mut family = out.family(
        "apiserver_longrunning_requests",
        Kind::Gauge,
        "Number of watches in progress.",
    );
    for (labels, metrics) in kinds.iter().filter(|(labels, _)| labels.is_watch()) {
        let component = [("component", labels.component)];
        let running = metrics.long_running.get();
        family.value(&[&labels.short(), &component], running);
    }
}

fn write_watches(watches: &[(WatchLabels, Arc<WatchMetrics>)], out: &mut Exposition) {
    write_watch_frames(watches, out);
    let mut family = out.family(
        "watchet_watch_ends_total",
        Kind::Counter,
        "Number of watches that ended, by reason.",
    );
    for ((group, version, resource), metrics) in watches {
        for end in WatchEnd::ALL {
            let ends = metrics.ends[end as usize].get();
            if ends > 0 {
                let labels = [
                    ("group", group.as_str()),
                    ("version", version),
                    ("resource", resource),
                    ("reason", end.as_str()),
                ];
                family.value(&[&labels], ends);
            }
        }
    }
}

fn write_watch_frames(watches: &[(WatchLabels, Arc<WatchMetrics>)], out: &mut Exposition) {
    fn labels_of((group, version, resource): &WatchLabels) -> [Label<'_>; 3] {
        [
            ("group", group),
            ("version", version),
            ("resource", resource),
        ]
    }
    let mut family = out.family(
        "apiserver_watch_events_total",
        Kind::Counter,
        "Number of watch events sent, including bookmarks.",
    );
    for (labels, metrics) in watches {
        family.value(&[&labels_of(labels)], metrics.frame_bytes.count());
    }
    let mut family = out.family(
        "apiserver_watch_events_sizes",
        Kind::Histogram,
        "Size of sent watch events in bytes, before compression.",
    );
    for (labels, metrics) in watches {
        family.histogram(&[&labels_of(labels)], &metrics.frame_bytes);
    }
    let mut family = out.family(
        "apiserver_watch_list_duration_seconds",
        Kind::Histogram,
        "Time from a streaming list request to its initial bookmark, in seconds.",
    );
    for (labels, metrics) in watches {
        for (scope, name) in RequestScope::ALL {
            let durations = &metrics.initial_seconds[scope as usize];
            family.histogram(&[&labels_of(labels), &[("scope", name)]], durations);
        }
    }
    let mut family = out.family(
        "watchet_watch_event_write_duration_seconds",
        Kind::Histogram,
        "Time from the arrival of a change from storage until its event was written to a client's socket, in seconds.",
    );
    for (labels, metrics) in watches {
        family.histogram(&[&labels_of(labels)], &metrics.write_seconds);
    }
}

impl RequestLabels {
    /// Returns true for long-running requests.
    pub fn is_watch(&self) -> bool {
        self.verb == "WATCH"
    }

    /// Returns the labels in upstream's order; the code follows them.
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
