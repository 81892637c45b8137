//! A watcher of a churn: watches all objects over its own connection, and after a number of events
//! reconnects and resumes from the last version, as clients do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::collection::all;
use super::tally::Tally;
use super::write_log::WriteLog;
use crate::args::Encoding;
use crate::client::{self, Call, ClientError, Connection};
use crate::frames::Frames;
use crate::target::Target;
use watchet_tasks::Tasks;

/// What all watchers of a run share.
#[derive(Debug)]
pub(super) struct Plan {
    pub target: Arc<Target>,
    pub run: u32,
    pub accept: Encoding,
    /// The version before the first write.
    pub from: u64,
    /// The number of events after which a watch is resumed; `None` for never.
    pub resume: Option<u32>,
    pub log: Arc<WriteLog>,
    pub opening: Semaphore,
    /// Ends the watches when cancelled.
    pub stop: CancellationToken,
}

/// Why reading a watch ended.
enum WatchEnd {
    /// The watcher resumes it.
    Resume,
    /// The run is over.
    Stop,
    /// The server ended it.
    Ended,
}

impl Plan {
    /// Runs watcher `number` until the run is over.
    ///
    /// # Errors
    /// A watch cannot be opened; the watcher counts as ended.
    pub(super) async fn watch(
        self: Arc<Self>,
        number: u32,
        tasks: Tasks,
    ) -> Result<Tally, ClientError> {
        let mut tally = Tally::new(self.run, self.log.objects(), self.from);
        let mut first = true;
        loop {
            let left = self.connect(&mut tally, number, first, &tasks).await;
            first = false;
            match left {
                Ok(WatchEnd::Resume) => drop(self.log.resumed.fetch_add(1, Ordering::Relaxed)),
                Ok(WatchEnd::Stop) => return Ok(tally),
                Ok(WatchEnd::Ended) => {
                    self.log.ended.fetch_add(1, Ordering::Relaxed);
                    return Ok(tally);
                }
                Err(error) => {
                    self.log.ended.fetch_add(1, Ordering::Relaxed);
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
    ) -> Result<WatchEnd, ClientError> {
        let permit = self
            .opening
            .acquire()
            .await
            .expect("the semaphore is never closed");
        let (connection, driver) = client::connect(&self.target, tasks).await?;
        let mut connection = connection.accepting(self.accept);
        let work = async {
            let body = self.open(&mut connection, tally.last_version).await?;
            drop(permit);
            if first {
                self.log.opened.fetch_add(1, Ordering::Relaxed);
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
        let response = connection.open(Call::get(&path)).await?;
        Ok(response.into_body())
    }

    async fn read(
        &self,
        mut body: hyper::body::Incoming,
        tally: &mut Tally,
        number: u32,
    ) -> WatchEnd {
        let mut frames = Frames::new(self.accept);
        let mut latencies = Vec::new();
        let mut left = self.resume;
        let mut stop = std::pin::pin!(self.stop.cancelled());
        loop {
            // Received data is read first; the end is checked when there is none.
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = &mut stop => return WatchEnd::Stop,
            };
            let Some(Ok(frame)) = frame else {
                return WatchEnd::Ended;
            };
            let Some(data) = frame.data_ref() else {
                continue;
            };
            frames.push(data, |frame| {
                latencies.extend(tally.process(&self.log, frame))
            });
            let received = latencies.len() as u64;
            self.log.to_each.with(number, |some| {
                latencies.drain(..).for_each(|latency| some.record(latency));
            });
            self.log.delivered.fetch_add(received, Ordering::Relaxed);
            if let Some(left) = &mut left {
                *left = left.saturating_sub(received as u32);
                if *left == 0 {
                    return WatchEnd::Resume;
                }
            }
        }
    }
}
