//! Metrics, under the names and labels of Kubernetes' API server so that dashboards of it work. A
//! leaf: the rooms that have something to count hold what they count with, made once for each
//! resource, and count without a lock or a look-up. State is not mirrored but looked at when somebody
//! scrapes. Nothing here is global: `server` makes one [`Metrics`] and hands it down.
//!
#![doc = include_str!("METRICS.md")]

mod exposition;
mod process;
mod request;
mod resource;
#[cfg(test)]
pub(crate) mod scrape;
mod table;
mod value;
mod work_queue;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

pub use exposition::Format;
pub use request::{HttpMetrics, RequestLabels, RequestMetrics, RequestScope, WatchMetrics};
pub use resource::{
    CacheLook, CacheState, ConsistencyChecks, ListCost, Operation, ResourceMetrics, Stage,
};
pub use value::{Counter, Gauge, Held, Histogram};
pub use work_queue::WorkQueueMetrics;

pub(crate) use exposition::{Exposition, Kind, Label};
pub(crate) use work_queue::{Work, write as write_work_queues};

use process::Process;
use table::Seen;

/// Upper bounds of the keys on a lease.
const LEASE_KEYS: &[f64] = &[10.0, 50.0, 100.0, 500.0, 1000.0, 2500.0, 5000.0];

/// What a server counts.
#[derive(Debug)]
pub struct Metrics {
    process: Process,
    http: HttpMetrics,
    /// By group and plural name. They belong to the rooms that count; what nobody holds any more is
    /// forgotten.
    resources: Mutex<BTreeMap<(String, String), Weak<ResourceMetrics>>>,
    lease_keys: Arc<Histogram>,
    storage_bytes: Mutex<Option<u64>>,
    /// In the order in which their controllers began; as many as there are controllers.
    work_queues: Mutex<Vec<Arc<WorkQueueMetrics>>>,
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            process: Process::new(),
            http: HttpMetrics::default(),
            resources: Mutex::default(),
            lease_keys: Arc::new(Histogram::new(LEASE_KEYS)),
            storage_bytes: Mutex::default(),
            work_queues: Mutex::default(),
        })
    }

    /// Those of requests.
    pub fn http(&self) -> &HttpMetrics {
        &self.http
    }

    /// How many keys shared a lease in the end; for storage that has leases.
    pub fn lease_keys(&self) -> Arc<Histogram> {
        self.lease_keys.clone()
    }

    /// Those of the queue of the controller `name`, which are told from now on.
    pub fn work_queue(&self, name: &'static str) -> Arc<WorkQueueMetrics> {
        let mut queues = self.work_queues.lock();
        if let Some(known) = queues.iter().find(|queue| queue.name() == name) {
            return known.clone();
        }
        let metrics = Arc::new(WorkQueueMetrics::new(name));
        queues.push(metrics.clone());
        metrics
    }

    /// Those of a resource: new ones, unless somebody holds them already.
    pub fn resource(&self, group: &str, resource: &str) -> Arc<ResourceMetrics> {
        let mut resources = self.resources.lock();
        let name = (group.to_owned(), resource.to_owned());
        if let Some(held) = resources.get(&name).and_then(Weak::upgrade) {
            return held;
        }
        let metrics = Arc::new(ResourceMetrics::new(group, resource));
        resources.insert(name, Arc::downgrade(&metrics));
        metrics
    }

    /// How large the storage is, to be told in the next scrape; `None` when it did not say.
    pub fn storage_size(&self, bytes: Option<u64>) {
        *self.storage_bytes.lock() = bytes;
    }

    /// All of it, as text.
    pub fn render(&self, format: Format) -> String {
        let resources: Vec<_> = {
            let mut resources = self.resources.lock();
            resources.retain(|_, metrics| metrics.strong_count() > 0);
            resources.values().filter_map(Weak::upgrade).collect()
        };
        // Looking at a cache takes locks of its own, so not under ours.
        let resources: Vec<_> = resources.into_iter().map(Seen::new).collect();
        let mut out = Exposition::new(format);
        for row in table::TABLE {
            table::write(row, &resources, &mut out);
        }
        self.http.write(&mut out);
        let mut family = out.family(
            "etcd_lease_object_counts",
            Kind::Histogram,
            "Keys that shared a lease when the next one was taken.",
        );
        family.histogram(&[], &self.lease_keys);
        if let Some(bytes) = *self.storage_bytes.lock() {
            let help = "Bytes that the storage takes on its disk.";
            out.family("apiserver_storage_size_bytes", Kind::Gauge, help)
                .value(&[&[("storage_cluster_id", "etcd-0")]], bytes);
        }
        write_work_queues(&self.work_queues.lock(), &mut out);
        self.process.write(&mut out);
        out.finish()
    }
}

#[cfg(test)]
mod tests;
