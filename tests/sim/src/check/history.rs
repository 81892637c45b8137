//! What a recorder writes down: the operations of the clients, the events of their watches, and what their informers notified.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Labels of an object, or the labels that a selector requires.
pub type Labels = BTreeMap<String, String>;

/// The part of an object that a write determines.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Content {
    /// The identity of the content. The check is strongest if each write of a history has its own: then a state proves which
    /// write produced it.
    pub value: u64,
    /// The labels that selectors match.
    pub labels: Labels,
}

/// An object as a response or an event shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Object {
    /// The resource and the name, as in `pods/default/a`. The part before the first `/` is the resource.
    pub key: String,
    /// The resourceVersion: that of the write which produced this state; in a DELETED event, that of the change.
    pub revision: u64,
    /// The content.
    pub content: Content,
}

/// All objects at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The resourceVersion of the list.
    pub revision: u64,
    /// The objects, in any order.
    pub objects: Vec<Object>,
}

/// Selects objects for a list, a watch or an informer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Selector {
    /// If it is empty or ends with `/`, the keys that begin with it; otherwise exactly this key.
    pub prefix: String,
    /// The labels that an object must have.
    pub labels: Labels,
}

impl Selector {
    /// Returns the selector of all keys that begin with `prefix`, whatever their labels are.
    pub fn prefix(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            labels: Labels::new(),
        }
    }

    /// Returns true if the key is in the scope.
    pub fn has_key(&self, key: &str) -> bool {
        if self.prefix.is_empty() || self.prefix.ends_with('/') {
            key.starts_with(&self.prefix)
        } else {
            key == self.prefix
        }
    }

    /// Returns true if an object with this key and content is selected.
    pub fn matches(&self, key: &str, content: &Content) -> bool {
        let has = |(name, value)| content.labels.get(name) == Some(value);
        self.has_key(key) && self.labels.iter().all(has)
    }
}

/// How new the state must be that a read returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadVersion {
    /// No resourceVersion: not older than any write that was acknowledged before the read began.
    Consistent,
    /// `resourceVersion=0`: any state that existed.
    Any,
    /// At least this resourceVersion.
    NotOlderThan(u64),
    /// Exactly this resourceVersion.
    Exact(u64),
}

/// A change in a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The key.
    pub key: String,
    /// The new content, whether the key existed or not; none deletes it, if it exists.
    pub content: Option<Content>,
}

/// What a client requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Creates an object that does not exist.
    Create {
        /// The key.
        key: String,
        /// The new content.
        content: Content,
    },
    /// Replaces an object that exists.
    Update {
        /// The key.
        key: String,
        /// The new content. If it equals the present one, nothing is stored and the revision stays.
        content: Content,
        /// The resourceVersion that the object must have; none for an unconditional update.
        precondition: Option<u64>,
    },
    /// Deletes an object that exists.
    Delete {
        /// The key.
        key: String,
        /// The resourceVersion that the object must have.
        precondition: Option<u64>,
    },
    /// Several changes in one revision.
    Transaction {
        /// The changes, of different keys.
        changes: Vec<Change>,
    },
    /// Reads one object.
    Get {
        /// The key.
        key: String,
        /// How new the state must be.
        version: ReadVersion,
    },
    /// Reads the objects that a selector selects, or a page of them.
    List {
        /// Which objects.
        selector: Selector,
        /// How new the state must be; of a later page, that of the first one.
        version: ReadVersion,
        /// The maximum number of objects.
        limit: Option<u64>,
        /// The [`Operation::id`] of the previous page, if this page continues it.
        continues: Option<u64>,
    },
}

impl Request {
    /// Returns the keys that it writes.
    pub(super) fn keys(&self) -> Vec<&String> {
        match self {
            Self::Create { key, .. } | Self::Update { key, .. } | Self::Delete { key, .. } => {
                vec![key]
            }
            Self::Transaction { changes } => changes.iter().map(|change| &change.key).collect(),
            Self::Get { .. } | Self::List { .. } => Vec::new(),
        }
    }

    /// Returns the revision that the key must have for a write to succeed, or 0 if it must not exist; none if it does not matter.
    pub(super) fn required_revision(&self) -> Option<u64> {
        match self {
            Self::Create { .. } => Some(0),
            Self::Update { precondition, .. } | Self::Delete { precondition, .. } => *precondition,
            _ => None,
        }
    }
}

/// A page of a list, or all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The resourceVersion of the list.
    pub revision: u64,
    /// The objects.
    pub objects: Vec<Object>,
    /// True if the response had a continue token.
    pub has_more: bool,
    /// `remainingItemCount`.
    pub remaining: Option<u64>,
}

/// A failure that proves that a write did not happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// 404: the object did not exist at a moment of the request.
    NotFound,
    /// 409 AlreadyExists: the object existed at a moment of the request.
    AlreadyExists,
    /// 409 Conflict: the object did not have the revision of the precondition at a moment of the request.
    Conflict,
    /// 410 Expired.
    Expired {
        /// Whether the requested revision was so old that the server may have forgotten it. The recorder knows.
        is_legal: bool,
    },
    /// Any other response which proves that the request had no effect, as 429 or 504 with `Too large resource version`. It says
    /// nothing about the state.
    Rejected,
}

/// What a client learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// A create, update or transaction succeeded.
    Written {
        /// The resourceVersion in the response.
        revision: u64,
    },
    /// A delete succeeded.
    Deleted {
        /// The revision of the deletion, if the response has the object; none if it is a Status.
        revision: Option<u64>,
    },
    /// A get succeeded.
    Found(Object),
    /// A list succeeded.
    Listed(Page),
    /// The request had no effect.
    Failed(Failure),
    /// A timeout, a 5xx, a lost connection, or no response yet: the write may have happened, or may happen at any later time.
    Unknown,
}

/// A request and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The identity, unique in the history.
    pub id: u64,
    /// The client. Its operations may overlap.
    pub client: u32,
    /// The server.
    pub server: u32,
    /// When the client sent the request, in microseconds.
    pub call: u64,
    /// When the client received the outcome; none if it never did.
    pub returned: Option<u64>,
    /// The request.
    pub request: Request,
    /// The outcome. [`Outcome::Unknown`] if there is no [`Self::returned`].
    pub outcome: Outcome,
}

impl Operation {
    /// Returns true if the outcome is one of this kind of request.
    pub(super) fn fits(&self) -> bool {
        match (&self.request, &self.outcome) {
            (_, Outcome::Unknown | Outcome::Failed(_)) => true,
            (Request::Get { key, .. }, Outcome::Found(object)) => *key == object.key,
            (Request::Get { .. }, _) | (_, Outcome::Found(_)) => false,
            (Request::List { .. }, outcome) => matches!(outcome, Outcome::Listed(_)),
            (Request::Delete { .. }, outcome) => matches!(outcome, Outcome::Deleted { .. }),
            (_, outcome) => matches!(outcome, Outcome::Written { .. }),
        }
    }
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchStart {
    /// `resourceVersion=N` without initial events: with the first change after this revision.
    After(u64),
    /// With the state at a revision that satisfies this, as synthetic ADDED events.
    State(ReadVersion),
    /// `sendInitialEvents=false` without a revision, or with 0: with the changes after the revision that satisfies this, which the
    /// client does not learn.
    Now(ReadVersion),
}

/// What a watch received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// ADDED.
    Added(Object),
    /// MODIFIED.
    Modified(Object),
    /// DELETED: the object was deleted or ceased to match. It has its previous content and the revision of the change.
    Deleted(Object),
    /// BOOKMARK.
    Bookmark {
        /// Its resourceVersion.
        revision: u64,
        /// Whether it has the annotation `k8s.io/initial-events-end`.
        ends_initial_events: bool,
    },
    /// ERROR. No event may follow it.
    Error {
        /// The code of the Status.
        code: u16,
        /// Whether the requested revision was so old that a 410 is right. The recorder knows.
        is_legal: bool,
    },
}

impl EventKind {
    /// Returns the object of ADDED, MODIFIED and DELETED.
    pub fn object(&self) -> Option<&Object> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => Some(object),
            Self::Bookmark { .. } | Self::Error { .. } => None,
        }
    }

    /// Returns the revision, except of ERROR.
    pub fn revision(&self) -> Option<u64> {
        match self {
            Self::Bookmark { revision, .. } => Some(*revision),
            other => other.object().map(|object| object.revision),
        }
    }
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchEvent {
    /// When the client received it, in microseconds.
    pub time: u64,
    /// What it received.
    pub kind: EventKind,
}

/// One watch request and everything that it received, in the order of receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchLog {
    /// The identity, unique among the watches of the history.
    pub id: u64,
    /// The client.
    pub client: u32,
    /// The server.
    pub server: u32,
    /// When the client sent the request, in microseconds.
    pub opened: u64,
    /// Which objects.
    pub selector: Selector,
    /// Where it begins.
    pub start: WatchStart,
    /// The [`Self::id`] of the watch that the client resumes with this one.
    pub resumes: Option<u64>,
    /// The events.
    pub events: Vec<WatchEvent>,
    /// True if the watch was open when [`History::final_state`] was read, and the recorder waited for its events: then no event up
    /// to that revision may be missing.
    pub is_drained: bool,
}

/// What a handler of an informer is notified of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotificationKind {
    /// OnAdd.
    Added(Object),
    /// OnUpdate with the new object. The same object again is a resync.
    Updated(Object),
    /// OnDelete with the last state: either with the revision of the deletion and the content before it, or, in a
    /// `DeletedFinalStateUnknown`, with a state that existed.
    Deleted {
        /// The object.
        object: Object,
        /// Whether it is a `DeletedFinalStateUnknown`.
        is_final_state_unknown: bool,
    },
}

impl NotificationKind {
    /// Returns the object.
    pub fn object(&self) -> &Object {
        match self {
            Self::Added(object) | Self::Updated(object) | Self::Deleted { object, .. } => object,
        }
    }
}

/// A call of a handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// When, in microseconds.
    pub time: u64,
    /// What.
    pub kind: NotificationKind,
}

/// An informer: what a handler of it was notified of, and its store at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InformerLog {
    /// The identity, unique among the informers of the history.
    pub id: u64,
    /// The client.
    pub client: u32,
    /// Which objects.
    pub selector: Selector,
    /// The calls of a handler, in order.
    pub notifications: Vec<Notification>,
    /// The store at quiescence; none if the informer was stopped before.
    pub store: Option<Vec<Object>>,
}

/// A consistent list of everything at quiescence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalState {
    /// When the list began, in microseconds.
    pub call: u64,
    /// When it ended.
    pub returned: u64,
    /// The state.
    pub snapshot: Snapshot,
}

/// Everything that was recorded. No other client writes the recorded keys, except before [`Self::initial`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct History {
    /// The state before the first operation.
    pub initial: Snapshot,
    /// The operations, in any order.
    pub operations: Vec<Operation>,
    /// The watches, in any order.
    pub watches: Vec<WatchLog>,
    /// The informers, in any order.
    pub informers: Vec<InformerLog>,
    /// The state at the end, if it was read.
    pub final_state: Option<FinalState>,
    /// True if storage cannot report progress (etcd before 3.5.13). While a cache is behind, storage then answers the reads that
    /// must not be older than a version.
    pub is_without_progress: bool,
}
