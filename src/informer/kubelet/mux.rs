//! `Mux`: several named sources into one merger, which sees one update at a time. It keeps none: a source
//! waits until its own is taken.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Takes the updates of all sources, one after the other.
pub trait Merger<U>: Send + 'static {
    /// Takes what `source` sent; a break says that nothing needs to be sent any more.
    fn merge(&mut self, source: &str, update: U) -> impl Future<Output = ControlFlow<()>> + Send;
}

/// Several named sources into one merger.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::ops::ControlFlow;
/// use watchet::informer::kubelet::{Merger, Mux};
///
/// struct Print;
/// impl Merger<u32> for Print {
///     async fn merge(&mut self, source: &str, update: u32) -> ControlFlow<()> {
///         assert_eq!((source, update), ("file", 7));
///         ControlFlow::Break(())
///     }
/// }
///
/// let mux = Mux::new(Print);
/// let file = mux.source("file");
/// let send = async { file.send(7).await.unwrap() };
/// tokio::join!(mux.run(Default::default()), send);
/// assert!(file.send(8).await.is_err());
/// # }
/// ```
#[derive(Debug)]
pub struct Mux<M, U> {
    merger: M,
    /// From the sources to the merger. It has one place: who finds it taken waits, in the order of
    /// coming, so that no source keeps another away.
    updates: mpsc::Receiver<(Arc<str>, U)>,
    sender: mpsc::Sender<(Arc<str>, U)>,
}

/// Where a source sends its updates. Clones are the same source.
pub struct MuxSource<U> {
    name: Arc<str>,
    sender: mpsc::Sender<(Arc<str>, U)>,
}

/// Nobody takes updates any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the updates of sources are not taken any more")]
pub struct MuxClosed;

impl<U: Send + 'static, M: Merger<U>> Mux<M, U> {
    /// One without sources.
    pub fn new(merger: M) -> Self {
        let (sender, updates) = mpsc::channel(1);
        Self {
            merger,
            updates,
            sender,
        }
    }

    /// The source of this name.
    pub fn source(&self, name: &str) -> MuxSource<U> {
        MuxSource {
            name: name.into(),
            sender: self.sender.clone(),
        }
    }

    /// Merges what the sources send until `stop`, until the merger has enough, or until there are no
    /// more sources.
    pub async fn run(mut self, stop: CancellationToken) {
        drop(self.sender);
        let merge = async {
            while let Some((source, update)) = self.updates.recv().await {
                if self.merger.merge(&source, update).await.is_break() {
                    return;
                }
            }
        };
        // Biased: stopping comes before any more work.
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = merge => {}
        }
    }
}

impl<U> MuxSource<U> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends an update when the merger has taken those before it.
    ///
    /// # Errors
    /// [`MuxClosed`].
    pub async fn send(&self, update: U) -> Result<(), MuxClosed> {
        let sent = self.sender.send((self.name.clone(), update)).await;
        sent.map_err(|_| MuxClosed)
    }
}

impl<U> Clone for MuxSource<U> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            sender: self.sender.clone(),
        }
    }
}

impl<U> fmt::Debug for MuxSource<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MuxSource").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;

    /// Takes a second for each update, and three at most.
    struct Slow(Arc<Mutex<Vec<String>>>);

    impl Merger<u32> for Slow {
        async fn merge(&mut self, source: &str, update: u32) -> ControlFlow<()> {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut merged = self.0.lock();
            merged.push(format!("{source} {update}"));
            match merged.len() {
                6.. => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_sends_much_keeps_no_other_away() {
        let merged = Arc::new(Mutex::new(Vec::new()));
        let mux = Mux::new(Slow(merged.clone()));
        let (busy, calm) = (mux.source("busy"), mux.source("calm"));
        assert_eq!(busy.name(), "busy");
        let busy = async move {
            let mut sent = 0;
            while busy.send(sent).await.is_ok() {
                sent += 1;
            }
        };
        let calm = async move {
            for update in 0..2 {
                calm.send(update).await.unwrap();
            }
        };
        tokio::join!(mux.run(CancellationToken::new()), busy, calm);
        let merged = merged.lock();
        let of = |source: &str| -> Vec<usize> {
            let places = (0..merged.len()).filter(|at| merged[*at].starts_with(source));
            places.collect()
        };
        assert!(of("calm")[1] < 5, "{merged:?}");
        let busy: Vec<_> = of("busy").iter().map(|at| &*merged[*at]).collect();
        assert_eq!(busy, ["busy 0", "busy 1", "busy 2", "busy 3"], "in order");
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_when_it_is_told_or_has_no_source() {
        let stop = CancellationToken::new();
        let mux = Mux::new(Slow(Arc::default()));
        let source = mux.source("a");
        source.send(1).await.unwrap();
        let stopping = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            stop.cancel();
        };
        tokio::join!(mux.run(stop.clone()), stopping);
        assert_eq!(source.send(2).await, Err(MuxClosed));

        let mux = Mux::new(Slow(Arc::default()));
        drop(mux.source("a"));
        mux.run(CancellationToken::new()).await;
    }
}
