//! The watchers: one task per connection, which opens it and reads all watches that it carries.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::event_log::EventLog;
use super::tally::{Faults, FrameContent, Interest, Tally};
use crate::args::{Encoding, Mode, Resource};
use crate::client::{self, Call, ClientError, Connection, query_value};
use crate::frames::Frames;
use crate::objects::collection;
use crate::target::Target;
use watchet_tasks::Tasks;

/// What all watchers of a run share.
#[derive(Debug)]
pub(super) struct Plan {
    pub target: Arc<Target>,
    pub run: u32,
    pub events: u32,
    pub watchers: u32,
    pub connections: u32,
    pub mode: Mode,
    pub resource: Resource,
    pub accept: Encoding,
    /// The version before the first event.
    pub from: u64,
    pub log: Arc<EventLog>,
    pub opening: Semaphore,
    /// Ends the watches when cancelled.
    pub stop: CancellationToken,
}

/// Returns the node whose pods the watcher of a selective run watches.
pub(super) fn node(watcher: u32) -> String {
    format!("bench-watch-node-{watcher}")
}

impl Plan {
    fn path(&self, watcher: u32) -> String {
        let (mode, from) = (self.mode, self.from);
        let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={from}");
        let collection = collection(self.resource, mode.watched_namespace());
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
            let permit = self
                .opening
                .acquire()
                .await
                .expect("the semaphore is never closed");
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
            self.log
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
        let response = connection.open(Call::get(&path)).await?;
        self.log.opened.fetch_add(1, Ordering::Relaxed);
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
        let mut events = Vec::new();
        let mut stop = std::pin::pin!(self.stop.cancelled());
        loop {
            // Received data is read first; the end is checked when there is none.
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = &mut stop => return tally,
            };
            let Some(Ok(frame)) = frame else {
                self.log.ended.fetch_add(1, Ordering::Relaxed);
                return tally;
            };
            let Some(data) = frame.data_ref() else {
                continue;
            };
            let bytes = data.len() as u64;
            self.log.bytes.fetch_add(bytes, Ordering::Relaxed);
            frames.push(data, |frame| {
                events.extend(tally.process(FrameContent::of(frame)))
            });
            if !events.is_empty() {
                self.log.received(watcher, &events);
                events.clear();
            }
        }
    }
}

/// Returns the sum of the faults of `tallies`.
pub(super) fn faults(tallies: Vec<Tally>, log: &EventLog) -> Faults {
    let mut total = Faults::default();
    for tally in tallies {
        total.add(tally.close(|event| log.is_acknowledged(event)));
    }
    total
}
