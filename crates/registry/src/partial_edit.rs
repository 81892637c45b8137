//! Changes of the metadata and the status of an object by the server itself, without decoding its other members: the spec
//! of a large CustomResourceDefinition takes ten times the memory of its text.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::error::ApiError;
use super::guaranteed_update::WRITE_DEADLINE;
use super::location::ObjectLocation;
use super::metadata;
use super::registry::Registry;
use super::stored_form::{check_readable, undecodable};
use watchet_storage::{Expect, KeyValue, Outcome, Storage as _, StorageError};

/// The members that are decoded.
const DECODED: [&str; 2] = ["metadata", "status"];

/// What an edit does to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edited {
    /// Store the object with the changed members.
    Store,
    /// Delete the object.
    Delete,
}

/// A stored object of which only [`DECODED`] are decoded.
struct PartialObject {
    /// The other members, as JSON text.
    members: BTreeMap<String, Box<RawValue>>,
    /// An object with the decoded members.
    decoded: Value,
}

impl PartialObject {
    /// Decodes an object that was read from storage.
    ///
    /// # Errors
    /// The value is encrypted, is not JSON, or is not an object with metadata.
    fn parse(stored: &KeyValue) -> Result<Self, ApiError> {
        check_readable(stored)?;
        let undecodable = |why: &dyn std::fmt::Display| undecodable(&stored.key, why);
        let parsed = serde_json::from_slice(&stored.value);
        let mut members: BTreeMap<String, Box<RawValue>> =
            parsed.map_err(|error| undecodable(&error))?;
        let mut decoded = serde_json::Map::new();
        for name in DECODED {
            if let Some(text) = members.remove(name) {
                let value = serde_json::from_str(text.get());
                decoded.insert(name.to_owned(), value.map_err(|error| undecodable(&error))?);
            }
        }
        if !decoded.get("metadata").is_some_and(Value::is_object) {
            return Err(undecodable(&"it is no object with metadata"));
        }
        Ok(Self {
            members,
            decoded: decoded.into(),
        })
    }

    /// Returns the object as JSON, with its members in the order of the stored form.
    fn encode(&self) -> Bytes {
        let text = |value: &Value| to_raw_value(value).expect("a JSON value encodes");
        let decoded: Vec<_> = DECODED
            .into_iter()
            .filter_map(|name| Some((name, text(self.decoded.get(name)?))))
            .collect();
        let mut members: BTreeMap<&str, &RawValue> = self
            .members
            .iter()
            .map(|(name, text)| (name.as_str(), &**text))
            .collect();
        members.extend(decoded.iter().map(|(name, text)| (*name, &**text)));
        let json = serde_json::to_vec(&members).expect("JSON texts encode");
        Bytes::from(json.into_boxed_slice())
    }
}

impl Registry {
    /// Changes the metadata and the status of the object at `location` in storage as `edit` decides. `edit` gets an object
    /// that has no other members, and is called again after a conflict. Does nothing if the object does not exist.
    ///
    /// The resource must be stored in one version and have no allocator.
    ///
    /// # Errors
    /// 504 if other writes conflict until the deadline; storage's; that the object cannot be decoded.
    pub async fn edit_metadata_and_status(
        &self,
        location: &ObjectLocation,
        mut edit: impl FnMut(&mut Value) -> Edited + Send,
    ) -> Result<(), ApiError> {
        let deadline = Instant::now() + WRITE_DEADLINE;
        let store = self.store(&location.resource);
        let (mut stored, _) = store.get(&location.storage_key).await?;
        while let Some(present) = stored {
            if Instant::now() >= deadline {
                return Err(ApiError::Timeout(format!(
                    "the write of {} {:?} conflicted with other writes for {WRITE_DEADLINE:?}: try again",
                    location.resource.qualified(),
                    location.name
                )));
            }
            let mut object = PartialObject::parse(&present)?;
            let before = object.decoded.clone();
            let outcome = match edit(&mut object.decoded) {
                Edited::Store if object.decoded == before && !present.is_stale => return Ok(()),
                Edited::Store => {
                    let expect = Expect::At(present.mod_revision);
                    self.put_partial(location, object, expect).await?
                }
                Edited::Delete => {
                    let (key, at) = (&location.storage_key, present.mod_revision);
                    store.delete(key, at).await?
                }
            };
            stored = match outcome {
                Outcome::Done(at) => {
                    self.after_store(&location.resource, at).await;
                    return Ok(());
                }
                Outcome::Refused(now) => now,
            };
        }
        Ok(())
    }

    /// Writes `object`; without its managed fields if it is too large with them.
    async fn put_partial(
        &self,
        location: &ObjectLocation,
        mut object: PartialObject,
        expect: Expect,
    ) -> Result<Outcome, ApiError> {
        match self.put(location, object.encode(), expect).await {
            Err(ApiError::Storage(StorageError::TooLarge { .. }))
                if object.decoded["metadata"]["managedFields"].is_array() =>
            {
                metadata::put_managed_fields(Value::Null, &mut object.decoded);
                self.put(location, object.encode(), expect).await
            }
            outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_form::encode;
    use serde_json::json;
    use watchet_api::ResourceVersion;

    fn stored(value: &[u8]) -> KeyValue {
        KeyValue {
            key: watchet_api::StorageKey::new("/a").unwrap(),
            value: Bytes::copy_from_slice(value),
            create_revision: ResourceVersion::ZERO,
            mod_revision: ResourceVersion::ZERO,
            is_stale: false,
        }
    }

    /// A write of the whole object would have stored the same bytes.
    #[test]
    fn the_encoded_object_is_in_stored_form() {
        let mut object = json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"},
            "spec": {"b": [1, 2.5, "\u{e9}\n"], "a": {}}, "zone": null});
        let mut partial = PartialObject::parse(&stored(&encode(&object))).unwrap();
        assert_eq!(partial.encode(), encode(&object));
        for changed in [&mut object, &mut partial.decoded] {
            changed["status"] = json!({"ready": true});
            changed["metadata"]["generation"] = 2.into();
        }
        assert_eq!(partial.encode(), encode(&object));
    }

    #[test]
    fn what_is_no_object_with_metadata_is_undecodable() {
        for value in ["", "[]", r#"{"metadata": 1}"#, "{}", "k8s:enc:kms:v2:x:abc"] {
            let error = PartialObject::parse(&stored(value.as_bytes())).err();
            let error = error.expect(value).to_string();
            assert!(error.contains("/a"), "{error}");
        }
    }
}
