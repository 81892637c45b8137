//! The faults.

use std::io;
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType};
use rustix::process::Signal;
use tokio::time::sleep;

use super::cluster::RealCluster;

/// How long etcd or a server is stopped or cut off.
const OUTAGE: Duration = Duration::from_secs(10);

/// The time between a kill and the next start.
const DOWN: Duration = Duration::from_secs(2);

/// A fault of real processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// Nothing fails.
    NoFault,
    /// A follower of etcd is killed, and started again.
    KillFollower,
    /// The leader of etcd is killed, and started again.
    KillLeader,
    /// All members of etcd are killed, and started again.
    KillAllMembers,
    /// A follower of etcd hangs for 10 s.
    HangFollower,
    /// The leader of etcd hangs for 10 s.
    HangLeader,
    /// A server is cut off from etcd for 10 s, in which etcd is compacted.
    PartitionAndCompaction,
    /// What the servers send to etcd is lost for 10 s.
    HalfOpenToEtcd,
    /// What etcd sends to the servers is lost for 10 s.
    HalfOpenFromEtcd,
    /// The connections to etcd break five times.
    BrokenConnections,
    /// The `NOSPACE` alarm of etcd is raised for 5 s.
    NoSpace,
    /// Each member of etcd is defragmented.
    Defragmentation,
    /// A server is killed and started again, three times.
    KillServer,
    /// A server hangs for 10 s.
    HangServer,
    /// Both servers are stopped and started again, one after the other.
    RollingRestart,
}

impl Scenario {
    /// All scenarios.
    pub const ALL: [Self; 15] = [
        Self::NoFault,
        Self::KillFollower,
        Self::KillLeader,
        Self::KillAllMembers,
        Self::HangFollower,
        Self::HangLeader,
        Self::PartitionAndCompaction,
        Self::HalfOpenToEtcd,
        Self::HalfOpenFromEtcd,
        Self::BrokenConnections,
        Self::NoSpace,
        Self::Defragmentation,
        Self::KillServer,
        Self::HangServer,
        Self::RollingRestart,
    ];

    /// Returns the name for the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoFault => "no-fault",
            Self::KillFollower => "kill-follower",
            Self::KillLeader => "kill-leader",
            Self::KillAllMembers => "kill-all-members",
            Self::HangFollower => "hang-follower",
            Self::HangLeader => "hang-leader",
            Self::PartitionAndCompaction => "partition-and-compaction",
            Self::HalfOpenToEtcd => "half-open-to-etcd",
            Self::HalfOpenFromEtcd => "half-open-from-etcd",
            Self::BrokenConnections => "broken-connections",
            Self::NoSpace => "no-space",
            Self::Defragmentation => "defragmentation",
            Self::KillServer => "kill-server",
            Self::HangServer => "hang-server",
            Self::RollingRestart => "rolling-restart",
        }
    }

    /// Makes the fault, and returns when it has ended, except that processes may not run yet.
    pub(super) async fn inject(self, cluster: &mut RealCluster) -> io::Result<()> {
        match self {
            Self::NoFault => {
                sleep(OUTAGE).await;
                Ok(())
            }
            Self::KillFollower => {
                let follower = follower(cluster).await?;
                kill_members(cluster, &[follower]).await
            }
            Self::KillLeader => {
                let leader = cluster.leader().await?;
                kill_members(cluster, &[leader]).await
            }
            Self::KillAllMembers => kill_members(cluster, &[0, 1, 2]).await,
            Self::HangFollower => {
                let follower = follower(cluster).await?;
                hang_member(cluster, follower).await
            }
            Self::HangLeader => {
                let leader = cluster.leader().await?;
                hang_member(cluster, leader).await
            }
            Self::PartitionAndCompaction => partition_and_compact(cluster).await,
            Self::HalfOpenToEtcd => cut(cluster, true, false).await,
            Self::HalfOpenFromEtcd => cut(cluster, false, true).await,
            Self::BrokenConnections => {
                for _ in 0..5 {
                    cluster
                        .proxies
                        .iter()
                        .flatten()
                        .for_each(|proxy| proxy.reset());
                    sleep(DOWN).await;
                }
                Ok(())
            }
            Self::NoSpace => no_space(cluster).await,
            Self::Defragmentation => {
                for member in 0..cluster.members.len() {
                    let mut client = cluster.client(member).await?;
                    client.defragment().await.map_err(io::Error::other)?;
                    sleep(DOWN).await;
                }
                Ok(())
            }
            Self::KillServer => {
                for _ in 0..3 {
                    cluster.servers[0].kill().await?;
                    sleep(DOWN / 4).await;
                    cluster.servers[0].start()?;
                    sleep(DOWN).await;
                }
                Ok(())
            }
            Self::HangServer => {
                cluster.servers[0].signal(Signal::STOP)?;
                sleep(OUTAGE).await;
                cluster.servers[0].signal(Signal::CONT)
            }
            Self::RollingRestart => {
                for index in 0..cluster.servers.len() {
                    cluster.servers[index].terminate().await?;
                    cluster.servers[index].start()?;
                    cluster.wait_until_ready().await?;
                    sleep(DOWN).await;
                }
                Ok(())
            }
        }
    }
}

async fn follower(cluster: &RealCluster) -> io::Result<usize> {
    let leader = cluster.leader().await?;
    Ok((leader + 1) % cluster.members.len())
}

async fn kill_members(cluster: &mut RealCluster, members: &[usize]) -> io::Result<()> {
    for member in members {
        cluster.members[*member].kill().await?;
    }
    sleep(DOWN).await;
    cluster.start_all()?;
    sleep(DOWN).await;
    Ok(())
}

async fn hang_member(cluster: &RealCluster, member: usize) -> io::Result<()> {
    cluster.members[member].signal(Signal::STOP)?;
    sleep(OUTAGE).await;
    cluster.members[member].signal(Signal::CONT)
}

async fn cut(cluster: &RealCluster, to_server: bool, to_client: bool) -> io::Result<()> {
    let proxies = || cluster.proxies.iter().flatten();
    proxies().for_each(|proxy| proxy.cut(to_server, to_client));
    sleep(OUTAGE).await;
    proxies().for_each(|proxy| proxy.cut(false, false));
    Ok(())
}

async fn partition_and_compact(cluster: &RealCluster) -> io::Result<()> {
    let cut = |is_cut| {
        let proxies = cluster.proxies[0].iter();
        proxies.for_each(|proxy| proxy.cut(is_cut, is_cut));
    };
    cut(true);
    sleep(OUTAGE).await;
    let leader = cluster.leader().await?;
    let mut client = cluster.client(leader).await?;
    let read = client.get("x", None).await.map_err(io::Error::other)?;
    let revision = read.header().map_or(0, |header| header.revision());
    let compacted = client.compact(revision, None).await;
    compacted.map_err(io::Error::other)?;
    cut(false);
    Ok(())
}

async fn no_space(cluster: &RealCluster) -> io::Result<()> {
    let leader = cluster.leader().await?;
    let mut client = cluster.client(leader).await?;
    let mut alarm = async |action| {
        let changed = client.alarm(action, AlarmType::Nospace, None).await;
        changed.map_err(io::Error::other)
    };
    alarm(AlarmAction::Activate).await?;
    sleep(OUTAGE / 2).await;
    alarm(AlarmAction::Deactivate).await?;
    Ok(())
}
