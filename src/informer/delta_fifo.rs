//! `DeltaFifo`: the Reflector's store on the client's side. It holds what happened to each object since
//! that was last looked at, in the order in which objects were first touched. What is done about it is
//! the popper's business; what is known of objects otherwise, the [`ThreadSafeStore`]'s.
//!
//! # Invariants
//!
//! 1. A key is in `queue` once, exactly when it is in `items`.
//! 2. What is popped leads from what the popper was told before to the newest state; a deletion that the
//!    source did not tell is found out by the next list.
//! 3. It holds at most three deltas for each key that waits, and [`INTERMEDIATE_MAX`] more.

mod delta;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use delta::{Deleted, DeletedFinalStateUnknown, Delta, Deltas};

use super::{KubeObject, ThreadSafeStore, key};
use crate::api::{ObjectKey, ResourceVersion};
use crate::reflector::{Change, ChangeBatch, ReflectorStore, SourceError};

/// How many deltas are kept beyond the first of each key, as long as the popper lags. Handlers act on
/// states and not on steps, so that a slow one misses nothing that matters when the deltas of an object are
/// told as fewer: its state until it was deleted, that deletion, its state now. A quick one sees each.
pub const INTERMEDIATE_MAX: usize = 4_096;

type Transform<T> = Box<dyn Fn(Arc<T>) -> Arc<T> + Send + Sync>;

/// What happened to objects, in the order in which each was first touched since it was last popped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use watchet::informer::{Delta, DeltaFifo};
///
/// let fifo = DeltaFifo::<Pod>::new();
/// let mut pod = Pod::default();
/// pod.metadata.name = Some("web-0".into());
/// fifo.add(Arc::new(pod.clone()));
/// fifo.update(Arc::new(pod));
/// let popped = fifo.pop(|deltas, _| {
///     assert!(matches!(deltas.newest(), Delta::Updated(_)));
///     Ok(deltas.len())
/// });
/// assert_eq!(popped.await, Ok(2));
/// # }
/// ```
pub struct DeltaFifo<T> {
    state: Mutex<State<T>>,
    /// Told to all who wait when there may be something to pop, or never more.
    news: Notify,
    known_objects: Option<Arc<ThreadSafeStore<T>>>,
    transform: Option<Transform<T>>,
    lists_as_sync: bool,
}

struct State<T> {
    items: HashMap<ObjectKey, Deltas<T>, RandomState>,
    /// The keys of `items`, first touched first.
    queue: VecDeque<ObjectKey>,
    /// There was a list, or a change before it.
    populated: bool,
    /// Items of the first list that are not popped.
    initial: usize,
    /// Deltas beyond the first of each key.
    intermediate: usize,
    closed: bool,
    /// Where keys are spelled, so that one that waits already takes no memory again.
    spelled: String,
}

/// What the function says that [`DeltaFifo::pop`] calls, when it could not do its work now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("to be processed again")]
pub struct Requeue;

/// Why nothing was popped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PopError {
    /// The queue is closed and empty.
    #[error("DeltaFifo: manually closed")]
    Closed,
    /// The deltas were put back.
    #[error("the deltas were put back")]
    Requeued,
}

impl<T: KubeObject> State<T> {
    /// Spells the key of `object`.
    fn spell(&mut self, object: &T) {
        let (namespace, name) = key::names(object);
        self.spelled.clear();
        if let Some(namespace) = namespace {
            self.spelled.push_str(namespace);
            self.spelled.push('/');
        }
        self.spelled.push_str(name);
    }

    /// Queues a delta of the object whose key is spelled.
    fn queue(&mut self, delta: Delta<T>) {
        match self.items.get_mut(&*self.spelled) {
            Some(deltas) => {
                let before = deltas.len();
                deltas.push(delta);
                self.intermediate += deltas.len() - before;
                if self.intermediate > INTERMEDIATE_MAX {
                    let before = deltas.len();
                    deltas.compress();
                    self.intermediate -= before - deltas.len();
                }
            }
            None => {
                let key = ObjectKey::from(&*self.spelled);
                let initial = !self.populated;
                self.initial += usize::from(initial);
                self.queue.push_back(key.clone());
                self.items
                    .insert(key.clone(), Deltas::new(key, initial, delta));
            }
        }
        assert_eq!(self.queue.len(), self.items.len(), "a key waits once");
    }

    /// Queues the deletion of an object that nobody told.
    fn bury(&mut self, key: &ObjectKey, object: Arc<T>) {
        self.spelled.clear();
        self.spelled.push_str(key.as_str());
        let key = key.clone();
        let tombstone = DeletedFinalStateUnknown { key, object };
        self.queue(Delta::Deleted(Deleted::Unknown(tombstone)));
    }
}

impl<T: KubeObject> DeltaFifo<T> {
    /// An empty one that knows no objects but those that wait in it.
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State {
                items: HashMap::default(),
                queue: VecDeque::new(),
                populated: false,
                initial: 0,
                intermediate: 0,
                closed: false,
                spelled: String::new(),
            }),
            news: Notify::new(),
            known_objects: None,
            transform: None,
            lists_as_sync: false,
        }
    }

    /// With the store that the popper keeps: what it holds and a list has not is found to be deleted, and
    /// is what a resync tells again.
    pub fn with_known_objects(mut self, store: Arc<ThreadSafeStore<T>>) -> Self {
        self.known_objects = Some(store);
        self
    }

    /// With a function that changes each object before it is queued, once: to drop what nobody reads, such
    /// as `metadata.managedFields`. It must leave name and namespace as they are.
    pub fn with_transform(mut self, transform: impl Fn(&mut T) + Send + Sync + 'static) -> Self
    where
        T: Clone,
    {
        self.transform = Some(Box::new(move |mut object| {
            transform(Arc::make_mut(&mut object));
            object
        }));
        self
    }

    /// Tells the objects of a list as [`Delta::Sync`] and not as [`Delta::Replaced`].
    pub fn with_lists_as_sync(mut self) -> Self {
        self.lists_as_sync = true;
        self
    }

    /// The source says that an object is new.
    pub fn add(&self, object: Arc<T>) {
        self.tell([self.delta(Change::Added(object))]);
    }

    /// The source says that an object changed.
    pub fn update(&self, object: Arc<T>) {
        self.tell([self.delta(Change::Modified(object))]);
    }

    /// The source says that an object is gone. Of one that nobody knows nothing is told.
    pub fn delete(&self, object: Arc<T>) {
        self.tell([self.delta(Change::Deleted(object))]);
    }

    /// What is queued of a change. Not to be called under the lock: what the function does may take time.
    fn delta(&self, change: Change<T>) -> Delta<T> {
        match change {
            Change::Added(object) => Delta::Added(self.transformed(object)),
            Change::Modified(object) => Delta::Updated(self.transformed(object)),
            Change::Deleted(object) => Delta::Deleted(Deleted::Observed(self.transformed(object))),
        }
    }

    fn tell(&self, deltas: impl IntoIterator<Item = Delta<T>>) {
        let mut state = self.state.lock();
        for delta in deltas {
            state.populated = true;
            state.spell(delta.object());
            let gone = matches!(delta, Delta::Deleted(_));
            if !gone || self.knows(&state) {
                state.queue(delta);
            }
        }
        drop(state);
        self.news.notify_waiters();
    }

    /// Whether the object whose key is spelled waits or is known.
    fn knows(&self, state: &State<T>) -> bool {
        let known = |store: &Arc<ThreadSafeStore<T>>| store.get_by_key(&state.spelled).is_some();
        state.items.contains_key(&*state.spelled) || self.known_objects.as_ref().is_some_and(known)
    }

    fn transformed(&self, object: Arc<T>) -> Arc<T> {
        match &self.transform {
            Some(transform) => transform(object),
            None => object,
        }
    }

    /// The collection is now exactly `objects`: each of them is told, and the deletion of every other
    /// that waits here or is known.
    pub fn replace(&self, objects: Vec<Arc<T>>) {
        let objects = objects.into_iter().map(|object| self.transformed(object));
        // Before the lock: what the function does may take its time.
        let objects: Vec<_> = objects.collect();
        let mut state = self.state.lock();
        let waiting: Vec<ObjectKey> = state.queue.iter().cloned().collect();
        let mut listed: HashSet<ObjectKey, RandomState> = HashSet::default();
        for object in objects {
            state.spell(&object);
            if !waiting.is_empty() {
                listed.insert(ObjectKey::from(&*state.spelled));
            }
            state.queue(match self.lists_as_sync {
                true => Delta::Sync(object),
                false => Delta::Replaced(object),
            });
        }
        for key in waiting.iter().filter(|key| !listed.contains(*key)) {
            let last = state.items[key].newest().object().clone();
            state.bury(key, last);
        }
        if let Some(known) = &self.known_objects {
            // What waits is in the list, or was found to be gone just now.
            for (key, object) in known.list().entries() {
                if !state.items.contains_key(key) {
                    state.bury(key, object.clone());
                }
            }
        }
        state.populated = true;
        drop(state);
        self.news.notify_waiters();
    }

    /// Tells every known object again of which nothing waits to be told.
    pub fn resync(&self) {
        let Some(known) = &self.known_objects else {
            return;
        };
        let mut state = self.state.lock();
        for (key, object) in known.list().entries() {
            if !state.items.contains_key(key) {
                state.spelled.clear();
                state.spelled.push_str(key.as_str());
                state.queue(Delta::Sync(object.clone()));
            }
        }
        drop(state);
        self.news.notify_waiters();
    }

    /// Waits until there is something, and has `process` look at all that happened to the object that was
    /// touched first; it is told whether that is part of the first list. Nothing is queued meanwhile, so
    /// that `process` can keep what it knows in step with the queue; it must be quick and must not call
    /// the queue. When it fails the deltas are put back, behind the others. When it panics they stay.
    /// Cancel safe.
    ///
    /// # Errors
    /// [`PopError::Closed`] once all is popped of a queue that was closed; [`PopError::Requeued`] when
    /// `process` failed.
    pub async fn pop<R>(
        &self,
        process: impl FnOnce(&Deltas<T>, bool) -> Result<R, Requeue>,
    ) -> Result<R, PopError> {
        loop {
            // Before the look, so that what comes after it is heard.
            let news = self.news.notified();
            {
                let mut state = self.state.lock();
                if !state.queue.is_empty() {
                    return state.pop(process);
                }
                if state.closed {
                    return Err(PopError::Closed);
                }
            }
            news.await;
        }
    }

    /// Whether all of the first list was popped, or a change came before any list.
    pub fn has_synced(&self) -> bool {
        self.state.lock().has_synced()
    }

    /// How many objects wait.
    pub fn len(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends all waiting: what is queued can still be popped.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.news.notify_waiters();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

impl<T> State<T> {
    fn has_synced(&self) -> bool {
        self.populated && self.initial == 0
    }

    fn pop<R>(
        &mut self,
        process: impl FnOnce(&Deltas<T>, bool) -> Result<R, Requeue>,
    ) -> Result<R, PopError> {
        let initial = !self.has_synced();
        let key = self.queue.front().expect("it is not empty");
        let deltas = self.items.get(key).expect("a queued key has deltas");
        let processed = process(deltas, initial);
        let key = self.queue.pop_front().expect("it is not empty");
        let Ok(result) = processed else {
            self.queue.push_back(key);
            return Err(PopError::Requeued);
        };
        let popped = self.items.remove(&key).expect("a queued key has deltas");
        self.intermediate -= popped.len() - 1;
        self.initial -= usize::from(popped.initial);
        assert_eq!(self.queue.len(), self.items.len(), "a key waits once");
        Ok(result)
    }
}

impl<T: KubeObject> Default for DeltaFifo<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for DeltaFifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("DeltaFifo")
            .field("queue", &state.queue)
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}

/// A Reflector fills it; who pops shares it.
impl<T: KubeObject> ReflectorStore for Arc<DeltaFifo<T>> {
    type Object = T;

    async fn replace(&mut self, objects: Vec<Arc<T>>, _at: ResourceVersion) {
        DeltaFifo::replace(self, objects);
    }

    async fn watching(&mut self) {}

    async fn apply(&mut self, batch: ChangeBatch<T>) {
        let changes = batch.changes.into_iter();
        let deltas: Vec<_> = changes.map(|change| self.delta(change)).collect();
        if !deltas.is_empty() {
            self.tell(deltas);
        }
    }

    async fn failed(&mut self, error: &SourceError) {
        tracing::warn!(%error, "cannot follow the source");
    }
}

#[cfg(test)]
mod tests;
