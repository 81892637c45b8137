//! A worker of a churn: a connection that changes its own objects and reads them. No other worker
//! writes these objects, so the worker knows what every consistent read must return.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::collection::{NAMESPACE, all, name};
use super::mix::{Mix, Verb};
use super::write_log::{WriteId, WriteLog};
use crate::args::{Encoding, Resource};
use crate::client::{ClientError, Connection};
use crate::decode::{Malformed, Object};
use crate::latency_timeline::LatencyTimeline;
use crate::mark::{MARK, Mark};
use crate::objects::{self, Spec, collection};
use crate::pace::Pace;
use crate::read::list_of;

/// What the workers of a run share.
#[derive(Debug)]
pub(super) struct Work {
    pub run: u32,
    pub size: usize,
    /// The encoding of responses to reads.
    pub accept: Encoding,
    pub mix: Mix,
    pub pace: Pace,
    /// The start of the run.
    pub begin: Instant,
    pub deadline: Option<Instant>,
    pub log: Arc<WriteLog>,
}

/// The counts of a worker, or of all, other than the latencies by verb.
#[derive(Debug, Default)]
pub(super) struct WorkerResult {
    pub failed: u64,
    pub first_failure: Option<ClientError>,
    /// Consistent reads that did not return the worker's last write.
    pub stale: u64,
    /// The latencies of all requests by the time since the start of the run.
    pub timeline: LatencyTimeline,
}

impl WorkerResult {
    pub(super) fn add(&mut self, other: Self) {
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.stale += other.stale;
        self.timeline.merge(other.timeline);
    }
}

/// An object that a worker owns.
#[derive(Debug)]
struct OwnedObject {
    object: u32,
    /// The last write; `None` if the object does not exist.
    last_write: Option<WriteId>,
}

/// A worker.
#[derive(Debug)]
pub(super) struct Worker {
    number: u32,
    work: Arc<Work>,
    owned: Vec<OwnedObject>,
    random: fastrand::Rng,
    worked: WorkerResult,
}

impl Worker {
    /// Creates worker `number` of `workers`, which divide the objects among themselves.
    pub(super) fn new(number: u32, workers: u32, work: &Arc<Work>, seed: u64) -> Self {
        let objects = (number..work.log.objects()).step_by(workers as usize);
        Self {
            number,
            work: Arc::clone(work),
            owned: objects
                .map(|object| OwnedObject {
                    object,
                    last_write: None,
                })
                .collect(),
            random: fastrand::Rng::with_seed(seed.wrapping_add(number.into())),
            worked: WorkerResult::default(),
        }
    }

    /// Sends requests until no turn is left, time is up, or the connection fails.
    pub(super) async fn run(mut self, mut connection: Connection) -> WorkerResult {
        let work = Arc::clone(&self.work);
        while !self.owned.is_empty() {
            let turn = match work.deadline {
                // A turn that is cancelled by the end of the run is not needed.
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
            match self.send_request(&mut connection, verb, at).await {
                Ok(()) => {
                    let end = Instant::now();
                    let latencies = work.log.latencies(verb);
                    latencies.with(self.number, |some| some.record(end - begin));
                    self.worked.timeline.record(end - work.begin, end - begin);
                    work.log.operations.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    let connection_lives = error.connection_lives();
                    self.worked.failed += 1;
                    self.worked.first_failure.get_or_insert(error);
                    if !connection_lives {
                        break;
                    }
                    if !matches!(verb, Verb::Get | Verb::List) {
                        // The outcome is unknown, so the worker cannot check anything further.
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
            _ if self.owned[at].last_write.is_none() => Verb::Create,
            verb => verb,
        }
    }

    async fn send_request(
        &mut self,
        connection: &mut Connection,
        verb: Verb,
        at: usize,
    ) -> Result<(), ClientError> {
        connection.set_accept(match verb {
            Verb::Get | Verb::List => self.work.accept,
            // The responses of writes are not read, and that of a deletion is not the object.
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
        let id = self.work.log.sending(owned.object, verb == Verb::Create);
        let mark = Mark {
            run: self.work.run,
            event: self.work.log.event(id),
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
        self.work.log.acknowledged(id);
        owned.last_write = Some(id);
        Ok(())
    }

    async fn delete(&mut self, connection: &mut Connection, at: usize) -> Result<(), ClientError> {
        let owned = &mut self.owned[at];
        let id = owned
            .last_write
            .expect("an absent object is created instead");
        self.work.log.deleting(id);
        let path = path(owned.object);
        connection.send(Method::DELETE, &path, Bytes::new()).await?;
        self.work.log.acknowledged(id);
        owned.last_write = None;
        Ok(())
    }

    async fn get(&mut self, connection: &mut Connection, at: usize) -> Result<(), ClientError> {
        let owned = &self.owned[at];
        let path = path(owned.object);
        // The outer option is whether the object exists, the inner one is its mark; an object
        // without a mark is not from this run.
        let shown = match connection.send(Method::GET, &path, Bytes::new()).await {
            Ok(body) => Object::read(connection.accept(), &body).map(|it| Some(it.mark())),
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(None),
            Err(error) => return Err(error),
        };
        let shown = shown.map_err(|malformed: Malformed| ClientError::Response {
            path,
            problem: malformed.to_string(),
        })?;
        let mark = |id| Mark {
            run: self.work.run,
            event: self.work.log.event(id),
        };
        let expected = owned.last_write.map(|id| Some(mark(id)));
        self.worked.stale += u64::from(shown != expected);
        Ok(())
    }

    async fn list(&mut self, connection: &mut Connection) -> Result<(), ClientError> {
        let list = list_of(connection, &all()).await?;
        let log = &self.work.log;
        let marks = list.items.iter().filter_map(|item| item.mark);
        let ours = marks.filter(|mark| mark.run == self.work.run);
        let ids = ours.map(|mark| log.write_of(mark.event));
        let shown: HashMap<u32, WriteId> = ids.map(|id| (id.object, id)).collect();
        let stale = |owned: &&OwnedObject| shown.get(&owned.object).copied() != owned.last_write;
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
