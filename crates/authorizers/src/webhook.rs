//! `WebhookAuthorizer`: authorizes requests by sending a `SubjectAccessReview` of `authorization.k8s.io`, with the
//! cache and the retries of
//! [upstream](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/plugin/pkg/authorizer/webhook/webhook.go).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use tokio::time::Instant;
use watchet_api::UserInfo;
use watchet_auth::{Attributes, Authorizer, Decision, ReviewCache, ReviewKey, SubjectRules};
use watchet_client::{RestClient, RestError, retry_review};
use watchet_metrics::{AuthorizationWebhookMetrics, LogInterval, ReviewResult};
use watchet_telemetry::{ChildSpan, KeyValue, text_attribute};

use crate::match_conditions::MatchConditions;
use crate::review::{ReviewResponse, ReviewVersion, Status, expression_request, review};

/// The maximum number of cached responses, as upstream.
const RESPONSES_MAX: usize = 8192;

/// The total length of the attributes of a request in bytes from which its response is not cached, as upstream: clients
/// choose the attributes.
const CACHED_ATTRIBUTES_MAX: usize = 10_000;

/// The interval at which the permissions of open watches are reviewed if responses are not cached.
const UNCACHED_RECHECK_INTERVAL: Duration = Duration::from_secs(60);
const RECHECK_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The minimum time between two log messages about failures: every request fails while the webhook is down.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The decision on a request while the webhook fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Other authorizers decide on the request.
    NoOpinion,
    /// The request is denied.
    Deny,
}

/// The requests that a webhook reviews, and the interpretation of its responses.
#[derive(Debug, Clone)]
pub struct WebhookSettings {
    /// The version of the reviews.
    pub version: ReviewVersion,
    /// The time for which a response that allows a request is cached; zero disables the cache.
    pub authorized_ttl: Duration,
    /// The time for which any other response is cached; zero disables the cache.
    pub unauthorized_ttl: Duration,
    /// The decision on a request while the webhook fails.
    pub failure_policy: FailurePolicy,
    /// The conditions of the requests that it reviews.
    pub match_conditions: MatchConditions,
}

/// Authorizes requests with a webhook.
#[derive(Debug)]
pub struct WebhookAuthorizer {
    client: RestClient,
    settings: WebhookSettings,
    metrics: Arc<AuthorizationWebhookMetrics>,
    failures: LogInterval,
    cache: ReviewCache<Result<Status, Failure>>,
}

/// The reason why a webhook has not decided.
#[derive(Debug, Clone)]
struct Failure(String);

/// A request to the webhook, which is counted when it ends.
struct Call<'a> {
    metrics: &'a AuthorizationWebhookMetrics,
    started: Instant,
    result: ReviewResult,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let elapsed = self.started.elapsed();
        self.metrics.observe_review(self.result, elapsed);
    }
}

impl WebhookAuthorizer {
    /// Creates an authorizer that posts reviews to the server of `client`.
    pub fn new(
        client: RestClient,
        settings: WebhookSettings,
        metrics: Arc<AuthorizationWebhookMetrics>,
    ) -> Self {
        Self {
            client,
            settings,
            metrics,
            failures: LogInterval::new(LOG_INTERVAL),
            cache: ReviewCache::new(RESPONSES_MAX, |reviewed| {
                reviewed.as_ref().map_or(0, |status| status.reason.len())
            }),
        }
    }

    /// Returns the interval at which the permissions of open watches are reviewed again: the time for which they are
    /// cached.
    pub fn recheck_interval(&self) -> Duration {
        match self.settings.authorized_ttl {
            Duration::ZERO => UNCACHED_RECHECK_INTERVAL,
            ttl => ttl.max(RECHECK_INTERVAL_MIN),
        }
    }

    async fn decide(&self, attributes: &Attributes) -> Result<Decision, Failure> {
        if !self.is_matched(attributes)? {
            return Ok(Decision::NoOpinion("".into()));
        }
        let body = review(attributes, self.settings.version).to_string();
        let status = match self.is_cached(attributes) {
            true => {
                let key = ReviewKey::new([body.as_str()]);
                let review = || async {
                    let reviewed = self.review(Bytes::from(body.clone())).await;
                    let ttl = self.ttl(&reviewed);
                    (reviewed, Instant::now() + ttl)
                };
                self.cache.get_or_compute(key, review).await?
            }
            false => self.review(Bytes::from(body)).await?,
        };
        let reason = status.reason.into();
        Ok(match (status.denied, status.allowed) {
            (true, _) => Decision::Deny(reason),
            (false, true) => Decision::Allow(reason),
            (false, false) => Decision::NoOpinion(reason),
        })
    }

    fn is_matched(&self, attributes: &Attributes) -> Result<bool, Failure> {
        let conditions = &self.settings.match_conditions;
        if conditions.is_empty() {
            return Ok(true);
        }
        let started = Instant::now();
        let matched = conditions.evaluate(&expression_request(attributes));
        let metrics = &self.metrics;
        metrics
            .match_condition_seconds
            .observe_duration(started.elapsed());
        match &matched {
            Ok(true) => {}
            Ok(false) => metrics.match_condition_exclusions.inc(),
            Err(_) => metrics.match_condition_errors.inc(),
        }
        matched.map_err(Failure)
    }

    fn is_cached(&self, attributes: &Attributes) -> bool {
        let settings = &self.settings;
        if settings.authorized_ttl.is_zero() && settings.unauthorized_ttl.is_zero() {
            return false;
        }
        let texts = [
            &attributes.namespace,
            &attributes.verb,
            &attributes.api_group,
            &attributes.api_version,
            &attributes.resource,
            &attributes.subresource,
            &attributes.name,
            &attributes.path,
        ];
        texts.into_iter().map(String::len).sum::<usize>() < CACHED_ATTRIBUTES_MAX
    }

    fn ttl(&self, reviewed: &Result<Status, Failure>) -> Duration {
        match reviewed {
            Ok(status) if status.allowed => self.settings.authorized_ttl,
            Ok(_) => self.settings.unauthorized_ttl,
            Err(_) => Duration::ZERO,
        }
    }

    async fn review(&self, body: Bytes) -> Result<Status, Failure> {
        let reviewed = retry_review(|| self.post(body.clone())).await;
        reviewed.map_err(|error| {
            let server = self.client.server();
            if let Some(suppressed) = self.failures.next() {
                tracing::error!(server, %error, suppressed, "authorization webhook failed");
            }
            if self.settings.failure_policy == FailurePolicy::NoOpinion {
                self.metrics.count_fail_open(result_of(&error));
            }
            Failure(error.to_string())
        })
    }

    /// Posts a review once, and counts it.
    async fn post(&self, body: Bytes) -> Result<Status, RestError> {
        let mut call = Call {
            metrics: &self.metrics,
            started: Instant::now(),
            result: ReviewResult::Canceled,
        };
        let span = ChildSpan::start_client(|| {
            let attributes = vec![
                KeyValue::new("http.request.method", "POST"),
                text_attribute("url.full", self.client.server()),
            ];
            ("HTTP POST".into(), attributes)
        });
        let mut headers = HeaderMap::new();
        span.inject(&mut headers);
        let posted = self
            .client
            .post_json_with_headers::<ReviewResponse>(body, headers);
        let posted = span.run_fallible(posted).await;
        let status = posted.and_then(|reviewed| {
            let status = reviewed.status(self.settings.version);
            status.map_err(|detail| RestError::InvalidResponse {
                server: self.client.server().to_owned(),
                detail,
            })
        });
        call.result = match &status {
            Ok(_) => ReviewResult::Success,
            Err(error) => result_of(error),
        };
        status
    }
}

fn result_of(error: &RestError) -> ReviewResult {
    match error {
        RestError::Timeout { .. } => ReviewResult::Timeout,
        other if other.code() == Some(504) => ReviewResult::Timeout,
        _ => ReviewResult::Error,
    }
}

#[async_trait]
impl Authorizer for WebhookAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        self.decide(attributes)
            .await
            .unwrap_or_else(|failure| Decision::Failed {
                is_denied: self.settings.failure_policy == FailurePolicy::Deny,
                error: failure.0.into(),
            })
    }

    async fn rules(&self, _: &UserInfo, _: &str) -> SubjectRules {
        SubjectRules {
            incomplete: true,
            evaluation_error: "webhook authorizer does not support user rule resolution".to_owned(),
            ..SubjectRules::default()
        }
    }
}
