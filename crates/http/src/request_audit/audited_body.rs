//! `AuditedBody`: the body of a response, which records what is sent. If a backend blocks, the end of the body is sent after
//! the last event is written.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body::{Frame, SizeHint};

use super::last_event::LastEvent;

/// A body that records what is sent.
#[derive(Debug)]
pub(super) struct AuditedBody {
    inner: Body,
    last_event: LastEvent,
    /// Whether the end waits for the last event.
    is_blocking: bool,
    state: State,
}

enum State {
    /// The end of the body is not known.
    Sending,
    /// The last event is being written; then the last frame follows, if there is one.
    Recording(BoxFuture<'static, ()>, Option<Frame<Bytes>>),
    /// Everything was sent.
    Ended,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sending => "Sending",
            Self::Recording(..) => "Recording",
            Self::Ended => "Ended",
        })
    }
}

impl AuditedBody {
    pub(super) fn new(inner: Body, last_event: LastEvent, is_blocking: bool) -> Self {
        Self {
            inner,
            last_event,
            is_blocking,
            state: State::Sending,
        }
    }
}

impl http_body::Body for AuditedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if matches!(self.state, State::Sending) {
            let polled = ready!(Pin::new(&mut self.inner).poll_frame(cx));
            if let Some(Ok(frame)) = &polled
                && let Some(data) = frame.data_ref()
                && let Some(request) = self.last_event.request()
            {
                request.capture(data);
            }
            let is_last = polled.is_none() || self.inner.is_end_stream();
            let last = match polled.transpose() {
                Ok(last) if is_last && self.is_blocking => last,
                Ok(frame) => return Poll::Ready(frame.map(Ok)),
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            let recorded = self.last_event.finish();
            let recorded = recorded.unwrap_or_else(|| std::future::ready(()).boxed());
            self.state = State::Recording(recorded, last);
        }
        if let State::Recording(recorded, _) = &mut self.state {
            ready!(recorded.poll_unpin(cx));
        }
        match mem::replace(&mut self.state, State::Ended) {
            State::Recording(_, last) => Poll::Ready(last.map(Ok)),
            State::Sending | State::Ended => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Sending => self.inner.is_end_stream(),
            State::Recording(..) => false,
            State::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let held = match &self.state {
            State::Recording(_, last) => last.as_ref().and_then(Frame::data_ref),
            State::Sending | State::Ended => return self.inner.size_hint(),
        };
        SizeHint::with_exact(held.map_or(0, |data| data.len() as u64))
    }
}
