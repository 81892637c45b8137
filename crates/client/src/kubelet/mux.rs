//! `Mux`: passes the updates of several named sources to one merger, one at a time and without a
//! buffer.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Receives the updates of all sources, one after the other.
pub trait Merger<U>: Send + 'static {
    /// Processes an update of `source`; a break ends the mux.
    fn merge(&mut self, source: &str, update: U) -> impl Future<Output = ControlFlow<()>> + Send;
}

/// Passes the updates of several named sources to one merger.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::ops::ControlFlow;
/// use watchet_client::kubelet::{Merger, Mux};
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
    /// From the sources to the merger. Its capacity is 1: sources wait in FIFO order, so that none
    /// starves another.
    updates: mpsc::Receiver<(Arc<str>, U)>,
    sender: mpsc::Sender<(Arc<str>, U)>,
}

/// A source of updates. Clones are the same source.
pub struct MuxSource<U> {
    name: Arc<str>,
    sender: mpsc::Sender<(Arc<str>, U)>,
}

/// The mux does not accept updates any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the mux is closed")]
pub struct MuxClosed;

impl<U: Send + 'static, M: Merger<U>> Mux<M, U> {
    /// Creates a mux without sources.
    pub fn new(merger: M) -> Self {
        let (sender, updates) = mpsc::channel(1);
        Self {
            merger,
            updates,
            sender,
        }
    }

    /// Returns the source of this name.
    pub fn source(&self, name: &str) -> MuxSource<U> {
        MuxSource {
            name: name.into(),
            sender: self.sender.clone(),
        }
    }

    /// Merges the updates of the sources until `stop`, until the merger breaks, or until all
    /// sources are dropped.
    pub async fn run(mut self, stop: CancellationToken) {
        drop(self.sender);
        let merge = async {
            while let Some((source, update)) = self.updates.recv().await {
                if self.merger.merge(&source, update).await.is_break() {
                    return;
                }
            }
        };
        // Biased: stopping comes before more work.
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = merge => {}
        }
    }
}

impl<U> MuxSource<U> {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends an update; waits until the merger has accepted the previous ones.
    ///
    /// # Errors
    /// [`MuxClosed`]
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

    /// A merger that takes a second per update and breaks after three.
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
    async fn a_busy_source_does_not_starve_others() {
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
    async fn run_ends_on_stop_or_without_sources() {
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
