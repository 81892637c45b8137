//! The writers: a few connections that change objects in turn, each event of the run one change, marked
//! with its number. A writer waits for its acknowledgement before it takes the next turn.

use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::board::Board;
use super::frames::{MARK, mark};
use super::watchers::node;
use crate::bench::args::Mode;
use crate::bench::client::{ClientError, Connection};
use crate::bench::objects::{self, Spec, collection};
use crate::bench::pace::Pace;

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

/// What a writer got done.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub failed: u64,
    pub first_failure: Option<ClientError>,
    /// How long after its time a write was sent at most.
    pub late_max: Duration,
}

impl Written {
    pub(super) fn add(&mut self, other: Self) {
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.late_max = self.late_max.max(other.late_max);
    }
}

impl Changes {
    fn name(object: u32) -> String {
        format!("bench-watch-{object}")
    }

    fn body(&self, object: u32, event: u32) -> bytes::Bytes {
        let node = node(object);
        let spec = Spec {
            name: &Self::name(object),
            namespace: NAMESPACE,
            node: Some(&node),
            labels: &[],
            annotation: Some((MARK, &mark(self.run, event))),
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
    pub(super) async fn write(
        self,
        mut connection: Connection,
        pace: Arc<Pace>,
        board: Arc<Board>,
    ) -> Written {
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
