//! A watcher of a churn: it watches all of its objects over a connection of its own, and every so many
//! events it leaves and resumes from the last version that it saw, as clients do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::all;
use super::board::Board;
use super::tally::Tally;
use crate::bench::args::Encoding;
use crate::bench::client::{self, ClientError, Connection};
use crate::bench::frames::Frames;
use crate::bench::target::Target;
use crate::tasks::Tasks;

/// All that the watchers of a run have in common.
#[derive(Debug)]
pub(super) struct Plan {
    pub target: Arc<Target>,
    pub run: u32,
    pub accept: Encoding,
    /// The version before the first write.
    pub from: u64,
    /// After how many events a watch is left; `None`: never.
    pub resume: Option<u32>,
    pub board: Arc<Board>,
    pub opening: Semaphore,
    /// Ends the watches.
    pub stop: CancellationToken,
}

/// Why a watch is read no further.
enum Left {
    /// To be resumed.
    Resume,
    /// The run is over.
    Stop,
    /// The server ended it.
    Ended,
}

impl Plan {
    /// Watches as watcher `number` until the run is over.
    ///
    /// # Errors
    /// A watch cannot be opened; it counts as ended.
    pub(super) async fn watch(
        self: Arc<Self>,
        number: u32,
        tasks: Tasks,
    ) -> Result<Tally, ClientError> {
        let mut tally = Tally::new(self.run, self.board.objects(), self.from);
        let mut first = true;
        loop {
            let left = self.connect(&mut tally, number, first, &tasks).await;
            first = false;
            match left {
                Ok(Left::Resume) => drop(self.board.resumed.fetch_add(1, Ordering::Relaxed)),
                Ok(Left::Stop) => return Ok(tally),
                Ok(Left::Ended) => {
                    self.board.ended.fetch_add(1, Ordering::Relaxed);
                    return Ok(tally);
                }
                Err(error) => {
                    self.board.ended.fetch_add(1, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    }

    async fn connect(
        &self,
        tally: &mut Tally,
        number: u32,
        first: bool,
        tasks: &Tasks,
    ) -> Result<Left, ClientError> {
        let permit = self.opening.acquire().await.expect("it is never closed");
        let (connection, driver) = client::connect(&self.target, tasks).await?;
        let mut connection = connection.accepting(self.accept);
        let work = async {
            let body = self.open(&mut connection, tally.last_version).await?;
            drop(permit);
            if first {
                self.board.opened.fetch_add(1, Ordering::Relaxed);
            }
            Ok(self.read(body, tally, number).await)
        };
        driver.run(work).await
    }

    async fn open(
        &self,
        connection: &mut Connection,
        version: u64,
    ) -> Result<hyper::body::Incoming, ClientError> {
        let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        let path = format!("{}&{query}", all());
        let response = connection.open(Method::GET, &path, Bytes::new()).await?;
        Ok(response.into_body())
    }

    async fn read(&self, mut body: hyper::body::Incoming, tally: &mut Tally, number: u32) -> Left {
        let mut frames = Frames::new(self.accept);
        let mut latencies = Vec::new();
        let mut left = self.resume;
        let mut stop = std::pin::pin!(self.stop.cancelled());
        loop {
            // What has come is read first; when nothing has, the end is looked for.
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = &mut stop => return Left::Stop,
            };
            let Some(Ok(frame)) = frame else {
                return Left::Ended;
            };
            let Some(data) = frame.data_ref() else {
                continue;
            };
            frames.push(data, |frame| {
                latencies.extend(tally.take(&self.board, frame))
            });
            let told = latencies.len() as u64;
            self.board.to_each.with(number, |some| {
                latencies.drain(..).for_each(|latency| some.record(latency));
            });
            self.board.delivered.fetch_add(told, Ordering::Relaxed);
            if let Some(left) = &mut left {
                *left = left.saturating_sub(told as u32);
                if *left == 0 {
                    return Left::Resume;
                }
            }
        }
    }
}
