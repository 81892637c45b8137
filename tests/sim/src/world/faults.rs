//! The faults of a simulation, at times and of kinds that the seed decides. A fault has later steps, such as its end, so that
//! faults overlap.

mod disk;
mod etcd;

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::storage::Backend;
use super::{Fault, World};
use crate::determinism;
use crate::network::Node;

/// The longest time between two faults.
const PAUSE_MS: u64 = 4_000;

/// The longest time until a fault ends.
const FAULT_MS: u64 = 5_000;

/// A later step of a fault.
#[derive(Debug)]
pub(super) enum Step {
    /// Starts the servers that are not running.
    StartServers,
    /// Ends the partitions.
    HealNetwork,
    /// Ends the faults of etcd and the partitions.
    HealEtcd,
    /// Ends the fault of the disk, after a crash if true.
    HealDisk { crash: bool },
    /// Compacts etcd while a member or a server is behind, which has this revision.
    CompactBehind(i64),
    /// Stops a member of etcd.
    StopMember(usize),
    /// Stops these members of etcd, to start them again soon.
    RestartMembers(Vec<usize>),
    /// Starts these members of etcd.
    StartMembers(Vec<usize>),
}

impl World {
    /// Makes faults until the clients have done their work.
    pub(super) async fn inject_faults(&mut self, work: &[JoinHandle<()>]) {
        let has_faults = self.random.u8(..8) > 0;
        let mut next_fault = Instant::now() + self.pause();
        while !work.iter().all(JoinHandle::is_finished) {
            let next_step = self.steps.first_key_value().map(|((at, _), _)| *at);
            if let Some(at) = next_step.filter(|at| *at <= next_fault) {
                sleep_until(at).await;
                if let Some((_, step)) = self.steps.pop_first() {
                    self.take(step).await;
                }
                continue;
            }
            sleep_until(next_fault).await;
            next_fault += self.pause();
            if has_faults {
                self.inject_fault().await;
            }
        }
        // The caller ends all faults.
        self.steps.clear();
    }

    /// Returns the time until the next fault begins.
    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(..PAUSE_MS))
    }

    /// Plans a step of a fault.
    fn after(&mut self, delay: Duration, step: Step) {
        self.steps_planned += 1;
        let key = (Instant::now() + delay, self.steps_planned);
        self.steps.insert(key, step);
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::StartServers => self.start_servers(),
            Step::HealNetwork => self.network.heal(),
            Step::HealEtcd => self.heal_etcd(),
            Step::HealDisk { crash } => self.heal_disk(crash),
            Step::CompactBehind(before) => self.compact_behind(before).await,
            Step::StopMember(member) => self.stop_members(&[member]),
            Step::RestartMembers(members) => self.restart_members(members),
            Step::StartMembers(members) => self.start_members(&members),
        }
    }

    fn record(&mut self, kind: &'static str, detail: String) {
        let time = self.recorder.now();
        self.faults.push(Fault { time, kind, detail });
    }

    async fn inject_fault(&mut self) {
        let duration = Duration::from_millis(self.random.u64(..FAULT_MS));
        if matches!(self.backend, Backend::Etcd(_)) && self.random.bool() {
            self.inject_etcd_fault(duration);
            return;
        }
        match self.random.u8(..12) {
            0..2 => {
                let index = self.random.usize(..self.servers.len());
                self.record("kill a server", self.nodes[index].to_string());
                self.kill(index);
                self.after(duration, Step::StartServers);
            }
            2 => self.restart_server(duration).await,
            3 | 4 => self.partition(duration),
            5 => {
                self.record("reset a connection", String::new());
                self.network.reset_one(&mut self.random);
            }
            6 => {
                let seconds = self.random.i64(-7200..7200);
                self.record("step the clock", format!("by {seconds} s"));
                determinism::step_clock(seconds);
            }
            7 | 8 => self.compact().await,
            _ => match self.backend {
                Backend::Embedded(_) => self.inject_disk_fault(duration),
                Backend::Etcd(_) => self.inject_etcd_fault(duration),
            },
        }
    }

    /// Kills a server.
    fn kill(&mut self, index: usize) {
        if let Backend::Embedded(disk) = &self.backend {
            disk.kill();
        }
        self.kill_process(index);
    }

    /// Kills the process of a server whose disk was taken away.
    fn kill_process(&mut self, index: usize) {
        if let Some(server) = self.servers[index].take() {
            server.kill();
        }
    }

    /// Stops a server in the order of a shutdown, and starts it again.
    async fn restart_server(&mut self, duration: Duration) {
        let index = self.random.usize(..self.servers.len());
        self.record("restart a server", self.nodes[index].to_string());
        if let Some(server) = self.servers[index].take() {
            server.stop(duration).await;
        }
        if let Backend::Embedded(disk) = &self.backend {
            disk.kill();
        }
        self.start_servers();
    }

    /// Cuts some clients from a server, in one direction or both.
    fn partition(&mut self, duration: Duration) {
        let server = self.nodes[self.random.usize(..self.nodes.len())].clone();
        let clients = [0, 100, 200, 300].into_iter();
        let clients = clients.flat_map(|from| from..from + 6);
        let clients: Vec<u32> = clients.filter(|_| self.random.bool()).collect();
        let nodes = clients.iter();
        let nodes: Vec<Node> = nodes
            .map(|number| Node::new(&format!("client-{number}")))
            .collect();
        let which = self.cut(&nodes, &server);
        self.record(
            "partition",
            format!("{which} {server}, clients {clients:?}"),
        );
        self.after(duration, Step::HealNetwork);
    }

    /// Cuts `others` from `node`, in directions that the seed decides, which it returns.
    fn cut(&mut self, others: &[Node], node: &Node) -> &'static str {
        let directions = self.random.u8(1..4);
        for other in others {
            if directions & 1 > 0 {
                self.network.cut(other, node);
            }
            if directions & 2 > 0 {
                self.network.cut(node, other);
            }
        }
        match directions {
            1 => "to",
            2 => "from",
            _ => "to and from",
        }
    }

    /// Compacts storage at a recent revision.
    async fn compact(&mut self) {
        let newest = self.recorder.newest();
        let deletion = self.recorder.newest_deletion();
        let at = match self.random.u8(..4) {
            0 if deletion > 0 => deletion,
            1 => newest.saturating_sub(self.random.u64(..10)).max(1),
            _ => newest.saturating_sub(self.random.u64(..2)).max(1),
        };
        self.record("compact", format!("at {at}"));
        match &self.backend {
            Backend::Embedded(_) => self.compact_store(at).await,
            Backend::Etcd(etcd) => {
                // It fails if a later revision is compacted.
                etcd.cluster.compact(i64::try_from(at).unwrap_or(i64::MAX));
            }
        }
    }
}
