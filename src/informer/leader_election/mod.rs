//! `LeaderElector`: of many replicas one leads, which a Lease says. The rules are client-go's. A clock is
//! never compared with another machine's: a lease is over when nobody has changed it for as long as it
//! lasts, by this process's own time.
//!
//! It is no fence: a leader that hangs longer than its lease may write while the next one leads. What a
//! controller writes should hold for the object as it is stored, by its resourceVersion.

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

/// How much longer than the retry period may be waited at most, as a part of it, so that replicas that
/// began together do not ask together.
const JITTER: f64 = 1.2;

/// What is agreed on by all replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElectionConfig {
    /// Where the Lease is.
    pub namespace: String,
    /// Its name: what is led.
    pub name: String,
    /// Who this is; no other replica may be called the same.
    pub identity: String,
    /// How long the others wait for a leader that says nothing.
    pub lease_duration: Duration,
    /// How long a leader tries to say something before it gives up.
    pub renew_deadline: Duration,
    /// The pause between two tries.
    pub retry_period: Duration,
    /// A leader that is stopped gives the lease up, so that the next one need not wait.
    pub release_on_cancel: bool,
}

impl LeaderElectionConfig {
    /// With client-go's usual times: 15 s, 10 s and 2 s; the lease is given up in the end.
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
        let wrong = if i32::try_from(self.lease_duration.as_secs()).is_err() {
            "leaseDuration must be fewer seconds, as many as a Lease can say"
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
            "leaseDuration must be whole seconds, which is what a Lease can say"
        } else {
            return Ok(());
        };
        Err(InvalidLeaderElection(wrong))
    }
}

/// A [`LeaderElectionConfig`] that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidLeaderElection(&'static str);

/// How [`LeaderElector::run`] ended.
#[derive(Debug, PartialEq, Eq)]
pub enum LeaderEnded<T> {
    /// What was to be done while leading is done.
    Done(T),
    /// It was stopped before it ever led.
    NeverLed,
    /// The lease could not be renewed in time: somebody else may lead.
    Lost,
}

/// One of the replicas.
///
/// ```
/// use tokio_util::sync::CancellationToken;
/// use watchet::informer::{Kubeconfig, LeaderElectionConfig, LeaderElector, LeaderEnded};
/// use watchet::informer::{RestClient, RestConfig};
/// use watchet::testing::Server;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = Server::start().await?;
/// # let kubeconfig: Kubeconfig = server.kubeconfig().parse()?;
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
    /// A replica that is elected by `client`'s server.
    ///
    /// # Errors
    /// The times do not fit together, or nobody is named.
    pub fn new(
        client: &RestClient,
        config: LeaderElectionConfig,
    ) -> Result<Self, InvalidLeaderElection> {
        let lock = LeaseLock::new(client, &config.namespace, &config.name);
        Ok(Self {
            election: Election::new(lock, config)?,
        })
    }

    /// Who leads, as far as this replica knows; empty: nobody.
    pub fn leader(&self) -> watch::Receiver<Option<String>> {
        self.election.leader.subscribe()
    }

    /// Waits until this replica leads, and does `lead` while it does; the token that it is given says
    /// when to end. It is cancelled with `stop`, and then `lead` has all the time that it takes, as the
    /// lease is renewed meanwhile; and when the lease is lost, and then `lead` is dropped when the time
    /// is over after which somebody else may lead.
    pub async fn run<F, T>(self, stop: CancellationToken, lead: F) -> LeaderEnded<T>
    where
        F: AsyncFnOnce(CancellationToken) -> T,
    {
        self.election.run(stop, lead).await
    }
}

/// The algorithm, over any place where a Lease can be.
#[derive(Debug)]
struct Election<L> {
    lock: L,
    config: LeaderElectionConfig,
    /// The Lease as it was last read or written.
    lease: Option<Lease>,
    /// When it was last seen to have changed.
    observed: Instant,
    /// When what was last said as the leader was sent.
    said: Instant,
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
            observed: Instant::now(),
            said: Instant::now(),
            leader: watch::Sender::default(),
            random: fastrand::Rng::new(),
        })
    }

    async fn run<F, T>(mut self, stop: CancellationToken, lead: F) -> LeaderEnded<T>
    where
        F: AsyncFnOnce(CancellationToken) -> T,
    {
        if stop.run_until_cancelled(self.acquire()).await.is_none() {
            // It may have been written just now.
            self.release().await;
            return LeaderEnded::NeverLed;
        }
        let leading = stop.child_token();
        let mut work = pin!(lead(leading.clone()));
        // The lease comes first, and without a share in how long a task may go on: work that is never out
        // of breath would keep it from being renewed.
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
        // What is done until then is done by the only leader.
        let ended = timeout_at(self.lasts_until(), work).await;
        let leads = |known: &mut Option<String>| {
            let leads = known.as_deref() == Some(&self.config.identity);
            *known = known.take().filter(|_| !leads);
            leads
        };
        self.leader.send_if_modified(leads);
        match ended {
            Ok(_) | Err(_) => LeaderEnded::Lost,
        }
    }

    /// Tries until it leads.
    async fn acquire(&mut self) {
        while !self.tried().await {
            let jitter = 1.0 + JITTER * self.random.f64();
            sleep(self.config.retry_period.mul_f64(jitter)).await;
        }
        tracing::info!(lease = self.config.name, "leading");
    }

    /// Until when nobody else may lead: others count from when they saw what was said last, which they
    /// cannot have before it was sent.
    fn lasts_until(&self) -> Instant {
        self.said + self.config.lease_duration
    }

    /// Keeps the lease; ends when it could not be renewed in time, or another one has it.
    async fn renew(&mut self) {
        let (deadline, period) = (self.config.renew_deadline, self.config.retry_period);
        loop {
            sleep(period).await;
            let until = self.lasts_until().min(Instant::now() + deadline);
            let renewed = async {
                while !self.tried().await {
                    if self.holder().is_some() && !self.leads() && self.is_valid() {
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

    /// One try, which takes no longer than it may. One that hangs must not take the whole deadline, within
    /// which there has to be another: the programs of Kubernetes ask with half of it as their timeout, too.
    async fn tried(&mut self) -> bool {
        let lasting = self.config.renew_deadline / 2;
        let tried = timeout(lasting, self.try_acquire_or_renew()).await;
        let leads = tried.unwrap_or(false);
        let holder = self.holder().map(str::to_owned);
        self.leader.send_if_modified(|known| {
            let changed = *known != holder;
            *known = holder;
            changed
        });
        leads
    }

    async fn try_acquire_or_renew(&mut self) -> bool {
        // Whoever leads knows what the lease is, unless it does no longer.
        if self.leads() && self.is_valid() {
            let lease = self.lease.clone().unwrap_or_default();
            let renewed = self.spec(lease.spec.as_ref());
            let sent = Instant::now();
            match self.lock.update(with_spec(lease, renewed)).await {
                Ok(lease) => {
                    self.observe(lease);
                    self.said = sent;
                    return true;
                }
                Err(error) => tracing::debug!(%error, "the lease is not what it was: it is read"),
            }
        }
        let lease = match self.lock.get().await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => {
                let spec = self.spec(None);
                return self.take(spec, None).await;
            }
            Err(error) => {
                tracing::debug!(%error, "the lease cannot be read");
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
            // The same said again at another resourceVersion is no sign of life.
            self.lease = Some(lease.clone());
        }
        if self.holder().is_some() && !self.leads() && self.is_valid() {
            return false;
        }
        let spec = self.spec(lease.spec.as_ref());
        self.take(spec, Some(lease)).await
    }

    /// Writes the lease as its holder.
    async fn take(&mut self, spec: LeaseSpec, lease: Option<Lease>) -> bool {
        let sent = Instant::now();
        let taken = match lease {
            Some(lease) => self.lock.update(with_spec(lease, spec)).await,
            None => self.lock.create(with_spec(Lease::default(), spec)).await,
        };
        match taken {
            Ok(lease) => {
                self.observe(lease);
                self.said = sent;
                true
            }
            Err(error) => {
                tracing::debug!(%error, "the lease cannot be taken");
                false
            }
        }
    }

    /// What this replica says in the lease; `before` is what is said there now.
    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        let (acquired, transitions) = match before {
            Some(spec) if self.leads() => (spec.acquire_time.clone(), transitions),
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

    /// Gives the lease up, if it is held, so that others need not wait until it is over.
    async fn release(&mut self) {
        if !self.leads() {
            return;
        }
        if self.config.release_on_cancel {
            let deadline = self.config.renew_deadline;
            match timeout(deadline, self.give_up()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the lease cannot be given up"),
                Err(_) => tracing::warn!("the lease could not be given up in time"),
            }
        }
        self.leader.send_replace(None);
    }

    /// Writes that nobody holds it. Also when somebody has changed the Lease since it was read, as long as
    /// it is this replica that holds it.
    async fn give_up(&mut self) -> Result<(), RestError> {
        while self.leads() {
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
        self.observed = Instant::now();
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

    fn leads(&self) -> bool {
        self.holder() == Some(&self.config.identity)
    }

    /// Whether the lease has been seen to change within the time that it lasts.
    fn is_valid(&self) -> bool {
        let spec = self.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let seconds = spec
            .and_then(|spec| spec.lease_duration_seconds)
            .unwrap_or(0);
        let lasts = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        self.observed.elapsed() < lasts
    }
}

fn with_spec(lease: Lease, spec: LeaseSpec) -> Lease {
    Lease {
        spec: Some(spec),
        ..lease
    }
}
