//! The Reflector's loop: list, watch, resume, and list again when the source's history is gone. It
//! is the only writer of its store, which it owns.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backoff::RESET_AFTER;
use super::{Backoff, ChangeBatch, ListerWatcher, SourceError};
use crate::api::ResourceVersion;

/// A watch that ends sooner than this without a change counts as a failure, so that a source which
/// refuses politely is not asked in a tight loop (client-go's "very short watch").
pub const SHORT_WATCH: Duration = Duration::from_secs(1);

/// What a Reflector keeps equal to its source. One writer by construction: `&mut self`.
pub trait ReflectorStore: Send + 'static {
    /// What it holds.
    type Object: Send + Sync + 'static;

    /// The collection is now exactly `objects`, as of `at`.
    fn replace(
        &mut self,
        objects: Vec<Arc<Self::Object>>,
        at: ResourceVersion,
    ) -> impl Future<Output = ()> + Send;

    /// The source is watched again, from where it was left. What happened meanwhile follows.
    fn watching(&mut self) -> impl Future<Output = ()> + Send;

    /// These changes happened, in order. A batch without changes only moves the version.
    fn apply(&mut self, batch: ChangeBatch<Self::Object>) -> impl Future<Output = ()> + Send;

    /// The source cannot be followed right now; the Reflector goes on trying.
    fn failed(&mut self, error: &SourceError) -> impl Future<Output = ()> + Send;
}

/// Keeps a store equal to a source.
///
/// ```
/// use std::sync::Arc;
/// use watchet::api::ResourceVersion;
/// use watchet::reflector::*;
///
/// /// A source with one object that never changes.
/// struct Constant;
/// impl ListerWatcher for Constant {
///     type Object = String;
///     async fn list(&mut self) -> Result<Listing<String>, SourceError> {
///         let objects = vec![Arc::new("a".to_owned())];
///         Ok(Listing { objects, at: ResourceVersion::new(1) })
///     }
///     async fn watch(&mut self, _: ResourceVersion) -> Result<ChangeStream<String>, SourceError> {
///         Ok(Box::pin(futures_util::stream::pending()))
///     }
/// }
///
/// /// A store that tells when it was filled.
/// struct Told(Option<tokio::sync::oneshot::Sender<Vec<Arc<String>>>>);
/// impl ReflectorStore for Told {
///     type Object = String;
///     async fn replace(&mut self, objects: Vec<Arc<String>>, _: ResourceVersion) {
///         self.0.take().unwrap().send(objects).unwrap();
///     }
///     async fn watching(&mut self) {}
///     async fn apply(&mut self, _: ChangeBatch<String>) {}
///     async fn failed(&mut self, _: &SourceError) {}
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let (send, receive) = tokio::sync::oneshot::channel();
/// let stop = tokio_util::sync::CancellationToken::new();
/// let run = Reflector::new(Constant, Told(Some(send)), Backoff::default()).run(stop.clone());
/// let told = async {
///     assert_eq!(receive.await.unwrap(), [Arc::new("a".to_owned())]);
///     stop.cancel();
/// };
/// tokio::join!(run, told);
/// # }
/// ```
#[derive(Debug)]
pub struct Reflector<L, S> {
    source: L,
    store: S,
    backoff: Backoff,
    /// When the source said last that it had forgotten what followed.
    expired: Option<Instant>,
}

/// What the Reflector does next.
///
/// ```text
///          list ok                    ended, unavailable
///   List ──────────▶ Watch(after) ──┐◀───────────────────
///    ▲ ◀─ failed         │          └──▶ Watch(later)
///    └──── expired, ─────┘
///         undecodable
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    List,
    Watch(ResourceVersion),
}

impl<L: ListerWatcher, S: ReflectorStore<Object = L::Object>> Reflector<L, S> {
    /// A Reflector from `source` into `store` that waits by `backoff` after failures.
    pub fn new(source: L, store: S, backoff: Backoff) -> Self {
        Self {
            source,
            store,
            backoff,
            expired: None,
        }
    }

    /// Follows the source until `stop`, also in the middle of a list.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut state = State::List;
        loop {
            // Biased: stopping comes before any more work.
            let (next, pause) = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                step = self.step(state) => step,
            };
            state = next;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One list or one watch; says what comes next and after which pause.
    async fn step(&mut self, state: State) -> (State, Duration) {
        match state {
            State::List => match self.source.list().await {
                Ok(listing) => {
                    self.store.replace(listing.objects, listing.at).await;
                    (State::Watch(listing.at), Duration::ZERO)
                }
                Err(error) => (State::List, self.failed(&error).await),
            },
            State::Watch(after) => {
                let started = Instant::now();
                let (reached, end) = self.watch(after).await;
                let useless = reached == after && started.elapsed() < SHORT_WATCH;
                let lost = matches!(end, Ok(()) | Err(SourceError::Unavailable { .. }));
                if reached > after && lost {
                    // It worked until it was lost: what follows should be back soon.
                    self.backoff.succeeded();
                }
                match end {
                    Ok(()) if useless => {
                        let delay = self.backoff.failed(Instant::now());
                        tracing::debug!(%after, ?delay, "very short watch");
                        (State::Watch(reached), delay)
                    }
                    Ok(()) => (State::Watch(reached), Duration::ZERO),
                    Err(error @ SourceError::Expired { .. }) => {
                        (State::List, self.expired(&error).await)
                    }
                    // The same watch would meet the same again, also when it has long been mended; a
                    // list shows what there is now. It is dear, so the pause comes in any case.
                    Err(error @ SourceError::Undecodable { .. }) => {
                        (State::List, self.failed(&error).await)
                    }
                    Err(error @ SourceError::Unavailable { .. }) => {
                        (State::Watch(reached), self.failed(&error).await)
                    }
                }
            }
        }
    }

    /// Applies one watch from beginning to end; returns how far it came.
    async fn watch(
        &mut self,
        after: ResourceVersion,
    ) -> (ResourceVersion, Result<(), SourceError>) {
        let mut reached = after;
        let mut stream = match self.source.watch(after).await {
            Ok(stream) => stream,
            Err(error) => return (reached, Err(error)),
        };
        self.store.watching().await;
        while let Some(batch) = stream.next().await {
            match batch {
                Ok(batch) if batch.at < reached => {
                    let detail = format!("the source went back from it to {}", batch.at);
                    return (
                        reached,
                        Err(SourceError::Expired {
                            at: reached,
                            detail,
                        }),
                    );
                }
                Ok(batch) => {
                    reached = batch.at;
                    self.store.apply(batch).await;
                }
                Err(error) => return (reached, Err(error)),
            }
        }
        (reached, Ok(()))
    }

    /// The pause before the list that an expired watch asks for. One is nothing that is wrong, and
    /// ends at once what the store cannot know; a source that says it again and again, also after changes,
    /// would be listed without end.
    async fn expired(&mut self, error: &SourceError) -> Duration {
        let now = Instant::now();
        let before = self.expired.replace(now);
        if before.is_some_and(|before| now - before <= RESET_AFTER) {
            return self.failed(error).await;
        }
        self.store.failed(error).await;
        Duration::ZERO
    }

    async fn failed(&mut self, error: &SourceError) -> Duration {
        self.store.failed(error).await;
        let delay = self.backoff.failed(Instant::now());
        match error {
            SourceError::Unavailable {
                retry_after: Some(wish),
                ..
            } => delay.max(*wish),
            _ => delay,
        }
    }
}

#[cfg(test)]
mod tests;
