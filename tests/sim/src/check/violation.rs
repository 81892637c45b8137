//! The violations that a check finds, each with the operations and events that prove it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where in a history a state was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Source {
    /// The state before the history.
    Initial,
    /// The operation with this id.
    Operation(u64),
    /// An event of a watch.
    Event {
        /// The id of the watch.
        watch: u64,
        /// The index of the event.
        index: usize,
    },
    /// A watch as a whole, with this id.
    Watch(u64),
    /// A notification of an informer.
    Notification {
        /// The id of the informer.
        informer: u64,
        /// The index of the notification.
        index: usize,
    },
    /// The store of the informer with this id.
    Store(u64),
    /// The final state.
    Final,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Initial => f.write_str("the initial state"),
            Self::Operation(id) => write!(f, "operation {id}"),
            Self::Event { watch, index } => write!(f, "event {index} of watch {watch}"),
            Self::Watch(id) => write!(f, "watch {id}"),
            Self::Notification { informer, index } => {
                write!(f, "notification {index} of informer {informer}")
            }
            Self::Store(id) => write!(f, "the store of informer {id}"),
            Self::Final => f.write_str("the final state"),
        }
    }
}

/// A change of a key at a revision.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChangeId {
    /// The key.
    pub key: String,
    /// The revision.
    pub revision: u64,
}

impl fmt::Display for ChangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at revision {}", self.key, self.revision)
    }
}

/// A violated guarantee. The module documentation of [`super`] has the guarantees.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[allow(missing_docs)] // The messages describe the fields.
pub enum Violation {
    #[error("Malformed: {at} cannot be recorded like this: {reason}. Correct the recorder")]
    Malformed { at: Source, reason: String },

    #[error("RevisionReused: {first} and {second} are different writes with revision {revision}")]
    RevisionReused {
        revision: u64,
        first: Source,
        second: Source,
    },

    #[error(
        "RevisionWentBack: {later} began after {earlier} was acknowledged, but has a lower revision"
    )]
    RevisionWentBack { earlier: Source, later: Source },

    #[error("FutureRevision: {at} shows revision {revision}, but {write} began only later")]
    FutureRevision {
        at: Source,
        revision: u64,
        write: Source,
    },

    #[error("NeverWritten: {at} shows {change}, which no write can have produced")]
    NeverWritten { at: Source, change: ChangeId },

    #[error("FailedWriteHappened: {at} shows {change}, but its write, {write}, failed")]
    FailedWriteHappened {
        at: Source,
        change: ChangeId,
        write: Source,
    },

    #[error("WrongContent: {at} shows other content of {change} than {other}")]
    WrongContent {
        at: Source,
        change: ChangeId,
        other: Source,
    },

    #[error("LostWrite: {write} was acknowledged with {change}, but {at} does not have it")]
    LostWrite {
        write: Source,
        change: ChangeId,
        at: Source,
    },

    #[error("PreconditionIgnored: {write} succeeded, but its precondition did not hold: {reason}")]
    PreconditionIgnored { write: Source, reason: String },

    #[error("WrongState: {at} is not the state at revision {revision}: {reason}")]
    WrongState {
        at: Source,
        revision: u64,
        reason: String,
    },

    #[error("WrongRevision: {at} returned revision {revision}, but {reason}")]
    WrongRevision {
        at: Source,
        revision: u64,
        reason: String,
    },

    #[error("TooOld: {at} requested revision {minimum} or later, but shows an older state")]
    TooOld { at: Source, minimum: u64 },

    #[error("PageSkew: {first} and {second} are pages of one list, but of different revisions")]
    PageSkew { first: Source, second: Source },

    #[error("SessionWentBack: {later} shows an older state of the same server than {earlier}")]
    SessionWentBack { earlier: Source, later: Source },

    #[error("StaleRead: {read} shows a state that is older than {newer}, which precedes it")]
    StaleRead { read: Source, newer: Source },

    #[error("UnjustifiedFailure: {operation} failed, but {reason}")]
    UnjustifiedFailure { operation: Source, reason: String },

    #[error("UnjustifiedExpiry: {at} is a 410, but the revision was not too old")]
    UnjustifiedExpiry { at: Source },

    #[error("NotLinearizable: no order of the operations on {key} explains {operation}")]
    NotLinearizable { key: String, operation: Source },

    #[error(
        "Inconclusive: the search for an order of the operations on {key} exceeded {steps} steps. Record a watch of all keys, which \
         decides the writes with unknown outcomes"
    )]
    Inconclusive { key: String, steps: u64 },

    #[error("Ordered: {event} has a lower revision than {before}, which was sent before it")]
    Ordered { event: Source, before: Source },

    #[error("Unique: {event} repeats {first}")]
    Unique { event: Source, first: Source },

    #[error("Atomic: {watch} shows a part of the changes of one revision, without {missing}")]
    Atomic { watch: Source, missing: ChangeId },

    #[error("Reliable: {watch} misses the event of {missing}, but {after} is later")]
    Reliable {
        watch: Source,
        missing: ChangeId,
        after: Source,
    },

    #[error("ReliableDelete: {watch} misses the DELETED event of {key}: {delete} was acknowledged")]
    ReliableDelete {
        watch: Source,
        key: String,
        delete: Source,
    },

    #[error("Resumable: {event} is not the first after revision {start}: {expected}")]
    Resumable {
        event: Source,
        start: u64,
        expected: String,
    },

    #[error("Bookmarkable: {bookmark} and {event} contradict each other: {reason}")]
    Bookmarkable {
        bookmark: Source,
        event: Source,
        reason: String,
    },

    #[error("Filter: {event} is an event of {change}, which the selector of the watch excludes")]
    Filter { event: Source, change: ChangeId },

    #[error("PrevKV: {event} is the deletion of {change}, but has not the content before it")]
    PrevKV { event: Source, change: ChangeId },

    #[error("IsCreate: {event} is {found}, but must be {expected}")]
    IsCreate {
        event: Source,
        found: String,
        expected: String,
    },

    #[error("EventType: {event} is {found}, but must be {expected}")]
    EventType {
        event: Source,
        found: String,
        expected: String,
    },

    #[error("InitialState: the initial events of {watch} are the state at no revision: {reason}")]
    InitialState { watch: Source, reason: String },

    #[error("EventAfterError: {event} follows an ERROR event")]
    EventAfterError { event: Source },

    #[error("InformerWentBack: {notification} is older than {before}")]
    InformerWentBack {
        notification: Source,
        before: Source,
    },

    #[error("InformerType: {notification} is {found}, but the handler {reason}")]
    InformerType {
        notification: Source,
        found: String,
        reason: String,
    },

    #[error("InformerDiverged: {store} differs from the final state: {reason}")]
    InformerDiverged { store: Source, reason: String },
}

impl Violation {
    /// Returns the name of the property.
    pub fn name(&self) -> String {
        let text = self.to_string();
        let (name, _) = text.split_once(':').unwrap_or((&text, ""));
        name.to_owned()
    }

    /// Returns true if both are of the same property.
    pub fn is_same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Returns the operations, events and states that the violation names.
    pub fn sources(&self) -> Vec<Source> {
        match self {
            Self::Malformed { at, .. }
            | Self::NeverWritten { at, .. }
            | Self::WrongState { at, .. }
            | Self::WrongRevision { at, .. }
            | Self::TooOld { at, .. }
            | Self::UnjustifiedExpiry { at } => vec![*at],
            Self::RevisionReused { first, second, .. } | Self::PageSkew { first, second } => {
                vec![*first, *second]
            }
            Self::RevisionWentBack { earlier, later }
            | Self::SessionWentBack { earlier, later } => vec![*earlier, *later],
            Self::FutureRevision { at, write, .. }
            | Self::FailedWriteHappened { at, write, .. }
            | Self::LostWrite { at, write, .. } => vec![*at, *write],
            Self::WrongContent { at, other, .. } => vec![*at, *other],
            Self::PreconditionIgnored { write, .. } => vec![*write],
            Self::StaleRead { read, newer } => vec![*read, *newer],
            Self::UnjustifiedFailure { operation, .. }
            | Self::NotLinearizable { operation, .. } => vec![*operation],
            Self::Inconclusive { .. } => Vec::new(),
            Self::Ordered { event, before } => vec![*event, *before],
            Self::Unique { event, first } => vec![*event, *first],
            Self::Atomic { watch, .. } | Self::InitialState { watch, .. } => vec![*watch],
            Self::Reliable { watch, after, .. } => vec![*watch, *after],
            Self::ReliableDelete { watch, delete, .. } => vec![*watch, *delete],
            Self::Bookmarkable {
                bookmark, event, ..
            } => vec![*bookmark, *event],
            Self::Resumable { event, .. }
            | Self::Filter { event, .. }
            | Self::PrevKV { event, .. }
            | Self::IsCreate { event, .. }
            | Self::EventType { event, .. }
            | Self::EventAfterError { event } => vec![*event],
            Self::InformerWentBack {
                notification,
                before,
            } => vec![*notification, *before],
            Self::InformerType { notification, .. } => vec![*notification],
            Self::InformerDiverged { store, .. } => vec![*store],
        }
    }
}
