//! A body that drops a guard (an in-flight permit, a counter) when it has been sent or dropped.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

/// The guards of a response that upgrades the connection, in its extensions. Its body is empty: the task that uses the connection
/// has a clone, so that they are dropped when the task ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct UpgradeGuards(Arc<Mutex<Vec<Box<dyn Any + Send>>>>);

/// Moves `guard` into `response`. It is dropped when the body has been sent or dropped, or when the upgraded connection ends.
pub(crate) fn hold_until_end<T: Send + Unpin + 'static>(response: Response, guard: T) -> Response {
    match response.extensions().get::<UpgradeGuards>() {
        Some(guards) => guards.0.lock().push(Box::new(guard)),
        None => return response.map(|body| GuardedBody::wrap(body, guard)),
    }
    response
}

/// A body with a guard that lives as long as the body.
#[derive(Debug)]
pub struct GuardedBody<T> {
    inner: Body,
    _guard: T,
}

impl<T: Send + Unpin + 'static> GuardedBody<T> {
    /// Wraps `inner` so that `guard` is dropped with it.
    pub fn wrap(inner: Body, guard: T) -> Body {
        Body::new(Self {
            inner,
            _guard: guard,
        })
    }
}

impl<T: Unpin> http_body::Body for GuardedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
