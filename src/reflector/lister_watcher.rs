//! `ListerWatcher`: where a Reflector's objects come from. The server's is storage, the informer's
//! is HTTP; both tell their failures in the same few words.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;

use crate::api::ResourceVersion;

/// A whole collection as it was at one version.
#[derive(Debug, Clone)]
pub struct Listing<T> {
    /// The objects, in key order.
    pub objects: Vec<Arc<T>>,
    /// The version of the collection: at least that of every object.
    pub at: ResourceVersion,
}

/// One change of a collection. The object is its new state; for `Deleted` its last one, at the
/// version of the deletion.
#[derive(Debug, Clone)]
pub enum Change<T> {
    /// It is new.
    Added(Arc<T>),
    /// It changed.
    Modified(Arc<T>),
    /// It is gone.
    Deleted(Arc<T>),
}

/// Changes in order, and how far they take the collection. No changes: only the version moved (a
/// bookmark).
#[derive(Debug, Clone)]
pub struct ChangeBatch<T> {
    /// The changes.
    pub changes: Vec<Change<T>>,
    /// Every change up to and including this version has been told.
    pub at: ResourceVersion,
}

/// Why a source could not list or watch.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SourceError {
    /// The version asked for is no longer in the source's history: list again.
    #[error("resource version {at} is too old: {detail}")]
    Expired {
        /// The version.
        at: ResourceVersion,
        /// The source's words.
        detail: String,
    },
    /// The source cannot be reached or wants to be left alone for a while: try the same again.
    #[error("source unavailable: {detail}")]
    Unavailable {
        /// The source's words.
        detail: String,
        /// How long it wants to be left alone, if it said.
        retry_after: Option<Duration>,
    },
    /// What it sent cannot be understood: list again, after a pause, and again until that can be.
    #[error("source sent what cannot be read: {detail}")]
    Undecodable {
        /// What.
        detail: String,
    },
}

/// The stream of an open watch.
pub type ChangeStream<T> = Pin<Box<dyn Stream<Item = Result<ChangeBatch<T>, SourceError>> + Send>>;

/// A source of one collection.
pub trait ListerWatcher: Send + 'static {
    /// What the collection holds.
    type Object: Send + Sync + 'static;

    /// The whole collection, now.
    fn list(&mut self) -> impl Future<Output = Result<Listing<Self::Object>, SourceError>> + Send;

    /// The changes after `after`. The stream ends without an error when the source ends it in good
    /// order; the next watch goes on from the last version.
    fn watch(
        &mut self,
        after: ResourceVersion,
    ) -> impl Future<Output = Result<ChangeStream<Self::Object>, SourceError>> + Send;
}
