//! The Reflector's loop: list, watch, resume, and list again when the source's history is
//! compacted. It owns its store and is its only writer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backoff::RESET_AFTER;
use super::{Backoff, ChangeBatch, ListerWatcher, SourceError};
use watchet_api::ResourceVersion;
#[cfg(feature = "planted-bugs")]
use watchet_api::planted_bug::{PlantedBug, is_planted};

/// A watch that ends sooner than this without a change counts as a failure, so that a source that
/// closes watches immediately is not called in a tight loop (client-go's "very short watch").
pub const SHORT_WATCH: Duration = Duration::from_secs(1);

/// The target of a Reflector. `&mut self` ensures a single writer.
pub trait ReflectorStore: Send + 'static {
    /// The type of the objects.
    type Object: Send + Sync + 'static;

    /// Replaces the collection with exactly `objects`, as of `at`.
    fn replace(
        &mut self,
        objects: Vec<Arc<Self::Object>>,
        at: ResourceVersion,
    ) -> impl Future<Output = ()> + Send;

    /// Reports that the watch is open again at its last version; missed changes follow.
    fn watching(&mut self) -> impl Future<Output = ()> + Send;

    /// Applies changes in order. A batch without changes only advances the version.
    fn apply(&mut self, batch: ChangeBatch<Self::Object>) -> impl Future<Output = ()> + Send;

    /// Reports that the source cannot be followed; the Reflector retries.
    fn failed(&mut self, error: &SourceError) -> impl Future<Output = ()> + Send;
}

/// Keeps a store equal to a source.
///
/// ```
/// use std::sync::Arc;
/// use watchet_api::ResourceVersion;
/// use watchet_reflector::*;
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
/// /// A store that sends its first content.
/// struct Notify(Option<tokio::sync::oneshot::Sender<Vec<Arc<String>>>>);
/// impl ReflectorStore for Notify {
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
/// let run = Reflector::new(Constant, Notify(Some(send)), Backoff::default()).run(stop.clone());
/// let received = async {
///     assert_eq!(receive.await.unwrap(), [Arc::new("a".to_owned())]);
///     stop.cancel();
/// };
/// tokio::join!(run, received);
/// # }
/// ```
#[derive(Debug)]
pub struct Reflector<L, S> {
    source: L,
    store: S,
    backoff: Backoff,
    /// When the last watch expired.
    expired: Option<Instant>,
}

/// The next step of the Reflector.
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
    /// Returns a Reflector from `source` into `store` that delays retries by `backoff`.
    pub fn new(source: L, store: S, backoff: Backoff) -> Self {
        Self {
            source,
            store,
            backoff,
            expired: None,
        }
    }

    /// Follows the source until `stop`, which also interrupts a list.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut state = State::List;
        loop {
            // Biased: cancellation comes before more work.
            let (next, pause) = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                step = self.step(state) => step,
            };
            state = next;
            // The two ends of the pause are equivalent.
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                () = self.source.recovered() => {}
            }
        }
    }

    /// Lists or watches once; returns the next state and the delay before it.
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
                    // The watch made progress before it failed, so the source is likely to recover
                    // soon.
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
                    // Resuming would meet the same value again, even if it has been repaired; a
                    // list returns the current state. Lists are expensive, so there is always a
                    // delay.
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

    /// Applies one watch until it ends; returns the last version.
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
                // The assertion of the first version, which ended the task.
                #[cfg(feature = "planted-bugs")]
                Ok(batch) if batch.at < reached && is_planted(PlantedBug::ProgressBeforeStart) => {
                    panic!("the source went back from {reached} to {}", batch.at)
                }
                Ok(batch) if batch.at < reached => {
                    let detail = format!("the source went back to {}", batch.at);
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

    /// Returns the delay before the list after an expired watch. A single expiry is not an error
    /// and is followed by an immediate list; a source whose watches expire repeatedly, even after
    /// changes, would otherwise be listed in a loop.
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
                retry_after: Some(requested),
                ..
            } => delay.max(*requested),
            _ => delay,
        }
    }
}

#[cfg(test)]
mod tests;
