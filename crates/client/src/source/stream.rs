//! An open watch: its events, and their conversion to batches of changes for the Reflector.
//! Incomplete events are never passed on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::event::{Bookmark, Event, Peek, Verb};
use super::frames::{EVENT_BYTES_MAX, Frames};
use super::metrics::{ReflectorMetrics, WatchTimer};
use crate::KubeObject;
use crate::rest::{ApiResource, Body, RestError};
use watchet_api::ResourceVersion;
use watchet_reflector::{Change, ChangeBatch, ChangeStream, SourceError};

/// How late the server may end a watch after its timeout. After that the connection is considered
/// dead.
const LATE_MAX: Duration = Duration::from_secs(30);

/// The type of objects reduced to their metadata.
const METADATA: (&str, &str) = ("meta.k8s.io/v1", "PartialObjectMetadata");

/// A decoded event.
#[derive(Debug)]
pub(super) enum DecodedEvent<T> {
    /// A changed object and its new version.
    Change(Verb, Arc<T>, ResourceVersion),
    /// A bookmark, and whether it ends the initial events.
    Bookmark(ResourceVersion, bool),
}

/// The events of a watch.
pub(super) struct Events<T> {
    body: Body,
    frames: Frames,
    /// When the server should have ended the watch at the latest.
    deadline: Instant,
    api_version: String,
    kind: String,
    watched: WatchTimer,
    holds: std::marker::PhantomData<fn() -> T>,
}

impl<T: KubeObject + DeserializeOwned> Events<T> {
    /// Creates the events of `body`, of a watch with the timeout `lasting`.
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
            watched: WatchTimer::begin(metrics),
            holds: std::marker::PhantomData,
        }
    }

    /// Returns the next event; `None` at a regular end.
    ///
    /// # Errors
    /// The connection failed, an ERROR event arrived, or an event cannot be decoded. The watch is
    /// over.
    pub(super) async fn next(&mut self) -> Result<Option<DecodedEvent<T>>, RestError> {
        loop {
            if let Some(event) = self.buffered()? {
                return Ok(Some(event));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// Waits for the next piece; returns false at the end.
    async fn more(&mut self) -> Result<bool, RestError> {
        let piece = timeout_at(self.deadline, self.body.next()).await;
        let piece = piece.map_err(|_| self.body.lost("the watch exceeded its timeout"))?;
        match piece? {
            Some(piece) => self.frames.push(piece),
            None if self.frames.is_within_one() => {
                return Err(self.body.lost("the watch ended in the middle of an event"));
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the next received event, without waiting.
    fn buffered(&mut self) -> Result<Option<DecodedEvent<T>>, RestError> {
        loop {
            let line = self.frames.next().map_err(|_| {
                let detail = format!("an event is larger than {EVENT_BYTES_MAX} bytes");
                self.body.unreadable(&detail)
            })?;
            let Some(line) = line else {
                return Ok(None);
            };
            self.watched.event();
            if let Some(event) = self.decode(&line)? {
                return Ok(Some(event));
            }
        }
    }

    /// Decodes `line`; `None` if its kind or type was not requested.
    fn decode(&self, line: &Bytes) -> Result<Option<DecodedEvent<T>>, RestError> {
        let event = match serde_json::from_slice::<Event<T>>(line) {
            Ok(event) => event,
            Err(error) => {
                // Decoding twice is expensive, so only after a failure.
                let peek = serde_json::from_slice::<Peek>(line).ok();
                let Some(other) = peek.and_then(|p| p.unexpected(&self.api_version, &self.kind))
                else {
                    return Err(self.body.unreadable(&error));
                };
                tracing::warn!(
                    kind = self.kind,
                    other,
                    "ignored an event with an object of another kind"
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
                        "ignored an event with an object of another kind"
                    );
                    return Ok(None);
                }
                let version = object.metadata().resource_version.as_deref();
                let version = self.version(version.unwrap_or_default())?;
                Ok(Some(DecodedEvent::Change(verb, Arc::new(object), version)))
            }
            Event::Bookmark(bookmark) => self.bookmark(&bookmark).map(Some),
            Event::Error(status) => Err(RestError::from_status(*status)),
            Event::Unknown(event_type) => {
                tracing::warn!(event_type, "ignored an event of an unknown type");
                Ok(None)
            }
        }
    }

    fn bookmark(&self, bookmark: &Bookmark) -> Result<DecodedEvent<T>, RestError> {
        let version = self.version(bookmark.version())?;
        Ok(DecodedEvent::Bookmark(
            version,
            bookmark.ends_initial_events(),
        ))
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

    /// Converts the events into batches of the changes after `after`. Events received in one piece
    /// form one batch.
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

/// A watch as batches of changes.
struct Changes<T> {
    events: Events<T>,
    at: ResourceVersion,
    /// The error that followed the last batch.
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
            match self.advance(next) {
                Ok(change) => changes.extend(change),
                Err(error) => self.end(error),
            }
            if self.over {
                break;
            }
            match self.events.buffered() {
                Ok(Some(event)) => next = event,
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

    /// Stores an error to return after the current batch.
    fn end(&mut self, error: SourceError) {
        self.over = true;
        self.failed = Some(error);
    }

    /// Advances to an event; returns its change, if it is one.
    fn advance(&mut self, event: DecodedEvent<T>) -> Result<Option<Change<T>>, SourceError> {
        let (version, change) = match event {
            DecodedEvent::Bookmark(version, _) => (version, None),
            DecodedEvent::Change(verb, object, version) => {
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
                detail: format!("the version went back from it to {version}"),
            });
        }
        self.at = version;
        Ok(change)
    }
}

/// Converts an error of a watch that had reached `at`.
pub(super) fn source_error(error: RestError, at: ResourceVersion) -> SourceError {
    let detail = error.to_string();
    match &error {
        // The collection does not exist, or the server may never reach the version, because it was
        // restored from a backup: its history is a different one.
        _ if error.is_expired()
            || error.is_not_found()
            || error.is_too_large_resource_version() =>
        {
            SourceError::Expired { at, detail }
        }
        RestError::InvalidResponse { .. } => SourceError::Undecodable { detail },
        _ => SourceError::Unavailable {
            detail,
            retry_after: error.retry_after(),
        },
    }
}

/// Converts an error of an open watch, like [`source_error`]. After any ERROR event the only way to
/// continue is a list, as in client-go.
pub(super) fn end_of_watch(error: RestError, at: ResourceVersion) -> SourceError {
    match error.status() {
        Some(_) if !error.is_expired() && !error.is_too_many_requests() => {
            SourceError::Undecodable {
                detail: format!("the watch ended with an error: {error}"),
            }
        }
        _ => source_error(error, at),
    }
}
