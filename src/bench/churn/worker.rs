//! A worker of a churn: a connection that changes the objects it owns and reads what it wrote. Nobody else
//! writes these objects, so it knows what every consistent read must show.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::board::{Board, WriteId};
use super::mix::{Mix, Verb};
use super::{NAMESPACE, all, name};
use crate::bench::args::{Encoding, Resource};
use crate::bench::client::{ClientError, Connection};
use crate::bench::decode::{Malformed, Object};
use crate::bench::mark::{MARK, Mark};
use crate::bench::objects::{self, Spec, collection};
use crate::bench::pace::Pace;
use crate::bench::read::list_of;

/// What the workers of a run have in common.
#[derive(Debug)]
pub(super) struct Work {
    pub run: u32,
    pub size: usize,
    /// Of what is read.
    pub accept: Encoding,
    pub mix: Mix,
    pub pace: Pace,
    pub deadline: Option<Instant>,
    pub board: Arc<Board>,
}

/// What a worker, or all, found out beside latencies.
#[derive(Debug, Default)]
pub(super) struct Worked {
    pub failed: u64,
    pub first_failure: Option<ClientError>,
    /// Consistent reads that did not show the worker's own last write.
    pub stale: u64,
}

impl Worked {
    pub(super) fn add(&mut self, other: Self) {
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.stale += other.stale;
    }
}

/// An object of a worker.
#[derive(Debug)]
struct Owned {
    object: u32,
    /// The write that made it what it is; `None` when it is not there.
    is: Option<WriteId>,
}

/// One that works.
#[derive(Debug)]
pub(super) struct Worker {
    number: u32,
    work: Arc<Work>,
    owned: Vec<Owned>,
    random: fastrand::Rng,
    worked: Worked,
}

impl Worker {
    /// Number `number` of `workers`, who share the objects.
    pub(super) fn new(number: u32, workers: u32, work: &Arc<Work>, seed: u64) -> Self {
        let objects = (number..work.board.objects()).step_by(workers as usize);
        Self {
            number,
            work: Arc::clone(work),
            owned: objects.map(|object| Owned { object, is: None }).collect(),
            random: fastrand::Rng::with_seed(seed.wrapping_add(number.into())),
            worked: Worked::default(),
        }
    }

    /// Works until no turn is left, time is up, or the connection fails.
    pub(super) async fn run(mut self, mut connection: Connection) -> Worked {
        let work = Arc::clone(&self.work);
        while !self.owned.is_empty() {
            let turn = match work.deadline {
                // A turn that nobody takes any more is no loss.
                Some(deadline) => timeout_at(deadline, work.pace.turn()).await.ok().flatten(),
                None => work.pace.turn().await,
            };
            if turn.is_none()
                || work
                    .deadline
                    .is_some_and(|deadline| deadline <= Instant::now())
            {
                break;
            }
            let at = self.random.usize(..self.owned.len());
            let verb = self.verb(at);
            let begin = Instant::now();
            match self.ask(&mut connection, verb, at).await {
                Ok(()) => {
                    let latencies = work.board.latencies(verb);
                    latencies.with(self.number, |some| some.record(begin.elapsed()));
                    work.board.operations.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    let connection_lives = error.status().is_some();
                    self.worked.failed += 1;
                    self.worked.first_failure.get_or_insert(error);
                    if !connection_lives {
                        break;
                    }
                    if !matches!(verb, Verb::Get | Verb::List) {
                        // Whether it happened is not known, so nothing more can be said of it.
                        self.owned.swap_remove(at);
                    }
                }
            }
        }
        self.worked
    }

    fn verb(&mut self, at: usize) -> Verb {
        match self.work.mix.choose(&mut self.random) {
            Verb::Get => Verb::Get,
            Verb::List => Verb::List,
            _ if self.owned[at].is.is_none() => Verb::Create,
            verb => verb,
        }
    }

    async fn ask(
        &mut self,
        connection: &mut Connection,
        verb: Verb,
        at: usize,
    ) -> Result<(), ClientError> {
        connection.set_accept(match verb {
            Verb::Get | Verb::List => self.work.accept,
            // Their answers are read by nobody, and that of a deletion is no object.
            _ => Encoding::Json,
        });
        match verb {
            Verb::Create | Verb::Update | Verb::Patch => self.write(connection, verb, at).await,
            Verb::Delete => self.delete(connection, at).await,
            Verb::Get => self.get(connection, at).await,
            Verb::List => self.list(connection).await,
        }
    }

    async fn write(
        &mut self,
        connection: &mut Connection,
        verb: Verb,
        at: usize,
    ) -> Result<(), ClientError> {
        let owned = &mut self.owned[at];
        let id = self.work.board.sending(owned.object, verb == Verb::Create);
        let mark = Mark {
            run: self.work.run,
            event: self.work.board.event(id),
        };
        let (method, path) = match verb {
            Verb::Create => (
                Method::POST,
                collection(Resource::Configmaps, Some(NAMESPACE)),
            ),
            Verb::Patch => (Method::PATCH, path(owned.object)),
            _ => (Method::PUT, path(owned.object)),
        };
        let body = match verb {
            Verb::Patch => patch(mark),
            _ => self.work.body(owned.object, mark),
        };
        connection.send(method, &path, body).await?;
        self.work.board.acknowledged(id);
        owned.is = Some(id);
        Ok(())
    }

    async fn delete(&mut self, connection: &mut Connection, at: usize) -> Result<(), ClientError> {
        let owned = &mut self.owned[at];
        let id = owned.is.expect("what is not there is created instead");
        self.work.board.deleting(id);
        let path = path(owned.object);
        connection.send(Method::DELETE, &path, Bytes::new()).await?;
        self.work.board.acknowledged(id);
        owned.is = None;
        Ok(())
    }

    async fn get(&mut self, connection: &mut Connection, at: usize) -> Result<(), ClientError> {
        let owned = &self.owned[at];
        let path = path(owned.object);
        // Whether it is there, and its mark; one without a mark is somebody else's.
        let shown = match connection.send(Method::GET, &path, Bytes::new()).await {
            Ok(body) => Object::read(connection.accept(), &body).map(|it| Some(it.mark())),
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(None),
            Err(error) => return Err(error),
        };
        let shown = shown.map_err(|malformed: Malformed| ClientError::Answer {
            path,
            problem: malformed.to_string(),
        })?;
        let mark = |id| Mark {
            run: self.work.run,
            event: self.work.board.event(id),
        };
        let expected = owned.is.map(|id| Some(mark(id)));
        self.worked.stale += u64::from(shown != expected);
        Ok(())
    }

    async fn list(&mut self, connection: &mut Connection) -> Result<(), ClientError> {
        let list = list_of(connection, &all()).await?;
        let board = &self.work.board;
        let marks = list.items.iter().filter_map(|item| item.mark);
        let ours = marks.filter(|mark| mark.run == self.work.run);
        let ids = ours.map(|mark| board.write_of(mark.event));
        let shown: HashMap<u32, WriteId> = ids.map(|id| (id.object, id)).collect();
        let stale = |owned: &&Owned| shown.get(&owned.object).copied() != owned.is;
        self.worked.stale += u64::from(self.owned.iter().any(|owned| stale(&owned)));
        Ok(())
    }
}

impl Work {
    fn body(&self, object: u32, mark: Mark) -> Bytes {
        let spec = Spec {
            name: &name(object),
            namespace: NAMESPACE,
            annotation: Some((MARK, &mark.to_string())),
            size: self.size,
            ..Spec::default()
        };
        objects::render(Resource::Configmaps, &spec)
    }
}

fn path(object: u32) -> String {
    let collection = collection(Resource::Configmaps, Some(NAMESPACE));
    format!("{collection}/{}", name(object))
}

fn patch(mark: Mark) -> Bytes {
    let annotations = serde_json::json!({MARK: mark.to_string()});
    let patch = serde_json::json!({"metadata": {"annotations": annotations}});
    patch.to_string().into()
}
