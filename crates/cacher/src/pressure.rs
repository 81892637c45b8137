//! `WithPressure`: a stream of changes that also has an empty batch when the memory pressure rises, so that the writer of a
//! cache without changes shortens its history.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{BoxStream, StreamExt as _};
use futures_util::{FutureExt as _, Stream};

use watchet_api::{MemoryPressure, Object, ResourceVersion, ServerMemory};
use watchet_reflector::{ChangeBatch, SourceError};

type Item = Result<ChangeBatch<Object>, SourceError>;

pub(super) struct WithPressure<S> {
    changes: S,
    /// The version that the batches so far lead to.
    at: ResourceVersion,
    /// An item for each rise of the pressure; never ends.
    rises: BoxStream<'static, ()>,
}

impl<S> WithPressure<S> {
    /// Creates the stream of `changes`, which follow the version `after`.
    pub(super) fn new(changes: S, after: ResourceVersion, memory: &Arc<ServerMemory>) -> Self {
        let (receiver, last) = (memory.subscribe(), memory.pressure());
        let rises = futures_util::stream::unfold((receiver, last), next_rise);
        Self {
            changes,
            at: after,
            rises: rises.boxed(),
        }
    }
}

type Receiver = tokio::sync::watch::Receiver<MemoryPressure>;

/// Waits until the pressure is higher than at the last call. Never returns once the `ServerMemory` is dropped.
async fn next_rise(
    (mut receiver, mut last): (Receiver, MemoryPressure),
) -> Option<((), (Receiver, MemoryPressure))> {
    loop {
        if receiver.changed().await.is_err() {
            return std::future::pending().await;
        }
        let now = *receiver.borrow_and_update();
        let rises = now > last;
        last = now;
        if rises {
            return Some(((), (receiver, last)));
        }
    }
}

impl<S: Stream<Item = Item> + Unpin> Stream for WithPressure<S> {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        // Changes come first: the writer shortens its history with each.
        match self.changes.poll_next_unpin(cx) {
            Poll::Ready(item) => {
                if let Some(Ok(batch)) = &item {
                    self.at = batch.at;
                }
                Poll::Ready(item)
            }
            Poll::Pending => {
                let (changes, at) = (Vec::new(), self.at);
                let risen = self.rises.next().poll_unpin(cx);
                risen.map(|_| Some(Ok(ChangeBatch { changes, at })))
            }
        }
    }
}
