//! The writers: a few connections that change objects in turn, each event of the run one change, marked
//! with its number. A writer waits for its acknowledgement before it takes the next turn. They have a
//! thread of their own: writes are sent on time although thousands of watches keep the others busy.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use http::Method;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::board::Board;
use super::watchers::node;
use crate::bench::args::Mode;
use crate::bench::client::{self, ClientError, Connection, Driver};
use crate::bench::mark::{MARK, Mark};
use crate::bench::objects::{self, Spec, collection};
use crate::bench::pace::Pace;
use crate::bench::run::BenchError;
use crate::bench::target::Target;
use crate::tasks::Tasks;

/// The namespace of the objects that are changed.
pub(super) const NAMESPACE: &str = "bench";

/// What objects are marked with before the first event.
const NO_EVENT: u32 = u32::MAX;

/// The objects that are changed in a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Changes {
    pub run: u32,
    pub mode: Mode,
    pub size: usize,
    /// How many objects there are; events go around.
    pub objects: u32,
}

/// Writers that are connected.
pub(super) struct Writers {
    go: oneshot::Sender<Pace>,
    /// What they got done, when they have.
    written: JoinHandle<Result<Written, BenchError>>,
}

impl Writers {
    /// Connects so many.
    ///
    /// # Errors
    /// The target cannot be reached.
    pub(super) async fn connect(
        changes: Changes,
        count: u32,
        target: Arc<Target>,
        board: Arc<Board>,
        tasks: &Tasks,
    ) -> Result<Self, BenchError> {
        let (connected, ready) = oneshot::channel();
        let (go, begin) = oneshot::channel();
        let written = tasks.spawn_blocking("writers", move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(BenchError::Start)?;
            runtime.block_on(async {
                let tasks = Tasks::new();
                let connect = (0..count).map(|_| client::connect(&target, &tasks));
                let writers = try_join_all(connect).await?;
                // Who gave up meanwhile sends no pace either.
                let _told = connected.send(());
                let Ok(pace) = begin.await else {
                    return Ok(Written::default());
                };
                let write = |(connection, driver): (Connection, Driver)| {
                    driver.run(changes.write(connection, &pace, &board))
                };
                let written = join_all(writers.into_iter().map(write)).await;
                Ok(written.into_iter().fold(Written::default(), Written::and))
            })
        });
        match ready.await {
            Ok(()) => Ok(Self { go, written }),
            // They ended before they were connected, and say why.
            Err(_) => Err(written.await?.expect_err("else they said that they are")),
        }
    }

    /// Has them write at this pace; the answer is what they got done.
    pub(super) fn write(self, pace: Pace) -> JoinHandle<Result<Written, BenchError>> {
        // When they cannot be told, the answer is why.
        let _told = self.go.send(pace);
        self.written
    }
}

/// What a writer got done.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub failed: u64,
    pub first_failure: Option<ClientError>,
    /// How long after its time a write was sent at most.
    pub late_max: Duration,
}

impl Written {
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
        };
        objects::render(self.mode.resource(), &spec)
    }

    fn path(&self, object: u32) -> String {
        let collection = collection(self.mode.resource(), Some(NAMESPACE));
        format!("{collection}/{}", Self::name(object))
    }

    /// Makes the objects. They are marked as no event is: a write that changes nothing is none.
    ///
    /// # Errors
    /// The server refuses one or does not answer.
    pub(super) async fn make(&self, connection: &mut Connection) -> Result<(), ClientError> {
        objects::make_namespace(connection, NAMESPACE).await?;
        let collection = collection(self.mode.resource(), Some(NAMESPACE));
        for object in 0..self.objects {
            objects::make(connection, &collection, self.body(object, NO_EVENT)).await?;
        }
        Ok(())
    }

    /// Deletes the objects.
    ///
    /// # Errors
    /// The server refuses that or does not answer.
    pub(super) async fn clean(&self, connection: &mut Connection) -> Result<(), ClientError> {
        for object in 0..self.objects {
            // A pod would stay for its grace period: there is no kubelet to end it.
            let path = format!("{}?gracePeriodSeconds=0", self.path(object));
            connection
                .send(Method::DELETE, &path, bytes::Bytes::new())
                .await?;
        }
        Ok(())
    }

    /// Writes until no turn is left or the connection fails.
    async fn write(self, mut connection: Connection, pace: &Pace, board: &Board) -> Written {
        let mut written = Written::default();
        while let Some(turn) = pace.turn().await {
            let event = turn.number;
            written.late_max = written.late_max.max(turn.late);
            let object = event % self.objects;
            let (path, body) = (self.path(object), self.body(object, event));
            board.sent(event);
            match connection.send(Method::PUT, &path, body).await {
                Ok(_) => board.acknowledged(event),
                Err(error) => {
                    let connection_lives = error.status().is_some();
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
