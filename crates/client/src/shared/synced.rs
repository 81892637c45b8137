//! Tracks whether an informer or a handler has synced, i.e. has processed all objects that existed
//! at its start.

use tokio::sync::watch;

/// The progress; flags are never reset.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    synced: bool,
    ended: bool,
}

/// Sets the progress.
#[derive(Debug, Default)]
pub(crate) struct Progress(watch::Sender<State>);

impl Progress {
    /// Records that it has synced.
    pub(crate) fn sync(&self) {
        self.0
            .send_if_modified(|state| !std::mem::replace(&mut state.synced, true));
    }

    /// Records that it has ended.
    pub(crate) fn end(&self) {
        self.0
            .send_if_modified(|state| !std::mem::replace(&mut state.ended, true));
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.0.borrow().synced
    }

    pub(crate) fn subscribe(&self) -> InformerSynced {
        InformerSynced(self.0.subscribe())
    }
}

/// Observes whether an informer's indexer
/// ([`SharedInformer::synced`](super::SharedInformer::synced)) or a handler
/// ([`HandlerRegistration::synced`](super::HandlerRegistration::synced)) has synced.
#[derive(Debug, Clone)]
pub struct InformerSynced(watch::Receiver<State>);

/// It was stopped or removed before it had synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped before it was synced")]
pub struct NeverSynced;

impl InformerSynced {
    /// Returns true if it has synced. It remains so.
    pub fn has_synced(&self) -> bool {
        self.0.borrow().synced
    }

    /// Waits until it has synced. Cancel safe.
    ///
    /// # Errors
    /// [`NeverSynced`] if it ends before.
    pub async fn wait(mut self) -> Result<(), NeverSynced> {
        let reached = self.0.wait_for(|state| state.synced || state.ended).await;
        match reached {
            Ok(state) if state.synced => Ok(()),
            Ok(_) | Err(_) => Err(NeverSynced),
        }
    }
}

/// Waits until all of them have synced. Cancel safe.
///
/// # Errors
/// [`NeverSynced`] if one of them ends before.
pub async fn wait_for_cache_sync(
    all: impl IntoIterator<Item = InformerSynced>,
) -> Result<(), NeverSynced> {
    for one in all {
        one.wait().await?;
    }
    Ok(())
}
