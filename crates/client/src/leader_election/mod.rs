//! `LeaderElector`: elects one leader among replicas with a Lease, by client-go's rules. Clocks of
//! different machines are never compared: a lease has expired when this process has not observed a
//! change of it for the lease duration.
//!
//! It does not fence: a leader that hangs for longer than its lease may write while the next one
//! leads. Controllers should use the resourceVersion as a precondition of their writes.

mod lock;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::rest::{RestClient, RestError};
use lock::{LeaseLock, Lock};

/// The maximum jitter as a factor of the retry period, so that replicas that start together do not
/// retry together.
const JITTER: f64 = 1.2;

/// The configuration, equal for all replicas except for the identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElectionConfig {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// The unique name of this replica.
    pub identity: String,
    /// How long other replicas wait after the last renewal before they acquire the lease.
    pub lease_duration: Duration,
    /// How long a leader retries to renew before it stops leading.
    pub renew_deadline: Duration,
    /// The pause between two attempts.
    pub retry_period: Duration,
    /// Whether a leader that is stopped releases the lease, so that the next one need not wait.
    pub release_on_cancel: bool,
}

impl LeaderElectionConfig {
    /// Creates a configuration with client-go's default durations: 15 s, 10 s and 2 s; the lease is
    /// released on stop.
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_cancel: true,
        }
    }

    fn check(&self) -> Result<(), InvalidLeaderElection> {
        let problem = if i32::try_from(self.lease_duration.as_secs()).is_err() {
            "leaseDuration must fit in leaseDurationSeconds of a Lease, an int32"
        } else if self.lease_duration <= self.renew_deadline {
            "leaseDuration must be greater than renewDeadline"
        } else if self.renew_deadline <= self.retry_period
            || self.renew_deadline <= self.retry_period.mul_f64(JITTER)
        {
            "renewDeadline must be greater than retryPeriod*JitterFactor"
        } else if self.retry_period.is_zero() {
            "retryPeriod must be greater than zero"
        } else if self.identity.is_empty() {
            "Lock identity is empty"
        } else if self.lease_duration.subsec_nanos() != 0 {
            "leaseDuration must be whole seconds, because leaseDurationSeconds of a Lease is an integer"
        } else {
            return Ok(());
        };
        Err(InvalidLeaderElection(problem))
    }
}

/// An invalid [`LeaderElectionConfig`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidLeaderElection(&'static str);

/// How [`LeaderElector::run`] ended.
#[derive(Debug, PartialEq, Eq)]
pub enum LeaderEnded<T> {
    /// `lead` has returned.
    Done(T),
    /// It was stopped before it led.
    NeverLed,
    /// The replica failed to renew the lease in time: another replica may lead.
    Lost,
}

/// A replica in an election.
///
/// ```no_run
/// use tokio_util::sync::CancellationToken;
/// use watchet_client::{Kubeconfig, LeaderElectionConfig, LeaderElector, LeaderEnded};
/// use watchet_client::{RestClient, RestConfig};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let kubeconfig = Kubeconfig::load(&["kubeconfig"])?;
/// let client = RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None)?)?;
/// let config = LeaderElectionConfig::new("default", "painter", "replica-1");
/// let elector = LeaderElector::new(&client, config)?;
/// let leader = elector.leader();
/// let stop = CancellationToken::new();
/// let ended = elector.run(stop, async |_stop| {
///     assert_eq!(leader.borrow().as_deref(), Some("replica-1"));
///     "painted"
/// });
/// assert_eq!(ended.await, LeaderEnded::Done("painted"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LeaderElector {
    election: Election<LeaseLock>,
}

impl LeaderElector {
    /// Creates a replica. The server of `client` stores the Lease.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(
        client: &RestClient,
        config: LeaderElectionConfig,
    ) -> Result<Self, InvalidLeaderElection> {
        let lock = LeaseLock::new(client, &config.namespace, &config.name);
        Ok(Self {
            election: Election::new(lock, config)?,
        })
    }

    /// Returns a receiver of the identity of the leader that this replica observed last; `None` if there is no leader.
    pub fn leader(&self) -> watch::Receiver<Option<String>> {
        self.election.leader.subscribe()
    }

    /// Waits until this replica leads, then runs `lead`, which should end when its token is
    /// cancelled. Cancelling `stop` cancels the token; this function renews the lease until `lead`
    /// ends. If the lease is lost, this function cancels the token too, and drops `lead` before
    /// another replica can lead.
    pub async fn run<F, T>(self, stop: CancellationToken, lead: F) -> LeaderEnded<T>
    where
        F: AsyncFnOnce(CancellationToken) -> T,
    {
        self.election.run(stop, lead).await
    }
}

/// The algorithm, independent of where the Lease is stored.
#[derive(Debug)]
struct Election<L> {
    lock: L,
    config: LeaderElectionConfig,
    /// The Lease as last read or written.
    lease: Option<Lease>,
    /// When this replica last observed a change of the Lease.
    observed_at: Instant,
    /// When the request of the last renewal was sent.
    renewed_at: Instant,
    leader: watch::Sender<Option<String>>,
    random: fastrand::Rng,
}

impl<L: Lock> Election<L> {
    fn new(lock: L, config: LeaderElectionConfig) -> Result<Self, InvalidLeaderElection> {
        config.check()?;
        Ok(Self {
            lock,
            config,
            lease: None,
            observed_at: Instant::now(),
            renewed_at: Instant::now(),
            leader: watch::Sender::default(),
            random: fastrand::Rng::new(),
        })
    }

    async fn run<F, T>(mut self, stop: CancellationToken, lead: F) -> LeaderEnded<T>
    where
        F: AsyncFnOnce(CancellationToken) -> T,
    {
        if stop.run_until_cancelled(self.acquire()).await.is_none() {
            // The lease may have been acquired just now.
            self.release().await;
            return LeaderEnded::NeverLed;
        }
        let leading = stop.child_token();
        let mut work = pin!(lead(leading.clone()));
        // The renewal comes first and outside of tokio's cooperative budget: otherwise work that
        // never yields could prevent it.
        let done = tokio::select! {
            biased;
            () = tokio::task::coop::unconstrained(self.renew()) => None,
            done = &mut work => Some(done),
        };
        if let Some(done) = done {
            self.release().await;
            return LeaderEnded::Done(done);
        }
        tracing::warn!(lease = self.config.name, "no longer the leader");
        leading.cancel();
        // No other replica can lead before that time, so `lead` may use it to finish.
        let ended = timeout_at(self.leads_until(), work).await;
        let clear_own = |leader: &mut Option<String>| {
            let is_own = leader.as_deref() == Some(&self.config.identity);
            *leader = leader.take().filter(|_| !is_own);
            is_own
        };
        self.leader.send_if_modified(clear_own);
        match ended {
            Ok(_) | Err(_) => LeaderEnded::Lost,
        }
    }

    /// Retries until this replica leads.
    async fn acquire(&mut self) {
        while !self.try_once().await {
            let jitter = 1.0 + JITTER * self.random.f64();
            sleep(self.config.retry_period.mul_f64(jitter)).await;
        }
        tracing::info!(lease = self.config.name, "became the leader");
    }

    /// Returns the time before which no other replica can lead. Other replicas count the lease duration
    /// from their observation of the last renewal, which is later than `renewed_at`.
    fn leads_until(&self) -> Instant {
        self.renewed_at + self.config.lease_duration
    }

    /// Renews the lease. Returns when a renewal has failed until its deadline, or when another
    /// replica has the lease.
    async fn renew(&mut self) {
        let (deadline, period) = (self.config.renew_deadline, self.config.retry_period);
        loop {
            sleep(period).await;
            let until = self.leads_until().min(Instant::now() + deadline);
            let renewed = async {
                while !self.try_once().await {
                    if self.holder().is_some() && !self.is_leader() && self.is_valid() {
                        return false;
                    }
                    sleep(period).await;
                }
                true
            };
            if timeout_at(until, renewed).await != Ok(true) {
                return;
            }
        }
    }

    /// Makes one attempt within a time limit of half the renew deadline, as client-go, so that
    /// there is time for another.
    async fn try_once(&mut self) -> bool {
        let limit = self.config.renew_deadline / 2;
        let acquired = timeout(limit, self.try_acquire_or_renew()).await;
        let is_leader = acquired.unwrap_or(false);
        let holder = self.holder().map(str::to_owned);
        self.leader.send_if_modified(|leader| {
            let changed = *leader != holder;
            *leader = holder;
            changed
        });
        is_leader
    }

    async fn try_acquire_or_renew(&mut self) -> bool {
        // A leader uses its cached Lease, unless a write failed since.
        if self.is_leader() && self.is_valid() {
            let lease = self.lease.clone().unwrap_or_default();
            let renewed = self.spec(lease.spec.as_ref());
            let sent = Instant::now();
            match self.lock.update(with_spec(lease, renewed)).await {
                Ok(lease) => {
                    self.observe(lease);
                    self.renewed_at = sent;
                    return true;
                }
                Err(error) => tracing::debug!(%error, "cannot renew the cached lease, reading it"),
            }
        }
        let lease = match self.lock.get().await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => {
                let spec = self.spec(None);
                return self.write_lease(spec, None).await;
            }
            Err(error) => {
                tracing::debug!(%error, "cannot read the lease");
                return false;
            }
        };
        let changed = self
            .lease
            .as_ref()
            .is_none_or(|known| known.spec != lease.spec);
        if changed {
            self.observe(lease.clone());
        } else {
            // A write without a change of the spec is not a renewal.
            self.lease = Some(lease.clone());
        }
        if self.holder().is_some() && !self.is_leader() && self.is_valid() {
            return false;
        }
        let spec = self.spec(lease.spec.as_ref());
        self.write_lease(spec, Some(lease)).await
    }

    /// Writes the lease with this replica as the holder.
    async fn write_lease(&mut self, spec: LeaseSpec, lease: Option<Lease>) -> bool {
        let sent = Instant::now();
        let written = match lease {
            Some(lease) => self.lock.update(with_spec(lease, spec)).await,
            None => self.lock.create(with_spec(Lease::default(), spec)).await,
        };
        match written {
            Ok(lease) => {
                self.observe(lease);
                self.renewed_at = sent;
                true
            }
            Err(error) => {
                tracing::debug!(%error, "cannot acquire the lease");
                false
            }
        }
    }

    /// Returns the spec to write; `before` is the current one.
    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        let (acquired, transitions) = match before {
            Some(spec) if self.is_leader() => (spec.acquire_time.clone(), transitions),
            Some(_) => (None, transitions + 1),
            None => (None, 0),
        };
        let seconds = self.config.lease_duration.as_secs();
        LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    /// Releases the lease if this replica holds it, so that other replicas need not wait until it expires.
    async fn release(&mut self) {
        if !self.is_leader() {
            return;
        }
        if self.config.release_on_cancel {
            let deadline = self.config.renew_deadline;
            match timeout(deadline, self.write_release()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "cannot release the lease"),
                Err(_) => tracing::warn!("cannot release the lease in time"),
            }
        }
        self.leader.send_replace(None);
    }

    /// Writes an empty holder. Retries if another client has changed the Lease since it was read,
    /// as long as this replica holds it.
    async fn write_release(&mut self) -> Result<(), RestError> {
        while self.is_leader() {
            let lease = self.lease.clone().unwrap_or_default();
            let now = MicroTime(Timestamp::now());
            let spec = LeaseSpec {
                holder_identity: Some(String::new()),
                lease_duration_seconds: Some(1),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: lease.spec.as_ref().and_then(|spec| spec.lease_transitions),
                ..LeaseSpec::default()
            };
            self.lease = Some(match self.lock.update(with_spec(lease, spec)).await {
                Err(error) if error.is_conflict() => self.lock.get().await?,
                written => written?,
            });
        }
        Ok(())
    }

    fn observe(&mut self, lease: Lease) {
        self.lease = Some(lease);
        self.observed_at = Instant::now();
    }

    fn holder(&self) -> Option<&str> {
        let holder = self
            .lease
            .as_ref()?
            .spec
            .as_ref()?
            .holder_identity
            .as_deref();
        holder.filter(|holder| !holder.is_empty())
    }

    fn is_leader(&self) -> bool {
        self.holder() == Some(&self.config.identity)
    }

    /// Returns true if a change of the lease was observed within its duration.
    fn is_valid(&self) -> bool {
        let spec = self.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let seconds = spec
            .and_then(|spec| spec.lease_duration_seconds)
            .unwrap_or(0);
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        self.observed_at.elapsed() < duration
    }
}

fn with_spec(lease: Lease, spec: LeaseSpec) -> Lease {
    Lease {
        spec: Some(spec),
        ..lease
    }
}
