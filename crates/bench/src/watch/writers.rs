//! The writers: connections that change objects in turn, one change per event of the run, marked
//! with its number. A writer waits for the acknowledgement before it takes the next turn. They run
//! on their own thread, so that writes are on time although thousands of watches occupy the others.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use http::{Method, StatusCode};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::event_log::EventLog;
use super::watchers::node;
use crate::args::Resource;
use crate::client::{self, ClientError, Connection, Driver};
use crate::error::BenchError;
use crate::mark::{MARK, Mark};
use crate::objects::{self, Spec, collection};
use crate::pace::Pace;
use crate::target::Target;
use watchet_tasks::Tasks;

/// The namespace of the changed objects.
pub(super) const NAMESPACE: &str = "bench";

/// The event number in the mark of newly created objects.
const NO_EVENT: u32 = u32::MAX;

/// The objects that a run changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Changes {
    pub run: u32,
    pub resource: Resource,
    pub size: usize,
    /// The number of objects; the events cycle through them.
    pub objects: u32,
}

/// Connected writers.
pub(super) struct Writers {
    start: oneshot::Sender<Pace>,
    /// The results.
    written: JoinHandle<Result<WriterResult, BenchError>>,
}

impl Writers {
    /// Connects this many writers.
    ///
    /// # Errors
    /// The target cannot be reached.
    pub(super) async fn connect(
        changes: Changes,
        count: u32,
        target: Arc<Target>,
        log: Arc<EventLog>,
        tasks: &Tasks,
    ) -> Result<Self, BenchError> {
        let (connected, ready) = oneshot::channel();
        let (start, begin) = oneshot::channel();
        let written = tasks.spawn_blocking("writers", move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(BenchError::Start)?;
            runtime.block_on(async {
                let tasks = Tasks::new();
                let connect = (0..count).map(|_| client::connect(&target, &tasks));
                let writers = try_join_all(connect).await?;
                // If the receiver was dropped, the run has failed and sends no pace.
                let _sent = connected.send(());
                let Ok(pace) = begin.await else {
                    return Ok(WriterResult::default());
                };
                let write = |(connection, driver): (Connection, Driver)| {
                    driver.run(changes.write(connection, &pace, &log))
                };
                let written = join_all(writers.into_iter().map(write)).await;
                Ok(written
                    .into_iter()
                    .fold(WriterResult::default(), WriterResult::and))
            })
        });
        match ready.await {
            Ok(()) => Ok(Self { start, written }),
            // The writers ended before they were connected; their result has the error.
            Err(_) => Err(written
                .await?
                .expect_err("an error, since they did not connect")),
        }
    }

    /// Starts the writes at this pace and returns the task with their results.
    pub(super) fn write(self, pace: Pace) -> JoinHandle<Result<WriterResult, BenchError>> {
        // If the writers have ended, the task returns why.
        let _sent = self.start.send(pace);
        self.written
    }
}

/// The results of a writer.
#[derive(Debug, Default)]
pub(super) struct WriterResult {
    pub failed: u64,
    pub first_failure: Option<ClientError>,
    /// The maximum delay of a write after its scheduled time.
    pub late_max: Duration,
}

impl WriterResult {
    fn and(self, other: Self) -> Self {
        Self {
            failed: self.failed + other.failed,
            first_failure: self.first_failure.or(other.first_failure),
            late_max: self.late_max.max(other.late_max),
        }
    }
}

impl Changes {
    fn name(object: u32) -> String {
        format!("bench-watch-{object}")
    }

    fn body(&self, object: u32, event: u32) -> bytes::Bytes {
        let node = node(object);
        let mark = Mark {
            run: self.run,
            event,
        };
        let spec = Spec {
            name: &Self::name(object),
            namespace: NAMESPACE,
            node: Some(&node),
            labels: &[],
            annotation: Some((MARK, &mark.to_string())),
            size: self.size,
            version: None,
        };
        objects::render(self.resource, &spec)
    }

    /// Returns the request that marks an object with an event: an update, or a merge patch of a
    /// custom resource, which cannot be updated without its resourceVersion.
    fn change(&self, object: u32, event: u32) -> (Method, bytes::Bytes) {
        if !self.resource.is_custom() {
            return (Method::PUT, self.body(object, event));
        }
        let mark = Mark {
            run: self.run,
            event,
        };
        let patch = json!({"metadata": {"annotations": {MARK: mark.to_string()}}});
        (Method::PATCH, patch.to_string().into())
    }

    fn path(&self, object: u32) -> String {
        let collection = collection(self.resource, Some(NAMESPACE));
        format!("{collection}/{}", Self::name(object))
    }

    /// Creates the objects, marked with no event, so that each later write is a change.
    ///
    /// # Errors
    /// A request fails.
    pub(super) async fn make(&self, connection: &mut Connection) -> Result<(), ClientError> {
        objects::make_namespace(connection, NAMESPACE).await?;
        let collection = collection(self.resource, Some(NAMESPACE));
        for object in 0..self.objects {
            objects::make(connection, &collection, self.body(object, NO_EVENT)).await?;
        }
        Ok(())
    }

    /// Deletes the objects.
    ///
    /// # Errors
    /// The request fails.
    pub(super) async fn clean(&self, connection: &mut Connection) -> Result<(), ClientError> {
        for object in 0..self.objects {
            // Without a grace period: there is no kubelet to terminate a pod.
            let path = format!("{}?gracePeriodSeconds=0", self.path(object));
            let deleted = connection.send(Method::DELETE, &path, bytes::Bytes::new());
            match deleted.await {
                // A concurrent run on another server of the same storage may have deleted it.
                Err(error) if error.status() != Some(StatusCode::NOT_FOUND) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes until no turn is left or the connection fails.
    async fn write(self, mut connection: Connection, pace: &Pace, log: &EventLog) -> WriterResult {
        let mut written = WriterResult::default();
        while let Some(turn) = pace.turn().await {
            let event = turn.number;
            written.late_max = written.late_max.max(turn.late);
            let object = event % self.objects;
            let path = self.path(object);
            let (method, body) = self.change(object, event);
            log.sent(event);
            match connection.send(method, &path, body).await {
                Ok(_) => log.acknowledged(event),
                Err(error) => {
                    let connection_lives = error.connection_lives();
                    written.failed += 1;
                    written.first_failure.get_or_insert(error);
                    if !connection_lives {
                        break;
                    }
                }
            }
        }
        written
    }
}
