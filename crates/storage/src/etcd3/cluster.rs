//! The members of an etcd cluster: prefers one member until it fails, then the next. Applies
//! timeouts, back-off and retries to calls.
//!
//! # Invariants
//!
//! 1. A call that may change something is sent at most once, unless no connection was established
//!    or the caller allows repetition.
//! 2. Every call ends within its timeout.
//! 3. A failed member is not dialled again before its back-off has elapsed, regardless of the
//!    number of waiting calls.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, KvClient, LeaseClient, MaintenanceClient};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tonic::transport::Endpoint;

use super::failure::Failure;
use super::version::ProgressSupport;
use super::watch_pool::RESPONSE_BYTES_MAX;
use super::watch_pool::WatchPool;

/// The first delay after a failure; each further one doubles it.
const BACKOFF_INITIAL: Duration = Duration::from_millis(100);

/// The longest delay, which bounds the time to detect a restarted member.
const BACKOFF_MAX: Duration = Duration::from_secs(3);

/// Timeout of a request for a member's version.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether a call may be repeated if its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// The call changes nothing: repeat it, at the next member first.
    Freely,
    /// The call may have been executed: repeat it only if it was certainly not sent.
    IfUnsent,
}

/// The clients of one member, which share a connection that is established on first use.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) kv: KvClient,
    pub(super) lease: LeaseClient,
    pub(super) maintenance: MaintenanceClient,
}

impl Calls {
    async fn over(endpoint: &Endpoint) -> Result<Self, Failure> {
        let channel = Channel::Tonic(endpoint.connect_lazy());
        let client = Client::from_channel(channel, Some(ConnectOptions::new())).await?;
        Ok(Self {
            kv: client
                .kv_client()
                .max_decoding_message_size(RESPONSE_BYTES_MAX),
            lease: client.lease_client(),
            maintenance: client.maintenance_client(),
        })
    }
}

/// The recent health of a member.
#[derive(Debug, Default)]
struct Health {
    failures: u32,
    /// The end of the back-off.
    retry_at: Option<Instant>,
    /// The last error, for the message if no member is available.
    reason: String,
}

/// A member of the cluster.
pub(super) struct Member {
    endpoint: Endpoint,
    calls: Mutex<Calls>,
    pub(super) watches: WatchPool,
    health: Mutex<Health>,
    /// Whether its progress responses are correct.
    pub(super) progress_support: Arc<ProgressSupport>,
}

impl Member {
    async fn new(endpoint: Endpoint) -> Result<Self, Failure> {
        Ok(Self {
            calls: Mutex::new(Calls::over(&endpoint).await?),
            watches: WatchPool::new(endpoint.clone()),
            endpoint,
            health: Mutex::default(),
            progress_support: Arc::default(),
        })
    }

    /// Returns the endpoint's URL.
    pub(super) fn name(&self) -> String {
        self.endpoint.uri().to_string()
    }

    /// Returns clients for a call.
    pub(super) fn calls(&self) -> Calls {
        self.calls.lock().clone()
    }

    fn ready_at(&self) -> Option<Instant> {
        self.health.lock().retry_at
    }

    fn succeeded(&self) {
        let mut health = self.health.lock();
        if health.failures > 0 {
            *health = Health::default();
        }
    }

    fn failed(&self, reason: &str) {
        self.progress_support.failed();
        let mut health = self.health.lock();
        let now = Instant::now();
        // Concurrent calls fail together and count as one failure.
        if health.retry_at.is_some_and(|at| at > now) {
            return;
        }
        let delay = BACKOFF_INITIAL
            .saturating_mul(1 << health.failures.min(8))
            .min(BACKOFF_MAX);
        health.failures += 1;
        health.retry_at = Some(now + delay.mul_f64(jitter()));
        reason.clone_into(&mut health.reason);
        let endpoint = self.name();
        tracing::warn!(
            endpoint,
            reason,
            failures = health.failures,
            "etcd member failed"
        );
    }

    /// Drops the connection; the next call opens another one.
    async fn renew(&self) {
        match Calls::over(&self.endpoint).await {
            Ok(calls) => *self.calls.lock() = calls,
            Err(error) => tracing::warn!(endpoint = self.name(), ?error, "cannot renew"),
        }
    }

    /// Requests the version, which determines whether progress responses are correct.
    async fn request_version(&self) -> Result<(), String> {
        let failures = self.progress_support.failures();
        let deadline = Instant::now() + STATUS_TIMEOUT;
        let mut maintenance = self.calls().maintenance;
        let status = match timeout_at(deadline, maintenance.status()).await {
            Ok(Ok(status)) => status,
            Ok(Err(error)) => return Err(reason_of(&Failure::from(error))),
            Err(_) => return Err(format!("no response within {STATUS_TIMEOUT:?}")),
        };
        let version = status.version();
        if self.progress_support.set_version(version, failures) {
            let progress_supported = self.progress_support.is_supported();
            tracing::info!(
                endpoint = self.name(),
                version,
                progress_supported,
                "etcd version determined"
            );
        }
        Ok(())
    }
}

/// The cluster.
pub(super) struct Cluster {
    members: Vec<Member>,
    preferred: AtomicUsize,
    /// Notified when a member's version should be requested; the back end's `maintain` waits for
    /// it.
    version_requested: Notify,
}

impl Cluster {
    /// Returns the cluster of these endpoints without connecting.
    pub(super) async fn new(endpoints: Vec<Endpoint>) -> Result<Self, Failure> {
        let mut members = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            members.push(Member::new(endpoint).await?);
        }
        Ok(Self {
            members,
            preferred: AtomicUsize::new(0),
            version_requested: Notify::new(),
        })
    }

    /// Requests every member's version and prefers the first that responds.
    ///
    /// # Errors
    /// Returns `endpoint: reason` of each member if none responds.
    pub(super) async fn connect(&self) -> Result<(), Vec<String>> {
        let answers = self.request_versions().await;
        let Some(first) = answers.iter().position(Result::is_ok) else {
            return Err(answers.into_iter().filter_map(Result::err).collect());
        };
        self.preferred.store(first, Ordering::Relaxed);
        for reason in answers.into_iter().filter_map(Result::err) {
            tracing::warn!(reason, "etcd member does not respond");
        }
        Ok(())
    }

    /// Requests every member's version; returns `endpoint: reason` of those that fail.
    pub(super) async fn request_versions(&self) -> Vec<Result<(), String>> {
        let requests = self.members.iter().map(Member::request_version);
        let answers = futures_util::future::join_all(requests).await;
        let named = answers.into_iter().zip(&self.members);
        named
            .map(|(answer, member)| answer.map_err(|reason| format!("{}: {reason}", member.name())))
            .collect()
    }

    /// Waits until a member has failed or recovered, so that its version should be requested.
    pub(super) async fn version_requested(&self) {
        self.version_requested.notified().await;
    }

    /// Returns true if every member's last known version answers progress requests correctly.
    pub(super) fn progress_is_supported(&self) -> bool {
        self.members
            .iter()
            .all(|member| member.progress_support.is_supported())
    }

    /// Executes a call at the preferred member, or at others as `repeat` allows, for at most
    /// `limit`.
    pub(super) async fn call<'a, T, F, Fut>(
        &'a self,
        repeat: Repeat,
        limit: Duration,
        operation: F,
    ) -> Result<T, Failure>
    where
        F: Fn(&'a Member) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let deadline = Instant::now() + limit;
        // A repeatable call reserves time for a second attempt, in case the connection hangs.
        let attempt_limit = match repeat {
            Repeat::Freely => limit / 2,
            Repeat::IfUnsent => limit,
        };
        let attempts = (2 * self.members.len()).max(3);
        let mut last = None;
        for _ in 0..attempts {
            let Some(member) = self.pick(deadline).await else {
                break;
            };
            let until = deadline.min(Instant::now() + attempt_limit);
            let failure = match timeout_at(until, operation(member)).await {
                Ok(Err(failure)) if failure.is_unavailable() => failure,
                Ok(result) => {
                    member.succeeded();
                    if member.progress_support.is_stale() {
                        self.version_requested.notify_one();
                    }
                    return result;
                }
                Err(_) => {
                    // A connection can be dead without an error; the next call opens a new one.
                    member.renew().await;
                    Failure::Unavailable(format!("no response within {attempt_limit:?}"))
                }
            };
            let reason = reason_of(&failure);
            member.failed(&reason);
            self.version_requested.notify_one();
            self.prefer_next(member);
            let text = format!("etcd {}: {reason}", member.name());
            let unsent = matches!(failure, Failure::NotSent(_));
            last = Some(Failure::Unavailable(text));
            if repeat == Repeat::IfUnsent && !unsent {
                break;
            }
        }
        Err(last.unwrap_or_else(|| {
            Failure::Unavailable(format!(
                "etcd: no member available within {limit:?}: {}",
                self.reasons()
            ))
        }))
    }

    /// Returns the preferred member, or the next whose back-off has elapsed; waits for the first.
    async fn pick(&self, deadline: Instant) -> Option<&Member> {
        loop {
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            let first = self.preferred.load(Ordering::Relaxed);
            let mut soonest: Option<Instant> = None;
            for offset in 0..self.members.len() {
                let member = &self.members[(first + offset) % self.members.len()];
                match member.ready_at() {
                    Some(at) if at > now => {
                        soonest = Some(soonest.map_or(at, |other| other.min(at)));
                    }
                    _ => return Some(member),
                }
            }
            tokio::time::sleep_until(soonest?.min(deadline)).await;
        }
    }

    /// Prefers the member after one that failed, unless another call has done so.
    fn prefer_next(&self, failed: &Member) {
        let Some(index) = self.members.iter().position(|m| std::ptr::eq(m, failed)) else {
            return;
        };
        let next = (index + 1) % self.members.len();
        let _moved_already =
            self.preferred
                .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn reasons(&self) -> String {
        let reasons: Vec<String> = self
            .members
            .iter()
            .map(|member| format!("{}: {}", member.name(), member.health.lock().reason))
            .collect();
        reasons.join("; ")
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.members.iter().map(Member::name))
            .finish()
    }
}

fn reason_of(failure: &Failure) -> String {
    match failure {
        Failure::NotSent(text)
        | Failure::Unavailable(text)
        | Failure::Corrupt(text)
        | Failure::Refused(text)
        | Failure::RequestTooLarge(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

/// Returns a random factor in [1, 1.5), so that servers do not reconnect to etcd simultaneously.
fn jitter() -> f64 {
    let random = RandomState::new().hash_one(0_u8) >> 11;
    // 53 random bits fit exactly into a double.
    1.0 + 0.5 * (random as f64 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn cluster(of: usize) -> Cluster {
        let endpoints = (0..of)
            .map(|index| Endpoint::from_shared(format!("http://127.0.0.1:{}", index + 1)).unwrap())
            .collect();
        Cluster::new(endpoints).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn read_moves_to_the_next_member() {
        let cluster = cluster(2).await;
        let started = Instant::now();
        let answered = cluster
            .call(
                Repeat::Freely,
                Duration::from_secs(1),
                |member| async move {
                    if member.name().contains(":1/") {
                        return Err(Failure::Unavailable("gone".into()));
                    }
                    Ok(member.name())
                },
            )
            .await;
        assert_eq!(answered.unwrap(), "http://127.0.0.1:2/");
        assert_eq!(cluster.preferred.load(Ordering::Relaxed), 1);
        // An acknowledged write was delayed until the member had also returned its version.
        assert!(started.elapsed().is_zero(), "{:?}", started.elapsed());
        cluster.version_requested().await;
    }

    #[tokio::test(start_paused = true)]
    async fn write_with_unknown_outcome_is_not_repeated() {
        let cluster = cluster(2).await;
        let made = AtomicUsize::new(0);
        let lost = cluster
            .call(Repeat::IfUnsent, Duration::from_secs(1), |_| async {
                made.fetch_add(1, Ordering::Relaxed);
                Err::<(), _>(Failure::Unavailable("connection lost".into()))
            })
            .await;
        assert!(matches!(lost, Err(Failure::Unavailable(_))), "{lost:?}");
        let hung = cluster
            .call(Repeat::IfUnsent, Duration::from_secs(1), |_| async {
                made.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<Result<(), Failure>>().await
            })
            .await;
        assert!(matches!(hung, Err(Failure::Unavailable(_))), "{hung:?}");
        assert_eq!(made.load(Ordering::Relaxed), 2, "one for each call");
    }

    #[tokio::test(start_paused = true)]
    async fn unsent_write_is_repeated_within_its_limit() {
        let cluster = cluster(1).await;
        let made = AtomicUsize::new(0);
        let started = Instant::now();
        let refused = cluster
            .call(Repeat::IfUnsent, Duration::from_secs(1), |_| async {
                made.fetch_add(1, Ordering::Relaxed);
                Err::<(), _>(Failure::NotSent("connection refused".into()))
            })
            .await;
        let text = format!("{refused:?}");
        assert!(
            text.contains("connection refused") && text.contains(":1/"),
            "{text}"
        );
        assert!(made.load(Ordering::Relaxed) > 1);
        assert!(started.elapsed() <= Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_member_is_not_called_during_its_backoff() {
        let cluster = cluster(1).await;
        cluster.members[0].failed("gone");
        let first = cluster.members[0].ready_at().unwrap();
        cluster.members[0].failed("gone");
        assert_eq!(
            cluster.members[0].ready_at().unwrap(),
            first,
            "the same failure"
        );
        assert!(
            cluster
                .pick(Instant::now() + Duration::from_millis(50))
                .await
                .is_none()
        );
        assert!(
            cluster
                .pick(Instant::now() + Duration::from_secs(1))
                .await
                .is_some()
        );
        for _ in 0..20 {
            tokio::time::advance(BACKOFF_MAX * 2).await;
            cluster.members[0].failed("gone");
        }
        let rest = cluster.members[0].ready_at().unwrap() - Instant::now();
        assert!(rest <= BACKOFF_MAX.mul_f64(1.5), "{rest:?}");
    }
}
