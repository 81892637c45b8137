//! `Simulation`: prepares a server, then changes pods, leases and config maps continuously while three clients watch.

use std::convert::Infallible;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;
use watchet_client::{Kubeconfig, RestClient, RestConfig, RestConfigError};
use watchet_tasks::{DrainTimeout, TaskFailed, Tasks};

use super::args::DemoOptions;
use super::cluster::{Cluster, PodWrite};
use super::engine::{Change, Engine, Outcome};
use super::error::DemoError;
use super::objects::REPORTS;
use super::pod::{NODES, PodState};
use super::progress::Progress;
use super::status::StatusLine;
use super::watchers::{DeletedPod, Informers, SlowReader};

/// The maximum number of pod writes in flight.
const CONCURRENT_WRITES: usize = 16;

/// The simulated time of [`Simulation::start`], which sends its changes without pauses. After it, each pod was created and
/// bound, and its container has started or is in ImagePullBackOff.
const START_S: u64 = 20;

/// The minimum time between two batches of pod changes. The size of a batch follows from it and the rate.
const BATCH_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// The time from a deletion by another client until the kubelet confirms it.
const TERMINATION_DELAY: Duration = Duration::from_secs(5);

/// The time between the lease renewals of two nodes. Each of the ten nodes renews its lease every 10 s, as a kubelet does.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two changes of config maps. With 64 KiB each, these are 320 KiB per second, so that the inbox of a watcher
/// (4 MiB) is full after less than 15 s.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// A running simulation. [`Self::stop`] ends its tasks.
#[derive(Debug)]
pub struct Simulation {
    tasks: Tasks,
    progress: Arc<Progress>,
    viewer: RestClient,
    _informers: Informers,
}

impl Simulation {
    /// Creates the objects on the server of the kubeconfig, and starts the changes and the watchers. Returns when all pods
    /// are created and have had time to start.
    ///
    /// # Errors
    /// The kubeconfig is invalid, or the server rejects an object.
    pub async fn start(kubeconfig: &Path, options: &DemoOptions) -> Result<Self, DemoError> {
        let kubeconfig = Kubeconfig::load(&[kubeconfig]).map_err(RestConfigError::from)?;
        let config = RestConfig::from_kubeconfig(&kubeconfig, None)?;
        let mut rng = fastrand::Rng::with_seed(options.seed);
        let cluster = Cluster::new(&config)?;
        cluster.prepare(&mut rng).await?;
        let mut pods = Pods {
            engine: Engine::new(options.pods, options.seed),
            cluster: cluster.clone(),
            progress: Arc::default(),
        };
        while pods.change(CONCURRENT_WRITES, Some(START_S)).await > 0 {}
        let (informers, deletions) = Informers::start(&config).await?;
        let slow_reader = SlowReader::new(&config)?;
        let simulation = Self {
            tasks: Tasks::new(),
            progress: Arc::clone(&pods.progress),
            viewer: RestClient::new(&config)?,
            _informers: informers,
        };
        simulation.spawn("pods", pods.run(options.rate));
        simulation.spawn("deletions", confirm_deletions(cluster.clone(), deletions));
        simulation.spawn("leases", renew_leases(cluster.clone()));
        simulation.spawn("config maps", change_reports(cluster, rng));
        simulation.spawn("slow reader", slow_reader.run());
        Ok(simulation)
    }

    /// Spawns a task that [`Self::stop`] cancels.
    fn spawn<F>(&self, name: &'static str, task: F)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let token: CancellationToken = self.tasks.token();
        drop(
            self.tasks
                .spawn(name, token.run_until_cancelled_owned(task)),
        );
    }

    /// Shows the progress in one line, if stdout is a terminal, and returns the failure of a task, which is a bug. Cancel
    /// safe; dropping the future removes the line.
    pub async fn show_progress(&self) -> TaskFailed {
        let show = async {
            match io::stdout().is_terminal() {
                true => StatusLine::new(&self.viewer, &self.progress).show().await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            failed = self.tasks.failed() => failed,
            never = show => match never {},
        }
    }

    /// Ends all tasks, and with them the watches.
    ///
    /// # Errors
    /// A task did not end within `grace`.
    pub async fn stop(self, grace: Duration) -> Result<(), DrainTimeout> {
        self.tasks.drain(grace).await
    }
}

/// Changes the pods.
struct Pods {
    engine: Engine,
    cluster: Cluster,
    progress: Arc<Progress>,
}

impl Pods {
    /// Makes `rate` changes per second.
    async fn run(mut self, rate: u32) -> Infallible {
        let count = (f64::from(rate) * BATCH_INTERVAL_MIN.as_secs_f64()).ceil();
        let mut ticks = interval(Duration::from_secs_f64(count / f64::from(rate)));
        // With a slow server there are fewer changes, but no burst later.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // `rate` is at most 1000.
            self.change(count as usize, None).await;
        }
    }

    /// Writes up to `count` changes of [`Engine::take`] concurrently, and returns their number.
    async fn change(&mut self, count: usize, until_s: Option<u64>) -> usize {
        let now = Timestamp::now();
        let changes = self.engine.take(count, until_s, now);
        let mut writes = Vec::with_capacity(changes.len());
        for change in &changes {
            let pod = self.engine.pod(change.pod);
            let write = PodWrite::new(change.stage.write, pod, now);
            let (change, cluster) = (*change, self.cluster.clone());
            writes.push(async move { (change, cluster.write(&write).await) });
        }
        let outcomes = stream::iter(writes).buffered(CONCURRENT_WRITES);
        let outcomes: Vec<(Change, Outcome)> = outcomes.collect().await;
        for (change, outcome) in outcomes {
            self.engine.finish(change, outcome);
        }
        let (pods, running) = self.engine.count(PodState::Running);
        self.progress.add(changes.len(), pods, running);
        changes.len()
    }
}

/// Confirms deletions by other clients, which the simulation would otherwise notice only at the next change of the pod. Returns
/// when the informer ends.
async fn confirm_deletions(cluster: Cluster, mut deletions: mpsc::Receiver<DeletedPod>) {
    while let Some(DeletedPod { name, uid, at }) = deletions.recv().await {
        sleep_until(at + TERMINATION_DELAY).await;
        // An error is normal: the simulation has confirmed its own deletions already.
        if let Err(error) = cluster.confirm_deletion(&name, Some(uid)).await {
            tracing::debug!(%error, name, "cannot confirm a deletion");
        }
    }
}

async fn renew_leases(cluster: Cluster) -> Infallible {
    let mut ticks = interval(RENEWAL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for node in (0..NODES).cycle() {
        ticks.tick().await;
        if let Err(error) = cluster.renew_lease(node).await {
            tracing::debug!(%error, node, "cannot renew a lease");
        }
    }
    unreachable!("a cycle does not end")
}

async fn change_reports(cluster: Cluster, mut rng: fastrand::Rng) -> Infallible {
    let mut ticks = interval(REPORT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in (0..REPORTS).cycle() {
        ticks.tick().await;
        if let Err(error) = cluster.change_report(number, &mut rng).await {
            tracing::debug!(%error, number, "cannot change a config map");
        }
    }
    unreachable!("a cycle does not end")
}
