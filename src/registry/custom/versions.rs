//! The versions of one definition together: how an object reads that was stored in one of them, and how it
//! becomes one of another. What a webhook is asked is told by `review`, what it answered is kept in
//! `converted`.
//!
//! # Definitions
//!
//! - *Reading*: the first thing that is done to what comes out of storage. It may have been written under
//!   an older schema, so what the schema of its version does not know goes and what that fills in comes.
//! - *Conversion*: between two versions. Without a webhook they differ in their name; in both cases what the
//!   schema of the new one does not know goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::converted::{Awaited, Claim, Converted, Form};
use super::definition::{Definition, Names};
use super::review::Review;
use super::schema::Schema;
use super::{Resource, is_in_version};
use crate::admission::client::{ClientConfig, WebhookClient, WebhookError};
use crate::api::{ColumnSet, EventType, Object};
use crate::cacher::{ReadError, Reading};
use crate::registry::ApiError;
use crate::registry::write::{encode, parse};
use crate::tasks::Tasks;

/// How long a webhook may take for one review; upstream's number.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// How much goes into one review, in bytes of what is stored. Answers of more than twice as much are refused,
/// and a list in another version can be of any size.
const REVIEW_BYTES_MAX: usize = 4 << 20;

/// A webhook that takes longer to fail is away, and does not just say no.
const SLOW: Duration = Duration::from_secs(1);

/// An object cannot be had in another version; in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(in crate::registry) struct ConversionError(pub(super) String);

impl From<ConversionError> for ReadError {
    fn from(error: ConversionError) -> Self {
        Self::Unconvertible(error.to_string())
    }
}

impl From<ConversionError> for ApiError {
    fn from(error: ConversionError) -> Self {
        Self::Read(error.into())
    }
}

/// The versions of a definition, as it has them at one time.
#[derive(Debug)]
pub(in crate::registry) struct Versions {
    group: String,
    names: Names,
    /// By name.
    schemas: BTreeMap<String, Arc<Schema>>,
    /// The `apiVersion` that objects are stored with.
    stored_as: String,
    /// Who converts; where nobody does, names are all that differs.
    webhook: Option<Webhook>,
    tasks: Tasks,
    converted: Converted,
    /// Cancelled when the definition says something else.
    outdated: CancellationToken,
}

#[derive(Debug)]
struct Webhook {
    config: Result<ClientConfig, WebhookError>,
    client: WebhookClient,
}

impl Versions {
    /// Those of `definition`, which has these names and schemas. Webhooks are called by `client`, in tasks of
    /// `tasks`.
    pub(super) fn new(
        definition: &Definition,
        names: &Names,
        schemas: BTreeMap<String, Arc<Schema>>,
        client: &WebhookClient,
        tasks: &Tasks,
    ) -> Self {
        let spec = &definition.spec;
        let stored = definition.storage_version();
        let stored = stored.map(|version| &*version.name).unwrap_or_default();
        let webhook = (spec.conversion.strategy == "Webhook").then(|| {
            let webhook = spec.conversion.webhook.clone().unwrap_or_default();
            Webhook {
                config: ClientConfig::parse(&webhook.client_config.unwrap_or_default()),
                client: client.clone(),
            }
        });
        Self {
            stored_as: format!("{}/{stored}", spec.group),
            group: spec.group.clone(),
            names: names.clone(),
            schemas,
            webhook,
            tasks: tasks.clone(),
            converted: Converted::default(),
            outdated: CancellationToken::new(),
        }
    }

    /// Whether they go by these names.
    pub(super) fn are_called(&self, names: &Names) -> bool {
        self.names == *names
    }

    /// The schema of a version by its name.
    pub(super) fn schema(&self, version: &str) -> Option<&Arc<Schema>> {
        self.schemas.get(version)
    }

    /// Cancelled when the definition says something else: who follows objects in what it said has to begin
    /// anew.
    pub(in crate::registry) fn outdated(&self) -> &CancellationToken {
        &self.outdated
    }

    /// Whether a webhook converts.
    pub(in crate::registry) fn ask_a_webhook(&self) -> bool {
        self.webhook.is_some()
    }

    fn schema_of(&self, object: &Value) -> Option<&Schema> {
        let version = object["apiVersion"].as_str()?;
        let version = version.strip_prefix(&self.group)?.strip_prefix('/')?;
        self.schemas.get(version).map(|schema| &**schema)
    }

    /// Makes of a stored object what it reads as. True is said if anything may have changed.
    pub(super) fn settle(&self, object: &mut Value) -> bool {
        let filled = self
            .schema_of(object)
            .is_some_and(|schema| schema.fill(object));
        // Of old, objects had none.
        let generation = &object["metadata"]["generation"];
        if object["metadata"].is_object() && generation.as_i64().unwrap_or_default() == 0 {
            object["metadata"]["generation"] = 1.into();
            return true;
        }
        filled
    }

    /// The `apiVersion` that objects are stored with.
    pub(super) fn stored_as(&self) -> &str {
        &self.stored_as
    }

    /// `object` under another name, as far as the version `to` knows what it says.
    pub(super) fn renamed(&self, mut object: Value, to: &str) -> Value {
        object["apiVersion"] = to.into();
        self.conform(&mut object);
        object
    }

    /// What a schema does not know goes, of an object that was just converted to its version.
    fn conform(&self, object: &mut Value) {
        if let Some(schema) = self.schema_of(object) {
            schema.conform(object);
        }
    }

    /// `objects` as ones of the `apiVersion` `to`.
    ///
    /// # Errors
    /// One of them cannot be converted.
    pub(in crate::registry) async fn convert(
        &self,
        objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>, ConversionError> {
        let Some(webhook) = &self.webhook else {
            let renamed = objects
                .into_iter()
                .map(|object| match object["apiVersion"] == to {
                    true => object,
                    false => self.renamed(object, to),
                });
            return Ok(renamed.collect());
        };
        let (mut done, mut others) = (Vec::with_capacity(objects.len()), Vec::new());
        for (at, object) in objects.into_iter().enumerate() {
            match object["apiVersion"] == to {
                true => done.push((at, object)),
                false => others.push((at, object)),
            }
        }
        if others.is_empty() {
            return Ok(done.into_iter().map(|(_, object)| object).collect());
        }
        let (places, others): (Vec<usize>, Vec<Value>) = others.into_iter().unzip();
        let mut converted = self.ask(webhook, others, to).await?;
        converted.iter_mut().for_each(|object| self.conform(object));
        done.extend(places.into_iter().zip(converted));
        done.sort_unstable_by_key(|(at, _)| *at);
        Ok(done.into_iter().map(|(_, object)| object).collect())
    }

    async fn ask(
        &self,
        webhook: &Webhook,
        objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>, ConversionError> {
        if let Some(stray) = objects
            .iter()
            .find(|object| self.schema_of(object).is_none())
        {
            let version = stray["apiVersion"].as_str().unwrap_or_default();
            return Err(ConversionError(format!(
                "request to convert CR from an invalid group/version: {version}"
            )));
        }
        let review = Review::new(objects, to);
        let answer = match &webhook.config {
            Ok(config) => {
                webhook
                    .client
                    .call(config, review.body(), REVIEW_TIMEOUT)
                    .await
            }
            Err(error) => Err(error.clone()),
        };
        match answer {
            Ok(answer) => review.converted(&answer).map_err(ConversionError),
            Err(error) => Err(ConversionError(review.failed(&error))),
        }
    }

    /// Objects of a cache, each about to be told as an event of its type, as clients of `resource` see them.
    /// Cancel safe: what was asked for is made all the same, for the next who asks.
    ///
    /// # Errors
    /// One of them cannot be converted.
    pub(in crate::registry) async fn present(
        self: &Arc<Self>,
        resource: &Resource,
        objects: Vec<(EventType, Arc<Object>)>,
    ) -> Result<Vec<Arc<Object>>, ConversionError> {
        let Some(custom) = resource.custom.as_ref().filter(|_| self.ask_a_webhook()) else {
            return Ok(objects.into_iter().map(|(_, object)| object).collect());
        };
        let mut claims = Vec::new();
        let mut all = Vec::with_capacity(objects.len());
        for (event_type, object) in objects {
            if is_in_version(resource, object.body_slice()) {
                all.push(Presented::AsItIs(object));
                continue;
            }
            let form = Form {
                version: custom.ordinal,
                key: object.key().clone(),
                at: object.resource_version(),
                deleted: event_type == EventType::Deleted,
            };
            let (awaited, claim) = self.converted.ask(form);
            claims.extend(claim.map(|claim| (claim, event_type, object)));
            all.push(Presented::Awaited(awaited));
        }
        self.spawn(resource, claims);
        let mut presented = Vec::with_capacity(all.len());
        for one in all {
            presented.push(match one {
                Presented::AsItIs(object) => object,
                Presented::Awaited(awaited) => awaited.object().await?,
            });
        }
        Ok(presented)
    }

    /// Has what was claimed made, whoever still waits for it then.
    fn spawn(self: &Arc<Self>, resource: &Resource, claims: Vec<Claimed>) {
        if claims.is_empty() {
            return;
        }
        let work = Work {
            versions: self.clone(),
            to: resource.api_version(),
            columns: resource.columns.clone(),
        };
        let token = self.tasks.token();
        self.tasks.spawn("conversion", async move {
            // Who waits is told by what is dropped.
            token.run_until_cancelled(work.make(claims)).await;
        });
    }
}

impl Reading for Versions {
    fn read(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let mut object: Value = serde_json::from_slice(stored).ok()?;
        let changed = self.settle(&mut object);
        // A `Value` always encodes.
        changed.then(|| serde_json::to_vec(&object).expect("a JSON value encodes"))
    }
}

type Claimed = (Claim, EventType, Arc<Object>);

enum Presented {
    AsItIs(Arc<Object>),
    Awaited(Awaited),
}

/// What is done in a task of its own.
struct Work {
    versions: Arc<Versions>,
    to: String,
    columns: Arc<ColumnSet>,
}

impl Work {
    async fn make(self, claims: Vec<Claimed>) {
        let mut away = None;
        let mut batch = Vec::new();
        let mut bytes = 0;
        for claimed in claims {
            let size = claimed.2.body_slice().len();
            if bytes + size > REVIEW_BYTES_MAX && !batch.is_empty() {
                self.make_batch(std::mem::take(&mut batch), &mut away).await;
                bytes = 0;
            }
            bytes += size;
            batch.push(claimed);
        }
        self.make_batch(batch, &mut away).await;
    }

    /// `away`: what a webhook failed by that took long to. It is not asked about the rest, for which others
    /// may wait. One that says no is asked about each alone: no object fails for its neighbour.
    async fn make_batch(&self, batch: Vec<Claimed>, away: &mut Option<ConversionError>) {
        let begun = Instant::now();
        match self.convert(&batch, away.as_ref()).await {
            Ok(values) => {
                for ((claim, event_type, _), value) in batch.into_iter().zip(values) {
                    let made = self.object(&claim, event_type, &value);
                    self.versions.converted.settle(claim, made);
                }
            }
            Err(error) if batch.len() > 1 && begun.elapsed() < SLOW && away.is_none() => {
                tracing::debug!(%error, "objects are converted one by one");
                for claimed in batch {
                    Box::pin(self.make_batch(vec![claimed], away)).await;
                }
            }
            Err(error) => {
                if begun.elapsed() >= SLOW {
                    *away = Some(error.clone());
                }
                for (claim, ..) in batch {
                    self.versions.converted.settle(claim, Err(error.clone()));
                }
            }
        }
    }

    async fn convert(
        &self,
        batch: &[Claimed],
        away: Option<&ConversionError>,
    ) -> Result<Vec<Value>, ConversionError> {
        if let Some(away) = away {
            return Err(away.clone());
        }
        let values = batch.iter().map(|(_, _, object)| value_of(object));
        self.versions
            .convert(values.collect::<Result<_, _>>()?, &self.to)
            .await
    }

    fn object(
        &self,
        claim: &Claim,
        event_type: EventType,
        value: &Value,
    ) -> Result<Arc<Object>, ConversionError> {
        let json = encode(value);
        let key = claim.form.key.clone();
        let read = Object::decode(key, claim.form.at, event_type, &json, &self.columns);
        read.map(Arc::new)
            .map_err(|error| ConversionError(error.to_string()))
    }
}

/// An object of a cache in stored form.
fn value_of(object: &Object) -> Result<Value, ConversionError> {
    parse(object.body_slice())
        .map_err(|error| ConversionError(format!("{}: {error}", object.key())))
}
