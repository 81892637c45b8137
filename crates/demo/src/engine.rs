//! `Engine`: decides which pods change next, from the table of stages and a seed. It sends no requests and reads no clock: the
//! simulated time advances with each change that the caller takes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::Timestamp;

use super::pod::{Pod, PodState};
use super::stage::{STAGES, Stage, stages_of};

/// The pods and their next changes.
#[derive(Debug)]
pub(crate) struct Engine {
    pods: Vec<Pod>,
    /// The next stage of each pod.
    next: Vec<&'static Stage>,
    /// When the next stage of each pod begins, except of pods with a change in progress.
    due: BinaryHeap<Reverse<Due>>,
    rng: fastrand::Rng,
    /// The simulated time.
    now_ms: u64,
}

/// The next change of a pod, ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at_ms: u64,
    pod: usize,
}

/// A change of a pod that the caller must write to the server, and then report to [`Engine::finish`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    /// The index of the pod.
    pub pod: usize,
    pub stage: &'static Stage,
}

/// The state of a pod on the server after the write of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The write succeeded.
    Done,
    /// The pod does not exist: another client deleted it, or it could not be created.
    Gone,
    /// The pod exists and is deleted next: another client requested its deletion, or the write failed.
    Terminating,
}

impl Engine {
    /// Creates an engine for `pods` pods, none of which exists yet.
    pub(crate) fn new(pods: u32, seed: u64) -> Self {
        let pods: Vec<Pod> = (0..pods).map(Pod::new).collect();
        let mut engine = Self {
            next: vec![&STAGES[0]; pods.len()],
            pods,
            due: BinaryHeap::new(),
            rng: fastrand::Rng::with_seed(seed),
            now_ms: 0,
        };
        for pod in 0..engine.pods.len() {
            engine.schedule(pod);
        }
        engine
    }

    /// Returns a pod in the state after its last change.
    pub(crate) fn pod(&self, pod: usize) -> &Pod {
        &self.pods[pod]
    }

    /// Returns the number of pods that exist, and how many of them are in `state`.
    pub(crate) fn count(&self, state: PodState) -> (usize, usize) {
        let count = |is: &dyn Fn(&Pod) -> bool| self.pods.iter().filter(|pod| is(pod)).count();
        (
            count(&|pod| pod.state != PodState::Absent),
            count(&|pod| pod.state == state),
        )
    }

    /// Changes up to `count` different pods at the time `now`, and returns the changes in order. With `until_s`, only those
    /// before that simulated time.
    pub(crate) fn take(
        &mut self,
        count: usize,
        until_s: Option<u64>,
        now: Timestamp,
    ) -> Vec<Change> {
        let is_early = |due: &Due| until_s.is_none_or(|until_s| due.at_ms < until_s * 1000);
        let mut changes = Vec::new();
        while changes.len() < count
            && let Some(Reverse(due)) = self.due.peek().copied()
            && is_early(&due)
        {
            self.due.pop();
            self.now_ms = due.at_ms;
            let stage = self.next[due.pod];
            self.pods[due.pod].enter(stage.to, now, &mut self.rng);
            changes.push(Change {
                pod: due.pod,
                stage,
            });
        }
        changes
    }

    /// Completes a change that [`Self::take`] returned.
    pub(crate) fn finish(&mut self, change: Change, outcome: Outcome) {
        let pod = &mut self.pods[change.pod];
        pod.state = match outcome {
            Outcome::Done => pod.state,
            Outcome::Gone => PodState::Absent,
            Outcome::Terminating => PodState::Terminating,
        };
        self.schedule(change.pod);
    }

    /// Chooses the next stage of the pod and its time.
    fn schedule(&mut self, pod: usize) {
        let stage = self.choose(pod);
        self.next[pod] = stage;
        let delay = &stage.delay_s;
        let delay_ms = u64::from(delay.start) * 1000..u64::from(delay.end) * 1000;
        let at_ms = self.now_ms + self.rng.u64(delay_ms);
        self.due.push(Reverse(Due { at_ms, pod }));
    }

    /// Chooses a random stage of the pod, by weight.
    fn choose(&mut self, pod: usize) -> &'static Stage {
        let Pod {
            state, workload, ..
        } = &self.pods[pod];
        let stages = stages_of(*state, workload.kind);
        let sum: u32 = stages.clone().map(|stage| stage.weight).sum();
        let mut rest = self.rng.u32(0..sum);
        for stage in stages {
            match rest.checked_sub(stage.weight) {
                Some(less) => rest = less,
                None => return stage,
            }
        }
        unreachable!("`rest` is less than the sum of the weights");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const PODS: u32 = 200;

    /// Returns the engine after `changes` changes, and the names and states of the changed pods.
    fn run(seed: u64, changes: usize) -> (Engine, Vec<(String, PodState)>) {
        let mut engine = Engine::new(PODS, seed);
        let mut made = Vec::new();
        while made.len() < changes {
            for change in engine.take(7, None, Timestamp::UNIX_EPOCH) {
                made.push((engine.pod(change.pod).name.clone(), change.stage.to));
                engine.finish(change, Outcome::Done);
            }
        }
        (engine, made)
    }

    #[test]
    fn the_same_seed_makes_the_same_changes() {
        let (first, second, other) = (run(1, 5000).1, run(1, 5000).1, run(2, 5000).1);
        assert_eq!(first, second);
        assert_ne!(first, other);
    }

    #[test]
    fn all_pods_continue_to_change() {
        let mut engine = Engine::new(PODS, 3);
        let mut counts = vec![0; PODS as usize];
        for _ in 0..100 * PODS {
            for change in engine.take(1, None, Timestamp::UNIX_EPOCH) {
                counts[change.pod] += 1;
                engine.finish(change, Outcome::Done);
            }
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 20, "{least} of {most}");
    }

    #[test]
    fn most_pods_run_and_all_states_occur() {
        let (mut engine, _) = run(4, 4000);
        let mut sums: BTreeMap<PodState, usize> = BTreeMap::new();
        let samples = 300;
        for _ in 0..samples {
            for change in engine.take(20, None, Timestamp::UNIX_EPOCH) {
                engine.finish(change, Outcome::Done);
            }
            for pod in &engine.pods {
                *sums.entry(pod.state).or_default() += 1;
            }
        }
        assert_eq!(sums.len(), 10, "{sums:?}");
        let share =
            |state| 100 * sums[&state] / (samples * usize::try_from(PODS).expect("a small number"));
        assert!((55..90).contains(&share(PodState::Running)), "{sums:?}");
        for state in [PodState::CrashLoopBackOff, PodState::Completed] {
            assert!((2..25).contains(&share(state)), "{state:?}: {sums:?}");
        }
    }

    #[test]
    fn a_limit_of_time_is_not_exceeded() {
        let mut engine = Engine::new(PODS, 5);
        loop {
            let changes = engine.take(16, Some(10), Timestamp::UNIX_EPOCH);
            if changes.is_empty() {
                break;
            }
            assert!(engine.now_ms < 10_000);
            for change in changes {
                engine.finish(change, Outcome::Done);
            }
        }
        let (existing, _) = engine.count(PodState::Running);
        assert_eq!(existing, PODS as usize);
    }

    #[test]
    fn deletions_by_other_clients_are_followed() {
        let mut engine = Engine::new(1, 6);
        let step = |engine: &mut Engine, outcome| {
            let changes = engine.take(2, None, Timestamp::UNIX_EPOCH);
            assert_eq!(changes.len(), 1, "a pod has one change at a time");
            engine.finish(changes[0], outcome);
            engine.pod(0).state
        };
        assert_eq!(step(&mut engine, Outcome::Done), PodState::Pending);
        assert_eq!(step(&mut engine, Outcome::Gone), PodState::Absent);
        assert_eq!(step(&mut engine, Outcome::Done), PodState::Pending);
        assert_eq!(step(&mut engine, Outcome::Done), PodState::Scheduled);
        assert_eq!(
            step(&mut engine, Outcome::Terminating),
            PodState::Terminating
        );
        assert_eq!(step(&mut engine, Outcome::Done), PodState::Absent);
    }
}
