//! The simulated pods: their workloads, names and states. `objects` has their JSON.

use jiff::Timestamp;

/// The number of simulated nodes.
pub(crate) const NODES: u32 = 10;

/// The characters of the random suffix, the same as those of `generateName` in Kubernetes.
const NAME_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The length of the random suffix of a generated name.
const SUFFIX_LENGTH: usize = 5;

/// The state of a pod: the STATUS that `kubectl get pods` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PodState {
    /// It does not exist.
    Absent,
    /// It is not scheduled.
    Pending,
    /// It is bound to a node, and its kubelet has not seen it. `kubectl` prints Pending.
    Scheduled,
    ContainerCreating,
    ImagePullBackOff,
    Running,
    CrashLoopBackOff,
    Completed,
    Error,
    /// It has a deletionTimestamp and still exists.
    Terminating,
}

/// How the pods of a workload are named, and whether they end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkloadKind {
    /// Each new pod has a new name.
    Deployment,
    /// A new pod has the name of the pod that it replaces.
    StatefulSet,
    /// Pods run to completion.
    Job,
}

impl WorkloadKind {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 3] = [Self::Deployment, Self::StatefulSet, Self::Job];
}

/// A group of similar pods.
#[derive(Debug)]
pub(crate) struct Workload {
    /// The name, also the value of the label `app`.
    pub name: &'static str,
    pub kind: WorkloadKind,
    /// Its part of all pods, relative to the sum of all shares.
    share: u32,
    pub image: &'static str,
    /// The part of pod names before the random suffix: the pod-template-hash, or the scheduled time of a CronJob's Job. Empty for
    /// a StatefulSet.
    hash: &'static str,
}

/// The workloads. The first pod is [`STABLE_POD`].
const WORKLOADS: [Workload; 6] = {
    use WorkloadKind::{Deployment, Job, StatefulSet};
    [
        workload("database", StatefulSet, 1, "postgres:18.1", ""),
        workload(
            "frontend",
            Deployment,
            4,
            "shop/frontend:2.14.1",
            "6d8f9c7b54",
        ),
        workload(
            "checkout",
            Deployment,
            3,
            "shop/checkout:1.30.0",
            "7b9c4d5f68",
        ),
        workload("cart", Deployment, 2, "shop/cart:1.9.2", "5c6b8d7f49"),
        workload("search", Deployment, 3, "shop/search:4.2.0", "84d7f6c9b5"),
        workload("invoices", Job, 3, "shop/invoices:1.4.7", "29384720"),
    ]
};

/// The workload that `demo-dashboard` watches.
pub(crate) const WATCHED_WORKLOAD: &str = "checkout";

/// A pod that is recreated under the same name after each deletion. The printed commands name it.
pub(crate) const STABLE_POD: &str = "database-0";

const fn workload(
    name: &'static str,
    kind: WorkloadKind,
    share: u32,
    image: &'static str,
    hash: &'static str,
) -> Workload {
    Workload {
        name,
        kind,
        share,
        image,
        hash,
    }
}

/// A simulated pod. Between a deletion and the next creation it does not exist.
#[derive(Debug)]
pub(crate) struct Pod {
    pub workload: &'static Workload,
    /// The number of the pod among those of its workload.
    ordinal: u32,
    /// The number of the pod among all pods, from which its IP address is derived.
    pub number: u32,
    pub state: PodState,
    pub name: String,
    /// The number of the node.
    pub node: u32,
    pub restarts: u32,
    /// When it was bound to its node.
    pub bound_at: Timestamp,
    /// When its container last started.
    pub container_started_at: Timestamp,
    /// When the previous run of its container began and ended, if there was one.
    pub last_run: Option<(Timestamp, Timestamp)>,
}

impl Pod {
    /// Returns the pod of this number, which does not exist yet.
    pub(crate) fn new(number: u32) -> Self {
        let sum: u32 = WORKLOADS.iter().map(|workload| workload.share).sum();
        let (round, mut rest) = (number / sum, number % sum);
        let mut found = &WORKLOADS[0];
        for workload in &WORKLOADS {
            found = workload;
            if rest < workload.share {
                break;
            }
            rest -= workload.share;
        }
        Self {
            workload: found,
            ordinal: round * found.share + rest,
            number,
            state: PodState::Absent,
            name: String::new(),
            node: 0,
            restarts: 0,
            bound_at: Timestamp::UNIX_EPOCH,
            container_started_at: Timestamp::UNIX_EPOCH,
            last_run: None,
        }
    }

    /// Changes the pod to `state` at the time `now`.
    pub(crate) fn enter(&mut self, state: PodState, now: Timestamp, rng: &mut fastrand::Rng) {
        self.state = state;
        match state {
            PodState::Pending => {
                self.name = self.new_name(rng);
                (self.restarts, self.last_run) = (0, None);
            }
            PodState::Scheduled => {
                self.node = rng.u32(0..NODES);
                self.bound_at = now;
            }
            PodState::Running => self.container_started_at = now,
            PodState::CrashLoopBackOff => {
                self.restarts += 1;
                self.last_run = Some((self.container_started_at, now));
            }
            PodState::Completed | PodState::Error => {
                self.last_run = Some((self.container_started_at, now));
            }
            _ => {}
        }
    }

    fn new_name(&self, rng: &mut fastrand::Rng) -> String {
        let Workload { name, hash, .. } = self.workload;
        if self.workload.kind == WorkloadKind::StatefulSet {
            return format!("{name}-{}", self.ordinal);
        }
        let mut text = format!("{name}-{hash}-");
        for _ in 0..SUFFIX_LENGTH {
            let at = rng.usize(0..NAME_CHARACTERS.len());
            text.push(char::from(NAME_CHARACTERS[at]));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_the_stable_pod_comes_first() {
        let mut rng = fastrand::Rng::with_seed(1);
        let name = |number| {
            let mut pod = Pod::new(number);
            pod.enter(PodState::Pending, Timestamp::UNIX_EPOCH, &mut rng);
            pod.name
        };
        let names: Vec<String> = (0..5000).map(name).collect();
        assert_eq!(names[0], STABLE_POD);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn all_workloads_have_their_share() {
        let pods: Vec<Pod> = (0..160).map(Pod::new).collect();
        for workload in &WORKLOADS {
            let count = pods
                .iter()
                .filter(|pod| pod.workload.name == workload.name)
                .count();
            assert_eq!(count, 10 * workload.share as usize, "{}", workload.name);
        }
        assert!(WORKLOADS.iter().any(|w| w.name == WATCHED_WORKLOAD));
    }
}
