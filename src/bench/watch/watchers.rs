//! The watchers: one task for each connection, which opens it and reads all watches that it carries,
//! until the run ends or they do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::tally::{Faults, Interest, Tally, Told};
use crate::bench::args::{Encoding, Mode};
use crate::bench::client::{self, ClientError, Connection, query_value};
use crate::bench::frames::Frames;
use crate::bench::objects::collection;
use crate::bench::target::Target;
use crate::tasks::Tasks;

/// All that the watchers of a run have in common.
#[derive(Debug)]
pub(super) struct Plan {
    pub target: Arc<Target>,
    pub run: u32,
    pub events: u32,
    pub watchers: u32,
    pub connections: u32,
    pub mode: Mode,
    pub accept: Encoding,
    /// The version before the first event.
    pub from: u64,
    pub board: Arc<Board>,
    pub opening: Semaphore,
    /// Ends the watches.
    pub stop: CancellationToken,
}

/// The node that the watcher of a selective run watches.
pub(super) fn node(watcher: u32) -> String {
    format!("bench-watch-node-{watcher}")
}

impl Plan {
    fn path(&self, watcher: u32) -> String {
        let (mode, from) = (self.mode, self.from);
        let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={from}");
        let collection = collection(mode.resource(), mode.watched_namespace());
        match mode {
            Mode::Broadcast => format!("{collection}?{query}"),
            Mode::Selective => {
                let selector = query_value(&format!("spec.nodeName={}", node(watcher)));
                format!("{collection}?{query}&fieldSelector={selector}")
            }
        }
    }

    /// Runs the watches of connection `number` to their end.
    ///
    /// # Errors
    /// The connection or a watch cannot be opened; all of the connection's watches count as ended.
    pub(super) async fn connection(
        self: Arc<Self>,
        number: u32,
        tasks: Tasks,
    ) -> Result<Vec<Tally>, ClientError> {
        let watchers = || (number..self.watchers).step_by(self.connections as usize);
        let watched = async {
            let permit = self.opening.acquire().await.expect("it is never closed");
            let (connection, driver) = client::connect(&self.target, &tasks).await?;
            let mut connection = connection.accepting(self.accept);
            let work = async {
                let mut bodies = Vec::new();
                for watcher in watchers() {
                    bodies.push(self.open(&mut connection, watcher).await?);
                }
                drop(permit);
                let tallies = bodies.into_iter().zip(watchers());
                let tallies = tallies.map(|(body, watcher)| self.read(body, watcher));
                Ok(join_all(tallies).await)
            };
            driver.run(work).await
        };
        let result = watched.await;
        if result.is_err() {
            self.board
                .ended
                .fetch_add(watchers().count() as u32, Ordering::Relaxed);
        }
        result
    }

    async fn open(
        &self,
        connection: &mut Connection,
        watcher: u32,
    ) -> Result<Incoming, ClientError> {
        let path = self.path(watcher);
        let response = connection.open(Method::GET, &path, Bytes::new()).await?;
        self.board.opened.fetch_add(1, Ordering::Relaxed);
        Ok(response.into_body())
    }

    async fn read(&self, mut body: Incoming, watcher: u32) -> Tally {
        let interest = Interest {
            watcher,
            watchers: self.watchers,
            mode: self.mode,
        };
        let mut tally = Tally::new(self.run, self.events, interest);
        let mut frames = Frames::new(self.accept);
        let mut told = Vec::new();
        let mut stop = std::pin::pin!(self.stop.cancelled());
        loop {
            // What has come is read first; when nothing has, the end is looked for.
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = &mut stop => return tally,
            };
            let Some(Ok(frame)) = frame else {
                self.board.ended.fetch_add(1, Ordering::Relaxed);
                return tally;
            };
            let Some(data) = frame.data_ref() else {
                continue;
            };
            let bytes = data.len() as u64;
            self.board.bytes.fetch_add(bytes, Ordering::Relaxed);
            frames.push(data, |frame| told.extend(tally.take(Told::of(frame))));
            if !told.is_empty() {
                self.board.told(watcher, &told);
                told.clear();
            }
        }
    }
}

/// All faults of `tallies`.
pub(super) fn faults(tallies: Vec<Tally>, board: &Board) -> Faults {
    let mut total = Faults::default();
    for tally in tallies {
        total.add(tally.close(|event| board.is_acknowledged(event)));
    }
    total
}
