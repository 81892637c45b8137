//! Runs a scenario under load, and checks what the clients observed.

use std::io;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};
use watchet_tasks::Tasks;

use super::cluster::RealCluster;
use super::other_clients::{KubectlCount, OtherClients};
use super::{Programs, Scenario};
use crate::check::{EventKind, History, Outcome, Request, check, render, shrink_violation};
use crate::client::informer::RunningInformer;
use crate::client::{
    Client, Recorder, WatchProgress, read, read_final_state, watch, write, write_markers,
};
use crate::network::Node;

const WRITERS: u32 = 6;
const READERS: u32 = 3;
const WATCHERS: u32 = 12;
const INFORMERS: u32 = 3;

/// The mean pause of a client between two requests.
const PAUSE_MS: u64 = 10;

/// How long watches and informers have to reach the final state.
const SETTLE: Duration = Duration::from_secs(90);

/// The grace period of an informer.
const GRACE: Duration = Duration::from_secs(5);

/// The result of a scenario.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The scenario.
    pub scenario: &'static str,
    /// The operations.
    pub operations: usize,
    /// The acknowledged writes.
    pub acknowledged: usize,
    /// The writes with an unknown outcome.
    pub unknown: usize,
    /// The longest time without an acknowledged write, in milliseconds.
    pub write_pause_ms: u64,
    /// The events of all watches.
    pub events: usize,
    /// The number of `ERROR` events with code 410.
    pub expired: usize,
    /// How often the informers of client-go and kube-rs listed again.
    pub relists: usize,
    /// The commands of kubectl.
    pub kubectl: usize,
    /// The commands of kubectl that failed at first.
    pub kubectl_failed: usize,
    /// The commands of kubectl that failed each time they were repeated.
    pub kubectl_failed_again: usize,
    /// How long the watches and informers took to reach the final state, in milliseconds; `None` if they did not.
    pub converged_ms: Option<u64>,
    /// The violation with its timeline; `None` if there is none.
    pub violation: Option<String>,
}

impl Row {
    /// Returns true if there was no violation, watches and informers reached the final state, and the clients saw nothing that a
    /// retry did not cure: no relist, no 410 and no kubectl command that failed on every retry. A 410 and a relist are correct
    /// if etcd was compacted while a server was cut off. While etcd has no space, all writes fail.
    pub fn has_passed(&self) -> bool {
        let has_relisted = self.relists > 0 || self.expired > 0;
        self.violation.is_none()
            && self.converged_ms.is_some()
            && (!has_relisted || self.scenario == Scenario::PartitionAndCompaction.name())
            && (self.kubectl_failed_again == 0 || self.scenario == Scenario::NoSpace.name())
    }
}

/// The final state of the clients.
struct FinalCounts {
    converged_ms: Option<u64>,
    relists: usize,
    kubectl: KubectlCount,
}

/// The clients of a scenario.
struct Load {
    reader: Client,
    work: Tasks,
    watches: Tasks,
    watch_progress: Vec<WatchProgress>,
    informers: Vec<RunningInformer>,
    others: OtherClients,
}

impl Load {
    async fn start(
        programs: &Programs,
        cluster: &RealCluster,
        recorder: &Recorder,
        random: &mut fastrand::Rng,
    ) -> io::Result<Self> {
        let client = |number| Client {
            number,
            node: Node::new(&format!("client-{number}")),
            transport: cluster.transport(),
            servers: cluster.nodes.clone(),
            recorder: recorder.clone(),
        };
        let initial = read_final_state(&client(0), random).await;
        recorder.change(|history| history.initial = initial.snapshot);
        let (work, watches) = (Tasks::new(), Tasks::new());
        let watch_progress = (0..WATCHERS).map(|number| {
            let watching = WatchProgress::default();
            let watch = watch(client(200 + number), random.fork(), watching.clone());
            let token = watches.token();
            drop(watches.spawn("watcher", token.run_until_cancelled_owned(watch)));
            watching
        });
        let watch_progress = watch_progress.collect();
        let informers = (0..INFORMERS)
            .map(|number| RunningInformer::start(client(300 + number), random.fork()));
        let informers = informers.collect();
        for number in 0..WRITERS {
            let write = write(client(1 + number), random.fork(), usize::MAX, PAUSE_MS);
            let token = work.token();
            drop(work.spawn("writer", token.run_until_cancelled_owned(write)));
        }
        for number in 0..READERS {
            let read = read(client(100 + number), random.fork(), usize::MAX, PAUSE_MS);
            let token = work.token();
            drop(work.spawn("reader", token.run_until_cancelled_owned(read)));
        }
        let others = OtherClients::start(programs, cluster.balancer(), client)?;
        Ok(Self {
            reader: client(0),
            work,
            watches,
            watch_progress,
            informers,
            others,
        })
    }

    /// Ends the work, and waits until watches and informers have reached the final state. Returns how long that took.
    async fn settle(
        self,
        recorder: &Recorder,
        random: &mut fastrand::Rng,
    ) -> io::Result<FinalCounts> {
        self.work.drain(GRACE).await.map_err(io::Error::other)?;
        self.others.end_writers(GRACE).await?;
        recorder.end();
        let revisions = write_markers(&self.reader, random).await;
        let state = read_final_state(&self.reader, random).await;
        let (revision, mut objects) = (state.snapshot.revision, state.snapshot.objects.clone());
        // A watch has an event of the last write of its name, or of the last write of all.
        let target = |watching: &WatchProgress| {
            let name = watching.name();
            name.and_then(|name| revisions.get(name).copied())
                .unwrap_or(revision)
        };
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        recorder.change(|history| history.final_state = Some(state));
        let began = Instant::now();
        let has_converged = || {
            let mut watches = self.watch_progress.iter();
            let mut informers = self.informers.iter();
            watches.all(|watching| watching.reached() >= target(watching))
                && informers.all(|informer| informer.store() == objects)
                && self.others.have(&objects)
        };
        while !has_converged() && began.elapsed() < SETTLE {
            sleep(Duration::from_millis(5)).await;
        }
        let did_converge = has_converged();
        let elapsed = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        for watching in &self.watch_progress {
            let Some(open) = watching.open() else {
                continue;
            };
            let is_drained = watching.reached() >= target(watching);
            recorder.change_watch(open, |log| log.is_drained = is_drained);
        }
        for informer in self.informers {
            informer.stop(GRACE).await;
        }
        self.watches.drain(GRACE).await.map_err(io::Error::other)?;
        let (relists, kubectl) = self.others.counts();
        self.others.stop().await?;
        Ok(FinalCounts {
            converged_ms: did_converge.then_some(elapsed),
            relists,
            kubectl,
        })
    }
}

/// Runs a scenario with new processes.
///
/// # Errors
/// Returns an error if a process cannot be started or does not become ready, or a fault cannot be made.
pub async fn run_scenario(programs: &Programs, scenario: Scenario) -> io::Result<Row> {
    let mut programs = programs.clone();
    programs.directory = programs.directory.join(scenario.name());
    std::fs::create_dir_all(&programs.directory)?;
    let mut cluster = RealCluster::start(&programs).await?;
    let recorder = Recorder::new();
    let mut random = fastrand::Rng::new();
    let load = Load::start(&programs, &cluster, &recorder, &mut random).await?;
    sleep(programs.margin).await;
    scenario.inject(&mut cluster).await?;
    cluster.heal()?;
    sleep(programs.margin).await;
    cluster.wait_until_ready().await?;
    let counts = load.settle(&recorder, &mut random).await?;
    let history = recorder.into_history();
    let path = programs.directory.join("history.json");
    std::fs::write(&path, serde_json::to_vec(&history)?)?;
    Ok(row(scenario, &history, &counts))
}

fn row(scenario: Scenario, history: &History, counts: &FinalCounts) -> Row {
    let is_write =
        |request: &Request| !matches!(request, Request::Get { .. } | Request::List { .. });
    let writes = history.operations.iter();
    let writes: Vec<_> = writes
        .filter(|operation| is_write(&operation.request))
        .collect();
    let is_done =
        |outcome: &Outcome| matches!(outcome, Outcome::Written { .. } | Outcome::Deleted { .. });
    let acknowledged = writes
        .iter()
        .filter(|operation| is_done(&operation.outcome));
    let mut times: Vec<u64> = acknowledged
        .filter_map(|operation| operation.returned)
        .collect();
    times.sort_unstable();
    let pauses = times.windows(2).map(|pair| pair[1] - pair[0]);
    let unknown = writes
        .iter()
        .filter(|operation| operation.outcome == Outcome::Unknown);
    let events = history.watches.iter().flat_map(|watch| &watch.events);
    let expired = events.clone();
    let expired = expired.filter(|event| matches!(event.kind, EventKind::Error { code: 410, .. }));
    Row {
        scenario: scenario.name(),
        operations: history.operations.len(),
        acknowledged: times.len(),
        unknown: unknown.count(),
        write_pause_ms: pauses.max().unwrap_or_default() / 1000,
        expired: expired.count(),
        events: events.count(),
        relists: counts.relists,
        kubectl: counts.kubectl.commands(),
        kubectl_failed: counts.kubectl.failed(),
        kubectl_failed_again: counts.kubectl.failed_again(),
        converged_ms: counts.converged_ms,
        violation: check(history).err().map(|violation| {
            let shrunk = shrink_violation(history, &violation);
            format!("{violation}\n{}", render(&shrunk, &violation))
        }),
    }
}
