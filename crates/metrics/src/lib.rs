//! Metrics with the names and labels of kube-apiserver, so that its dashboards work. Other modules
//! hold their counters and increment them without locks or lookups; gauges of state are read at
//! scrape time. `server` creates the one [`Metrics`] and passes it on; there is no global registry.
//!
#![doc = include_str!("METRICS.md")]

mod audit;
mod authentication;
mod authorization;
mod cache_outage;
mod encoding_cache;
mod encryption;
mod exposition;
mod family;
mod flow_control;
mod kms;
mod log_interval;
mod memory;
mod process;
mod request;
mod resource;
mod table;
mod task;
mod trace;
mod unsent_events;
mod value;
mod work_queue;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

pub use audit::AuditMetrics;
pub use authentication::{AuthenticationMetrics, ConfigReloads, ServiceAccountTokenMetrics};
pub use authorization::{
    AuthorizationMetrics, AuthorizationWebhookMetrics, AuthorizerMetrics, ReviewResult,
};
pub use cache_outage::CacheOutage;
pub use encoding_cache::EncodingCacheSample;
pub use encryption::{EncryptionMetrics, Transformation};
pub use exposition::{Exposition, Format, Kind, Label};
pub use family::{ItemFamily, MetricItem, Samples, WriteSamples, write_table};
pub use flow_control::{FlowControlMetrics, FlowMetrics, FlowRejection, LevelSeats};
pub use kms::{KmsKey, KmsMetrics, KmsOperation};
pub use log_interval::LogInterval;
pub use memory::MemorySample;
pub use request::{
    HttpMetrics, RequestLabels, RequestMetrics, RequestScope, WatchEnd, WatchMetrics,
};
pub use resource::{
    CacheState, CacheStats, ConsistencyChecks, ListCost, Operation, ResourceMetrics, Stage,
};
pub use task::TaskMetrics;
pub use trace::TraceMetrics;
pub use unsent_events::UnsentEvents;
pub use value::{Counter, Gauge, GaugeGuard, Histogram};
pub use work_queue::{Processing, WorkQueueMetrics, write as write_work_queues};

use process::Process;
use table::ScrapedResource;

/// Bucket bounds of the number of keys on a lease.
const LEASE_KEYS: &[f64] = &[10.0, 50.0, 100.0, 500.0, 1000.0, 2500.0, 5000.0];

/// All metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    process: Process,
    http: HttpMetrics,
    audit: AuditMetrics,
    authentication: AuthenticationMetrics,
    authorization: AuthorizationMetrics,
    encryption: EncryptionMetrics,
    flow_control: Arc<FlowControlMetrics>,
    tasks: Arc<TaskMetrics>,
    traces: TraceMetrics,
    /// By group and plural name. The modules that record metrics own them; a render removes the entries without an owner.
    resources: Mutex<BTreeMap<(String, String), Weak<ResourceMetrics>>>,
    lease_keys: Arc<Histogram>,
    cache_outage: Arc<CacheOutage>,
    storage_bytes: Mutex<Option<u64>>,
    encoding_cache: Mutex<EncodingCacheSample>,
    memory: Mutex<MemorySample>,
    /// In the order in which their controllers started; one per controller.
    work_queues: Mutex<Vec<Arc<WorkQueueMetrics>>>,
}

impl Metrics {
    /// Returns metrics without values.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            process: Process::new(),
            http: HttpMetrics::default(),
            audit: AuditMetrics::default(),
            authentication: AuthenticationMetrics::default(),
            authorization: AuthorizationMetrics::default(),
            encryption: EncryptionMetrics::default(),
            flow_control: Arc::default(),
            tasks: Arc::default(),
            traces: TraceMetrics::default(),
            resources: Mutex::default(),
            cache_outage: Arc::default(),
            lease_keys: Arc::new(Histogram::new(LEASE_KEYS)),
            storage_bytes: Mutex::default(),
            encoding_cache: Mutex::default(),
            memory: Mutex::default(),
            work_queues: Mutex::default(),
        })
    }

    /// Returns the metrics of requests.
    pub fn http(&self) -> &HttpMetrics {
        &self.http
    }

    /// Returns the metrics of audit logging.
    pub fn audit(&self) -> &AuditMetrics {
        &self.audit
    }

    /// Returns the metrics of authentication.
    pub fn authentication(&self) -> &AuthenticationMetrics {
        &self.authentication
    }

    /// Returns the metrics of authorization.
    pub fn authorization(&self) -> &AuthorizationMetrics {
        &self.authorization
    }

    /// Returns the metrics of encryption at rest.
    pub fn encryption(&self) -> &EncryptionMetrics {
        &self.encryption
    }

    /// Returns the metrics of API Priority and Fairness.
    pub fn flow_control(&self) -> &Arc<FlowControlMetrics> {
        &self.flow_control
    }

    /// Returns the metrics of asynchronous tasks.
    pub fn tasks(&self) -> &Arc<TaskMetrics> {
        &self.tasks
    }

    /// Returns the metrics of distributed tracing.
    pub fn traces(&self) -> &TraceMetrics {
        &self.traces
    }

    /// Returns the histogram of keys per lease, for storage with leases.
    pub fn lease_keys(&self) -> Arc<Histogram> {
        self.lease_keys.clone()
    }

    /// Returns the metrics of the queue of controller `name`, which are part of scrapes from now
    /// on.
    pub fn work_queue(&self, name: &'static str) -> Arc<WorkQueueMetrics> {
        let mut queues = self.work_queues.lock();
        if let Some(existing) = queues.iter().find(|queue| queue.name() == name) {
            return existing.clone();
        }
        let metrics = Arc::new(WorkQueueMetrics::new(name));
        queues.push(metrics.clone());
        metrics
    }

    /// Returns the metrics of a resource: the existing ones, or new ones.
    pub fn resource(&self, group: &str, resource: &str) -> Arc<ResourceMetrics> {
        let mut resources = self.resources.lock();
        let name = (group.to_owned(), resource.to_owned());
        if let Some(existing) = resources.get(&name).and_then(Weak::upgrade) {
            return existing;
        }
        let metrics = Arc::new(ResourceMetrics::new(
            group,
            resource,
            Arc::clone(&self.cache_outage),
        ));
        resources.insert(name, Arc::downgrade(&metrics));
        metrics
    }

    /// Sets the storage size for the next scrape; `None` if unknown.
    pub fn storage_size(&self, bytes: Option<u64>) {
        *self.storage_bytes.lock() = bytes;
    }

    /// Sets the state of the cache of encoded objects for the next scrape.
    pub fn encoding_cache(&self, sample: EncodingCacheSample) {
        *self.encoding_cache.lock() = sample;
    }

    /// Sets the state of the memory limit for the next scrape.
    pub fn memory(&self, sample: MemorySample) {
        *self.memory.lock() = sample;
    }

    /// Renders all metrics.
    pub fn render(&self, format: Format) -> String {
        let resources: Vec<_> = {
            let mut resources = self.resources.lock();
            resources.retain(|_, metrics| metrics.strong_count() > 0);
            resources.values().filter_map(Weak::upgrade).collect()
        };
        // Reading a cache's state takes its locks, so this must not hold `resources`.
        let resources: Vec<_> = resources.into_iter().map(ScrapedResource::new).collect();
        let mut out = Exposition::new(format);
        write_table(table::TABLE, &resources, &mut out);
        self.http.write(&mut out);
        self.audit.write(&mut out);
        self.authentication.write(&mut out);
        self.authorization.write(&mut out);
        self.encryption.write(&mut out);
        self.flow_control.write(&mut out);
        self.tasks.write(&mut out);
        self.traces.write(&mut out);
        let mut family = out.family(
            "etcd_lease_object_counts",
            Kind::Histogram,
            "Number of keys on a lease when the next one was granted.",
        );
        family.histogram(&[], &self.lease_keys);
        if let Some(bytes) = *self.storage_bytes.lock() {
            let help = "Size of the storage on disk in bytes.";
            out.family("apiserver_storage_size_bytes", Kind::Gauge, help)
                .value(&[&[("storage_cluster_id", "etcd-0")]], bytes);
        }
        write_work_queues(&self.work_queues.lock(), &mut out);
        self.process.write(&mut out);
        self.encoding_cache.lock().write(&mut out);
        self.memory.lock().write(&mut out);
        out.finish()
    }
}

#[cfg(test)]
mod tests;
