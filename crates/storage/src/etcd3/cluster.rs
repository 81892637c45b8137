//! The members of an etcd cluster: prefers one member until it fails, then the next. Applies
//! timeouts, back-off and retries to calls.
//!
//! # Invariants
//!
//! 1. A call that may change something is sent at most once, unless no connection was established
//!    or the caller allows repetition.
//! 2. Every call ends within its timeout, and soon after its member begins to hang.
//! 3. A failed member is not dialled again before its back-off has elapsed, regardless of the
//!    number of waiting calls, and a call is sent to it only after it has answered a probe: a call
//!    that a hanging member has received may be executed much later.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::transport::Endpoint;

use super::availability::Availability;
use super::dialer::Dialer;
use super::failure::Failure;
use super::identity::ClusterIdentity;
use super::member::Member;

/// The time after which a call that no member has received fails: longer than the election of a
/// leader, which etcd needs 1 s to 2 s for with its default settings.
const UNAVAILABLE_MAX: Duration = Duration::from_millis(2500);

/// The same time during an outage that has lasted for [`UNAVAILABLE_MAX`]: enough to try each member. A
/// request can wait twice, for the revision and for a list.
const UNAVAILABLE_MIN: Duration = Duration::from_millis(500);

/// Whether a call may be repeated if its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryPolicy {
    /// The call changes nothing: repeat it, at the next member first.
    Repeatable,
    /// The call may have been executed: repeat it only if it was certainly not sent.
    NonRepeatable,
}

/// The cluster.
pub(super) struct Cluster {
    members: Vec<Member>,
    preferred: AtomicUsize,
    availability: Arc<Availability>,
    identity: Arc<ClusterIdentity>,
}

impl Cluster {
    /// Returns the cluster of these endpoints without connecting.
    pub(super) async fn new(endpoints: Vec<Endpoint>, dialer: &Dialer) -> Result<Self, Failure> {
        let availability = Arc::new(Availability::new(endpoints.len()));
        let identity = Arc::<ClusterIdentity>::default();
        let mut members = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            members.push(
                Member::new(
                    endpoint,
                    dialer.clone(),
                    availability.clone(),
                    identity.clone(),
                )
                .await?,
            );
        }
        Ok(Self {
            members,
            preferred: AtomicUsize::new(0),
            availability,
            identity,
        })
    }

    /// Requests every member's status and prefers the first that responds.
    ///
    /// # Errors
    /// Returns `endpoint: reason` of each member if none responds.
    pub(super) async fn connect(&self) -> Result<(), Vec<String>> {
        let probes = self.members.iter().map(|member| async {
            let result = member.probe().await;
            result.map_err(|reason| format!("{}: {reason}", member.name()))
        });
        let answers = futures_util::future::join_all(probes).await;
        let Some(first) = answers.iter().position(Result::is_ok) else {
            return Err(answers.into_iter().filter_map(Result::err).collect());
        };
        self.preferred.store(first, Ordering::Relaxed);
        Ok(())
    }

    /// Probes the members forever.
    pub(super) async fn keep_probing(&self) {
        let probes = self.members.iter().map(Member::keep_probing);
        futures_util::future::join_all(probes).await;
    }

    /// Returns what is known about the cluster.
    pub(super) fn identity(&self) -> &Arc<ClusterIdentity> {
        &self.identity
    }

    /// Returns a receiver that changes when an outage of all members has ended.
    pub(super) fn recoveries(&self) -> watch::Receiver<u64> {
        self.availability.recoveries()
    }

    /// Returns true if every member's last known version answers progress requests correctly.
    pub(super) fn progress_is_supported(&self) -> bool {
        self.members
            .iter()
            .all(|member| member.progress_support.is_supported())
    }

    /// Executes a call at the preferred member, or at others as `policy` allows, for at most
    /// `limit`.
    pub(super) async fn call<'a, T, F, Fut>(
        &'a self,
        policy: RetryPolicy,
        limit: Duration,
        operation: F,
    ) -> Result<T, Failure>
    where
        F: Fn(&'a Member) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let deadline = Instant::now() + limit;
        let patience = UNAVAILABLE_MAX
            .saturating_sub(self.availability.down_for())
            .max(UNAVAILABLE_MIN);
        let mut give_up = deadline.min(Instant::now() + patience);
        let mut last = None;
        while let Some(member) = self.pick(give_up).await {
            let started = Instant::now();
            // A probe of a hanging member must not outlast the call.
            let checked = timeout_at(give_up, check(member)).await;
            let result = match checked {
                Ok(Ok(())) => attempt(member, deadline, &operation).await,
                Ok(Err(reason)) => Err(Failure::NotSent(reason)),
                Err(_) => Err(Failure::NotSent(member.reason())),
            };
            let failure = match result {
                Err(failure) if failure.is_unavailable() => failure,
                result => {
                    member.record_success();
                    return result;
                }
            };
            let reason = failure.reason();
            if !matches!(failure, Failure::Lost(_)) {
                member.record_failure(&reason);
                self.prefer_next(member);
            }
            if started.elapsed() > UNAVAILABLE_MAX {
                // The member was at work on it: a repetition may take as long.
                give_up = deadline;
            }
            let text = format!("etcd {}: {reason}", member.name());
            let unsent = matches!(failure, Failure::NotSent(_));
            last = Some(match unsent {
                true => Failure::NotSent(text),
                false => Failure::Unavailable(text),
            });
            if policy == RetryPolicy::NonRepeatable && !unsent {
                break;
            }
        }
        Err(last.unwrap_or_else(|| {
            Failure::NotSent(format!(
                "etcd: no member available within {:?}: {}",
                patience.min(limit),
                self.reasons()
            ))
        }))
    }

    /// Returns the first member from the preferred one on that responds, or else the first whose
    /// back-off has elapsed; waits for that.
    async fn pick(&self, deadline: Instant) -> Option<&Member> {
        loop {
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            let first = self.preferred.load(Ordering::Relaxed);
            let (before, from) = self.members.split_at(first);
            let in_order = || from.iter().chain(before);
            if let Some(member) = in_order().find(|member| !member.has_failed()) {
                return Some(member);
            }
            let ready_at = |member: &&Member| member.ready_at().unwrap_or(now);
            let soonest = in_order().min_by_key(ready_at)?;
            match ready_at(&soonest) {
                at if at > now => sleep_until(at.min(deadline)).await,
                _ => return Some(soonest),
            }
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
            .map(|member| format!("{}: {}", member.name(), member.reason()))
            .collect();
        reasons.join("; ")
    }
}

/// Probes a member that has failed.
async fn check(member: &Member) -> Result<(), String> {
    match member.has_failed() {
        true => member.probe().await,
        false => Ok(()),
    }
}

/// Executes the operation at the member until `deadline`, or until the member hangs.
async fn attempt<'a, T, F, Fut>(
    member: &'a Member,
    deadline: Instant,
    operation: &F,
) -> Result<T, Failure>
where
    F: Fn(&'a Member) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    let mut hangs = member.hangs();
    // A response first, so that it counts even if it arrives late.
    tokio::select! {
        biased;
        result = operation(member) => result,
        _ = hangs.changed() => Err(Failure::Unavailable(member.hang_reason())),
        lost = member.wait_for_leader_change() => Err(Failure::Lost(lost.to_owned())),
        () = sleep_until(deadline) => {
            // A connection can be dead without an error; the next call opens a new one.
            member.reconnect().await;
            Err(Failure::Unavailable("no response within the time limit".to_owned()))
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.members.iter().map(Member::name))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::member::BACKOFF_MAX;
    use super::*;

    async fn cluster(of: usize) -> Cluster {
        let endpoints = (0..of)
            .map(|index| Endpoint::from_shared(format!("http://127.0.0.1:{}", index + 1)).unwrap())
            .collect();
        Cluster::new(endpoints, &Dialer::default()).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn read_moves_to_the_next_member() {
        let cluster = cluster(2).await;
        let started = Instant::now();
        let answered = cluster
            .call(
                RetryPolicy::Repeatable,
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
    }

    #[tokio::test(start_paused = true)]
    async fn write_with_unknown_outcome_is_not_repeated() {
        let cluster = cluster(2).await;
        let made = AtomicUsize::new(0);
        let lost = cluster
            .call(
                RetryPolicy::NonRepeatable,
                Duration::from_secs(1),
                |_| async {
                    made.fetch_add(1, Ordering::Relaxed);
                    Err::<(), _>(Failure::Unavailable("connection lost".into()))
                },
            )
            .await;
        assert!(matches!(lost, Err(Failure::Unavailable(_))), "{lost:?}");
        let hung = cluster
            .call(
                RetryPolicy::NonRepeatable,
                Duration::from_secs(1),
                |_| async {
                    made.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<Result<(), Failure>>().await
                },
            )
            .await;
        assert!(matches!(hung, Err(Failure::Unavailable(_))), "{hung:?}");
        assert_eq!(made.load(Ordering::Relaxed), 2, "one for each call");
    }

    #[tokio::test(start_paused = true)]
    async fn unsent_write_is_repeated_at_the_next_member() {
        let cluster = cluster(2).await;
        let written = cluster
            .call(
                RetryPolicy::NonRepeatable,
                Duration::from_secs(1),
                |member| async move {
                    if member.name().contains(":1/") {
                        return Err(Failure::NotSent("connection refused".into()));
                    }
                    Ok(member.name())
                },
            )
            .await;
        assert_eq!(written.unwrap(), "http://127.0.0.1:2/");
    }

    #[tokio::test(start_paused = true)]
    async fn write_that_no_member_receives_fails_within_its_limit() {
        let cluster = cluster(1).await;
        let made = AtomicUsize::new(0);
        let started = Instant::now();
        let refused = cluster
            .call(
                RetryPolicy::NonRepeatable,
                Duration::from_secs(1),
                |_| async {
                    made.fetch_add(1, Ordering::Relaxed);
                    Err::<(), _>(Failure::NotSent("connection refused".into()))
                },
            )
            .await;
        let text = format!("{refused:?}");
        assert!(
            text.contains("onnection refused") && text.contains(":1/"),
            "{text}"
        );
        assert_eq!(
            made.load(Ordering::Relaxed),
            1,
            "the member is probed before it receives another call"
        );
        assert!(started.elapsed() <= Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_member_is_not_called_during_its_backoff() {
        let cluster = cluster(1).await;
        cluster.members[0].record_failure("gone");
        let first = cluster.members[0].ready_at().unwrap();
        cluster.members[0].record_failure("gone");
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
            cluster.members[0].record_failure("gone");
        }
        let rest = cluster.members[0].ready_at().unwrap() - Instant::now();
        assert!(rest <= BACKOFF_MAX.mul_f64(1.5), "{rest:?}");
    }
}
