//! `PodConfig`: computes the differences between successive sets of pods of a source and sends them
//! as few operations.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use super::mux::{Merger, Mux};
use crate::{ApiResource, EventRecorder};

/// The capacity of the channel to the kubelet, as upstream. When it is full the sources wait.
const UPDATES_MAX: usize = 50;

/// An operation on pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PodOperation {
    /// The pods are new.
    Add,
    /// The specification of the pods has changed.
    Update,
    /// The pods are being deleted: terminate them within their grace period, then delete them from
    /// the API server.
    Delete,
    /// The pods were deleted.
    Remove,
    /// Only the status has changed: check it.
    Reconcile,
}

/// An operation on pods of one source.
#[derive(Debug, Clone)]
pub struct PodUpdate {
    /// The operation.
    pub operation: PodOperation,
    /// The name of the source.
    pub source: Arc<str>,
    /// The pods in their current or last state.
    pub pods: Vec<Arc<Pod>>,
}

/// A rejected pod and the reason.
#[derive(Debug)]
pub struct Rejected<'a> {
    /// The pod.
    pub pod: &'a Arc<Pod>,
    /// The reason of the event.
    pub reason: &'static str,
    /// The message of the event.
    pub message: String,
}

impl Rejected<'_> {
    /// Records the event.
    pub fn record(&self, recorder: &EventRecorder) {
        let about = ApiResource::of::<Pod>().reference(&**self.pod);
        recorder.warning(&about, self.reason, self.message.clone());
    }
}

type OnRejected = Box<dyn Fn(Rejected<'_>) + Send>;

/// The pods of several sources, each of which sends its complete set whenever a pod changes.
///
/// For each set it sends, in this order, the removed, added, updated, deleted and reconciled pods.
/// The first set of a source always causes an update, if only an empty Add: it shows that the
/// source is ready.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use watchet_client::kubelet::{PodConfig, PodOperation};
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
    /// By source, its pods by uid; absent for a source that has sent nothing.
    sources: HashMap<Arc<str>, Pods>,
    updates: mpsc::Sender<PodUpdate>,
    on_rejected: OnRejected,
}

type Pods = HashMap<String, Arc<Pod>>;

impl PodConfig {
    /// Creates a config whose sources send through the [`Mux`], and the receiver of its updates.
    /// `on_rejected` is called for each invalid pod of every set; a kubelet calls
    /// [`Rejected::record`].
    pub fn new(
        on_rejected: impl Fn(Rejected<'_>) + Send + 'static,
    ) -> (Mux<Self, Vec<Arc<Pod>>>, mpsc::Receiver<PodUpdate>) {
        let (updates, receiver) = mpsc::channel(UPDATES_MAX);
        let config = Self {
            sources: HashMap::new(),
            updates,
            on_rejected: Box::new(on_rejected),
        };
        (Mux::new(config), receiver)
    }

    /// Returns the pods with a unique name and uid.
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

    /// Returns the updates for a source's new set.
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

/// Returns the operation for a pod that was known before.
fn difference(before: &Pod, now: &Pod) -> Option<PodOperation> {
    let (a, b) = (&before.metadata, &now.metadata);
    // No labels equal an empty map of labels.
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

    /// Returns the updates in the order in which they are sent.
    fn into_updates(self, source: &Arc<str>, first: bool) -> Vec<PodUpdate> {
        // Upstream does not count removals and reconciliations as a sign that a source is ready.
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
