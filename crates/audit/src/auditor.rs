//! `Auditor`: evaluates the policy and passes events to the backends.

use std::io;
use std::sync::Arc;

use crate::delivery::{Delivery, Mode};
use crate::event::Event;
use crate::log_backend::{LogBackend, LogFormat, LogOptions};
use crate::policy::{AuditConfig, Policy, RequestAttributes};
use crate::truncate::Truncate;
use crate::webhook::{WebhookBackend, WebhookOptions};
use watchet_client::RestClient;
use watchet_metrics::{AuditMetrics, Metrics};
use watchet_tasks::Tasks;

/// Records the requests that the policy selects.
#[derive(Debug)]
pub struct Auditor {
    policy: Policy,
    log: Option<Arc<LogBackend>>,
    webhook: Option<Arc<WebhookBackend>>,
    tasks: Tasks,
    metrics: Arc<Metrics>,
}

impl Auditor {
    /// Creates an auditor without a backend.
    pub fn new(policy: Policy, metrics: Arc<Metrics>) -> Self {
        Self {
            policy,
            log: None,
            webhook: None,
            tasks: Tasks::new(),
            metrics,
        }
    }

    /// Adds the log.
    ///
    /// # Errors
    /// The log cannot be opened.
    pub fn with_log(mut self, options: &LogOptions) -> io::Result<Self> {
        let (tasks, metrics) = (self.tasks.clone(), Arc::clone(&self.metrics));
        self.log = Some(Arc::new(LogBackend::open(options, tasks, metrics)?));
        Ok(self)
    }

    /// Adds the webhook to which `client` posts.
    #[must_use]
    pub fn with_webhook(mut self, client: RestClient, options: WebhookOptions) -> Self {
        let (tasks, metrics) = (self.tasks.clone(), Arc::clone(&self.metrics));
        let webhook = WebhookBackend::new(client, options, tasks, metrics);
        self.webhook = Some(Arc::new(webhook));
        self
    }

    /// Returns what the policy records about `request`, and counts the level.
    pub fn evaluate(&self, request: &RequestAttributes<'_>) -> AuditConfig {
        let config = self.policy.evaluate(request);
        self.counts().levels[config.level as usize].inc();
        config
    }

    /// Records an event. Returns a delivery if a backend blocks: the request waits for it. Failures are logged and
    /// counted.
    pub fn record(&self, event: &Event<'_>) -> Option<Delivery> {
        let line = match event.line() {
            Ok(line) => line,
            Err(error) => {
                self.counts().log_errors.inc();
                tracing::error!(%error, audit_id = event.audit_id, "cannot encode an audit event");
                return None;
            }
        };
        self.counts().events.inc();
        let truncated = |truncate: Option<Truncate>| {
            let Some(truncate) = truncate else {
                return Some(line.clone());
            };
            let truncated = truncate.apply(event, &line);
            if truncated.is_none() {
                self.counts().too_large.inc();
            }
            truncated
        };
        let logged = self.log.as_ref();
        let logged = logged.and_then(|log| match log.format {
            LogFormat::Json => log.record(truncated(log.truncate)?),
            LogFormat::Legacy => log.record(event.legacy_line()),
        });
        let sent = self.webhook.as_ref();
        let sent = sent.and_then(|webhook| webhook.record(truncated(webhook.truncate())?));
        match (logged, sent) {
            (None, None) => None,
            (logged, sent) => Delivery::new([logged, sent].into_iter().flatten().collect()),
        }
    }

    /// As [`Self::record`], but the caller does not wait: a task completes the delivery.
    pub fn record_detached(&self, event: &Event<'_>) {
        if let Some(delivery) = self.record(event) {
            let complete = delivery.complete();
            drop(self.tasks.spawn("audit delivery", complete));
        }
    }

    /// Returns true if requests wait for a backend.
    pub fn is_blocking(&self) -> bool {
        let log = self.log.as_ref().map(|log| log.mode());
        let webhook = self.webhook.as_ref().map(|webhook| webhook.mode());
        [log, webhook]
            .into_iter()
            .flatten()
            .any(|mode| mode != Mode::Batch)
    }

    /// Counts a request that was rejected because its first event could not be written.
    pub fn count_rejected(&self) {
        self.counts().rejected.inc();
    }

    /// Starts the tasks that write events in mode [`Batch`](crate::Mode::Batch). Draining the returned group writes the
    /// last events.
    pub fn start(&self) -> Tasks {
        let tasks = self.tasks.clone();
        if let Some(log) = &self.log {
            tasks.spawn("audit log", Arc::clone(log).run());
        }
        if let Some(webhook) = &self.webhook {
            tasks.spawn("audit webhook", Arc::clone(webhook).run());
        }
        tasks
    }

    fn counts(&self) -> &AuditMetrics {
        self.metrics.audit()
    }
}
