//! The results of the consistency checks. After a failed check, storage answers exact lists until a check succeeds, and the
//! Reflector lists again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::{StreamExt as _, stream};
use tokio::sync::Notify;

use watchet_api::ResourceVersion;
use watchet_reflector::{ChangeStream, ListerWatcher, Listing, SourceError};

/// The results of the checks, for the other parts of the Cacher.
#[derive(Debug, Default)]
pub(super) struct Consistency {
    pub(super) success: AtomicU64,
    pub(super) failure: AtomicU64,
    pub(super) error: AtomicU64,
    /// True if the last completed check failed.
    pub(super) broken: AtomicBool,
    pub(super) relist: Arc<Notify>,
}

impl Consistency {
    /// Returns true if the cache may answer reads at past versions.
    pub(super) fn trusts_history(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    /// Wraps a source so that a failed check makes its Reflector list again.
    pub(super) fn wrap<S>(&self, source: S) -> Relistable<S> {
        Relistable {
            source,
            relist: self.relist.clone(),
        }
    }
}

/// A source whose watch returns an expiry error on request, so that its Reflector lists again.
#[derive(Debug)]
pub(super) struct Relistable<S> {
    source: S,
    relist: Arc<Notify>,
}

impl<S: ListerWatcher> ListerWatcher for Relistable<S> {
    type Object = S::Object;

    async fn list(&mut self) -> Result<Listing<S::Object>, SourceError> {
        self.source.list().await
    }

    async fn recovered(&mut self) {
        self.source.recovered().await;
    }

    async fn watch(
        &mut self,
        after: ResourceVersion,
    ) -> Result<ChangeStream<S::Object>, SourceError> {
        let batches = self.source.watch(after).await?;
        let relist = self.relist.clone();
        let expired = move || SourceError::Expired {
            at: after,
            detail: "the cache differs from storage".to_owned(),
        };
        Ok(Box::pin(stream::unfold(Some(batches), move |batches| {
            let relist = relist.clone();
            async move {
                let mut batches = batches?;
                // Biased: a wrong state must not receive further changes.
                tokio::select! {
                    biased;
                    () = relist.notified() => Some((Err(expired()), None)),
                    batch = batches.next() => batch.map(|batch| (batch, Some(batches))),
                }
            }
        })))
    }
}
