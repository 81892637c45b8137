//! `TranscodingStorage`: a storage of JSON over one whose values are JSON or protobuf, as kube-apiserver stores them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::Deserialize;
use watchet_api::{ResourceVersion, StorageKey};
use watchet_storage::{
    KeyValue, ListPage, ListRequest, ListVisitor, Outcome, Put, Storage, StorageBatch,
    StorageError, StorageEvent, StorageLayer, StorageWatch, VisitedValue, undecodable_value,
};

use crate::decode::Envelope;
use crate::error::{EncodeError, InvalidProtobuf};
use crate::schema::{MAGIC, Messages};

/// The number of bytes that a list decodes before it yields to other tasks.
const BYTES_BETWEEN_YIELDS: usize = 1 << 18;

/// The maximum size of a stored object as JSON: some forty times what etcd stores by default. Short fields have long
/// names, but an object of a real cluster is at most a few times as large as its protobuf.
const JSON_BYTES_MAX: usize = 64 << 20;

/// The groups whose objects kube-apiserver always stores as JSON, though they have a protobuf encoding.
const JSON_GROUPS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// The encoding of the objects that are written to storage. As in kube-apiserver, custom resources, their definitions and
/// APIServices are always JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StorageMediaType {
    /// `application/json`
    #[default]
    Json,
    /// `application/vnd.kubernetes.protobuf`: what kube-apiserver stores by default.
    Protobuf,
}

impl StorageMediaType {
    /// Returns the media type.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

impl fmt::Display for StorageMediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of a media type that cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "media type {0:?} is not supported: use application/json or application/vnd.kubernetes.protobuf"
)]
pub struct UnsupportedMediaType(String);

impl FromStr for StorageMediaType {
    type Err = UnsupportedMediaType;

    fn from_str(text: &str) -> Result<Self, UnsupportedMediaType> {
        let all = [Self::Json, Self::Protobuf];
        let found = all.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| UnsupportedMediaType(text.to_owned()))
    }
}

/// Converts objects that a kube-apiserver has stored to the version in which the server stores them.
pub trait VersionConversion: fmt::Debug + Send + Sync + 'static {
    /// Returns `json`, the object of a value in protobuf, whose version is `api_version`, in the version that the server
    /// stores.
    ///
    /// # Errors
    /// `json` contains raw JSON that cannot be parsed into a [`serde_json::Value`], because of its depth, its numbers or its
    /// escapes.
    fn convert(&self, api_version: &str, json: Vec<u8>) -> Result<Vec<u8>, serde_json::Error>;

    /// Returns a value in JSON in the version that the server stores; `None` if it is in that version, or no object.
    fn convert_json(&self, json: &[u8]) -> Option<Vec<u8>>;
}

/// A storage whose callers read and write JSON. It decodes values in protobuf, and writes objects of built-in kinds in
/// its media type. A value that cannot be decoded is returned as an [`undecodable_value`] with the reason.
#[derive(Debug, Clone)]
pub struct TranscodingStorage {
    messages: Arc<Messages>,
    media_type: StorageMediaType,
    conversion: Option<Arc<dyn VersionConversion>>,
    storage: Arc<dyn Storage>,
}

impl TranscodingStorage {
    /// Returns `storage` with its values decoded, and written as `media_type`. Without a `conversion` they are returned in
    /// the version in which they are stored.
    pub fn new(
        messages: Arc<Messages>,
        media_type: StorageMediaType,
        conversion: Option<Arc<dyn VersionConversion>>,
        storage: Arc<dyn Storage>,
    ) -> Arc<Self> {
        Arc::new(Self {
            messages,
            media_type,
            conversion,
            storage,
        })
    }

    /// Returns the JSON of a stored value; `None` if that is the value itself. If it cannot be decoded, the result is an
    /// [`undecodable_value`].
    fn json(&self, value: &[u8]) -> Option<Bytes> {
        if !value.starts_with(MAGIC) {
            let converted = self.conversion.as_ref()?.convert_json(value)?;
            return Some(converted.into());
        }
        Some(match self.decode(value) {
            Ok(json) => json.into(),
            Err(error) => undecodable_value(&advice(&error)),
        })
    }

    fn decode(&self, value: &[u8]) -> Result<Vec<u8>, InvalidProtobuf> {
        let json = self.messages.to_json(value, JSON_BYTES_MAX)?;
        let Some(conversion) = &self.conversion else {
            return Ok(json);
        };
        let api_version = Envelope::read(value)?.api_version;
        conversion
            .convert(api_version, json)
            .map_err(|error| InvalidProtobuf::Json(error.to_string()))
    }

    /// Returns the kind of the object `json` if it is stored as protobuf, given that media type.
    fn protobuf_type<'j>(&self, json: &'j [u8]) -> Option<TypeMeta<'j>> {
        let of: TypeMeta<'_> = serde_json::from_slice(json).ok()?;
        let group = of
            .api_version
            .split_once('/')
            .map_or("", |(group, _)| group);
        let is_json = JSON_GROUPS.contains(&group);
        (!is_json && self.messages.has_kind(&of.api_version, &of.kind)).then_some(of)
    }

    /// Returns true if a stored value would be written in another media type now.
    fn has_other_media_type(&self, value: &[u8]) -> bool {
        match (self.media_type, value.starts_with(MAGIC)) {
            (StorageMediaType::Json, is_protobuf) => is_protobuf,
            (StorageMediaType::Protobuf, true) => false,
            (StorageMediaType::Protobuf, false) => self.protobuf_type(value).is_some(),
        }
    }

    /// Returns `json` in the media type of new values.
    fn encode(&self, json: Bytes) -> Result<Bytes, EncodeError> {
        if self.media_type != StorageMediaType::Protobuf {
            return Ok(json);
        }
        let Some(of) = self.protobuf_type(&json) else {
            return Ok(json);
        };
        let encoded = self
            .messages
            .to_protobuf((&of.api_version, &of.kind), &json)?;
        Ok(encoded.unwrap_or(json))
    }

    /// Decodes `items`.
    async fn decode_items(&self, items: &mut [KeyValue]) {
        let mut bytes = 0;
        for item in items {
            item.is_stale |= self.has_other_media_type(&item.value);
            let Some(json) = self.json(&item.value) else {
                continue;
            };
            bytes += item.value.len();
            item.value = json;
            if bytes > BYTES_BETWEEN_YIELDS {
                bytes = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    async fn decode_outcome(&self, mut outcome: Outcome) -> Outcome {
        if let Outcome::Refused(Some(item)) = &mut outcome {
            self.decode_items(std::slice::from_mut(item)).await;
        }
        outcome
    }

    fn decode_batch(&self, mut batch: StorageBatch) -> StorageBatch {
        for event in &mut batch.events {
            let StorageEvent {
                value, previous, ..
            } = event;
            for value in [value, previous].into_iter().flatten() {
                if let Some(json) = self.json(value) {
                    *value = json;
                }
            }
        }
        batch
    }
}

/// Returns what is wrong with a stored value and what to do.
fn advice(error: &InvalidProtobuf) -> String {
    match error {
        InvalidProtobuf::UnknownKind { api_version, kind } => format!(
            "it is protobuf of kind {kind:?} of {api_version:?}, which this server does not serve: let a kube-apiserver \
             rewrite it in a version that this server serves, or delete the key from storage"
        ),
        _ => format!(
            "it is protobuf that cannot be decoded: {error}: restore the value from a backup, or delete the key from storage"
        ),
    }
}

/// The type of an object, in its JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

/// Passes the values of a visit as JSON.
struct DecodingVisitor {
    storage: TranscodingStorage,
    visitor: Arc<dyn ListVisitor>,
}

impl ListVisitor for DecodingVisitor {
    fn visit(&self, index: usize, values: &[VisitedValue<'_>]) {
        let json = values.iter().map(|value| self.storage.json(value.value));
        let json: Vec<Option<Bytes>> = json.collect();
        if json.iter().all(Option::is_none) {
            self.visitor.visit(index, values);
            return;
        }
        let decoded = values.iter().zip(&json).map(|(value, json)| VisitedValue {
            value: json.as_deref().unwrap_or(value.value),
            ..*value
        });
        self.visitor.visit(index, &decoded.collect::<Vec<_>>());
    }
}

#[async_trait]
impl StorageLayer for TranscodingStorage {
    fn inner(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        let (mut item, revision) = self.storage.get(key).await?;
        self.decode_items(item.as_mut_slice()).await;
        Ok((item, revision))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        let mut page = self.storage.list(request).await?;
        self.decode_items(&mut page.items).await;
        Ok(page)
    }

    async fn visit(
        &self,
        prefix: &StorageKey,
        visitor: Arc<dyn ListVisitor>,
    ) -> Option<Result<ResourceVersion, StorageError>> {
        let visitor = DecodingVisitor {
            storage: self.clone(),
            visitor,
        };
        self.storage.visit(prefix, Arc::new(visitor)).await
    }

    async fn put(&self, mut put: Put) -> Result<Outcome, StorageError> {
        put.value = self.encode(put.value).map_err(|error| {
            StorageError::Failed(format!("cannot encode {} as protobuf: {error}", put.key))
        })?;
        Ok(self.decode_outcome(self.storage.put(put).await?).await)
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        let outcome = self.storage.delete(key, expect).await?;
        Ok(self.decode_outcome(outcome).await)
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        let watch = self.storage.watch(prefix, after).await?;
        let storage = self.clone();
        let batches = watch
            .batches
            .map(move |batch| Ok(storage.decode_batch(batch?)));
        Ok(StorageWatch {
            batches: Box::pin(batches),
            progress: watch.progress,
        })
    }
}

#[cfg(test)]
mod tests;
