//! A member of an etcd cluster: its connections, its health, and the probes that detect that it
//! hangs.
//!
//! A process that is stopped, or a machine that is gone, closes no connection: calls and watches wait
//! until their timeouts, which are long because a busy member may answer late. A *probe*
//! distinguishes the two: a request for the member's status, which it answers without the other members. A
//! member that answers neither a probe nor any other call during the time limit of the probe hangs:
//! all its calls and watches end, and its connections are dropped.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, KvClient, LeaseClient, MaintenanceClient};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Endpoint;
use watchet_metrics::LogInterval;

use super::availability::Availability;
use super::dialer::Dialer;
use super::failure::Failure;
use super::identity::ClusterIdentity;
use super::keys::header_revision;
use super::version::ProgressSupport;
use super::watch_pool::{RESPONSE_BYTES_MAX, WatchPool};

/// The first delay after a failure; each further one doubles it.
const BACKOFF_INITIAL: Duration = Duration::from_millis(50);

/// The longest delay, which bounds the time to detect that a member responds again.
pub(super) const BACKOFF_MAX: Duration = Duration::from_millis(200);

/// A call without a response for this long, or a watched member for twice as long, is probed.
const PROBE_AFTER: Duration = Duration::from_millis(250);

/// A result of a probe is shared by the callers that request one this much later.
const PROBE_SHARED: Duration = Duration::from_millis(100);

/// The time limit of a probe if other members can be called instead.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// The time limit of a probe of the only member: no other can be called instead, and a busy one answers late.
const PROBE_TIMEOUT_ONLY: Duration = Duration::from_secs(6);

/// The time limit of the first probe of a member, for which the start of the server waits.
const FIRST_PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval of status requests to idle members: nothing else reveals that one was upgraded.
const IDLE_PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// A new leader answers the writes that it has received from its predecessor within this time.
const NEW_LEADER_GRACE: Duration = Duration::from_millis(200);

/// A write is considered lost if the member has had no leader for this long.
const NO_LEADER_MAX: Duration = Duration::from_secs(2);

/// The clients of one member, which share a connection that is established on first use.
#[derive(Clone)]
pub(super) struct MemberClients {
    pub(super) kv: KvClient,
    pub(super) lease: LeaseClient,
    pub(super) maintenance: MaintenanceClient,
}

impl MemberClients {
    async fn over(endpoint: &Endpoint, dialer: &Dialer) -> Result<Self, Failure> {
        let channel = dialer.channel(endpoint);
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

/// A leader of the cluster and its term; the member zero is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Leader {
    member: u64,
    term: u64,
}

/// The recent health of a member.
#[derive(Debug, Default)]
struct Health {
    failures: u32,
    /// The time of the first of them.
    failing_since: Option<Instant>,
    /// The time of the last failure.
    failed_at: Option<Instant>,
    /// The end of the back-off.
    retry_at: Option<Instant>,
    /// The last error, for the message if no member is available.
    reason: String,
    /// The time of the last response of any call.
    responded_at: Option<Instant>,
    /// When the last probe began, and its result.
    probed: Option<(Instant, Result<(), String>)>,
    /// The leader according to the last successful probe.
    leader: Leader,
}

impl Health {
    /// Returns the result of a probe that began shortly before `requested_at`. A success before the last failure is outdated.
    fn recent_probe(&self, requested_at: Instant) -> Option<Result<(), String>> {
        let (began, result) = self.probed.as_ref()?;
        let is_outdated = result.is_ok() && self.failed_at.is_some_and(|at| at > *began);
        (*began + PROBE_SHARED >= requested_at && !is_outdated).then(|| result.clone())
    }
}

/// A member of the cluster.
pub(super) struct Member {
    endpoint: Endpoint,
    dialer: Dialer,
    calls: Mutex<MemberClients>,
    pub(super) watches: WatchPool,
    health: Mutex<Health>,
    /// Whether its progress responses are correct.
    pub(super) progress_support: Arc<ProgressSupport>,
    /// Incremented when the member hangs.
    hangs: watch::Sender<u64>,
    /// Held during a probe, whose result the waiting callers share.
    probing: tokio::sync::Mutex<()>,
    probe_timeout: Duration,
    availability: Arc<Availability>,
    identity: Arc<ClusterIdentity>,
    failure_log: LogInterval,
}

impl Member {
    pub(super) async fn new(
        endpoint: Endpoint,
        dialer: Dialer,
        availability: Arc<Availability>,
        identity: Arc<ClusterIdentity>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            calls: Mutex::new(MemberClients::over(&endpoint, &dialer).await?),
            watches: WatchPool::new(endpoint.clone(), dialer.clone()),
            endpoint,
            dialer,
            health: Mutex::default(),
            progress_support: Arc::default(),
            hangs: watch::Sender::default(),
            probing: tokio::sync::Mutex::default(),
            probe_timeout: match availability.members() {
                1 => PROBE_TIMEOUT_ONLY,
                _ => PROBE_TIMEOUT,
            },
            availability,
            identity,
            failure_log: LogInterval::growing(),
        })
    }

    /// Returns the endpoint's URL.
    pub(super) fn name(&self) -> String {
        self.endpoint.uri().to_string()
    }

    /// Returns clients for a call.
    pub(super) fn calls(&self) -> MemberClients {
        self.calls.lock().clone()
    }

    /// Returns a receiver that changes when the member hangs.
    pub(super) fn hangs(&self) -> watch::Receiver<u64> {
        self.hangs.subscribe()
    }

    /// Returns the end of the back-off.
    pub(super) fn ready_at(&self) -> Option<Instant> {
        self.health.lock().retry_at
    }

    /// Returns true if the member has failed and not responded since.
    pub(super) fn has_failed(&self) -> bool {
        self.health.lock().failures > 0
    }

    /// Returns the last error.
    pub(super) fn reason(&self) -> String {
        self.health.lock().reason.clone()
    }

    /// Records a response.
    pub(super) fn record_success(&self) {
        let failing_since = {
            let mut health = self.health.lock();
            health.responded_at = Some(Instant::now());
            if health.failures == 0 {
                return;
            }
            health.failures = 0;
            health.retry_at = None;
            health.reason.clear();
            // Under the lock, so that the availability counts each change in order.
            self.availability.member_responds();
            health.failing_since.take()
        };
        // The log of the cluster's availability is sufficient for the only member.
        if self.availability.members() > 1 {
            let down_for = failing_since.map(|since| since.elapsed());
            tracing::info!(
                endpoint = self.name(),
                ?down_for,
                "etcd member responds again"
            );
        }
        self.failure_log.reset();
    }

    /// Records a failure.
    pub(super) fn record_failure(&self, reason: &str) {
        self.progress_support.failed();
        {
            let mut health = self.health.lock();
            let now = Instant::now();
            health.failed_at = Some(now);
            // Concurrent calls fail together and count as one failure.
            if health.retry_at.is_some_and(|at| at > now) {
                return;
            }
            let delay = BACKOFF_INITIAL
                .saturating_mul(1 << health.failures.min(8))
                .min(BACKOFF_MAX);
            health.failures = health.failures.saturating_add(1);
            health.retry_at =
                Some(now + delay.mul_f64(self.dialer.jitter(&self.name(), health.failures)));
            reason.clone_into(&mut health.reason);
            health.failing_since.get_or_insert(now);
            let is_first = health.failures == 1;
            self.availability.member_fails(is_first, reason);
        }
        if self.availability.members() > 1 && self.failure_log.next().is_some() {
            tracing::warn!(endpoint = self.name(), reason, "etcd member failed");
        }
    }

    /// Drops the connections; the next calls and watches open others.
    pub(super) async fn reconnect(&self) {
        self.watches.clear();
        match MemberClients::over(&self.endpoint, &self.dialer).await {
            Ok(calls) => *self.calls.lock() = calls,
            Err(error) => tracing::warn!(endpoint = self.name(), ?error, "cannot connect"),
        }
    }

    /// Probes the member, or returns the result of a probe that began shortly before.
    ///
    /// # Errors
    /// Returns the reason if the member fails, hangs, or has no leader.
    pub(super) async fn probe(&self) -> Result<(), String> {
        let requested_at = Instant::now();
        let _one = self.probing.lock().await;
        if let Some(result) = self.health.lock().recent_probe(requested_at) {
            return result;
        }
        let began = Instant::now();
        let limit = match self.has_responded() {
            true => self.probe_timeout,
            false => FIRST_PROBE_TIMEOUT,
        };
        let result = match timeout(limit, self.request_status()).await {
            Ok(result) => result,
            Err(_) if self.has_responded_since(began) => Ok(()),
            Err(_) => Err(self.abort_calls(limit).await),
        };
        match &result {
            Ok(()) => self.record_success(),
            Err(reason) => self.record_failure(reason),
        }
        self.health.lock().probed = Some((began, result.clone()));
        result
    }

    fn has_responded(&self) -> bool {
        self.health.lock().responded_at.is_some()
    }

    fn has_responded_since(&self, time: Instant) -> bool {
        let responded_at = self.health.lock().responded_at;
        responded_at.is_some_and(|at| at > time)
    }

    /// Ends the calls and watches in flight, and returns the reason.
    async fn abort_calls(&self, limit: Duration) -> String {
        self.reconnect().await;
        self.hangs.send_modify(|hangs| *hangs += 1);
        no_response_within(limit)
    }

    /// Returns the reason of the failures of a member that hangs.
    pub(super) fn hang_reason(&self) -> String {
        no_response_within(self.probe_timeout)
    }

    /// Requests the status: the version, which determines whether progress responses are correct, and
    /// the leader.
    async fn request_status(&self) -> Result<(), String> {
        let failures = self.progress_support.failures();
        let mut maintenance = self.calls().maintenance;
        let status = maintenance
            .status()
            .await
            .map_err(|error| Failure::from(error).reason())?;
        let leader = Leader {
            member: status.leader(),
            term: status.raft_term(),
        };
        self.health.lock().leader = leader;
        if leader.member == 0 {
            return Err("it has no leader: the cluster has no majority, or elects one".to_owned());
        }
        // A member without a leader may be one that was not restored yet.
        let header = status.header();
        let cluster = header.map_or(0, etcd_client::ResponseHeader::cluster_id);
        self.identity
            .record_status(cluster, header_revision(header));
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

    /// Probes the member while a call is in flight, which ends the call if the member hangs. Returns
    /// when the cluster has another leader than before: the previous one may have lost the call, which
    /// its member would report only after several seconds.
    pub(super) async fn wait_for_leader_change(&self) -> &'static str {
        let mut before = self.recent_leader();
        let mut changed_at = None;
        loop {
            sleep(PROBE_AFTER).await;
            // An error is recorded; it is not the outcome of the call.
            drop(self.probe().await);
            let Some(leader) = self.recent_leader() else {
                continue;
            };
            if *before.get_or_insert(leader) == leader {
                continue;
            }
            let changed_at: Instant = *changed_at.get_or_insert_with(Instant::now);
            if leader.member != 0 {
                sleep(NEW_LEADER_GRACE).await;
                return "the cluster has elected another leader since the request was sent";
            }
            if changed_at.elapsed() > NO_LEADER_MAX {
                return "the cluster has lost its leader since the request was sent";
            }
        }
    }

    /// Returns the leader according to a probe of the last second.
    fn recent_leader(&self) -> Option<Leader> {
        let health = self.health.lock();
        let (began, _) = health.probed.as_ref()?;
        (began.elapsed() < PROBE_AFTER * 4).then_some(health.leader)
    }

    /// Probes the member forever: often if it has failed or has watches or calls, otherwise rarely.
    pub(super) async fn keep_probing(&self) {
        loop {
            sleep(PROBE_AFTER.min(BACKOFF_MAX)).await;
            if self.is_probe_due() {
                // The result is recorded.
                drop(self.probe().await);
            }
        }
    }

    fn is_probe_due(&self) -> bool {
        if self.progress_support.is_stale() {
            return self.ready_at().is_none_or(|at| at <= Instant::now());
        }
        let watched = self.watches.in_use() > 0;
        let health = self.health.lock();
        let called = health
            .responded_at
            .is_some_and(|at| at.elapsed() < PROBE_AFTER * 4);
        let interval = match watched || called {
            true => PROBE_AFTER * 2,
            false => IDLE_PROBE_INTERVAL,
        };
        let probed = health.probed.as_ref();
        probed.is_none_or(|(began, _)| began.elapsed() >= interval)
    }
}

fn no_response_within(limit: Duration) -> String {
    format!("it hangs: no response within {limit:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A probe succeeded, then a call failed because the member began to hang: the next call was sent to it without another
    /// probe, and a creation had an unknown outcome.
    #[tokio::test(start_paused = true)]
    async fn a_probe_before_the_last_failure_does_not_count() {
        let mut health = Health {
            probed: Some((Instant::now(), Ok(()))),
            ..Health::default()
        };
        tokio::time::advance(PROBE_SHARED / 2).await;
        assert_eq!(health.recent_probe(Instant::now()), Some(Ok(())));
        health.failed_at = Some(Instant::now());
        assert_eq!(health.recent_probe(Instant::now()), None);
        health.probed = Some((Instant::now(), Err("it hangs".to_owned())));
        assert!(health.recent_probe(Instant::now()).is_some());
        tokio::time::advance(2 * PROBE_SHARED).await;
        assert_eq!(health.recent_probe(Instant::now()), None);
    }
}
