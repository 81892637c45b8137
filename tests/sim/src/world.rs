//! One simulation: servers over their storage, clients, and faults, from the start to the final state.

mod faults;
mod storage;

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use watchet_cacher::CacherConfig;
use watchet_storage::embedded::SimulatedDisk;
use watchet_tasks::Tasks;

use crate::check::{History, Snapshot};
use crate::client::informer::RunningInformer;
use crate::client::{
    Client, Recorder, Transport, WatchProgress, read, read_final_state, transact, watch, write,
};
use crate::determinism;
use crate::network::{Network, Node, Trace};
use crate::server::Server;

use self::faults::Step;
use self::storage::{Backend, EtcdNodes};

/// The stack of the thread of a simulation: futures that are not optimized are large.
const STACK_BYTES: usize = 16 << 20;

/// How long the watches and informers have to reach the final state after the last fault. An informer waits up to 60 s before it
/// watches again, as in client-go, and up to 60 s more before it lists if that watch has expired.
const SETTLE: Duration = Duration::from_secs(150);

/// A watch that has been open for so long at the end has received all events.
const DRAINED_AFTER: Duration = Duration::from_secs(20);

/// The longest virtual time of a simulation. Most need less than two minutes; one that needs more has a server that does not
/// become ready, or a client that does not end.
const VIRTUAL_TIME_MAX: Duration = Duration::from_secs(3600);

/// The grace period of a server that is stopped.
const GRACE: Duration = Duration::from_secs(5);

/// What a simulation did.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What the clients observed.
    pub history: History,
    /// The faults.
    pub faults: Vec<Fault>,
    /// The virtual time that passed.
    pub elapsed: Duration,
    /// The digest of everything that the network delivered, with its time, and the number of bytes. Equal digests mean equal
    /// runs.
    pub digest: (u32, u64),
}

/// A fault that a simulation made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// When it began, in microseconds.
    pub time: u64,
    /// What it was.
    pub kind: &'static str,
    /// To what or how; can be empty.
    pub detail: String,
}

/// Runs the simulation of `seed` in a new thread.
///
/// # Panics
/// Panics if the simulation does, which is a failure of a server, a client, or the simulation.
pub fn run(seed: u64) -> Report {
    run_in_thread(seed, None)
}

/// As [`run`], and writes a line for each delivery of the network to `trace`: the time in microseconds, the nodes, and the bytes.
pub fn run_traced(seed: u64, trace: Box<dyn std::io::Write + Send>) -> Report {
    run_in_thread(seed, Some(trace))
}

fn run_in_thread(seed: u64, trace: Option<Trace>) -> Report {
    let simulation = move || {
        determinism::enter(seed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O can be created");
        let report = runtime.block_on(async {
            determinism::follow_virtual_time();
            let world = World::new(seed);
            if let Some(trace) = trace {
                world.network.trace(trace);
            }
            let run = tokio::time::timeout(VIRTUAL_TIME_MAX, world.run()).await;
            run.expect("a simulation ends within its longest virtual time")
        });
        // Tasks of killed processes are dropped in the runtime.
        drop(runtime);
        report
    };
    let thread = thread::Builder::new()
        .name(format!("simulation-{seed}"))
        .stack_size(STACK_BYTES)
        .spawn(simulation)
        .expect("a thread can be created");
    match thread.join() {
        Ok(report) => report,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The state of a simulation.
struct World {
    seed: u64,
    random: fastrand::Rng,
    network: Network,
    recorder: Recorder,
    backend: Backend,
    caches: CacherConfig,
    servers: Vec<Option<Server>>,
    nodes: Vec<Node>,
    /// The tasks of etcd.
    tasks: Tasks,
    started: Instant,
    faults: Vec<Fault>,
    /// The later steps of faults, by their time and a number.
    steps: BTreeMap<(Instant, u64), Step>,
    steps_planned: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let caches = CacherConfig {
            history_window: Duration::from_secs(random.u64(1..60)),
            history_bytes_max: if random.bool() { 30_000 } else { 16 << 20 },
            bookmark_period: Duration::from_secs(random.u64(2..20)),
            consistency_check_period: random.bool().then_some(Duration::from_secs(10)),
            // Watches of slow readers continue from history.
            inbox_events_max: if random.bool() {
                random.usize(1..8)
            } else {
                1024
            },
            ..CacherConfig::default()
        };
        let (network, tasks) = (Network::new(random.u64(..)), Tasks::new());
        let (backend, servers) = match random.u8(..3) == 0 {
            true => (Backend::Embedded(SimulatedDisk::new()), 1),
            false => {
                let etcd = EtcdNodes::start(&network, &mut random, &tasks);
                (Backend::Etcd(etcd), random.u32(1..3))
            }
        };
        let nodes = (0..servers).map(|number| Node::new(&format!("server-{number}")));
        let nodes: Vec<Node> = nodes.collect();
        Self {
            seed,
            network,
            recorder: Recorder::new(),
            backend,
            caches,
            servers: nodes.iter().map(|_| None).collect(),
            nodes,
            tasks,
            started: Instant::now(),
            faults: Vec::new(),
            steps: BTreeMap::new(),
            steps_planned: 0,
            random,
        }
    }

    async fn run(mut self) -> Report {
        self.start_servers();
        let tasks = Tasks::new();
        let reader = self.client(0);
        // Writes need the namespace.
        let initial = read_final_state(&reader, &mut self.random.clone()).await;
        let is_without_progress = match &self.backend {
            Backend::Embedded(_) => false,
            Backend::Etcd(etcd) => etcd.is_without_progress,
        };
        self.recorder.change(|history| {
            history.initial = initial.snapshot;
            history.is_without_progress = is_without_progress;
        });
        let watch_progress = self.spawn_watchers(&tasks);
        let informers: Vec<RunningInformer> = (0..2)
            .map(|number| RunningInformer::start(self.client(300 + number), self.random.fork()))
            .collect();
        let work = self.spawn_work(&tasks);
        self.inject_faults(&work).await;
        self.heal();
        for task in work {
            task.await.expect("a client does not panic");
        }
        self.settle(&reader, watch_progress, informers).await;
        tasks.cancel();
        let elapsed = self.started.elapsed();
        for server in self.servers.iter_mut().filter_map(Option::take) {
            server.stop(GRACE).await;
        }
        self.tasks.cancel();
        Report {
            seed: self.seed,
            faults: self.faults,
            elapsed,
            digest: self.network.digest(),
            history: self.recorder.into_history(),
        }
    }

    /// Starts the servers that are not running.
    fn start_servers(&mut self) {
        for (server, node) in self.servers.iter_mut().zip(&self.nodes) {
            if server.is_none() {
                let opening = self.backend.open(node, &mut self.random);
                let caches = self.caches.clone();
                *server = Some(Server::start(&self.network, node, opening, caches));
            }
        }
    }

    fn client(&self, number: u32) -> Client {
        Client {
            number,
            node: Node::new(&format!("client-{number}")),
            transport: Transport::Simulated(self.network.clone()),
            servers: self.nodes.clone(),
            recorder: self.recorder.clone(),
        }
    }

    fn spawn_watchers(&mut self, tasks: &Tasks) -> Vec<WatchProgress> {
        let count = self.random.u32(2..7);
        let spawn = |number| {
            let watching = WatchProgress::default();
            let client = self.client(200 + number);
            let token = tasks.token();
            let watch = watch(client, self.random.fork(), watching.clone());
            drop(tasks.spawn("watcher", token.run_until_cancelled_owned(watch)));
            watching
        };
        (0..count).map(spawn).collect()
    }

    /// Spawns the clients that read and write.
    fn spawn_work(&mut self, tasks: &Tasks) -> Vec<tokio::task::JoinHandle<()>> {
        let (writers, readers) = (self.random.u32(2..5), self.random.u32(1..4));
        // Some simulations have so little traffic that a fault affects a single event.
        let (count, pause_ms) = match self.random.u8(..3) {
            0 => (self.random.usize(10..30), self.random.u64(600..2_000)),
            _ => (self.random.usize(20..60), self.random.u64(50..600)),
        };
        let mut work = Vec::new();
        for number in 0..writers {
            let client = self.client(1 + number);
            let write = write(client, self.random.fork(), count, pause_ms);
            work.push(tasks.spawn("writer", write));
        }
        for number in 0..readers {
            let client = self.client(100 + number);
            let read = read(client, self.random.fork(), count, pause_ms);
            work.push(tasks.spawn("reader", read));
        }
        if let Backend::Etcd(etcd) = &self.backend {
            let client = self.client(400);
            let connections = etcd.connect(&client.node);
            let transact = transact(client, connections, self.random.fork(), count / 2, pause_ms);
            work.push(tasks.spawn("transactor", transact));
        }
        work
    }

    /// Ends all faults.
    fn heal(&mut self) {
        self.network.heal();
        match &self.backend {
            Backend::Embedded(disk) => disk.fail(Default::default()),
            Backend::Etcd(etcd) => etcd.heal(),
        }
        self.start_servers();
    }

    /// Waits until watches and informers have reached the final state, and records it.
    async fn settle(
        &mut self,
        reader: &Client,
        watch_progress: Vec<WatchProgress>,
        informers: Vec<RunningInformer>,
    ) {
        self.recorder.end();
        let state = read_final_state(reader, &mut self.random.clone()).await;
        let Snapshot { revision, objects } = state.snapshot.clone();
        self.recorder
            .change(|history| history.final_state = Some(state));
        let until = Instant::now() + SETTLE;
        while Instant::now() < until {
            let are_watches_done = watch_progress
                .iter()
                .all(|watching| watching.reached() >= revision);
            let are_informers_done = informers.iter().all(|informer| informer.store() == objects);
            if are_watches_done && are_informers_done {
                break;
            }
            sleep(Duration::from_millis(200)).await;
        }
        let now = self.recorder.now();
        let drained_us = u64::try_from(DRAINED_AFTER.as_micros()).unwrap_or(u64::MAX);
        for watching in &watch_progress {
            let Some(open) = watching.open() else {
                continue;
            };
            let reached = watching.reached() >= revision;
            self.recorder.change_watch(open, |log| {
                log.is_drained = reached || log.opened + drained_us < now
            });
        }
        for informer in informers {
            informer.stop(GRACE).await;
        }
    }
}
