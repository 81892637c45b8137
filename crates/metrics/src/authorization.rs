//! Metrics of authorization.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::authentication::ConfigReloads;
use super::exposition::{Exposition, Kind};
use super::value::{Counter, Histogram};

/// The default buckets of Prometheus' clients.
const REVIEW_SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
const MATCH_CONDITION_SECONDS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

/// The metrics of authorization.
#[derive(Debug, Default)]
pub struct AuthorizationMetrics {
    /// By type and name.
    authorizers: Mutex<BTreeMap<(&'static str, String), Arc<AuthorizerMetrics>>>,
    /// By name.
    webhooks: Mutex<BTreeMap<String, Arc<AuthorizationWebhookMetrics>>>,
    /// Changes of the file `--authorization-config`.
    pub config_reloads: ConfigReloads,
}

/// The decisions of an authorizer, except those that it left to others.
#[derive(Debug, Default)]
pub struct AuthorizerMetrics {
    /// Requests that it allowed.
    pub allowed: Counter,
    /// Requests that it denied.
    pub denied: Counter,
}

/// How a request to an authorization webhook ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewResult {
    /// It returned a review.
    Success,
    /// It did not respond in time.
    Timeout,
    /// It failed otherwise.
    Error,
    /// The client of the request that is authorized disconnected.
    Canceled,
}

impl ReviewResult {
    const ALL: [Self; 4] = [Self::Success, Self::Timeout, Self::Error, Self::Canceled];

    fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Timeout => "timeout",
            Self::Error => "error",
            Self::Canceled => "canceled",
        }
    }
}

/// The metrics of an authorization webhook.
#[derive(Debug)]
pub struct AuthorizationWebhookMetrics {
    /// By [`ReviewResult`].
    seconds: [Histogram; ReviewResult::ALL.len()],
    /// By [`ReviewResult`].
    fail_open: [Counter; ReviewResult::ALL.len()],
    /// How long the match conditions of a request took.
    pub match_condition_seconds: Histogram,
    /// Requests whose match conditions could not be evaluated.
    pub match_condition_errors: Counter,
    /// Requests that the match conditions excluded.
    pub match_condition_exclusions: Counter,
}

impl Default for AuthorizationWebhookMetrics {
    fn default() -> Self {
        Self {
            seconds: std::array::from_fn(|_| Histogram::new(REVIEW_SECONDS)),
            fail_open: Default::default(),
            match_condition_seconds: Histogram::new(MATCH_CONDITION_SECONDS),
            match_condition_errors: Counter::default(),
            match_condition_exclusions: Counter::default(),
        }
    }
}

impl AuthorizationWebhookMetrics {
    /// Counts a request to the webhook.
    pub fn observe_review(&self, result: ReviewResult, elapsed: Duration) {
        self.seconds[result as usize].observe_duration(elapsed);
    }

    /// Counts a decision that is left to other authorizers because the webhook failed with `result`.
    pub fn count_fail_open(&self, result: ReviewResult) {
        self.fail_open[result as usize].inc();
    }
}

impl AuthorizationMetrics {
    /// Returns the metrics of an authorizer with kube-apiserver's name of its type, such as `RBAC`.
    pub fn authorizer(&self, authorizer_type: &'static str, name: &str) -> Arc<AuthorizerMetrics> {
        let mut authorizers = self.authorizers.lock();
        let key = (authorizer_type, name.to_owned());
        Arc::clone(authorizers.entry(key).or_default())
    }

    /// Returns the metrics of the webhook `name`.
    pub fn webhook(&self, name: &str) -> Arc<AuthorizationWebhookMetrics> {
        let mut webhooks = self.webhooks.lock();
        Arc::clone(webhooks.entry(name.to_owned()).or_default())
    }

    /// Writes all metrics.
    pub(super) fn write(&self, out: &mut Exposition) {
        self.write_decisions(out);
        self.write_reviews(out);
        self.write_match_conditions(out);
        let help = "Number of changes of the authorization configuration, by their result.";
        let name = "apiserver_authorization_config_controller_automatic_reloads_total";
        let mut family = out.family(name, Kind::Counter, help);
        let reloads = &self.config_reloads;
        for (status, count) in [("failure", &reloads.failure), ("success", &reloads.success)] {
            family.value(&[&[("status", status)]], count.get());
        }
    }

    fn write_decisions(&self, out: &mut Exposition) {
        let help = "Number of decisions of an authorizer, except those that it left to others.";
        let name = "apiserver_authorization_decisions_total";
        let mut family = out.family(name, Kind::Counter, help);
        for ((authorizer_type, name), metrics) in &*self.authorizers.lock() {
            for (decision, count) in [("allowed", &metrics.allowed), ("denied", &metrics.denied)] {
                let labels = [
                    ("decision", decision),
                    ("name", name),
                    ("type", authorizer_type),
                ];
                if count.get() > 0 {
                    family.value(&[&labels], count.get());
                }
            }
        }
    }

    fn write_reviews(&self, out: &mut Exposition) {
        let webhooks = self.webhooks.lock();
        let help = "Number of requests to authorization webhooks.";
        let name = "apiserver_authorization_webhook_evaluations_total";
        let mut family = out.family(name, Kind::Counter, help);
        for (name, result, seconds) in reviews(&webhooks) {
            family.value(
                &[&[("name", name), ("result", result.name())]],
                seconds.count(),
            );
        }
        let help = "Duration of requests to authorization webhooks in seconds.";
        let name = "apiserver_authorization_webhook_duration_seconds";
        let mut family = out.family(name, Kind::Histogram, help);
        for (name, result, seconds) in reviews(&webhooks) {
            family.histogram(&[&[("name", name), ("result", result.name())]], seconds);
        }
        let help = "Number of decisions left to other authorizers because an authorization webhook failed.";
        let name = "apiserver_authorization_webhook_evaluations_fail_open_total";
        let mut family = out.family(name, Kind::Counter, help);
        for (name, metrics) in &*webhooks {
            for result in ReviewResult::ALL {
                let count = metrics.fail_open[result as usize].get();
                if count > 0 {
                    family.value(&[&[("name", name), ("result", result.name())]], count);
                }
            }
        }
    }

    fn write_match_conditions(&self, out: &mut Exposition) {
        let webhooks = self.webhooks.lock();
        let help =
            "Duration of evaluating the match conditions of authorization webhooks in seconds.";
        let name = "apiserver_authorization_match_condition_evaluation_seconds";
        let mut family = out.family(name, Kind::Histogram, help);
        for (name, metrics) in &*webhooks {
            let labels = [("name", name.as_str()), ("type", "Webhook")];
            let seconds = &metrics.match_condition_seconds;
            if seconds.count() > 0 {
                family.histogram(&[&labels], seconds);
            }
        }
        type Count = fn(&AuthorizationWebhookMetrics) -> &Counter;
        let counts: [(&str, &str, Count); 2] = [
            (
                "apiserver_authorization_match_condition_evaluation_errors_total",
                "Number of requests whose match conditions of an authorization webhook failed.",
                |metrics| &metrics.match_condition_errors,
            ),
            (
                "apiserver_authorization_match_condition_exclusions_total",
                "Number of requests that the match conditions of an authorization webhook excluded.",
                |metrics| &metrics.match_condition_exclusions,
            ),
        ];
        for (family_name, help, count_of) in counts {
            let mut family = out.family(family_name, Kind::Counter, help);
            for (name, metrics) in &*webhooks {
                let labels = [("name", name.as_str()), ("type", "Webhook")];
                let count = count_of(metrics).get();
                if count > 0 {
                    family.value(&[&labels], count);
                }
            }
        }
    }
}

/// Returns the requests to each webhook, by how they ended; those that did not occur are left out.
fn reviews(
    webhooks: &BTreeMap<String, Arc<AuthorizationWebhookMetrics>>,
) -> impl Iterator<Item = (&str, ReviewResult, &Histogram)> {
    webhooks.iter().flat_map(|(name, metrics)| {
        let of_results = ReviewResult::ALL
            .into_iter()
            .map(move |result| (name.as_str(), result, &metrics.seconds[result as usize]));
        of_results.filter(|(_, _, seconds)| seconds.count() > 0)
    })
}
