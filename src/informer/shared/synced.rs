//! Whether a cache, or a handler, knows all that was there when it began: who says so, and who waits
//! for it. What has to happen before is theirs to know.

use tokio::sync::watch;

/// How far one is. Neither is ever taken back.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    synced: bool,
    ended: bool,
}

/// Says how far one is.
#[derive(Debug, Default)]
pub(in crate::informer) struct Progress(watch::Sender<State>);

impl Progress {
    /// It knows all that was there when it began.
    pub(in crate::informer) fn sync(&self) {
        self.0
            .send_if_modified(|state| !std::mem::replace(&mut state.synced, true));
    }

    /// It will hear of nothing more.
    pub(in crate::informer) fn end(&self) {
        self.0
            .send_if_modified(|state| !std::mem::replace(&mut state.ended, true));
    }

    pub(in crate::informer) fn has_synced(&self) -> bool {
        self.0.borrow().synced
    }

    pub(in crate::informer) fn told(&self) -> InformerSynced {
        InformerSynced(self.0.subscribe())
    }
}

/// Whether something knows all that was there when it began: an informer's indexer
/// ([`SharedInformer::synced`](super::SharedInformer::synced)), or a handler that was told of it
/// ([`HandlerRegistration::synced`](super::HandlerRegistration::synced)).
#[derive(Debug, Clone)]
pub struct InformerSynced(watch::Receiver<State>);

/// It was stopped, or removed, before it knew all that there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped before it was synced")]
pub struct NeverSynced;

impl InformerSynced {
    /// Whether it does. Once it does it stays so.
    pub fn has_synced(&self) -> bool {
        self.0.borrow().synced
    }

    /// Waits until it does. Cancel safe.
    ///
    /// # Errors
    /// [`NeverSynced`] when it ends before.
    pub async fn wait(mut self) -> Result<(), NeverSynced> {
        let reached = self.0.wait_for(|state| state.synced || state.ended).await;
        match reached {
            Ok(state) if state.synced => Ok(()),
            Ok(_) | Err(_) => Err(NeverSynced),
        }
    }
}

/// Waits until all of them know what there was. Cancel safe.
///
/// # Errors
/// [`NeverSynced`] when one of them ends before.
pub async fn wait_for_cache_sync(
    all: impl IntoIterator<Item = InformerSynced>,
) -> Result<(), NeverSynced> {
    for one in all {
        one.wait().await?;
    }
    Ok(())
}
