//! Objects of a cache in another version than they are stored in, where a webhook makes that of them: batch by
//! batch. What was made is kept by `converted`; what a webhook is asked is told by `versions`.
//!
//! # Invariants
//!
//! 1. Who reads much claims one batch at a time: who wants one of those objects waits for that batch, and for
//!    no list.
//! 2. What is claimed is made, whoever still waits for it.
//! 3. The threads that requests run on parse and write no more than [`ASIDE_BYTES_MIN`] at a stretch here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

use super::converted::{Awaited, Claim, Form};
use super::versions::Versions;
use crate::api::{ColumnSet, EventType, Object};
use crate::registry::stored_form::{encode, parse};
use crate::registry::{ConversionError, has_api_version};

/// How much goes into one review, in bytes of what is stored, or one object more: some hundred objects of the
/// usual size, which is enough to make the call cheap.
const REVIEW_BYTES_MAX: usize = 1 << 20;

/// What takes longer to read than the change to another thread takes.
const ASIDE_BYTES_MIN: usize = 64 << 10;

/// A webhook that takes longer to fail is away, and does not just say no.
const SLOW: Duration = Duration::from_secs(1);

/// An object about to be told as an event of its type.
type Told = (EventType, Arc<Object>);

enum Presented {
    AsItIs(Arc<Object>),
    Awaited(Awaited),
}

impl Presented {
    async fn object(self) -> Result<Arc<Object>, ConversionError> {
        match self {
            Self::AsItIs(object) => Ok(object),
            Self::Awaited(awaited) => awaited.object().await,
        }
    }
}

/// The version that cached objects are converted to.
#[derive(Clone, Copy)]
pub(super) struct PresentedVersion<'a> {
    pub(super) api_version: &'a str,
    /// The number of the version in its definition.
    pub(super) ordinal: u32,
    pub(super) columns: &'a Arc<ColumnSet>,
}

impl Versions {
    /// Objects of a cache, each about to be told as an event of its type, in the version `version`.
    /// Cancel safe: the batch under way is made all the same, for the next who asks.
    ///
    /// # Errors
    /// One of them cannot be converted.
    pub(super) async fn present(
        self: &Arc<Self>,
        version: PresentedVersion<'_>,
        objects: Vec<Told>,
    ) -> Result<Vec<Arc<Object>>, ConversionError> {
        if !self.ask_a_webhook() {
            return Ok(objects.into_iter().map(|(_, object)| object).collect());
        }
        let mut presented = Vec::with_capacity(objects.len());
        let mut waiting = Vec::new();
        let (mut claims, mut bytes) = (Vec::new(), 0);
        for (event_type, object) in objects {
            if has_api_version(object.body_slice(), version.api_version) {
                waiting.push(Presented::AsItIs(object));
                continue;
            }
            let (awaited, claim) = self.converted.ask(Form {
                version: version.ordinal,
                key: object.key().clone(),
                at: object.resource_version(),
                deleted: event_type == EventType::Deleted,
            });
            waiting.push(Presented::Awaited(awaited));
            if let Some(claim) = claim {
                bytes += object.body_slice().len();
                claims.push((claim, (event_type, object)));
            }
            if bytes >= REVIEW_BYTES_MAX {
                self.make(version, std::mem::take(&mut claims));
                bytes = 0;
                for one in waiting.drain(..) {
                    presented.push(one.object().await?);
                }
            }
        }
        self.make(version, claims);
        for one in waiting {
            presented.push(one.object().await?);
        }
        Ok(presented)
    }

    /// Has what was claimed made.
    fn make(self: &Arc<Self>, version: PresentedVersion<'_>, claims: Vec<(Claim, Told)>) {
        if claims.is_empty() {
            return;
        }
        let batch = Batch {
            versions: self.clone(),
            to: version.api_version.to_owned(),
            columns: version.columns.clone(),
        };
        let token = self.tasks.token();
        self.tasks.spawn("conversion", async move {
            // Who waits is told by what is dropped.
            token.run_until_cancelled(batch.make(claims)).await;
        });
    }
}

/// What is done in a task of its own.
#[derive(Clone)]
struct Batch {
    versions: Arc<Versions>,
    to: String,
    columns: Arc<ColumnSet>,
}

impl Batch {
    /// A webhook that says no is asked about each alone: no object fails for its neighbour. What it took long to
    /// fail by it is not asked about the rest, for which others wait.
    async fn make(self, claims: Vec<(Claim, Told)>) {
        let (claims, told): (Vec<Claim>, Vec<Told>) = claims.into_iter().unzip();
        let begun = Instant::now();
        let mut failed = match self.made(told.clone()).await {
            Ok(made) => return self.settle(claims, made),
            Err(error) => error,
        };
        let mut is_away = begun.elapsed() >= SLOW;
        if claims.len() == 1 || is_away {
            let made = claims.iter().map(|_| Err(failed.clone())).collect();
            return self.settle(claims, made);
        }
        tracing::debug!(error = %failed, "objects are converted one by one");
        for (claim, one) in claims.into_iter().zip(told) {
            let mut made = vec![Err(failed.clone())];
            if !is_away {
                let begun = Instant::now();
                made = self.made(vec![one]).await.unwrap_or_else(|error| {
                    is_away = begun.elapsed() >= SLOW;
                    failed = error.clone();
                    vec![Err(error)]
                });
            }
            self.settle(vec![claim], made);
        }
    }

    fn settle(&self, claims: Vec<Claim>, made: Vec<Result<Arc<Object>, ConversionError>>) {
        for (claim, made) in claims.into_iter().zip(made) {
            self.versions.converted.settle(claim, made);
        }
    }

    /// What one review makes of them.
    async fn made(
        &self,
        told: Vec<Told>,
    ) -> Result<Vec<Result<Arc<Object>, ConversionError>>, ConversionError> {
        let bytes = told
            .iter()
            .map(|(_, object)| object.body_slice().len())
            .sum();
        let (batch, objects) = (self.clone(), told.clone());
        let question = move || {
            let values = objects.iter().map(|(_, object)| value_of(object));
            let values: Vec<Value> = values.collect::<Result<_, _>>()?;
            batch.versions.question(values, &batch.to)
        };
        let question = self.aside(bytes, question).await??;
        let answer: Bytes = self.versions.call(&question).await?;
        let batch = self.clone();
        let bytes = bytes.max(answer.len());
        let read = move || {
            let values = batch.versions.answered(question, &answer)?;
            let made = told.iter().zip(values);
            Ok(made
                .map(|(told, value)| batch.object(told, &value))
                .collect())
        };
        self.aside(bytes, read).await?
    }

    fn object(
        &self,
        (event_type, object): &Told,
        value: &Value,
    ) -> Result<Arc<Object>, ConversionError> {
        let json = encode(value);
        let (key, at) = (object.key().clone(), object.resource_version());
        let read = Object::decode(key, at, *event_type, &json, &self.columns);
        read.map(Arc::new)
            .map_err(|error| ConversionError(error.to_string()))
    }

    /// Does `work` on so many bytes where nobody waits for the thread.
    async fn aside<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ConversionError> {
        if bytes < ASIDE_BYTES_MIN {
            return Ok(work());
        }
        let working = self.versions.tasks.spawn_blocking("conversion-batch", work);
        // It panics, which the group is told, or is not begun any more.
        working.await.map_err(|_| ConversionError::shutting_down())
    }
}

/// An object of a cache in stored form.
fn value_of(object: &Object) -> Result<Value, ConversionError> {
    parse(object.body_slice())
        .map_err(|error| ConversionError(format!("{}: {error}", object.key())))
}
