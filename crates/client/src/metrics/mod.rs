//! `InformerMetrics`: renders the metrics of informers, their sources, handlers and work queues. It
//! counts nothing itself and does not serve HTTP.
//!
#![doc = include_str!("../METRICS.md")]

use std::sync::Arc;

use super::informer_snapshot::InformerSnapshot;
use super::{HandlerMetrics, KubeObject, ReflectorMetrics};
use super::{SharedInformer, SharedInformerFactory, WorkQueue};
use watchet_metrics::{Exposition, Format, ItemFamily, Label, MetricItem, WorkQueueMetrics};
use watchet_metrics::{write_table, write_work_queues};

/// A snapshot of the metrics of a program's informers and work queues.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchet_client::{InformerMetrics, Kubeconfig, RestClient, RestConfig};
/// use watchet_client::{SharedInformerFactory, WorkQueue};
/// use watchet_metrics::Format;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let kubeconfig = Kubeconfig::load(&["kubeconfig"])?;
/// let client = RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None)?)?;
/// let factory = SharedInformerFactory::new(client);
/// factory.informer::<ConfigMap>();
/// let queue = WorkQueue::<String>::named("maps");
/// factory.start();
/// factory.wait_for_cache_sync().await?;
///
/// // The response to `GET /metrics`, with the content type `Format::content_type`:
/// let text = InformerMetrics::new().factory(&factory).queue(&queue).render(Format::Prometheus);
/// assert!(text.contains("reflector_lists_total{name=\"configmaps\"} 1\n"));
/// assert!(text.contains("workqueue_depth{name=\"maps\"} 0\n"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct InformerMetrics {
    informers: Vec<InformerSnapshot>,
    queues: Vec<Arc<WorkQueueMetrics>>,
}

impl InformerMetrics {
    /// Creates an empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds this informer. Counters of its source are included only after
    /// [`SharedInformer::set_reflector_metrics`].
    #[must_use]
    pub fn informer<T: KubeObject>(mut self, informer: &SharedInformer<T>) -> Self {
        self.add(informer.snapshot());
        self
    }

    /// Adds all informers of this factory.
    #[must_use]
    pub fn factory(mut self, factory: &SharedInformerFactory) -> Self {
        factory
            .snapshot()
            .into_iter()
            .for_each(|snapshot| self.add(snapshot));
        self
    }

    /// Adds this queue; queues must have different names.
    #[must_use]
    pub fn queue<K: Clone + Eq + std::hash::Hash>(mut self, queue: &WorkQueue<K>) -> Self {
        self.queues.push(queue.metrics().clone());
        self
    }

    /// Adds an informer under a unique name: duplicate series would invalidate the whole text.
    fn add(&mut self, mut snapshot: InformerSnapshot) {
        let taken = |name: &str| self.informers.iter().any(|known| known.name == name);
        let (name, mut number) = (snapshot.name.clone(), 2);
        while taken(&snapshot.name) {
            snapshot.name = format!("{name}-{number}");
            number += 1;
        }
        self.informers.push(snapshot);
    }

    /// Renders all metrics as text.
    pub fn render(&self, format: Format) -> String {
        let mut out = Exposition::new(format);
        write_table(INFORMER_TABLE, &self.informers, &mut out);
        write_table(HANDLER_TABLE, &self.handlers(), &mut out);
        write_table(REFLECTOR_TABLE, &self.reflectors(), &mut out);
        write_work_queues(&self.queues, &mut out);
        out.finish()
    }

    fn handlers(&self) -> Vec<Handler> {
        let informers = self.informers.iter();
        let handlers = informers.flat_map(|informer| {
            let handlers = informer.handlers.iter();
            handlers.map(|(number, metrics)| Handler {
                informer: informer.name.clone(),
                number: number.clone(),
                metrics: metrics.clone(),
            })
        });
        handlers.collect()
    }

    fn reflectors(&self) -> Vec<Reflector> {
        let informers = self.informers.iter();
        let reflectors = informers.filter_map(|informer| {
            Some(Reflector {
                informer: informer.name.clone(),
                metrics: informer.reflector.clone()?,
            })
        });
        reflectors.collect()
    }
}

impl MetricItem for InformerSnapshot {
    fn labels(&self) -> Vec<Label<'_>> {
        vec![("name", &self.name)]
    }
}

/// The metrics of one handler of an informer.
struct Handler {
    informer: String,
    number: String,
    metrics: Arc<HandlerMetrics>,
}

impl MetricItem for Handler {
    fn labels(&self) -> Vec<Label<'_>> {
        vec![("name", &self.informer), ("handler", &self.number)]
    }
}

/// The metrics of the Reflector of an informer.
struct Reflector {
    informer: String,
    metrics: Arc<ReflectorMetrics>,
}

impl MetricItem for Reflector {
    fn labels(&self) -> Vec<Label<'_>> {
        vec![("name", &self.informer)]
    }
}

#[rustfmt::skip]
const INFORMER_TABLE: &[ItemFamily<InformerSnapshot>] = &[
    ItemFamily::gauge("informer_objects",
        "Objects in an informer's indexer.",
        |informer, out| out.value(informer.objects)),
    ItemFamily::gauge("informer_queued_items",
        "Objects with changes that are not in an informer's indexer yet.",
        |informer, out| out.value(informer.queued)),
    ItemFamily::gauge("informer_synced",
        "Whether an informer has synced: 1 or 0.",
        |informer, out| out.value(u8::from(informer.synced))),
];

#[rustfmt::skip]
const HANDLER_TABLE: &[ItemFamily<Handler>] = &[
    ItemFamily::counter("informer_handled_notifications_total",
        "Completed calls of a handler.",
        |handler, out| out.value(handler.metrics.delivered.get())),
    ItemFamily::counter("informer_notifications_total",
        "Notifications for a handler, before merging.",
        |handler, out| out.value(handler.metrics.received.get())),
    ItemFamily::gauge("informer_pending_notifications",
        "Notifications that a handler has not received yet.",
        |handler, out| out.value(handler.metrics.pending.get())),
];

#[rustfmt::skip]
const REFLECTOR_TABLE: &[ItemFamily<Reflector>] = &[
    ItemFamily::histogram("reflector_items_per_list",
        "Objects in a complete collection.",
        |reflector, out| out.histogram(&reflector.metrics.list_items)),
    ItemFamily::histogram("reflector_items_per_watch",
        "Events of a watch, including bookmarks.",
        |reflector, out| out.histogram(&reflector.metrics.watch_items)),
    ItemFamily::gauge("reflector_last_resource_version",
        "The resourceVersion up to which a reflector has processed everything.",
        |reflector, out| out.value(reflector.metrics.last_sync_resource_version())),
    ItemFamily::histogram("reflector_list_duration_seconds",
        "Duration of receiving a complete collection.",
        |reflector, out| out.histogram(&reflector.metrics.list_seconds)),
    ItemFamily::counter("reflector_lists_total",
        "Complete collections received, by a list or by the initial events of a watch.",
        |reflector, out| out.value(reflector.metrics.lists.get())),
    ItemFamily::counter("reflector_short_watches_total",
        "Watches that ended immediately without an event.",
        |reflector, out| out.value(reflector.metrics.short_watches.get())),
    ItemFamily::histogram("reflector_watch_duration_seconds",
        "Duration of a watch.",
        |reflector, out| out.histogram(&reflector.metrics.watch_seconds)),
    ItemFamily::counter("reflector_watches_total",
        "Watches that were opened.",
        |reflector, out| out.value(reflector.metrics.watches.get())),
];

#[cfg(test)]
mod tests;
