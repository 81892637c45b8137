//! `DeltaFifo`: the Reflector's store in a client. It holds the deltas of each object since it was
//! last popped, in the order in which the objects were first changed.
//!
//! # Invariants
//!
//! 1. A key is in `queue` once, exactly when it is in `items`.
//! 2. The deltas of a pop lead from the state of the previous pop to the newest state; a deletion
//!    that the watch missed is detected by the next list.
//! 3. It holds at most three deltas per queued key, and [`INTERMEDIATE_MAX`] more.

mod delta;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use delta::{Deleted, DeletedFinalStateUnknown, Delta, Deltas};

use super::{KubeObject, ThreadSafeStore, key};
use watchet_api::{ObjectKey, ResourceVersion};
use watchet_reflector::{Change, ChangeBatch, ReflectorStore, SourceError};

/// The maximum number of deltas beyond the first of each key, while the consumer lags. Beyond it
/// the deltas of an object are compressed to its last state before a deletion, the deletion, and
/// its current state: handlers are level-triggered, so a slow one misses nothing that matters. A
/// fast one sees every delta.
pub const INTERMEDIATE_MAX: usize = 4_096;

type Transform<T> = Box<dyn Fn(Arc<T>) -> Arc<T> + Send + Sync>;

/// A queue of the changes of objects, in the order in which each object was first changed since it
/// was last popped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use watchet_client::{Delta, DeltaFifo};
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
    /// Notified when there may be something to pop, or when the queue is closed.
    notify: Notify,
    known_objects: Option<Arc<ThreadSafeStore<T>>>,
    transform: Option<Transform<T>>,
    lists_as_sync: bool,
}

struct State<T> {
    items: HashMap<ObjectKey, Deltas<T>, RandomState>,
    /// The keys of `items`, in the order of their first delta.
    queue: VecDeque<ObjectKey>,
    /// Whether there was a list, or a change before any list.
    populated: bool,
    /// The number of items of the first list that are not popped yet.
    initial: usize,
    /// The number of deltas beyond the first of each key.
    intermediate: usize,
    closed: bool,
    /// A buffer to format keys, so that looking up a queued key does not allocate.
    key_buffer: String,
}

/// The error of the function passed to [`DeltaFifo::pop`] to process the deltas again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("to be processed again")]
pub struct Requeue;

/// Why [`DeltaFifo::pop`] returned nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PopError {
    /// The queue is closed and empty.
    #[error("DeltaFifo: manually closed")]
    Closed,
    /// The deltas were requeued.
    #[error("the deltas were requeued")]
    Requeued,
}

impl<T: KubeObject> State<T> {
    /// Formats the key of `object` into the buffer.
    fn format_key(&mut self, object: &T) {
        let (namespace, name) = key::names(object);
        self.key_buffer.clear();
        if let Some(namespace) = namespace {
            self.key_buffer.push_str(namespace);
            self.key_buffer.push('/');
        }
        self.key_buffer.push_str(name);
    }

    /// Queues a delta of the object whose key is in the buffer.
    fn queue(&mut self, delta: Delta<T>) {
        match self.items.get_mut(&*self.key_buffer) {
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
                let key = ObjectKey::from(&*self.key_buffer);
                let initial = !self.populated;
                self.initial += usize::from(initial);
                self.queue.push_back(key.clone());
                self.items
                    .insert(key.clone(), Deltas::new(key, initial, delta));
            }
        }
        assert_eq!(self.queue.len(), self.items.len(), "a key is queued once");
    }

    /// Queues a tombstone: the deletion of an object that the watch missed.
    fn queue_tombstone(&mut self, key: &ObjectKey, object: Arc<T>) {
        self.key_buffer.clear();
        self.key_buffer.push_str(key.as_str());
        let key = key.clone();
        let tombstone = DeletedFinalStateUnknown { key, object };
        self.queue(Delta::Deleted(Deleted::Unknown(tombstone)));
    }
}

impl<T: KubeObject> DeltaFifo<T> {
    /// Creates an empty queue without a known store.
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State {
                items: HashMap::default(),
                queue: VecDeque::new(),
                populated: false,
                initial: 0,
                intermediate: 0,
                closed: false,
                key_buffer: String::new(),
            }),
            notify: Notify::new(),
            known_objects: None,
            transform: None,
            lists_as_sync: false,
        }
    }

    /// Sets the store that the consumer maintains: objects in it that a list does not contain are
    /// deleted, and a resync covers its objects.
    #[must_use]
    pub fn with_known_objects(mut self, store: Arc<ThreadSafeStore<T>>) -> Self {
        self.known_objects = Some(store);
        self
    }

    /// Sets a function that changes each object once before it is queued, e.g. to drop
    /// `metadata.managedFields`. It must not change the name or the namespace.
    #[must_use]
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

    /// Queues the objects of a list as [`Delta::Sync`] instead of [`Delta::Replaced`].
    #[must_use]
    pub fn with_lists_as_sync(mut self) -> Self {
        self.lists_as_sync = true;
        self
    }

    /// Queues an added object.
    pub fn add(&self, object: Arc<T>) {
        self.queue_all([self.delta(Change::Added(object))]);
    }

    /// Queues an updated object.
    pub fn update(&self, object: Arc<T>) {
        self.queue_all([self.delta(Change::Modified(object))]);
    }

    /// Queues a deleted object. Ignored if the object is neither queued nor known.
    pub fn delete(&self, object: Arc<T>) {
        self.queue_all([self.delta(Change::Deleted(object))]);
    }

    /// Returns the delta of a change. Must not be called under the lock: the transform may be slow.
    fn delta(&self, change: Change<T>) -> Delta<T> {
        match change {
            Change::Added(object) => Delta::Added(self.transformed(object)),
            Change::Modified(object) => Delta::Updated(self.transformed(object)),
            Change::Deleted(object) => Delta::Deleted(Deleted::Observed(self.transformed(object))),
        }
    }

    /// Queues the changes of a batch. A batch without changes, which is a bookmark, does nothing.
    pub fn apply(&self, batch: ChangeBatch<T>) {
        let changes = batch.changes.into_iter();
        let deltas: Vec<_> = changes.map(|change| self.delta(change)).collect();
        if !deltas.is_empty() {
            self.queue_all(deltas);
        }
    }

    fn queue_all(&self, deltas: impl IntoIterator<Item = Delta<T>>) {
        let mut state = self.state.lock();
        for delta in deltas {
            state.populated = true;
            state.format_key(delta.object());
            let is_deletion = matches!(delta, Delta::Deleted(_));
            if !is_deletion || self.has(&state) {
                state.queue(delta);
            }
        }
        drop(state);
        self.notify.notify_waiters();
    }

    /// Returns true if the object whose key is in the buffer is queued or known.
    fn has(&self, state: &State<T>) -> bool {
        let known = |store: &Arc<ThreadSafeStore<T>>| store.get_by_key(&state.key_buffer).is_some();
        state.items.contains_key(&*state.key_buffer)
            || self.known_objects.as_ref().is_some_and(known)
    }

    fn transformed(&self, object: Arc<T>) -> Arc<T> {
        match &self.transform {
            Some(transform) => transform(object),
            None => object,
        }
    }

    /// Replaces the collection by exactly `objects`: queues each of them, and the deletion of every
    /// other object that is queued or known.
    pub fn replace(&self, objects: Vec<Arc<T>>) {
        let objects = objects.into_iter().map(|object| self.transformed(object));
        // Before the lock: the transform may be slow.
        let objects: Vec<_> = objects.collect();
        let mut state = self.state.lock();
        let waiting: Vec<ObjectKey> = state.queue.iter().cloned().collect();
        let mut listed: HashSet<ObjectKey, RandomState> = HashSet::default();
        for object in objects {
            state.format_key(&object);
            if !waiting.is_empty() {
                listed.insert(ObjectKey::from(&*state.key_buffer));
            }
            state.queue(match self.lists_as_sync {
                true => Delta::Sync(object),
                false => Delta::Replaced(object),
            });
        }
        for key in waiting.iter().filter(|key| !listed.contains(*key)) {
            let last = state.items[key].newest().object().clone();
            state.queue_tombstone(key, last);
        }
        if let Some(known) = &self.known_objects {
            // A queued object is in the list, or its deletion was just queued.
            for (key, object) in known.list().entries() {
                if !state.items.contains_key(key) {
                    state.queue_tombstone(key, object.clone());
                }
            }
        }
        state.populated = true;
        drop(state);
        self.notify.notify_waiters();
    }

    /// Queues a [`Delta::Sync`] for each known object that is not queued.
    pub fn resync(&self) {
        let Some(known) = &self.known_objects else {
            return;
        };
        let mut state = self.state.lock();
        for (key, object) in known.list().entries() {
            if !state.items.contains_key(key) {
                state.key_buffer.clear();
                state.key_buffer.push_str(key.as_str());
                state.queue(Delta::Sync(object.clone()));
            }
        }
        drop(state);
        self.notify.notify_waiters();
    }

    /// Waits for a queued object and calls `process` with its deltas and whether they are part of
    /// the first list. The queue is locked meanwhile, so that `process` can update a store
    /// consistently; it must be quick and must not call the queue. If it fails, the deltas are
    /// requeued at the end. If it panics, they remain. Cancel safe.
    ///
    /// # Errors
    /// [`PopError::Closed`] once the queue is closed and empty; [`PopError::Requeued`] if `process`
    /// failed.
    pub async fn pop<R>(
        &self,
        process: impl FnOnce(&Deltas<T>, bool) -> Result<R, Requeue>,
    ) -> Result<R, PopError> {
        loop {
            // Registered before the check, so that no notification is missed.
            let notify = self.notify.notified();
            {
                let mut state = self.state.lock();
                if !state.queue.is_empty() {
                    return state.pop(process);
                }
                if state.closed {
                    return Err(PopError::Closed);
                }
            }
            notify.await;
        }
    }

    /// Returns true if the whole first list was popped, or a change came before any list.
    pub fn has_synced(&self) -> bool {
        self.state.lock().has_synced()
    }

    /// Returns the number of queued objects.
    pub fn len(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Returns true if no object is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the queue and wakes all waiting pops: queued objects can still be popped.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.notify.notify_waiters();
    }

    /// Returns true if the queue was closed.
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
        let key = self.queue.front().expect("the queue is not empty");
        let deltas = self.items.get(key).expect("a queued key has deltas");
        let processed = process(deltas, initial);
        let key = self.queue.pop_front().expect("the queue is not empty");
        let Ok(result) = processed else {
            self.queue.push_back(key);
            return Err(PopError::Requeued);
        };
        let popped = self.items.remove(&key).expect("a queued key has deltas");
        self.intermediate -= popped.len() - 1;
        self.initial -= usize::from(popped.initial);
        assert_eq!(self.queue.len(), self.items.len(), "a key is queued once");
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

/// A [`DeltaFifo`] as the store of a Reflector; the consumer shares the queue.
#[derive(Debug)]
pub struct DeltaFifoStore<T>(pub Arc<DeltaFifo<T>>);

impl<T: KubeObject> ReflectorStore for DeltaFifoStore<T> {
    type Object = T;

    async fn replace(&mut self, objects: Vec<Arc<T>>, _at: ResourceVersion) {
        self.0.replace(objects);
    }

    async fn watching(&mut self) {}

    async fn apply(&mut self, batch: ChangeBatch<T>) {
        self.0.apply(batch);
    }

    async fn failed(&mut self, error: &SourceError) {
        tracing::warn!(%error, "list or watch failed");
    }
}

#[cfg(test)]
mod tests;
