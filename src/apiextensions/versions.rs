//! The versions of one definition together: how an object reads that was stored in one of them, and how it
//! becomes one of another. What a webhook is asked is told by `review`; how what a cache has is converted, by
//! `batches`.
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

use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::converted::{Converted, Pool};
use super::definition::{Definition, Names};
use super::review::Review;
use super::schema::Schema;
use crate::admission::client::{ClientConfig, WebhookClient, WebhookError};
use crate::cacher::StoredTransform;
use crate::registry::ConversionError;
use crate::schema::KindType;
use crate::tasks::Tasks;

/// How long a webhook may take for one review; upstream's number.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// The versions of a definition, as it has them at one time.
#[derive(Debug)]
pub(crate) struct Versions {
    group: String,
    names: Names,
    /// By name.
    schemas: BTreeMap<String, Arc<Schema>>,
    /// The types of the versions, served or not, by name.
    kinds: BTreeMap<String, KindType>,
    /// The `apiVersion` that objects are stored with.
    stored_as: String,
    /// Who converts; where nobody does, names are all that differs.
    webhook: Option<Webhook>,
    pub(super) tasks: Tasks,
    /// What the webhook made.
    pub(super) converted: Converted,
    /// Cancelled when the definition says something else.
    outdated: CancellationToken,
}

#[derive(Debug)]
struct Webhook {
    config: Result<ClientConfig, WebhookError>,
    client: WebhookClient,
}

impl Versions {
    /// Those of `definition`, which has these names, schemas and types. Webhooks are called by `client`, in tasks of
    /// `tasks`; what they make is kept on `pool`.
    pub(super) fn new(
        definition: &Definition,
        names: &Names,
        (schemas, kinds): (BTreeMap<String, Arc<Schema>>, BTreeMap<String, KindType>),
        client: &WebhookClient,
        tasks: &Tasks,
        pool: &Arc<Pool>,
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
            kinds,
            webhook,
            tasks: tasks.clone(),
            converted: Converted::new(pool),
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

    /// Returns the type of a version by its `apiVersion`; none if the definition does not have it.
    pub(crate) fn kind(&self, api_version: &str) -> Option<&KindType> {
        let version = api_version.strip_prefix(&self.group)?.strip_prefix('/')?;
        self.kinds.get(version)
    }

    /// Cancelled when the definition says something else: who follows objects in what it said has to begin
    /// anew.
    pub(crate) fn outdated(&self) -> &CancellationToken {
        &self.outdated
    }

    /// Whether a webhook converts.
    pub(crate) fn ask_a_webhook(&self) -> bool {
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
    pub(crate) fn renamed(&self, mut object: Value, to: &str) -> Value {
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
    pub(crate) async fn convert(
        &self,
        objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>, ConversionError> {
        if self.webhook.is_none() {
            let renamed = objects
                .into_iter()
                .map(|object| match object["apiVersion"] == to {
                    true => object,
                    false => self.renamed(object, to),
                });
            return Ok(renamed.collect());
        }
        let question = self.question(objects, to)?;
        let answer = self.call(&question).await?;
        self.answered(question, &answer)
    }

    /// What the webhook has to be asked about `objects`.
    ///
    /// # Errors
    /// One is of no version that is known.
    pub(super) fn question(
        &self,
        objects: Vec<Value>,
        to: &str,
    ) -> Result<Question, ConversionError> {
        let (mut done, mut places, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (at, object) in objects.into_iter().enumerate() {
            if object["apiVersion"] == to {
                done.push((at, object));
            } else if self.schema_of(&object).is_some() {
                places.push(at);
                others.push(object);
            } else {
                let version = object["apiVersion"].as_str().unwrap_or_default();
                return Err(ConversionError(format!(
                    "request to convert CR from an invalid group/version: {version}"
                )));
            }
        }
        let review = (!others.is_empty()).then(|| {
            let review = Review::new(others, to);
            (review.body(), review)
        });
        Ok(Question {
            done,
            places,
            review,
        })
    }

    /// What the webhook answers; nothing if there is nothing to ask.
    ///
    /// # Errors
    /// It cannot be asked.
    pub(super) async fn call(&self, question: &Question) -> Result<Bytes, ConversionError> {
        let (Some(webhook), Some((body, review))) = (&self.webhook, &question.review) else {
            return Ok(Bytes::new());
        };
        let answer = match &webhook.config {
            Ok(config) => {
                let asked = webhook.client.call(config, body.clone(), REVIEW_TIMEOUT);
                asked.await
            }
            Err(error) => Err(error.clone()),
        };
        answer.map_err(|error| ConversionError(review.failed(&error)))
    }

    /// The objects of a question, converted.
    ///
    /// # Errors
    /// The answer says no, or is none.
    pub(super) fn answered(
        &self,
        question: Question,
        answer: &[u8],
    ) -> Result<Vec<Value>, ConversionError> {
        let mut done = question.done;
        if let Some((_, review)) = question.review {
            let mut converted = review.converted(answer).map_err(ConversionError)?;
            converted.iter_mut().for_each(|object| self.conform(object));
            done.extend(question.places.into_iter().zip(converted));
            done.sort_unstable_by_key(|(at, _)| *at);
        }
        Ok(done.into_iter().map(|(_, object)| object).collect())
    }
}

/// Objects on their way to another version.
#[derive(Debug)]
pub(super) struct Question {
    /// Those that are of that version already, by their places.
    done: Vec<(usize, Value)>,
    places: Vec<usize>,
    /// What is asked about those at `places`, and how it is sent.
    review: Option<(Bytes, Review)>,
}

impl StoredTransform for Versions {
    fn transform(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let mut object: Value = serde_json::from_slice(stored).ok()?;
        let changed = self.settle(&mut object);
        // A `Value` always encodes.
        changed.then(|| serde_json::to_vec(&object).expect("a JSON value encodes"))
    }
}
