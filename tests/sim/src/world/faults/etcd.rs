//! Faults of the etcd cluster.

use std::time::Duration;

use super::super::World;
use super::super::storage::{Backend, EtcdNodes};
use super::Step;
use crate::etcd::{FaultRates, MemberState};
use crate::network::Node;

/// How long a member is down that restarts.
const RESTART: Duration = Duration::from_millis(100);

/// The longest delay of a member that lags behind.
const LAG_MS: u64 = 3_000;

impl EtcdNodes {
    /// Ends all faults.
    pub(in super::super) fn heal(&self) {
        self.cluster.heal();
        self.cluster.set_fault_rates(FaultRates::default());
        self.cluster.set_no_space(false);
        for member in 0..self.nodes.len() {
            self.cluster.set_lag(member, Duration::ZERO);
            match self.cluster.member_state(member) {
                MemberState::Running => {}
                MemberState::Hung => self.cluster.resume(member),
                MemberState::Stopped => self.restart(member),
            }
        }
    }
}

impl World {
    pub(super) fn inject_etcd_fault(&mut self, duration: Duration) {
        let Backend::Etcd(etcd) = &self.backend else {
            return;
        };
        let (cluster, nodes) = (etcd.cluster.clone(), etcd.nodes.clone());
        let member = self.random.usize(..nodes.len());
        let before = cluster.revision();
        let mut ends_after = duration;
        match self.random.u8(..16) {
            0 => {
                let members: Vec<usize> = match self.random.u8(..3) {
                    0 => (0..nodes.len()).collect(),
                    _ => vec![member],
                };
                self.stop_members(&members);
            }
            1 => {
                self.record("an etcd member hangs", nodes[member].to_string());
                cluster.hang(member);
            }
            2..6 => {
                self.record("isolate an etcd member", nodes[member].to_string());
                cluster.isolate(member);
                // It catches up before its watches notice, or after.
                if self.random.bool() {
                    ends_after = duration / 4;
                }
            }
            6 => {
                self.record("elect an etcd leader", String::new());
                cluster.elect();
                return;
            }
            7..10 => self.make_member_lag(member, duration),
            10 | 11 => {
                let rates = FaultRates {
                    lose_request: self.random.f64() / 4.0,
                    lose_response: self.random.f64() / 4.0,
                    delay: self.random.f64() / 2.0,
                    delay_max: Duration::from_millis(self.random.u64(..LAG_MS)),
                };
                self.record("etcd loses messages", format!("{rates:?}"));
                cluster.set_fault_rates(rates);
            }
            12 => {
                self.record("NOSPACE alarm", String::new());
                cluster.set_no_space(true);
            }
            _ => self.partition_from_etcd(&nodes, duration),
        }
        if self.random.u8(..4) > 0 {
            self.after(ends_after, Step::CompactBehind(before));
        }
        self.after(ends_after, Step::HealEtcd);
    }

    /// Lets a member apply entries late. The watches of another member, which stops, continue there.
    fn make_member_lag(&mut self, member: usize, duration: Duration) {
        let Backend::Etcd(etcd) = &self.backend else {
            return;
        };
        let (cluster, nodes) = (etcd.cluster.clone(), etcd.nodes.clone());
        let lag = Duration::from_millis(self.random.u64(..LAG_MS));
        let detail = format!("{} by {lag:?}", nodes[member]);
        self.record("an etcd member lags", detail);
        cluster.set_lag(member, lag);
        if self.random.bool() {
            let other = (member + 1 + self.random.usize(..nodes.len() - 1)) % nodes.len();
            self.after(duration / 2, Step::StopMember(other));
        }
    }

    /// Cuts a server from some or all members. It can watch again from the revision before the partition.
    fn partition_from_etcd(&mut self, nodes: &[Node], duration: Duration) {
        let server = self.nodes[self.random.usize(..self.nodes.len())].clone();
        let cuts_all = self.random.bool();
        let members = (0..nodes.len()).filter(|_| cuts_all || self.random.bool());
        let members: Vec<usize> = members.collect();
        let some: Vec<Node> = members
            .iter()
            .map(|member| nodes[*member].clone())
            .collect();
        let which = self.cut(&some, &server);
        self.record("partition from etcd", format!("{which} {server}: {some:?}"));
        if self.random.bool() {
            self.after(duration / 3, Step::RestartMembers(members));
        }
    }

    pub(super) fn stop_members(&mut self, members: &[usize]) {
        self.record("stop etcd members", format!("{members:?}"));
        if let Backend::Etcd(etcd) = &self.backend {
            members.iter().for_each(|member| etcd.stop(*member));
        }
    }

    pub(super) fn restart_members(&mut self, members: Vec<usize>) {
        self.stop_members(&members);
        self.after(RESTART, Step::StartMembers(members));
    }

    pub(super) fn start_members(&mut self, members: &[usize]) {
        let Backend::Etcd(etcd) = &self.backend else {
            return;
        };
        for member in members {
            // The end of another fault may have started it.
            if etcd.cluster.member_state(*member) == MemberState::Stopped {
                etcd.restart(*member);
            }
        }
    }

    /// Compacts while a member or a server is behind, which has the revision `before`: at the next revision, whose previous
    /// values and deletions etcd no longer has then, or at a recent one.
    pub(super) async fn compact_behind(&mut self, before: i64) {
        let Backend::Etcd(etcd) = &self.backend else {
            return;
        };
        let (cluster, members) = (etcd.cluster.clone(), etcd.nodes.len());
        let at = match self.random.u8(..4) {
            _ if cluster.revision() <= before => return self.compact().await,
            0 => return self.compact().await,
            1 | 2 => before + 1,
            _ => cluster.revision(),
        };
        self.record("compact", format!("at {at}, after {before}"));
        cluster.compact(at);
        // Members that start read less than what they had in memory. The end of the fault, which follows, starts them.
        if self.random.u8(..3) == 0 {
            self.stop_members(&(0..members).collect::<Vec<_>>());
        }
    }

    /// Ends the faults of the cluster and of the network.
    pub(super) fn heal_etcd(&self) {
        self.network.heal();
        if let Backend::Etcd(etcd) = &self.backend {
            etcd.heal();
        }
    }
}
