//! `PodConfig`: finds out what changed between the sets of pods that a source sends, and tells it in as
//! few operations as can be. It runs no pods and asks nobody.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use super::mux::{Merger, Mux};
use crate::informer::{ApiResource, EventRecorder};

/// From the `PodConfig` to the kubelet. When it is full the sources wait, and their servers keep what
/// comes meanwhile. As many as upstream's.
const UPDATES_MAX: usize = 50;

/// What is to be done with pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PodOperation {
    /// They are new.
    Add,
    /// They are to run otherwise than before.
    Update,
    /// They are being deleted: to be ended within their grace period, and then taken off the server.
    Delete,
    /// They are gone.
    Remove,
    /// Nothing is to be done but to look whether what the server says of their status is true.
    Reconcile,
}

/// Pods of one source with which the same is to be done.
#[derive(Debug, Clone)]
pub struct PodUpdate {
    /// What.
    pub operation: PodOperation,
    /// The source's name.
    pub source: Arc<str>,
    /// The pods, as they are now or last were.
    pub pods: Vec<Arc<Pod>>,
}

/// A pod that is left out, with what is to be said about it.
#[derive(Debug)]
pub struct Rejected<'a> {
    /// The pod.
    pub pod: &'a Arc<Pod>,
    /// The reason of the event that tells people.
    pub reason: &'static str,
    /// Its words.
    pub message: String,
}

impl Rejected<'_> {
    /// Tells people by an event.
    pub fn record(&self, recorder: &EventRecorder) {
        let about = ApiResource::of::<Pod>().reference(&**self.pod);
        recorder.warning(&about, self.reason, self.message.clone());
    }
}

type OnRejected = Box<dyn Fn(Rejected<'_>) + Send>;

/// The pods of several sources, each of which sends all of its own whenever one changes.
///
/// Of each set it tells, in this order, the pods that are gone, that are new, that changed, that are being
/// deleted, and those whose status alone changed. Of a source's first set something is always told, if only
/// that no pods are new: then the source is known to be ready.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use watchet::informer::kubelet::{PodConfig, PodOperation};
///
/// let (mux, mut updates) = PodConfig::new(|rejected| panic!("{rejected:?}"));
/// let file = mux.source("file");
/// let set = async {
///     file.send(vec![]).await.unwrap();
///     let first = updates.recv().await.unwrap();
///     assert_eq!((first.operation, first.pods.len()), (PodOperation::Add, 0));
///     drop(file);
/// };
/// tokio::join!(mux.run(Default::default()), set);
/// # }
/// ```
pub struct PodConfig {
    /// By source, its pods by uid; none of a source that has sent nothing yet.
    sources: HashMap<Arc<str>, Pods>,
    updates: mpsc::Sender<PodUpdate>,
    on_rejected: OnRejected,
}

type Pods = HashMap<String, Arc<Pod>>;

impl PodConfig {
    /// One whose sources send by the [`Mux`], and what it tells of their pods. `on_rejected` hears of each
    /// pod that is left out, in every set that has it; [`Rejected::record`] is what a kubelet does then.
    pub fn new(
        on_rejected: impl Fn(Rejected<'_>) + Send + 'static,
    ) -> (Mux<Self, Vec<Arc<Pod>>>, mpsc::Receiver<PodUpdate>) {
        let (updates, told) = mpsc::channel(UPDATES_MAX);
        let config = Self {
            sources: HashMap::new(),
            updates,
            on_rejected: Box::new(on_rejected),
        };
        (Mux::new(config), told)
    }

    /// Those of a set that can be told apart from all others of it.
    fn valid(&self, source: &str, pods: Vec<Arc<Pod>>) -> Vec<(String, Arc<Pod>)> {
        let (mut names, mut uids) = (HashSet::new(), HashSet::new());
        let mut valid = Vec::with_capacity(pods.len());
        for pod in pods {
            let metadata = &pod.metadata;
            let [name, namespace, uid] = [&metadata.name, &metadata.namespace, &metadata.uid]
                .map(|text| text.clone().unwrap_or_default());
            let problem = if name.is_empty() || uid.is_empty() {
                Some("it has no name or no uid".to_owned())
            } else if !names.insert((namespace.clone(), name.clone())) {
                Some(format!("duplicate pod name {name:?}"))
            } else if !uids.insert(uid.clone()) {
                Some(format!("duplicate uid {uid:?}"))
            } else {
                None
            };
            let Some(problem) = problem else {
                valid.push((uid, pod));
                continue;
            };
            let message = format!(
                "Error validating pod {name}_{namespace}({uid}) from {source} due to {problem}, \
                 ignoring"
            );
            (self.on_rejected)(Rejected {
                pod: &pod,
                reason: "FailedValidation",
                message,
            });
        }
        valid
    }

    /// What to tell of a source's new set.
    fn changes(&mut self, source: &str, pods: Vec<Arc<Pod>>) -> Vec<PodUpdate> {
        let valid = self.valid(source, pods);
        let (source, known): (Arc<str>, _) = match self.sources.remove_entry(source) {
            Some((source, known)) => (source, Some(known)),
            None => (source.into(), None),
        };
        let first = known.is_none();
        let mut known = known.unwrap_or_default();
        let mut pods = Pods::with_capacity(valid.len());
        let mut changes = Changes::default();
        for (uid, pod) in valid {
            let operation = match known.remove(&uid) {
                None => Some(PodOperation::Add),
                Some(before) => difference(&before, &pod),
            };
            if let Some(operation) = operation {
                changes.of(operation).push(pod.clone());
            }
            pods.insert(uid, pod);
        }
        changes.removes.extend(known.into_values());
        self.sources.insert(source.clone(), pods);
        changes.into_updates(&source, first)
    }
}

/// What became of a pod that was known.
fn difference(before: &Pod, now: &Pod) -> Option<PodOperation> {
    let (a, b) = (&before.metadata, &now.metadata);
    // No labels are as good as an empty map of them.
    let same = before.spec == now.spec
        && a.labels.iter().flatten().eq(b.labels.iter().flatten())
        && a.annotations
            .iter()
            .flatten()
            .eq(b.annotations.iter().flatten())
        && a.deletion_timestamp == b.deletion_timestamp
        && a.deletion_grace_period_seconds == b.deletion_grace_period_seconds;
    match same {
        true if before.status == now.status => None,
        true => Some(PodOperation::Reconcile),
        false if b.deletion_timestamp.is_some() => Some(PodOperation::Delete),
        false => Some(PodOperation::Update),
    }
}

#[derive(Default)]
struct Changes {
    removes: Vec<Arc<Pod>>,
    adds: Vec<Arc<Pod>>,
    updates: Vec<Arc<Pod>>,
    deletes: Vec<Arc<Pod>>,
    reconciles: Vec<Arc<Pod>>,
}

impl Changes {
    fn of(&mut self, operation: PodOperation) -> &mut Vec<Arc<Pod>> {
        match operation {
            PodOperation::Remove => &mut self.removes,
            PodOperation::Add => &mut self.adds,
            PodOperation::Update => &mut self.updates,
            PodOperation::Delete => &mut self.deletes,
            PodOperation::Reconcile => &mut self.reconciles,
        }
    }

    /// In the order in which they are told.
    fn into_updates(self, source: &Arc<str>, first: bool) -> Vec<PodUpdate> {
        // Removals and reconciliations do not say that a source is ready: upstream's rule.
        let silent = self.adds.is_empty() && self.updates.is_empty() && self.deletes.is_empty();
        let ready = first && silent;
        [
            (PodOperation::Remove, self.removes, false),
            (PodOperation::Add, self.adds, ready),
            (PodOperation::Update, self.updates, false),
            (PodOperation::Delete, self.deletes, false),
            (PodOperation::Reconcile, self.reconciles, false),
        ]
        .into_iter()
        .filter(|(_, pods, always)| *always || !pods.is_empty())
        .map(|(operation, pods, _)| PodUpdate {
            operation,
            source: source.clone(),
            pods,
        })
        .collect()
    }
}

impl Merger<Vec<Arc<Pod>>> for PodConfig {
    async fn merge(&mut self, source: &str, pods: Vec<Arc<Pod>>) -> ControlFlow<()> {
        for update in self.changes(source, pods) {
            if self.updates.send(update).await.is_err() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

impl fmt::Debug for PodConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources = self.sources.iter().map(|(name, pods)| (name, pods.len()));
        f.debug_map().entries(sources).finish()
    }
}

#[cfg(test)]
mod tests;
