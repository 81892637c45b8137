//! A body that drops a guard (an in-flight permit, a counter) when it has been sent or dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

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
