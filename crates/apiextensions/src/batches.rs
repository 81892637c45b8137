//! Conversion of cached objects by a webhook, in batches. `conversion_cache` stores the results; `versions` builds the reviews.
//!
//! # Invariants
//!
//! 1. A large list starts one batch at a time: a request for one of its objects waits for that batch and not for the list.
//! 2. A started conversion continues even if the request that started it is cancelled.
//! 3. Requests parse and encode at most [`BLOCKING_BYTES_MIN`] here on their own threads without a pause.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

use super::conversion_cache::{Conversion, ConversionKey, PendingConversion, StartedConversion};
use super::versions::Versions;
use watchet_api::{ColumnSet, EventType, Object};
use watchet_registry::stored_form::{encode, parse};
use watchet_registry::{ConversionError, has_api_version};

/// The size of a review in bytes of stored objects, which the last object may exceed. It is the size of some hundred
/// usual objects, so that the cost of the call per object is small.
const REVIEW_BYTES_MAX: usize = 1 << 20;

/// The minimum size that is parsed on another thread. Smaller inputs take less time than the change of threads.
const BLOCKING_BYTES_MIN: usize = 64 << 10;

/// The time that distinguishes failures: a webhook that takes longer to fail is unavailable, and a faster failure is a
/// rejection.
const SLOW: Duration = Duration::from_secs(1);

/// An object that is about to be sent as an event of its type.
type EventObject = (EventType, Arc<Object>);

/// An object in the requested version.
enum Presented {
    Ready(Arc<Object>),
    Pending(PendingConversion),
}

impl Presented {
    async fn object(self) -> Result<Arc<Object>, ConversionError> {
        match self {
            Self::Ready(object) => Ok(object),
            Self::Pending(pending) => pending.object().await,
        }
    }
}

/// The version that cached objects are converted to.
#[derive(Clone, Copy)]
pub(super) struct RequestedVersion<'a> {
    pub(super) api_version: &'a str,
    /// The number of the version in its definition.
    pub(super) ordinal: u32,
    pub(super) columns: &'a Arc<ColumnSet>,
}

impl Versions {
    /// Returns cached objects, each about to be sent as an event of its type, in the version `version`. Cancel safe:
    /// a started conversion continues, and the next request can use the result.
    ///
    /// # Errors
    /// One of them cannot be converted.
    pub(super) async fn convert_cached(
        self: &Arc<Self>,
        version: RequestedVersion<'_>,
        objects: Vec<EventObject>,
    ) -> Result<Vec<Arc<Object>>, ConversionError> {
        if !self.uses_webhook() {
            return Ok(objects.into_iter().map(|(_, object)| object).collect());
        }
        let mut converted = Vec::with_capacity(objects.len());
        let mut waiting = Vec::new();
        let (mut started, mut bytes) = (Vec::new(), 0);
        for (event_type, object) in objects {
            if has_api_version(object.body_slice(), version.api_version) {
                waiting.push(Presented::Ready(object));
                continue;
            }
            let conversion = self.converted.get_or_start(ConversionKey {
                version: version.ordinal,
                key: object.key().clone(),
                at: object.resource_version(),
                deleted: event_type == EventType::Deleted,
            });
            waiting.push(match conversion {
                Conversion::Done(object) => Presented::Ready(object),
                Conversion::Pending(pending) => Presented::Pending(pending),
                Conversion::Started(conversion, pending) => {
                    bytes += object.body_slice().len();
                    started.push((conversion, (event_type, object)));
                    Presented::Pending(pending)
                }
            });
            if bytes >= REVIEW_BYTES_MAX {
                self.start_batch(version, std::mem::take(&mut started));
                bytes = 0;
                for one in waiting.drain(..) {
                    converted.push(one.object().await?);
                }
            }
        }
        self.start_batch(version, started);
        for one in waiting {
            converted.push(one.object().await?);
        }
        Ok(converted)
    }

    /// Spawns a task that does the conversions of a batch.
    fn start_batch(
        self: &Arc<Self>,
        version: RequestedVersion<'_>,
        started: Vec<(StartedConversion, EventObject)>,
    ) {
        if started.is_empty() {
            return;
        }
        let batch = Batch {
            versions: self.clone(),
            to: version.api_version.to_owned(),
            columns: version.columns.clone(),
        };
        let token = self.tasks.token();
        // The span belongs to the trace of the request that starts the conversion. Other requests may wait for the same objects.
        let conversion = watchet_telemetry::with_current_context(batch.run(started));
        self.tasks.spawn("conversion", async move {
            // If the server stops, the conversions are dropped, which fails the requests that wait for them.
            token.run_until_cancelled(conversion).await;
        });
    }
}

/// The conversion of a batch to one version.
#[derive(Clone)]
struct Batch {
    versions: Arc<Versions>,
    to: String,
    columns: Arc<ColumnSet>,
}

impl Batch {
    /// Does the conversions. If the webhook rejects a batch, each object is converted alone, so that no object fails
    /// because of another. After a slow failure the webhook is not called again, because other requests wait.
    async fn run(self, started: Vec<(StartedConversion, EventObject)>) {
        let (started, objects): (Vec<StartedConversion>, Vec<EventObject>) =
            started.into_iter().unzip();
        let begun = Instant::now();
        let mut failed = match self.convert(objects.clone()).await {
            Ok(made) => return self.finish(started, made),
            Err(error) => error,
        };
        let mut is_unavailable = begun.elapsed() >= SLOW;
        if started.len() == 1 || is_unavailable {
            let made = started.iter().map(|_| Err(failed.clone())).collect();
            return self.finish(started, made);
        }
        tracing::debug!(error = %failed, "objects are converted one by one");
        for (conversion, one) in started.into_iter().zip(objects) {
            let mut made = vec![Err(failed.clone())];
            if !is_unavailable {
                let begun = Instant::now();
                made = self.convert(vec![one]).await.unwrap_or_else(|error| {
                    is_unavailable = begun.elapsed() >= SLOW;
                    failed = error.clone();
                    vec![Err(error)]
                });
            }
            self.finish(vec![conversion], made);
        }
    }

    fn finish(
        &self,
        started: Vec<StartedConversion>,
        made: Vec<Result<Arc<Object>, ConversionError>>,
    ) {
        for (conversion, made) in started.into_iter().zip(made) {
            self.versions.converted.finish(conversion, made);
        }
    }

    /// Converts objects by one review.
    async fn convert(
        &self,
        objects: Vec<EventObject>,
    ) -> Result<Vec<Result<Arc<Object>, ConversionError>>, ConversionError> {
        let bytes = objects
            .iter()
            .map(|(_, object)| object.body_slice().len())
            .sum();
        let (batch, cached) = (self.clone(), objects.clone());
        let request = move || {
            let values = cached.iter().map(|(_, object)| value_of(object));
            let values: Vec<Value> = values.collect::<Result<_, _>>()?;
            batch.versions.request(values, &batch.to)
        };
        let request = self.run_blocking_if_large(bytes, request).await??;
        let response: Bytes = self.versions.call(&request).await?;
        let batch = self.clone();
        let bytes = bytes.max(response.len());
        let read = move || {
            let values = batch.versions.converted_objects(request, &response)?;
            let made = objects.iter().zip(values);
            Ok(made
                .map(|(object, value)| batch.object(object, &value))
                .collect())
        };
        self.run_blocking_if_large(bytes, read).await?
    }

    fn object(
        &self,
        (event_type, object): &EventObject,
        value: &Value,
    ) -> Result<Arc<Object>, ConversionError> {
        let json = encode(value);
        let (key, at) = (object.key().clone(), object.resource_version());
        let read = Object::decode(key, at, *event_type, &json, &self.columns);
        read.map(Arc::new)
            .map_err(|error| ConversionError(error.to_string()))
    }

    /// Runs `work`, on another thread if `bytes` is large.
    async fn run_blocking_if_large<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ConversionError> {
        if bytes < BLOCKING_BYTES_MIN {
            return Ok(work());
        }
        let working = self.versions.tasks.spawn_blocking("conversion-batch", work);
        // Either the task panicked, which the task group reports, or it was not started because the server stops.
        working.await.map_err(|_| ConversionError::shutting_down())
    }
}

/// Returns a cached object in stored form.
fn value_of(object: &Object) -> Result<Value, ConversionError> {
    parse(object.body_slice())
        .map_err(|error| ConversionError(format!("{}: {error}", object.key())))
}
