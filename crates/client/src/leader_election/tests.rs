//! Tests of elections in paused time, with a simulated server.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::rest::RestError;
use super::*;
use watchet_api::Status;

/// A simulated server with one Lease.
#[derive(Debug, Clone, Default)]
struct FakeServer(Arc<Mutex<ServerState>>);

#[derive(Debug, Default)]
struct ServerState {
    lease: Option<Lease>,
    version: u64,
    away: bool,
    writes: usize,
    /// How many of the next requests are never answered.
    hanging: usize,
    /// Before how many of the next writes another client changes the Lease.
    foreign_writes: usize,
}

/// The connection of one replica; it can be cut off.
#[derive(Debug, Clone)]
struct Connection(FakeServer, Arc<Mutex<bool>>);

fn failure(code: u16, reason: &str) -> RestError {
    RestError::from_status(Status::failure(code, reason, reason))
}

impl Connection {
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

impl FakeServer {
    fn view(&self) -> Connection {
        Connection(self.clone(), Arc::default())
    }

    fn store(&self, lease: &Lease) -> Lease {
        let mut state = self.0.lock();
        state.version += 1;
        state.writes += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(state.version.to_string());
        state.lease = Some(lease.clone());
        lease
    }

    fn spec(&self) -> LeaseSpec {
        let state = self.0.lock();
        state
            .lease
            .clone()
            .and_then(|lease| lease.spec)
            .unwrap_or_default()
    }
}

impl Lock for Connection {
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
        let foreign_writes = self.0.0.lock().foreign_writes.checked_sub(1);
        if let Some(left) = foreign_writes {
            let mut known = self.0.0.lock().lease.clone().unwrap();
            known.metadata.labels = Some([("touched".into(), left.to_string())].into());
            self.0.store(&known);
            self.0.0.lock().foreign_writes = left;
        }
        let known = self.0.0.lock().lease.clone().unwrap_or_default();
        if known.metadata.resource_version != lease.metadata.resource_version {
            return Err(failure(409, "Conflict"));
        }
        Ok(self.0.store(&lease))
    }
}

fn election(view: Connection, identity: &str) -> Election<Connection> {
    Election::new(view, LeaderElectionConfig::new("n", "l", identity)).unwrap()
}

/// Runs a replica that leads until it is stopped, as a task; logs when it starts and stops leading.
fn replica(
    tasks: &watchet_tasks::Tasks,
    election: Election<Connection>,
    log: &Arc<Mutex<Vec<String>>>,
    begun: Instant,
) -> (CancellationToken, tokio::task::JoinHandle<LeaderEnded<()>>) {
    let stop = CancellationToken::new();
    let (token, log) = (stop.clone(), log.clone());
    let name = election.config.identity.clone();
    let record = move |what: &str| {
        let seconds = begun.elapsed().as_secs();
        log.lock().push(format!("{name} {what} {seconds}"));
    };
    let run = election.run(token, async move |leading| {
        record("leads");
        leading.cancelled().await;
        record("ends");
    });
    (stop, tasks.spawn("replica", run))
}

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn the_second_leads_immediately_after_a_release() {
    let (server, tasks, log) = (
        FakeServer::default(),
        watchet_tasks::Tasks::new(),
        Arc::default(),
    );
    let begun = Instant::now();
    let (stop_a, a) = replica(&tasks, election(server.view(), "a"), &log, begun);
    seconds(1).await;
    let second = election(server.view(), "b");
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
        "the lease is renewed for as long as needed"
    );
    assert_eq!(server.spec().lease_transitions, Some(0));
    stop_a.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::Done(()));
    assert_eq!(server.spec().holder_identity.as_deref(), Some(""));
    let known = leader
        .wait_for(|leader| leader.as_deref() == Some("b"))
        .await;
    drop(known.unwrap());
    assert_eq!(log.lock().len(), 3, "{log:?}");
    // A retry period with jitter.
    assert!(
        begun.elapsed() < Duration::from_secs(107),
        "{:?}",
        begun.elapsed()
    );
    let spec = server.spec();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("b"), Some(1))
    );
    assert_eq!(spec.lease_duration_seconds, Some(15));
    stop_b.cancel();
    assert_eq!(b.await.unwrap(), LeaderEnded::Done(()));
}

/// Replicas count by their own clock from the last observed change, whatever time the Lease
/// contains.
#[tokio::test(start_paused = true)]
async fn a_disconnected_leader_ends_before_the_next_begins() {
    let (server, tasks, log) = (
        FakeServer::default(),
        watchet_tasks::Tasks::new(),
        Arc::default(),
    );
    let begun = Instant::now();
    let view = server.view();
    let cut = view.1.clone();
    let (_, a) = replica(&tasks, election(view, "a"), &log, begun);
    let (stop_b, _) = replica(&tasks, election(server.view(), "b"), &log, begun);
    seconds(21).await;
    *cut.lock() = true;
    assert_eq!(a.await.unwrap(), LeaderEnded::Lost);
    let ended = begun.elapsed().as_secs();
    // The last renewal was at 20, and the deadline starts at the next attempt.
    assert_eq!(log.lock().last().unwrap(), &format!("a ends {ended}"));
    assert!((30..=33).contains(&ended), "{ended}");
    seconds(20).await;
    let lines = log.lock().clone();
    let began: u64 = lines[2].strip_prefix("b leads ").unwrap().parse().unwrap();
    assert!((35..=42).contains(&began), "{lines:?}");
    stop_b.cancel();
}

/// Work that ignores its token is dropped before another replica can lead; it used to be dropped
/// two seconds later.
#[tokio::test(start_paused = true)]
async fn work_that_continues_is_dropped_before_the_next_begins() {
    let (server, tasks, log) = (
        FakeServer::default(),
        watchet_tasks::Tasks::new(),
        Arc::default(),
    );
    let begun = Instant::now();
    let view = server.view();
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
    let (stop_b, _) = replica(&tasks, election(server.view(), "b"), &log, begun);
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
    let (server, tasks, log) = (
        FakeServer::default(),
        watchet_tasks::Tasks::new(),
        Arc::default(),
    );
    let (stop, a) = replica(&tasks, election(server.view(), "a"), &log, Instant::now());
    seconds(5).await;
    server.0.lock().away = true;
    seconds(9).await;
    server.0.lock().away = false;
    seconds(60).await;
    assert_eq!(*log.lock(), ["a leads 0"]);
    stop.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::Done(()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_by_another_is_lost() {
    let (server, tasks, log) = (
        FakeServer::default(),
        watchet_tasks::Tasks::new(),
        Arc::default(),
    );
    let (_stop, a) = replica(&tasks, election(server.view(), "a"), &log, Instant::now());
    seconds(5).await;
    let mut lease = server.0.lock().lease.clone().unwrap();
    lease.spec.as_mut().unwrap().holder_identity = Some("thief".into());
    server.store(&lease);
    let writes = server.0.lock().writes;
    assert_eq!(a.await.unwrap(), LeaderEnded::Lost);
    assert_eq!(
        server.0.lock().writes,
        writes,
        "the lease belongs to the other replica"
    );
}

#[tokio::test(start_paused = true)]
async fn stopped_before_leading() {
    let (server, tasks, log) = (
        FakeServer::default(),
        watchet_tasks::Tasks::new(),
        Arc::default(),
    );
    server.0.lock().away = true;
    let (stop, a) = replica(&tasks, election(server.view(), "a"), &log, Instant::now());
    seconds(30).await;
    stop.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::NeverLed);
    assert!(log.lock().is_empty());
}

/// A single hanging request used to take the whole renew deadline.
#[tokio::test(start_paused = true)]
async fn a_hanging_request_is_retried_in_time() {
    let (server, tasks, log) = (
        FakeServer::default(),
        watchet_tasks::Tasks::new(),
        Arc::default(),
    );
    let (stop, a) = replica(&tasks, election(server.view(), "a"), &log, Instant::now());
    seconds(5).await;
    server.0.lock().hanging = 1;
    seconds(60).await;
    assert_eq!(
        (server.0.lock().hanging, &*log.lock()),
        (0, &vec!["a leads 0".to_owned()])
    );
    stop.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::Done(()));
}

/// A label that another client adds to the Lease does not prevent the release.
#[tokio::test(start_paused = true)]
async fn a_lease_is_released_after_a_foreign_change() {
    let (server, tasks, log) = (
        FakeServer::default(),
        watchet_tasks::Tasks::new(),
        Arc::default(),
    );
    let (stop, a) = replica(&tasks, election(server.view(), "a"), &log, Instant::now());
    seconds(3).await;
    server.0.lock().foreign_writes = 3;
    stop.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::Done(()));
    assert_eq!(server.spec().holder_identity.as_deref(), Some(""));
    assert_eq!(server.0.lock().foreign_writes, 0);

    // A lease that another replica holds by then is not changed.
    let (stop, a) = replica(&tasks, election(server.view(), "a"), &log, Instant::now());
    seconds(3).await;
    let mut lease = server.0.lock().lease.clone().unwrap();
    lease.spec.as_mut().unwrap().holder_identity = Some("thief".into());
    server.store(&lease);
    stop.cancel();
    assert_eq!(a.await.unwrap(), LeaderEnded::Done(()));
    assert_eq!(server.spec().holder_identity.as_deref(), Some("thief"));
}

/// The leader channel used to keep its own identity after the lease was lost.
#[tokio::test(start_paused = true)]
async fn the_leader_channel_is_cleared_after_a_loss() {
    let (server, tasks, log) = (
        FakeServer::default(),
        watchet_tasks::Tasks::new(),
        Arc::default(),
    );
    let elected = election(server.view(), "a");
    let leader = elected.leader.subscribe();
    let (_stop, a) = replica(&tasks, elected, &log, Instant::now());
    seconds(5).await;
    assert_eq!(leader.borrow().as_deref(), Some("a"));
    server.0.lock().away = true;
    assert_eq!(a.await.unwrap(), LeaderEnded::Lost);
    assert_eq!(leader.borrow().as_deref(), None);
}

/// After a restart a replica of the same name continues to hold its lease.
#[tokio::test(start_paused = true)]
async fn the_same_identity_continues_its_own_lease() {
    let (server, tasks, log) = (
        FakeServer::default(),
        watchet_tasks::Tasks::new(),
        Arc::default(),
    );
    let (stop, a) = replica(&tasks, election(server.view(), "a"), &log, Instant::now());
    seconds(3).await;
    a.abort();
    drop(stop);
    let acquired = server.spec().acquire_time;
    let (stop, _a) = replica(&tasks, election(server.view(), "a"), &log, Instant::now());
    seconds(1).await;
    assert_eq!(*log.lock(), ["a leads 0", "a leads 0"]);
    assert_eq!(server.spec().acquire_time, acquired);
    assert_eq!(server.spec().lease_transitions, Some(0));
    stop.cancel();
}

#[test]
fn invalid_durations_are_rejected() {
    let check = |change: fn(&mut LeaderElectionConfig)| {
        let mut config = LeaderElectionConfig::new("n", "l", "a");
        change(&mut config);
        config.check().map_err(|error| error.to_string())
    };
    assert_eq!(check(|_| {}), Ok(()));
    let refused = |change, message: &str| {
        let error = check(change).unwrap_err();
        assert!(error.starts_with(message), "{error}");
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
        "leaseDuration must fit",
    );
    refused(|config| config.identity.clear(), "Lock identity is empty");
}
