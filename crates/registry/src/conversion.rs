//! Conversion between the versions of a resource: which representation a client sees, and which is stored. Two
//! built-in kinds have two representations of one stored object, which only differ in the names of members. Custom
//! resources have any number of versions, which a [`VersionConverter`] converts.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::error::ApiError;
use super::resource::Resource;
use super::stored_form::Current;
use super::version_converter::{ConversionError, VersionConverter, has_api_version};
use watchet_api::{EventType, Object};
use watchet_cacher::ReadError;
use watchet_schema::Types;

/// Returns true if stored bytes are of the version of a resource that is defined at run time. May return false for
/// bytes that another program wrote.
pub(crate) fn is_in_version(resource: &Resource, body: &[u8]) -> bool {
    !resource.strategy.is_builtin() && has_api_version(body, &resource.api_version())
}

/// Returns true if a webhook has to convert a cached object for clients of `resource`.
pub(crate) fn needs_webhook(resource: &Resource, body: &[u8]) -> bool {
    webhook_converter(resource).is_some() && !is_in_version(resource, body)
}

/// Returns the converter of `resource`, if it calls a webhook.
pub(crate) fn webhook_converter(resource: &Resource) -> Option<&dyn VersionConverter> {
    let converter = resource.strategy.converter();
    converter.filter(|converter| converter.uses_webhook())
}

/// Returns the converter of `resource`, if it changes only the names of versions, and storage may have another version.
pub(crate) fn renaming_converter(resource: &Resource) -> Option<&dyn VersionConverter> {
    let converter = resource.strategy.converter();
    converter.filter(|converter| !converter.uses_webhook() && converter.may_differ_in_storage())
}

/// Returns the present object of a write in the version of `resource`.
///
/// # Errors
/// It cannot be converted.
pub(crate) async fn current(
    resource: &Resource,
    mut current: Current,
) -> Result<Current, ApiError> {
    if let Some(converter) = resource.strategy.converter() {
        let mut value = current.value.clone();
        converter.complete(&mut value);
        let is_unchanged =
            value == current.value && value["apiVersion"] == converter.storage_version();
        let converted = run_until_outdated(converter, converted_to(resource, value)).await?;
        let raw = std::mem::replace(&mut current.value, converted);
        current.raw = Some(raw).filter(|_| !is_unchanged);
    }
    Ok(current)
}

/// Returns `object`, which is of one of the versions of `resource`, in the version of `resource`.
///
/// # Errors
/// It cannot be converted.
pub(crate) async fn converted_to(
    resource: &Resource,
    object: Value,
) -> Result<Value, ConversionError> {
    match resource.strategy.converter() {
        Some(converter) => {
            let to = resource.api_version();
            Ok(one(converter.convert(vec![object], &to).await?))
        }
        None => Ok(object),
    }
}

/// Returns `objects` in the version `api_version`: all of them, or one error for each.
///
/// # Errors
/// [`ApiError::NotServed`] when the definition changes meanwhile.
pub(crate) async fn convert_all(
    converter: &dyn VersionConverter,
    objects: Vec<Value>,
    api_version: &str,
) -> Result<Vec<Result<Value, ConversionError>>, ApiError> {
    let count = objects.len();
    let converting = async { Ok(converter.convert(objects, api_version).await) };
    Ok(match run_until_outdated(converter, converting).await? {
        Ok(objects) => objects.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); count],
    })
}

/// Returns the stored form of an object that a client of `resource` wrote, with the defaults of the version that it is
/// stored in; `None` if that is the object itself.
///
/// # Errors
/// It cannot be converted.
pub(crate) async fn stored_form(
    resource: &Resource,
    object: &Value,
) -> Result<Option<Value>, ApiError> {
    match resource.strategy.converter() {
        Some(converter) if !converter.is_storage_version() => {
            let converting = converter.convert(vec![object.clone()], converter.storage_version());
            let mut stored = one(run_until_outdated(converter, converting).await?);
            converter.complete(&mut stored);
            Ok(Some(stored))
        }
        _ => Ok(None),
    }
}

/// Applies the current schema to an object that was just stored; returns `None` if that changes nothing.
pub(crate) fn completed(resource: &Resource, stored: &[u8]) -> Option<Vec<u8>> {
    let converter = resource.strategy.converter()?;
    // The schema of the storage version has already completed the object.
    match converter.is_storage_version() {
        true => None,
        false => converter.stored_transform().transform(stored),
    }
}

/// Returns cached objects as clients of `resource` see them.
///
/// # Errors
/// One of them cannot be converted.
pub(crate) async fn convert_cached(
    resource: &Resource,
    objects: Vec<Arc<Object>>,
) -> Result<Vec<Arc<Object>>, ApiError> {
    let Some(converter) = webhook_converter(resource) else {
        return Ok(objects);
    };
    let objects = objects.into_iter().map(|o| (EventType::Added, o)).collect();
    run_until_outdated(
        converter,
        converter.convert_cached(&resource.columns, objects),
    )
    .await
}

/// Does the same as [`convert_cached`] for one object.
///
/// # Errors
/// The errors of [`convert_cached`].
pub(crate) async fn convert_cached_one(
    resource: &Resource,
    object: Arc<Object>,
) -> Result<Arc<Object>, ApiError> {
    let Some(converter) = webhook_converter(resource) else {
        return Ok(object);
    };
    let objects = vec![(EventType::Added, object)];
    let converted = run_until_outdated(
        converter,
        converter.convert_cached(&resource.columns, objects),
    )
    .await?;
    Ok(one(converted))
}

/// Runs a conversion until it ends or its definition changes.
///
/// # Errors
/// The error of the conversion; [`ApiError::NotServed`] when the definition changes meanwhile.
async fn run_until_outdated<T>(
    converter: &dyn VersionConverter,
    converting: impl Future<Output = Result<T, ConversionError>>,
) -> Result<T, ApiError> {
    let converted = tokio::select! {
        // The result has priority: most results are cached, and were valid at the time of the request.
        biased;
        converted = converting => converted,
        () = converter.outdated().cancelled() => return Err(ApiError::NotServed),
    };
    match converted {
        Err(_) if converter.outdated().is_cancelled() => Err(ApiError::NotServed),
        converted => Ok(converted?),
    }
}

/// Returns the result of the conversion of one object.
fn one<T>(mut all: Vec<T>) -> T {
    all.pop()
        .expect("a conversion returns as many objects as it gets")
}

/// Returns the stored form of an object of `resource`.
pub(crate) fn to_storage(types: &Arc<Types>, resource: &Resource, object: Value) -> Value {
    resource.strategy.to_storage(types, object)
}

/// Returns an object in stored form as a client of `resource` sees it.
pub(crate) fn from_storage(resource: &Resource, object: Value) -> Value {
    resource.strategy.convert_from_storage(object)
}

/// Returns an object, which has an `apiVersion`, in another version of its kind.
pub(crate) fn to_version<'o>(
    types: &Arc<Types>,
    resource: &Resource,
    object: &'o Value,
    api_version: &str,
) -> Cow<'o, Value> {
    resource.strategy.to_version(types, object, api_version)
}

/// Returns true if objects of `resource` may have to be converted after the verbs returned them.
pub(crate) fn may_differ(resource: &Resource) -> bool {
    resource.strategy.differs_from_storage() || renaming_converter(resource).is_some()
}

/// Returns what clients of `resource` see of `body`, or `None` if that is `body` itself. Objects that a webhook
/// converts are converted by the verbs.
///
/// # Errors
/// [`ReadError::Undecodable`] if `body` is not JSON.
pub(crate) fn converted(resource: &Resource, body: &[u8]) -> Result<Option<Vec<u8>>, ApiError> {
    if !may_differ(resource) || is_in_version(resource, body) {
        return Ok(None);
    }
    let undecodable = |e: serde_json::Error| ReadError::Undecodable(e.to_string());
    let value: Value = serde_json::from_slice(body).map_err(undecodable)?;
    let shown = match renaming_converter(resource) {
        Some(converter) => converter.renamed(value, &resource.api_version()),
        None => from_storage(resource, value),
    };
    Ok(Some(serde_json::to_vec(&shown).map_err(undecodable)?))
}
