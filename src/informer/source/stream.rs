//! An open watch: its events as they come, and as batches of changes for the Reflector. A half event is
//! never handed on. Where a watch begins, and what is done when it ends, is not decided here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::event::{Bookmark, Event, Peek, Verb};
use super::frames::{EVENT_BYTES_MAX, Frames};
use super::metrics::{ReflectorMetrics, Watched};
use crate::api::ResourceVersion;
use crate::informer::KubeObject;
use crate::informer::rest::{ApiResource, Body, RestError};
use crate::reflector::{Change, ChangeBatch, ChangeStream, SourceError};

/// How long a server may be late with the end of a watch. One that is later is not there any more.
const LATE_MAX: Duration = Duration::from_secs(30);

/// The type of objects that are cut down to their metadata.
const METADATA: (&str, &str) = ("meta.k8s.io/v1", "PartialObjectMetadata");

/// What a watch told.
#[derive(Debug)]
pub(super) enum Told<T> {
    /// An object changed, and has this version now.
    Change(Verb, Arc<T>, ResourceVersion),
    /// Everything up to there is told; and whether all that was there at the beginning is.
    Bookmark(ResourceVersion, bool),
}

/// The events of a watch.
pub(super) struct Events<T> {
    body: Body,
    frames: Frames,
    /// When the server should long have ended it.
    deadline: Instant,
    api_version: String,
    kind: String,
    watched: Watched,
    holds: std::marker::PhantomData<fn() -> T>,
}

impl<T: KubeObject + DeserializeOwned> Events<T> {
    /// Those of `body`, which the server was asked to end after `lasting`.
    pub(super) fn new(
        body: Body,
        resource: &ApiResource,
        lasting: Duration,
        metrics: &Arc<ReflectorMetrics>,
    ) -> Self {
        Self {
            body,
            frames: Frames::default(),
            deadline: Instant::now() + lasting + LATE_MAX,
            api_version: resource.api_version(),
            kind: resource.kind.clone(),
            watched: Watched::begin(metrics),
            holds: std::marker::PhantomData,
        }
    }

    /// The next event; `None` at an end in good order.
    ///
    /// # Errors
    /// The watch was cut off or ended by an ERROR, or something came that cannot be read. It is over.
    pub(super) async fn next(&mut self) -> Result<Option<Told<T>>, RestError> {
        loop {
            if let Some(told) = self.buffered()? {
                return Ok(Some(told));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// Waits for the next piece; `false` at the end.
    async fn more(&mut self) -> Result<bool, RestError> {
        let piece = timeout_at(self.deadline, self.body.next()).await;
        let piece = piece.map_err(|_| self.body.lost("the watch outlived its timeout"))?;
        match piece? {
            Some(piece) => self.frames.push(piece),
            None if self.frames.is_within_one() => {
                return Err(self
                    .body
                    .lost("the watch was cut in the middle of an event"));
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    /// The next event of what is there, without waiting.
    fn buffered(&mut self) -> Result<Option<Told<T>>, RestError> {
        loop {
            let line = self.frames.next().map_err(|_| {
                let detail = format!("an event is larger than {EVENT_BYTES_MAX} bytes");
                self.body.unreadable(&detail)
            })?;
            let Some(line) = line else {
                return Ok(None);
            };
            self.watched.event();
            if let Some(told) = self.told(&line)? {
                return Ok(Some(told));
            }
        }
    }

    /// What `line` tells; nothing if it is of no kind that was asked for.
    fn told(&self, line: &Bytes) -> Result<Option<Told<T>>, RestError> {
        let event = match serde_json::from_slice::<Event<T>>(line) {
            Ok(event) => event,
            Err(error) => {
                // It is dear to look twice, so only at what could not be read.
                let peek = serde_json::from_slice::<Peek>(line).ok();
                let Some(other) = peek.and_then(|p| p.unexpected(&self.api_version, &self.kind))
                else {
                    return Err(self.body.unreadable(&error));
                };
                tracing::warn!(
                    kind = self.kind,
                    other,
                    "an event of another kind is left out"
                );
                return Ok(None);
            }
        };
        match event {
            Event::Change(verb, mut object) => {
                if let Some(types) = object.types_mut()
                    && !self.expects(&types.api_version, &types.kind)
                {
                    let other = &types.kind;
                    tracing::warn!(
                        kind = self.kind,
                        other,
                        "an event of another kind is left out"
                    );
                    return Ok(None);
                }
                let version = object.metadata().resource_version.as_deref();
                let version = self.version(version.unwrap_or_default())?;
                Ok(Some(Told::Change(verb, Arc::new(object), version)))
            }
            Event::Bookmark(bookmark) => self.bookmark(&bookmark).map(Some),
            Event::Error(status) => Err(RestError::told(*status)),
            Event::Unknown(event_type) => {
                tracing::warn!(event_type, "an event of an unknown type is left out");
                Ok(None)
            }
        }
    }

    fn bookmark(&self, bookmark: &Bookmark) -> Result<Told<T>, RestError> {
        let version = self.version(bookmark.version())?;
        Ok(Told::Bookmark(version, bookmark.ends_initial_events()))
    }

    fn expects(&self, api_version: &str, kind: &str) -> bool {
        kind.is_empty()
            || self.kind.is_empty()
            || (api_version, kind) == (self.api_version.as_str(), self.kind.as_str())
            || (api_version, kind) == METADATA
    }

    fn version(&self, text: &str) -> Result<ResourceVersion, RestError> {
        text.parse().map_err(|error| self.body.unreadable(&error))
    }

    /// The changes that follow `after`, which was reached before. What has come in one piece is one
    /// batch.
    pub(super) fn into_changes(self, after: ResourceVersion) -> ChangeStream<T> {
        let metrics = self.watched.metrics().clone();
        let state = Changes {
            events: self,
            at: after,
            failed: None,
            over: false,
        };
        let batches = stream::unfold(state, async |mut changes| {
            let batch = changes.next().await?;
            Some((batch, changes))
        });
        Box::pin(batches.inspect(move |batch| {
            if let Ok(batch) = batch {
                metrics.reached(batch.at);
            }
        }))
    }
}

/// The rest of a watch as batches.
struct Changes<T> {
    events: Events<T>,
    at: ResourceVersion,
    /// What came after the last batch.
    failed: Option<SourceError>,
    over: bool,
}

impl<T: KubeObject + DeserializeOwned> Changes<T> {
    async fn next(&mut self) -> Option<Result<ChangeBatch<T>, SourceError>> {
        if self.over {
            return self.failed.take().map(Err);
        }
        let mut changes = Vec::new();
        let first = match self.events.next().await {
            Ok(first) => first,
            Err(error) => {
                self.over = true;
                return Some(Err(end_of_watch(error, self.at)));
            }
        };
        let mut next = first?;
        loop {
            match self.take(next) {
                Ok(change) => changes.extend(change),
                Err(error) => self.end(error),
            }
            if self.over {
                break;
            }
            match self.events.buffered() {
                Ok(Some(told)) => next = told,
                Ok(None) => break,
                Err(error) => {
                    self.end(end_of_watch(error, self.at));
                    break;
                }
            }
        }
        Some(Ok(ChangeBatch {
            changes,
            at: self.at,
        }))
    }

    /// After what is being handed on, this.
    fn end(&mut self, error: SourceError) {
        self.over = true;
        self.failed = Some(error);
    }

    /// Goes on to what was told; gives the change, if it is one.
    fn take(&mut self, told: Told<T>) -> Result<Option<Change<T>>, SourceError> {
        let (version, change) = match told {
            Told::Bookmark(version, _) => (version, None),
            Told::Change(verb, object, version) => {
                let change = match verb {
                    Verb::Added => Change::Added(object),
                    Verb::Modified => Change::Modified(object),
                    Verb::Deleted => Change::Deleted(object),
                };
                (version, Some(change))
            }
        };
        if version < self.at {
            return Err(SourceError::Expired {
                at: self.at,
                detail: format!("the server went back from it to {version}"),
            });
        }
        self.at = version;
        Ok(change)
    }
}

/// What a failure means to the Reflector, when the watch had come to `at`.
pub(super) fn source_error(error: RestError, at: ResourceVersion) -> SourceError {
    let detail = error.to_string();
    match &error {
        // No such collection, or a server that is not there yet and may never be, as it was restored from
        // a backup: what there is now has another history.
        _ if error.is_expired()
            || error.is_not_found()
            || error.is_too_large_resource_version() =>
        {
            SourceError::Expired { at, detail }
        }
        RestError::Answer { .. } => SourceError::Undecodable { detail },
        _ => SourceError::Unavailable {
            detail,
            retry_after: error.retry_after(),
        },
    }
}

/// As [`source_error`], of a watch that was open. A server that ends one by another ERROR cannot tell
/// what happened next, but what there is now: client-go lists then, too.
pub(super) fn end_of_watch(error: RestError, at: ResourceVersion) -> SourceError {
    match error.status() {
        Some(_) if !error.is_expired() && !error.is_too_many_requests() => {
            SourceError::Undecodable {
                detail: format!("the watch ended with: {error}"),
            }
        }
        _ => source_error(error, at),
    }
}
