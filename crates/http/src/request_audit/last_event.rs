//! `LastEvent`: records the last event of a request exactly once.

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use super::audited_request::AuditedRequest;

/// Records the last event of its request when dropped, unless it was recorded before.
#[derive(Debug)]
pub(super) struct LastEvent(Option<Box<AuditedRequest>>);

impl LastEvent {
    pub(super) fn of(request: AuditedRequest) -> Self {
        Self(Some(Box::new(request)))
    }

    /// Returns the request; `None` after the last event.
    pub(super) fn request(&mut self) -> Option<&mut AuditedRequest> {
        self.0.as_deref_mut()
    }

    /// Omits the last event.
    pub(super) fn cancel(&mut self) {
        self.0 = None;
    }

    /// Records the event, or returns the future that does. Only the first call has an effect.
    pub(super) fn finish(&mut self) -> Option<BoxFuture<'static, ()>> {
        self.0.take()?.finish()
    }
}

impl Drop for LastEvent {
    fn drop(&mut self) {
        let Some(request) = self.0.take() else {
            return;
        };
        let tasks = request.tasks.clone();
        let Some(recorded) = request.finish() else {
            return;
        };
        match Handle::try_current() {
            Ok(_) => drop(tasks.spawn("audit-event", recorded)),
            Err(error) => tracing::error!(%error, "an audit event was lost at the shutdown"),
        }
    }
}
