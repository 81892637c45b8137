//! `InformerMetrics`: what informers, their sources, their handlers and work queues count, as the text that
//! a scrape gets. It counts nothing itself, serves nothing, and knows of no other informers than those
//! that it is shown.
//!
#![doc = include_str!("METRICS.md")]

use std::fmt::Display;
use std::sync::Arc;

use super::{HandlerMetrics, KubeObject, ReflectorMetrics};
use super::{SharedInformer, SharedInformerFactory, WorkQueue};
use crate::metrics::write_work_queues;
use crate::metrics::{Counter, Exposition, Format, Histogram, Kind, Label, WorkQueueMetrics};

/// What a program's informers and work queues count, looked at now.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchet::informer::{InformerMetrics, Kubeconfig, RestClient, RestConfig};
/// use watchet::informer::{SharedInformerFactory, WorkQueue};
/// use watchet::metrics::Format;
/// use watchet::testing::Server;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = Server::start().await?;
/// # let kubeconfig: Kubeconfig = server.kubeconfig().parse()?;
/// let client = RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None)?)?;
/// let factory = SharedInformerFactory::new(client);
/// factory.informer::<ConfigMap>();
/// let queue = WorkQueue::<String>::named("maps");
/// factory.start();
/// factory.wait_for_cache_sync().await?;
///
/// // What the program answers to `GET /metrics`, with the content type `Format::content_type`:
/// let text = InformerMetrics::new().factory(&factory).queue(&queue).render(Format::Prometheus);
/// assert!(text.contains("reflector_lists_total{name=\"configmaps\"} 1\n"));
/// assert!(text.contains("workqueue_depth{name=\"maps\"} 0\n"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct InformerMetrics {
    informers: Vec<Seen>,
    queues: Vec<Arc<WorkQueueMetrics>>,
}

/// An informer as it was when it was looked at.
#[derive(Debug)]
pub(super) struct Seen {
    pub name: String,
    pub reflector: Option<Arc<ReflectorMetrics>>,
    pub synced: bool,
    pub objects: usize,
    pub queued: usize,
    /// By number.
    pub handlers: Vec<(String, Arc<HandlerMetrics>)>,
}

impl InformerMetrics {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also of this informer. Of what its source counts only if it was told that:
    /// [`SharedInformer::set_reflector_metrics`].
    #[must_use]
    pub fn informer<T: KubeObject>(mut self, informer: &SharedInformer<T>) -> Self {
        self.add(informer.seen());
        self
    }

    /// Also of all informers of this factory.
    #[must_use]
    pub fn factory(mut self, factory: &SharedInformerFactory) -> Self {
        factory.seen().into_iter().for_each(|seen| self.add(seen));
        self
    }

    /// Also of this queue; queues that are told together must have different names.
    #[must_use]
    pub fn queue<K: Clone + Eq + std::hash::Hash>(mut self, queue: &WorkQueue<K>) -> Self {
        self.queues.push(queue.metrics().clone());
        self
    }

    /// Series of the same name and labels would make the whole text useless.
    fn add(&mut self, mut seen: Seen) {
        let taken = |name: &str| self.informers.iter().any(|known| known.name == name);
        let (name, mut number) = (seen.name.clone(), 2);
        while taken(&seen.name) {
            seen.name = format!("{name}-{number}");
            number += 1;
        }
        self.informers.push(seen);
    }

    /// All of it, as text.
    pub fn render(&self, format: Format) -> String {
        let mut out = Exposition::new(format);
        self.write_informers(&mut out);
        self.write_handlers(&mut out);
        self.write_reflectors(&mut out);
        write_work_queues(&self.queues, &mut out);
        out.finish()
    }

    fn write_informers(&self, out: &mut Exposition) {
        type Value = fn(&Seen) -> usize;
        let gauges: [(&str, &str, Value); 3] = [
            (
                "informer_objects",
                "Objects that an informer holds.",
                |seen| seen.objects,
            ),
            (
                "informer_queued_items",
                "Objects of which something has happened that is not in an informer's copy yet.",
                |seen| seen.queued,
            ),
            (
                "informer_synced",
                "Whether an informer has had all that there was at first: 1 or 0.",
                |seen| usize::from(seen.synced),
            ),
        ];
        for (name, help, value) in gauges {
            let mut family = out.family(name, Kind::Gauge, help);
            for seen in &self.informers {
                family.value(&[&[("name", &seen.name)]], value(seen));
            }
        }
    }

    fn write_handlers(&self, out: &mut Exposition) {
        self.each_handler(
            out,
            ("informer_handled_notifications_total", Kind::Counter),
            "Calls of a handler that have returned.",
            |handler| handler.told.get(),
        );
        self.each_handler(
            out,
            ("informer_notifications_total", Kind::Counter),
            "Notifications that came for a handler, before any were folded.",
            |handler| handler.came.get(),
        );
        self.each_handler(
            out,
            ("informer_pending_notifications", Kind::Gauge),
            "Notifications that a handler has yet to be told.",
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
        for seen in &self.informers {
            for (number, handler) in &seen.handlers {
                let labels: &[Label<'_>] = &[("name", &seen.name), ("handler", number)];
                family.value(&[labels], value(handler));
            }
        }
    }

    fn write_reflectors(&self, out: &mut Exposition) {
        let all: Vec<_> = self
            .informers
            .iter()
            .filter_map(|seen| Some((&*seen.name, seen.reflector.as_deref()?)))
            .collect();
        type Count = fn(&ReflectorMetrics) -> &Counter;
        let counters: [(&str, &str, Count); 3] = [
            (
                "reflector_lists_total",
                "How often a whole collection came, as a list or as a watch's beginning.",
                |metrics| &metrics.lists,
            ),
            (
                "reflector_short_watches_total",
                "Watches that ended at once and without an event.",
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
            "Up to where a reflector has handed on everything.",
        );
        for (informer, metrics) in &all {
            let version = metrics.last_sync_resource_version();
            family.value(&[&[("name", informer)]], version);
        }
        type Observed = fn(&ReflectorMetrics) -> &Histogram;
        let histograms: [(&str, &str, Observed); 4] = [
            (
                "reflector_items_per_list",
                "Objects that were in a whole collection.",
                |metrics| &metrics.list_items,
            ),
            (
                "reflector_items_per_watch",
                "Events of a watch, bookmarks among them.",
                |metrics| &metrics.watch_items,
            ),
            (
                "reflector_list_duration_seconds",
                "How long a whole collection took to come.",
                |metrics| &metrics.list_seconds,
            ),
            (
                "reflector_watch_duration_seconds",
                "How long a watch lasted.",
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
