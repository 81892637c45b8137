//! A body that holds something until it has been sent or given up: a seat, a count. It passes on
//! what the body inside of it says and looks at nothing.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// A body and what lives as long as it.
#[derive(Debug)]
pub struct HeldBody<T> {
    inner: Body,
    _held: T,
}

impl<T: Send + Unpin + 'static> HeldBody<T> {
    /// `inner`, with which `held` is dropped.
    pub fn around(inner: Body, held: T) -> Body {
        Body::new(Self { inner, _held: held })
    }
}

impl<T: Unpin> http_body::Body for HeldBody<T> {
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
