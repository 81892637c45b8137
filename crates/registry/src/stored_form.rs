//! The stored form of objects: reading it from storage and from a cache, and encoding it.

use bytes::Bytes;
use serde_json::Value;

use super::error::ApiError;
use watchet_api::{Object, ResourceVersion, StorageKey, write_json};
use watchet_cacher::ReadError;
use watchet_storage::{KeyValue, unreadable_reason};

/// The initial capacity of the buffer of an encoded object. Most objects fit without growing it.
const ENCODED_BYTES_USUAL: usize = 2048;

/// The object that a write is based on.
#[derive(Debug, Clone)]
pub struct Current {
    /// The object in stored form.
    pub value: Value,
    /// The version at which the object was written.
    pub at: ResourceVersion,
    /// True if this write has read the object from storage. Otherwise the object is from a cache and may be stale.
    pub(crate) is_fresh: bool,
    /// The object in storage, if it differs from `value`: a write without changes still stores the object if its
    /// current stored form differs. Only known for a fresh object.
    pub(crate) raw: Option<Value>,
    /// True if storing the object unchanged would change its form in storage: another key encrypts now. Only known for a
    /// fresh object.
    pub(crate) is_stale: bool,
}

impl Current {
    /// Decodes an object that was read from storage.
    ///
    /// # Errors
    /// The value is not JSON, or not an object with metadata.
    pub fn stored(stored: &KeyValue) -> Result<Self, ApiError> {
        check_readable(stored)?;
        let undecodable = |why: &dyn std::fmt::Display| undecodable(&stored.key, why);
        let value = parse(&stored.value).map_err(|error| undecodable(&error))?;
        if !value["metadata"].is_object() {
            return Err(undecodable(&"it is no object with metadata"));
        }
        Ok(Self {
            value,
            at: stored.mod_revision,
            is_fresh: true,
            raw: None,
            is_stale: stored.is_stale,
        })
    }

    /// Returns an object of a cache; `None` if it is not JSON.
    pub(crate) fn suggested(object: &Object) -> Option<Self> {
        Some(Self {
            value: parse(object.body_slice()).ok()?,
            at: object.resource_version(),
            is_fresh: false,
            raw: None,
            is_stale: false,
        })
    }

    /// Returns the object and its version.
    pub(crate) fn versioned(&self) -> (&Value, ResourceVersion) {
        (&self.value, self.at)
    }

    /// Returns true if storing `value` would certainly change nothing.
    pub(crate) fn is_stored_as(&self, value: &Value) -> bool {
        self.raw.is_none() && !self.is_stale && self.value == *value
    }
}

/// Returns the error for the object at `key`, which cannot be decoded.
pub(crate) fn undecodable(key: &StorageKey, why: &dyn std::fmt::Display) -> ApiError {
    ReadError::Undecodable(format!("undecodable object {key}: {why}")).into()
}

/// Checks that storage could decrypt and decode the value.
///
/// # Errors
/// The object is undecodable.
pub(crate) fn check_readable(stored: &KeyValue) -> Result<(), ApiError> {
    match unreadable_reason(&stored.value) {
        Some(reason) => Err(undecodable(&stored.key, &reason)),
        None => Ok(()),
    }
}

/// Returns the stored form of `json`.
///
/// # Errors
/// `json` is not JSON.
pub fn parse(json: &[u8]) -> Result<Value, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(json)?;
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    Ok(value)
}

/// Returns the bytes of `value`, without spare capacity, because some of them stay in memory for long.
pub fn encode(value: &Value) -> Bytes {
    let mut json = Vec::with_capacity(ENCODED_BYTES_USUAL);
    write_json(value, &mut json);
    Bytes::from(json.into_boxed_slice())
}
