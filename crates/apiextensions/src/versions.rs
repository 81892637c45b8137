//! The versions of one definition: completes stored objects by the present schema, and converts objects between versions.
//! `review` has the requests to webhooks, and `batches` the conversion of cached objects.
//!
//! # Definitions
//!
//! - *Completion*: stored objects may have been written under an older schema, so unknown members are pruned and defaults are
//!   set when an object is read.
//! - *Conversion*: from one version to another, by a webhook or by a change of `apiVersion` only. Members that the schema of
//!   the new version does not have are pruned.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::conversion_cache::{ConversionCache, DefinitionCache};
use super::definition::{Definition, Names};
use super::review::{REVIEW_TIMEOUT, Review};
use super::schema::Schema;
use watchet_admission::client::{ClientConfig, WebhookClient, WebhookError};
use watchet_cacher::StoredTransform;
use watchet_registry::ConversionError;
use watchet_schema::KindType;
use watchet_tasks::Tasks;
use watchet_telemetry::{ChildSpan, KeyValue, text_attribute};

/// The versions of one state of a definition.
#[derive(Debug)]
pub(crate) struct Versions {
    group: String,
    names: Names,
    /// The schemas by version.
    schemas: BTreeMap<String, Arc<Schema>>,
    /// The types by version, served or not.
    kinds: BTreeMap<String, KindType>,
    /// The `apiVersion` that objects are stored with.
    stored_as: String,
    /// The conversion webhook. Without one, versions differ in their names only.
    webhook: Option<Webhook>,
    pub(super) tasks: Tasks,
    /// The objects that the webhook has converted.
    pub(super) converted: DefinitionCache,
    /// Cancelled when the definition changes.
    outdated: CancellationToken,
}

#[derive(Debug)]
struct Webhook {
    config: Result<ClientConfig, WebhookError>,
    client: WebhookClient,
}

impl Versions {
    /// Returns the versions of `definition`, with these names, schemas and types. `client` calls the webhook, in tasks of
    /// `tasks`; `cache` stores the results.
    pub(super) fn new(
        definition: &Definition,
        names: &Names,
        (schemas, kinds): (BTreeMap<String, Arc<Schema>>, BTreeMap<String, KindType>),
        client: &WebhookClient,
        tasks: &Tasks,
        cache: &Arc<ConversionCache>,
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
            converted: DefinitionCache::new(cache),
            outdated: CancellationToken::new(),
        }
    }

    /// Returns true if the resources have these names.
    pub(super) fn has_names(&self, names: &Names) -> bool {
        self.names == *names
    }

    /// Returns the schema of a version by its name.
    pub(super) fn schema(&self, version: &str) -> Option<&Arc<Schema>> {
        self.schemas.get(version)
    }

    /// Returns the type of a version by its `apiVersion`; none if the definition does not have it.
    pub(crate) fn kind(&self, api_version: &str) -> Option<&KindType> {
        let version = api_version.strip_prefix(&self.group)?.strip_prefix('/')?;
        self.kinds.get(version)
    }

    /// Returns the token that is cancelled when the definition changes: watches of its objects then start again.
    pub(crate) fn outdated(&self) -> &CancellationToken {
        &self.outdated
    }

    /// Returns true if a webhook converts.
    pub(crate) fn uses_webhook(&self) -> bool {
        self.webhook.is_some()
    }

    fn schema_of(&self, object: &Value) -> Option<&Schema> {
        let version = object["apiVersion"].as_str()?;
        let version = version.strip_prefix(&self.group)?.strip_prefix('/')?;
        self.schemas.get(version).map(|schema| &**schema)
    }

    /// Completes a stored object by its schema. Returns true if it may have changed.
    pub(super) fn complete(&self, object: &mut Value) -> bool {
        let filled = self
            .schema_of(object)
            .is_some_and(|schema| schema.fill(object));
        // Old versions of Kubernetes stored objects without a generation.
        let generation = &object["metadata"]["generation"];
        if object["metadata"].is_object() && generation.as_i64().unwrap_or_default() == 0 {
            object["metadata"]["generation"] = 1.into();
            return true;
        }
        filled
    }

    /// Returns the `apiVersion` that objects are stored with.
    pub(super) fn stored_as(&self) -> &str {
        &self.stored_as
    }

    /// Returns `object` with the `apiVersion` `to`, without members that this version does not have.
    pub(crate) fn renamed(&self, mut object: Value, to: &str) -> Value {
        object["apiVersion"] = to.into();
        self.conform(&mut object);
        object
    }

    /// Prunes an object that was just converted.
    fn conform(&self, object: &mut Value) {
        if let Some(schema) = self.schema_of(object) {
            schema.conform(object);
        }
    }

    /// Returns `objects` in the version with the `apiVersion` `to`.
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
        let request = self.request(objects, to)?;
        let response = self.call(&request).await?;
        self.converted_objects(request, &response)
    }

    /// Returns the request to convert `objects`.
    ///
    /// # Errors
    /// An object has a version that the definition does not have.
    pub(super) fn request(
        &self,
        objects: Vec<Value>,
        to: &str,
    ) -> Result<ConversionRequest, ConversionError> {
        let (mut unchanged, mut positions, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (at, object) in objects.into_iter().enumerate() {
            if object["apiVersion"] == to {
                unchanged.push((at, object));
            } else if self.schema_of(&object).is_some() {
                positions.push(at);
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
        Ok(ConversionRequest {
            unchanged,
            positions,
            review,
        })
    }

    /// Calls the webhook and returns its response; empty if no object has to be converted.
    ///
    /// # Errors
    /// The call failed.
    pub(super) async fn call(&self, request: &ConversionRequest) -> Result<Bytes, ConversionError> {
        let (Some(webhook), Some((body, review))) = (&self.webhook, &request.review) else {
            return Ok(Bytes::new());
        };
        let call = async {
            let config = webhook.config.as_ref().map_err(Clone::clone)?;
            let call = webhook.client.call(config, body.clone(), REVIEW_TIMEOUT);
            call.await
        };
        let response = self.webhook_span(review).run_fallible(call).await;
        response.map_err(|error| ConversionError(review.failed(&error)))
    }

    /// Starts the span of a call with upstream's name and attributes.
    fn webhook_span(&self, review: &Review) -> ChildSpan {
        ChildSpan::start(|| {
            let definition = format!("{}.{}", self.names.plural, self.group);
            let attributes = vec![
                text_attribute("custom-resource-definition", definition),
                text_attribute("desired-api-version", review.desired_api_version()),
                KeyValue::new("object-count", review.len() as i64),
                text_attribute("UID", review.uid()),
            ];
            ("Call conversion webhook".into(), attributes)
        })
    }

    /// Returns the objects of a request after conversion.
    ///
    /// # Errors
    /// The response is a failure, or invalid.
    pub(super) fn converted_objects(
        &self,
        request: ConversionRequest,
        response: &[u8],
    ) -> Result<Vec<Value>, ConversionError> {
        let mut all = request.unchanged;
        if let Some((_, review)) = request.review {
            let mut converted = review.converted(response).map_err(ConversionError)?;
            converted.iter_mut().for_each(|object| self.conform(object));
            all.extend(request.positions.into_iter().zip(converted));
            all.sort_unstable_by_key(|(at, _)| *at);
        }
        Ok(all.into_iter().map(|(_, object)| object).collect())
    }
}

/// The request to convert objects to another version.
#[derive(Debug)]
pub(super) struct ConversionRequest {
    /// The objects that are in that version already, with their positions.
    unchanged: Vec<(usize, Value)>,
    /// The positions of the objects in the review.
    positions: Vec<usize>,
    /// The review of the other objects, and its body.
    review: Option<(Bytes, Review)>,
}

impl StoredTransform for Versions {
    fn transform(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let mut object: Value = serde_json::from_slice(stored).ok()?;
        let changed = self.complete(&mut object);
        // A `Value` always encodes.
        changed.then(|| serde_json::to_vec(&object).expect("a JSON value encodes"))
    }
}
