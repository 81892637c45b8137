//! Elections in paused time, in a place that can be away.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::rest::RestError;
use super::*;
use crate::api::Status;

/// One Lease, kept in memory as a server would.
#[derive(Debug, Clone, Default)]
struct Place(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    lease: Option<Lease>,
    version: u64,
    away: bool,
    writes: usize,
    /// So many requests that come next are never answered.
    hanging: usize,
    /// Somebody else changes the Lease before so many writes.
    meddled: usize,
}

/// What one replica sees of it; one that is cut off sees nothing.
#[derive(Debug, Clone)]
struct View(Place, Arc<Mutex<bool>>);

fn failure(code: u16, reason: &str) -> RestError {
    RestError::told(Status::failure(code, reason, reason))
}

impl View {
    async fn reached(&self) -> Result<(), RestError> {
        let hangs = self.0.0.lock().hanging.checked_sub(1);
        if let Some(left) = hangs {
            self.0.0.lock().hanging = left;
            std::future::pending::<()>().await;
        }
        match *self.1.lock() || self.0.0.lock().away {
            true => Err(failure(503, "ServiceUnavailable")),
            false => Ok(()),
        }
    }
}

impl Place {
    fn view(&self) -> View {
        View(self.clone(), Arc::default())
    }

    fn store(&self, lease: &Lease) -> Lease {
        let mut kept = self.0.lock();
        kept.version += 1;
        kept.writes += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(kept.version.to_string());
        kept.lease = Some(lease.clone());
        lease
    }

    fn spec(&self) -> LeaseSpec {
        let kept = self.0.lock();
        kept.lease
            .clone()
            .and_then(|lease| lease.spec)
            .unwrap_or_default()
    }
}

impl Lock for View {
    async fn get(&mut self) -> Result<Lease, RestError> {
        self.reached().await?;
        let lease = self.0.0.lock().lease.clone();
        lease.ok_or_else(|| failure(404, "NotFound"))
    }

    async fn create(&mut self, lease: Lease) -> Result<Lease, RestError> {
        self.reached().await?;
        if self.0.0.lock().lease.is_some() {
            return Err(failure(409, "AlreadyExists"));
        }
        Ok(self.0.store(&lease))
    }

    async fn update(&mut self, lease: Lease) -> Result<Lease, RestError> {
        self.reached().await?;
        let meddled = self.0.0.lock().meddled.checked_sub(1);
        if let Some(left) = meddled {
            let mut known = self.0.0.lock().lease.clone().unwrap();
            known.metadata.labels = Some([("touched".into(), left.to_string())].into());
            self.0.store(&known);
            self.0.0.lock().meddled = left;
        }
        let known = self.0.0.lock().lease.clone().unwrap_or_default();
        if known.metadata.resource_version != lease.metadata.resource_version {
            return Err(failure(409, "Conflict"));
        }
        Ok(self.0.store(&lease))
    }
}

fn election(view: View, identity: &str) -> Election<View> {
    Election::new(view, LeaderElectionConfig::new("n", "l", identity)).unwrap()
}

/// Runs a replica that leads until it is stopped, as a task; tells when it begins and ends.
fn replica(
    tasks: &crate::tasks::Tasks,
    election: Election<View>,
    log: &Arc<Mutex<Vec<String>>>,
    begun: Instant,
) -> (CancellationToken, tokio::task::JoinHandle<LeaderEnded<()>>) {
    let stop = CancellationToken::new();
    let (token, log) = (stop.clone(), log.clone());
    let name = election.config.identity.clone();
    let tell = move |what: &str| {
        let seconds = begun.elapsed().as_secs();
        log.lock().push(format!("{name} {what} {seconds}"));
    };
    let run = election.run(token, async move |leading| {
        tell("leads");
        leading.cancelled().await;
        tell("ends");
    });
    (stop, tasks.spawn("replica", run))
}

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_leads_and_the_second_follows_a_release_at_once() {
    let (place, tasks, log) = (Place::default(), crate::tasks::Tasks::new(), Arc::default());
    let begun = Instant::now();
    let (stop_a, a) = replica(&tasks, election(place.view(), "a"), &log, begun);
    seconds(1).await;
    let second = election(place.view(), "b");
    let mut leader = second.leader.subscribe();
    let (stop_b, b) = replica(&tasks, second, &log, begun);
    let known = leader
        .wait_for(|leader| leader.as_deref() == Some("a"))
        .await;
    drop(known.unwrap());
    seconds(100).await;
    assert_eq!(
        *log.lock(),
        ["a leads 0"],
        "it is renewed for as long as it takes"
    );
    assert_eq!(place.spec().lease_transitions, Some(0));
    stop_a.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::Done(()));
    assert_eq!(place.spec().holder_identity.as_deref(), Some(""));
    let known = leader
        .wait_for(|leader| leader.as_deref() == Some("b"))
        .await;
    drop(known.unwrap());
    assert_eq!(log.lock().len(), 3, "{log:?}");
    // A retry period with its jitter.
    assert!(
        begun.elapsed() < Duration::from_secs(107),
        "{:?}",
        begun.elapsed()
    );
    let spec = place.spec();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("b"), Some(1))
    );
    assert_eq!(spec.lease_duration_seconds, Some(15));
    stop_b.cancel();
    assert_eq!(b.await.unwrap(), LeaderEnded::Done(()));
}

/// The others count by their own time from when they saw the lease last change, whatever the clock says
/// that is in it.
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_ends_before_the_next_begins() {
    let (place, tasks, log) = (Place::default(), crate::tasks::Tasks::new(), Arc::default());
    let begun = Instant::now();
    let view = place.view();
    let cut = view.1.clone();
    let (_, a) = replica(&tasks, election(view, "a"), &log, begun);
    let (stop_b, _) = replica(&tasks, election(place.view(), "b"), &log, begun);
    seconds(21).await;
    *cut.lock() = true;
    assert_eq!(a.await.unwrap(), LeaderEnded::Lost);
    let ended = begun.elapsed().as_secs();
    // The last renewal was at 20, the deadline begins with the next one.
    assert_eq!(log.lock().last().unwrap(), &format!("a ends {ended}"));
    assert!((30..=33).contains(&ended), "{ended}");
    seconds(20).await;
    let told = log.lock().clone();
    let began: u64 = told[2].strip_prefix("b leads ").unwrap().parse().unwrap();
    assert!((35..=42).contains(&began), "{told:?}");
    stop_b.cancel();
}

/// Work that does not heed its token is dropped before another replica can lead; once it was dropped two
/// seconds after that.
#[tokio::test(start_paused = true)]
async fn work_that_goes_on_is_dropped_before_the_next_begins() {
    let (place, tasks, log) = (Place::default(), crate::tasks::Tasks::new(), Arc::default());
    let begun = Instant::now();
    let view = place.view();
    let cut = view.1.clone();
    let worked = Arc::new(Mutex::new(begun));
    let written = worked.clone();
    let a = election(view, "a");
    let a = tasks.spawn("a", async move {
        a.run(CancellationToken::new(), async move |_| {
            loop {
                *written.lock() = Instant::now();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await
    });
    let (stop_b, _) = replica(&tasks, election(place.view(), "b"), &log, begun);
    seconds(21).await;
    *cut.lock() = true;
    let ended: LeaderEnded<()> = a.await.unwrap();
    assert_eq!(ended, LeaderEnded::Lost);
    seconds(40).await;
    let began = log.lock()[0].strip_prefix("b leads ").map(str::to_owned);
    let began: u64 = began.unwrap().parse().unwrap();
    let last = worked.lock().duration_since(begun);
    assert!(last.as_secs_f64() <= began as f64, "{last:?} {began}");
    assert!((30..=35).contains(&last.as_secs()), "{last:?}");
    stop_b.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_short_absence_of_the_server_is_survived() {
    let (place, tasks, log) = (Place::default(), crate::tasks::Tasks::new(), Arc::default());
    let (stop, a) = replica(&tasks, election(place.view(), "a"), &log, Instant::now());
    seconds(5).await;
    place.0.lock().away = true;
    seconds(9).await;
    place.0.lock().away = false;
    seconds(60).await;
    assert_eq!(*log.lock(), ["a leads 0"]);
    stop.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::Done(()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_taken_away_is_lost() {
    let (place, tasks, log) = (Place::default(), crate::tasks::Tasks::new(), Arc::default());
    let (_stop, a) = replica(&tasks, election(place.view(), "a"), &log, Instant::now());
    seconds(5).await;
    let mut lease = place.0.lock().lease.clone().unwrap();
    lease.spec.as_mut().unwrap().holder_identity = Some("thief".into());
    place.store(&lease);
    let writes = place.0.lock().writes;
    assert_eq!(a.await.unwrap(), LeaderEnded::Lost);
    assert_eq!(place.0.lock().writes, writes, "it is the thief's");
}

#[tokio::test(start_paused = true)]
async fn who_is_stopped_before_it_leads_never_led() {
    let (place, tasks, log) = (Place::default(), crate::tasks::Tasks::new(), Arc::default());
    place.0.lock().away = true;
    let (stop, a) = replica(&tasks, election(place.view(), "a"), &log, Instant::now());
    seconds(30).await;
    stop.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::NeverLed);
    assert!(log.lock().is_empty());
}

/// A request that hangs once took the whole time in which the lease has to be renewed.
#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_is_tried_again_in_time() {
    let (place, tasks, log) = (Place::default(), crate::tasks::Tasks::new(), Arc::default());
    let (stop, a) = replica(&tasks, election(place.view(), "a"), &log, Instant::now());
    seconds(5).await;
    place.0.lock().hanging = 1;
    seconds(60).await;
    assert_eq!(
        (place.0.lock().hanging, &*log.lock()),
        (0, &vec!["a leads 0".to_owned()])
    );
    stop.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::Done(()));
}

/// Whoever puts a label on the Lease does not keep the next leader waiting.
#[tokio::test(start_paused = true)]
async fn a_lease_is_given_up_also_when_somebody_has_touched_it() {
    let (place, tasks, log) = (Place::default(), crate::tasks::Tasks::new(), Arc::default());
    let (stop, a) = replica(&tasks, election(place.view(), "a"), &log, Instant::now());
    seconds(3).await;
    place.0.lock().meddled = 3;
    stop.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::Done(()));
    assert_eq!(place.spec().holder_identity.as_deref(), Some(""));
    assert_eq!(place.0.lock().meddled, 0);

    // What somebody else holds by then is left alone.
    let (stop, a) = replica(&tasks, election(place.view(), "a"), &log, Instant::now());
    seconds(3).await;
    let mut lease = place.0.lock().lease.clone().unwrap();
    lease.spec.as_mut().unwrap().holder_identity = Some("thief".into());
    place.store(&lease);
    stop.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::Done(()));
    assert_eq!(place.spec().holder_identity.as_deref(), Some("thief"));
}

/// Who has lost the lease was told to lead for ever.
#[tokio::test(start_paused = true)]
async fn who_has_lost_the_lease_does_not_say_that_it_leads() {
    let (place, tasks, log) = (Place::default(), crate::tasks::Tasks::new(), Arc::default());
    let elected = election(place.view(), "a");
    let leader = elected.leader.subscribe();
    let (_stop, a) = replica(&tasks, elected, &log, Instant::now());
    seconds(5).await;
    assert_eq!(leader.borrow().as_deref(), Some("a"));
    place.0.lock().away = true;
    assert_eq!(a.await.unwrap(), LeaderEnded::Lost);
    assert_eq!(leader.borrow().as_deref(), None);
}

/// After its restart a replica of the same name goes on with the lease that it held.
#[tokio::test(start_paused = true)]
async fn the_same_identity_takes_up_its_own_lease() {
    let (place, tasks, log) = (Place::default(), crate::tasks::Tasks::new(), Arc::default());
    let (stop, a) = replica(&tasks, election(place.view(), "a"), &log, Instant::now());
    seconds(3).await;
    a.abort();
    drop(stop);
    let acquired = place.spec().acquire_time;
    let (stop, _a) = replica(&tasks, election(place.view(), "a"), &log, Instant::now());
    seconds(1).await;
    assert_eq!(*log.lock(), ["a leads 0", "a leads 0"]);
    assert_eq!(place.spec().acquire_time, acquired);
    assert_eq!(place.spec().lease_transitions, Some(0));
    stop.cancel();
}

#[test]
fn times_must_fit_together() {
    let check = |change: fn(&mut LeaderElectionConfig)| {
        let mut config = LeaderElectionConfig::new("n", "l", "a");
        change(&mut config);
        config.check().map_err(|error| error.to_string())
    };
    assert_eq!(check(|_| {}), Ok(()));
    let refused = |change, complaint: &str| {
        let error = check(change).unwrap_err();
        assert!(error.starts_with(complaint), "{error}");
    };
    refused(
        |config| config.lease_duration = config.renew_deadline,
        "leaseDuration must be greater",
    );
    refused(
        |config| config.retry_period = config.renew_deadline,
        "renewDeadline must be greater",
    );
    refused(
        |config| config.retry_period = Duration::MAX,
        "renewDeadline must be greater",
    );
    refused(
        |config| (config.lease_duration, config.renew_deadline) = (Duration::MAX, Duration::MAX),
        "leaseDuration must be fewer",
    );
    refused(|config| config.identity.clear(), "Lock identity is empty");
}
