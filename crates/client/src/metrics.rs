//! `InformerMetrics`: renders the metrics of informers, their sources, handlers and work queues. It
//! counts nothing itself and does not serve HTTP.
//!
#![doc = include_str!("METRICS.md")]

use std::fmt::Display;
use std::sync::Arc;

use super::informer_snapshot::InformerSnapshot;
use super::{HandlerMetrics, KubeObject, ReflectorMetrics};
use super::{SharedInformer, SharedInformerFactory, WorkQueue};
use watchet_metrics::write_work_queues;
use watchet_metrics::{Counter, Exposition, Format, Histogram, Kind, Label, WorkQueueMetrics};

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
        self.write_informers(&mut out);
        self.write_handlers(&mut out);
        self.write_reflectors(&mut out);
        write_work_queues(&self.queues, &mut out);
        out.finish()
    }

    fn write_informers(&self, out: &mut Exposition) {
        type Value = fn(&InformerSnapshot) -> usize;
        let gauges: [(&str, &str, Value); 3] = [
            (
                "informer_objects",
                "Objects in an informer's indexer.",
                |snapshot| snapshot.objects,
            ),
            (
                "informer_queued_items",
                "Objects with changes that are not in an informer's indexer yet.",
                |snapshot| snapshot.queued,
            ),
            (
                "informer_synced",
                "Whether an informer has synced: 1 or 0.",
                |snapshot| usize::from(snapshot.synced),
            ),
        ];
        for (name, help, value) in gauges {
            let mut family = out.family(name, Kind::Gauge, help);
            for snapshot in &self.informers {
                family.value(&[&[("name", &snapshot.name)]], value(snapshot));
            }
        }
    }

    fn write_handlers(&self, out: &mut Exposition) {
        self.each_handler(
            out,
            ("informer_handled_notifications_total", Kind::Counter),
            "Completed calls of a handler.",
            |handler| handler.delivered.get(),
        );
        self.each_handler(
            out,
            ("informer_notifications_total", Kind::Counter),
            "Notifications for a handler, before merging.",
            |handler| handler.received.get(),
        );
        self.each_handler(
            out,
            ("informer_pending_notifications", Kind::Gauge),
            "Notifications that a handler has not received yet.",
            |handler| handler.pending.get(),
        );
    }

    fn each_handler<V: Display>(
        &self,
        out: &mut Exposition,
        (name, kind): (&str, Kind),
        help: &str,
        value: impl Fn(&HandlerMetrics) -> V,
    ) {
        let mut family = out.family(name, kind, help);
        for snapshot in &self.informers {
            for (number, handler) in &snapshot.handlers {
                let labels: &[Label<'_>] = &[("name", &snapshot.name), ("handler", number)];
                family.value(&[labels], value(handler));
            }
        }
    }

    fn write_reflectors(&self, out: &mut Exposition) {
        let all: Vec<_> = self
            .informers
            .iter()
            .filter_map(|snapshot| Some((&*snapshot.name, snapshot.reflector.as_deref()?)))
            .collect();
        type Count = fn(&ReflectorMetrics) -> &Counter;
        let counters: [(&str, &str, Count); 3] = [
            (
                "reflector_lists_total",
                "Complete collections received, by a list or by the initial events of a watch.",
                |metrics| &metrics.lists,
            ),
            (
                "reflector_short_watches_total",
                "Watches that ended immediately without an event.",
                |metrics| &metrics.short_watches,
            ),
            (
                "reflector_watches_total",
                "Watches that were opened.",
                |metrics| &metrics.watches,
            ),
        ];
        for (name, help, count) in counters {
            let mut family = out.family(name, Kind::Counter, help);
            for (informer, metrics) in &all {
                family.value(&[&[("name", informer)]], count(metrics).get());
            }
        }
        let mut family = out.family(
            "reflector_last_resource_version",
            Kind::Gauge,
            "The resourceVersion up to which a reflector has processed everything.",
        );
        for (informer, metrics) in &all {
            let version = metrics.last_sync_resource_version();
            family.value(&[&[("name", informer)]], version);
        }
        type Observed = fn(&ReflectorMetrics) -> &Histogram;
        let histograms: [(&str, &str, Observed); 4] = [
            (
                "reflector_items_per_list",
                "Objects in a complete collection.",
                |metrics| &metrics.list_items,
            ),
            (
                "reflector_items_per_watch",
                "Events of a watch, including bookmarks.",
                |metrics| &metrics.watch_items,
            ),
            (
                "reflector_list_duration_seconds",
                "Duration of receiving a complete collection.",
                |metrics| &metrics.list_seconds,
            ),
            (
                "reflector_watch_duration_seconds",
                "Duration of a watch.",
                |metrics| &metrics.watch_seconds,
            ),
        ];
        for (name, help, observed) in histograms {
            let mut family = out.family(name, Kind::Histogram, help);
            for (informer, metrics) in &all {
                family.histogram(&[&[("name", informer)]], observed(metrics));
            }
        }
    }
}

#[cfg(test)]
mod tests;
