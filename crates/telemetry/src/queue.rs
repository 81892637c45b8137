//! `SpanQueue`: the bounded queue of ended spans, which the exporter empties.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc;
use watchet_metrics::{LogInterval, Metrics};

/// The capacity of the queue of ended spans, as upstream.
pub const QUEUE_SPANS_MAX: usize = 2048;

/// Adds ended spans to the queue. Drops them if the queue is full.
#[derive(Debug)]
pub(crate) struct SpanQueue {
    ended: mpsc::Sender<SpanData>,
    metrics: Arc<Metrics>,
    drops: LogInterval,
}

/// Creates a queue; returns its sender and its receiver. Counts dropped spans in `metrics`.
pub(crate) fn new(metrics: &Arc<Metrics>) -> (SpanQueue, mpsc::Receiver<SpanData>) {
    let (ended, receiver) = mpsc::channel(QUEUE_SPANS_MAX);
    let queue = SpanQueue {
        ended,
        metrics: Arc::clone(metrics),
        drops: LogInterval::growing(),
    };
    (queue, receiver)
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() || self.ended.try_send(span).is_ok() {
            return;
        }
        let dropped = &self.metrics.traces().dropped_queue_full;
        dropped.inc();
        if let Some(suppressed) = self.drops.next() {
            let dropped = dropped.get();
            tracing::warn!(
                dropped,
                suppressed,
                "trace spans dropped: the export queue is full"
            );
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
