//! `Mode` and `Delivery`: whether a request waits until its events are written.

use futures_util::future::{BoxFuture, join_all};

/// When events are written, as upstream's modes of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By a background task, together with other events: requests never wait. Events are dropped while too many wait.
    Batch,
    /// Before the request continues.
    Blocking,
    /// As [`Self::Blocking`]; a request is rejected if the event of its arrival cannot be written.
    BlockingStrict,
}

/// Writes an event to the backends that block. The request continues when it is complete.
#[must_use = "a backend that blocks writes nothing otherwise"]
pub struct Delivery(Vec<BoxFuture<'static, bool>>);

/// The error of an event that a backend of mode [`Mode::BlockingStrict`] has not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("failed to store audit event")]
pub struct NotWritten;

impl Delivery {
    /// Creates the delivery of these writes; `None` if there are none. A write returns false if the request is to be
    /// rejected.
    pub(crate) fn new(writes: Vec<BoxFuture<'static, bool>>) -> Option<Self> {
        (!writes.is_empty()).then_some(Self(writes))
    }

    /// Waits until the event is written, or cannot be.
    ///
    /// # Errors
    /// [`NotWritten`]
    pub async fn complete(self) -> Result<(), NotWritten> {
        let written = join_all(self.0).await;
        match written.into_iter().all(|written| written) {
            true => Ok(()),
            false => Err(NotWritten),
        }
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Delivery").field(&self.0.len()).finish()
    }
}
