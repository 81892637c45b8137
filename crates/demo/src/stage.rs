//! The table of stages: how a pod changes, after which delay, and with which probability.

use std::ops::Range;

use super::pod::{PodState, WorkloadKind};
use PodState::{
    Absent, Completed, ContainerCreating, CrashLoopBackOff, Error, ImagePullBackOff, Pending,
    Running, Scheduled, Terminating,
};

/// A change of a pod.
#[derive(Debug)]
pub(crate) struct Stage {
    /// The state in which it is possible.
    pub from: PodState,
    /// The state after it.
    pub to: PodState,
    /// The workloads whose pods can have it.
    pub of: Workloads,
    /// The time in the state `from`, in seconds of simulated time.
    pub delay_s: Range<u32>,
    /// The weight in the random choice among the stages of the same state.
    pub weight: u32,
    /// The request that makes the change.
    pub write: WriteKind,
}

/// The workloads whose pods have a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workloads {
    All,
    /// Deployments and StatefulSets, whose pods run until they are deleted.
    LongRunning,
    /// Jobs, whose pods run to completion.
    Jobs,
}

/// The kind of a request that changes a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// Creates the pod.
    Create,
    /// Binds the pod to a node, as a scheduler does.
    Bind,
    /// Patches the status of the pod, as a kubelet does.
    Status,
    /// Requests a graceful deletion, as a controller does. The pod exists until its kubelet confirms the deletion.
    Delete,
    /// Deletes the pod with grace period 0, as a kubelet does when the containers have ended.
    ConfirmDeletion,
}

impl Workloads {
    /// Returns true if workloads of this kind are included.
    pub(crate) fn include(self, kind: WorkloadKind) -> bool {
        match self {
            Self::All => true,
            Self::LongRunning => kind != WorkloadKind::Job,
            Self::Jobs => kind == WorkloadKind::Job,
        }
    }
}

/// All stages.
#[rustfmt::skip]
pub(crate) const STAGES: &[Stage] = &[
    stage(Absent,            Pending,           Workloads::All,          1..3,   1, WriteKind::Create),
    stage(Pending,           Scheduled,         Workloads::All,          1..5,   1, WriteKind::Bind),
    stage(Scheduled,         ContainerCreating, Workloads::All,          1..2,   1, WriteKind::Status),
    stage(ContainerCreating, Running,           Workloads::All,          2..9,  19, WriteKind::Status),
    stage(ContainerCreating, ImagePullBackOff,  Workloads::LongRunning,  4..9,   1, WriteKind::Status),
    stage(ImagePullBackOff,  ContainerCreating, Workloads::LongRunning, 10..30,  1, WriteKind::Status),
    stage(Running,           CrashLoopBackOff,  Workloads::LongRunning, 20..200, 3, WriteKind::Status),
    stage(Running,           Terminating,       Workloads::LongRunning, 60..300, 2, WriteKind::Delete),
    stage(Running,           Completed,         Workloads::Jobs,        15..60,  9, WriteKind::Status),
    stage(Running,           Error,             Workloads::Jobs,        15..60,  1, WriteKind::Status),
    stage(CrashLoopBackOff,  Running,           Workloads::LongRunning, 10..40,  5, WriteKind::Status),
    stage(CrashLoopBackOff,  Terminating,       Workloads::LongRunning, 10..40,  1, WriteKind::Delete),
    stage(Completed,         Absent,            Workloads::Jobs,        20..60,  1, WriteKind::ConfirmDeletion),
    stage(Error,             Absent,            Workloads::Jobs,        20..60,  1, WriteKind::ConfirmDeletion),
    stage(Terminating,       Absent,            Workloads::All,          2..6,   1, WriteKind::ConfirmDeletion),
];

const fn stage(
    from: PodState,
    to: PodState,
    of: Workloads,
    delay_s: Range<u32>,
    weight: u32,
    write: WriteKind,
) -> Stage {
    Stage {
        from,
        to,
        of,
        delay_s,
        weight,
        write,
    }
}

/// Returns the stages of a pod in this state, of a workload of this kind.
pub(crate) fn stages_of(
    state: PodState,
    kind: WorkloadKind,
) -> impl Iterator<Item = &'static Stage> + Clone {
    let is_possible = move |stage: &&Stage| stage.from == state && stage.of.include(kind);
    STAGES.iter().filter(is_possible)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A state without a next stage would stop its pods.
    #[test]
    fn every_state_that_a_pod_reaches_has_a_next_stage() {
        for kind in WorkloadKind::ALL {
            let mut reached = BTreeSet::new();
            let mut open = vec![Absent];
            while let Some(state) = open.pop() {
                if reached.insert(state) {
                    let before = open.len();
                    open.extend(stages_of(state, kind).map(|stage| stage.to));
                    assert!(open.len() > before, "{state:?} of {kind:?}");
                }
            }
            let is_job = kind == WorkloadKind::Job;
            assert_eq!(reached.contains(&Completed), is_job);
            assert_eq!(reached.contains(&CrashLoopBackOff), !is_job);
        }
    }

    #[test]
    fn delays_and_weights_are_not_zero() {
        for stage in STAGES {
            assert!(
                stage.delay_s.start > 0 && !stage.delay_s.is_empty(),
                "{stage:?}"
            );
            assert!(stage.weight > 0, "{stage:?}");
        }
    }
}
