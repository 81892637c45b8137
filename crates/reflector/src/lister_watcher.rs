//! `ListerWatcher`: the source of a Reflector. On the server it is storage, in the informer HTTP.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;

use watchet_api::ResourceVersion;

/// A collection at one version.
#[derive(Debug, Clone)]
pub struct Listing<T> {
    /// The objects, in key order.
    pub objects: Vec<Arc<T>>,
    /// The version of the collection: at least that of every object.
    pub at: ResourceVersion,
}

/// A change of a collection. The object is its new state; for `Deleted` the last one, at the
/// version of the deletion.
#[derive(Debug, Clone)]
pub enum Change<T> {
    /// The object was created.
    Added(Arc<T>),
    /// The object changed.
    Modified(Arc<T>),
    /// The object was deleted.
    Deleted(Arc<T>),
}

/// Changes in order, and the version that they lead to. A batch without changes only advances the
/// version (a bookmark).
#[derive(Debug, Clone)]
pub struct ChangeBatch<T> {
    /// The changes.
    pub changes: Vec<Change<T>>,
    /// All changes up to and including this version have been sent.
    pub at: ResourceVersion,
}

/// The error of a list or watch.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SourceError {
    /// The requested version is no longer in the source's history: list again.
    #[error("resource version {at} is too old: {detail}")]
    Expired {
        /// The version.
        at: ResourceVersion,
        /// The source's message.
        detail: String,
    },
    /// The source cannot be reached or asks for a delay: retry.
    #[error("source unavailable: {detail}")]
    Unavailable {
        /// The source's message.
        detail: String,
        /// The delay that the source asks for, if any.
        retry_after: Option<Duration>,
    },
    /// The source sent data that cannot be decoded: list again, with pauses, until that succeeds.
    #[error("source sent undecodable data: {detail}")]
    Undecodable {
        /// The decoding error.
        detail: String,
    },
}

/// The stream of an open watch.
pub type ChangeStream<T> = Pin<Box<dyn Stream<Item = Result<ChangeBatch<T>, SourceError>> + Send>>;

/// The source of a collection.
pub trait ListerWatcher: Send + 'static {
    /// The type of the objects.
    type Object: Send + Sync + 'static;

    /// Lists the collection.
    fn list(&mut self) -> impl Future<Output = Result<Listing<Self::Object>, SourceError>> + Send;

    /// Watches the changes after `after`. The stream ends without an error if the source ends it
    /// regularly; the next watch continues from the last version.
    fn watch(
        &mut self,
        after: ResourceVersion,
    ) -> impl Future<Output = Result<ChangeStream<Self::Object>, SourceError>> + Send;

    /// Waits until the source is available again, if it was not at some time since the last call of
    /// another method began. The Reflector does not wait longer than that before a retry. Never
    /// returns if the source cannot know.
    fn recovered(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}
