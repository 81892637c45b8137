//! The metadata that garbage collection needs: owners, finalizers, deletion. Most objects have none
//! of these, which is detected without parsing.

use std::borrow::Cow;

use memchr::memmem;
use serde::{Deserialize, Deserializer};

use watchet_api::Object;

/// The finalizer of an owner until its dependents no longer reference it.
pub(super) const ORPHAN: &str = "orphan";
/// The finalizer of an owner until its blocking dependents are deleted.
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// The metadata that garbage collection needs.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub(super) uid: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) resource_version: Cow<'a, str>,
    #[serde(rename = "ownerReferences", borrow, deserialize_with = "list")]
    pub(super) owners: Vec<OwnerReference<'a>>,
    #[serde(borrow, deserialize_with = "list")]
    pub(super) finalizers: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    deletion_timestamp: Option<Cow<'a, str>>,
}

/// An entry of `metadata.ownerReferences`.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct OwnerReference<'a> {
    #[serde(borrow)]
    pub(super) api_version: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) uid: Cow<'a, str>,
    block_owner_deletion: Option<bool>,
}

impl OwnerReference<'_> {
    /// Returns whether the owner waits for this dependent in a foreground deletion.
    pub(super) fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }
}

/// Deserializes a list that may be null.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(de: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(de)?.unwrap_or_default())
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

impl<'a> Metadata<'a> {
    /// Reads the metadata of `object`. Metadata in a form that no API server writes is ignored.
    pub(super) fn of(object: &'a Object) -> Self {
        let body = object.body_slice();
        let contains = |member: &str| memmem::find(body, member.as_bytes()).is_some();
        if contains("\"ownerReferences\"") || contains("\"deletionTimestamp\"") {
            match serde_json::from_slice::<Body<'_>>(body) {
                Ok(body) => return body.metadata,
                Err(error) => {
                    tracing::warn!(key = %object.key(), %error, "cannot parse the owners of an object");
                }
            }
        }
        Self {
            uid: Cow::Borrowed(object.uid()),
            ..Self::default()
        }
    }

    /// Parses the metadata, even if nothing in it is of interest.
    ///
    /// # Errors
    /// The metadata does not have the form that an API server writes.
    pub(super) fn parse(object: &'a Object) -> Result<Self, serde_json::Error> {
        serde_json::from_slice::<Body<'_>>(object.body_slice()).map(|body| body.metadata)
    }

    pub(super) fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns whether it is being deleted and waits for its dependents to be orphaned.
    pub(super) fn orphans_dependents(&self) -> bool {
        self.is_being_deleted() && self.has(ORPHAN)
    }

    /// Returns whether it is being deleted and waits for its blocking dependents to be deleted.
    pub(super) fn deletes_dependents(&self) -> bool {
        self.is_being_deleted() && self.has(FOREGROUND)
    }

    pub(super) fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|f| f == finalizer)
    }

    /// Returns whether the object must be in the graph even if no other object references it.
    pub(super) fn is_of_interest(&self) -> bool {
        !self.owners.is_empty() || self.orphans_dependents() || self.deletes_dependents()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchet_api::{ColumnSet, EventType, ObjectKey, ResourceVersion};

    fn object(metadata: &str) -> Object {
        let json = format!(r#"{{"metadata":{metadata}}}"#);
        let (key, at) = (ObjectKey::from("a/b"), ResourceVersion::new(7));
        let columns = ColumnSet::default();
        Object::decode(key, at, EventType::Added, json.as_bytes(), &columns).unwrap()
    }

    #[test]
    fn owners_and_finalizers_are_parsed() {
        let plain = object(r#"{"uid":"u","finalizers":["orphan"]}"#);
        let plain = Metadata::of(&plain);
        assert_eq!(plain.uid, "u");
        assert!(!plain.is_of_interest() && plain.finalizers.is_empty());

        let finalized = object(
            r#"{"uid":"u","finalizers":["x","foregroundDeletion"],"deletionTimestamp":"t",
                "ownerReferences":null}"#,
        );
        let finalized = Metadata::of(&finalized);
        assert!(finalized.deletes_dependents() && !finalized.orphans_dependents());
        assert_eq!(finalized.resource_version, "7");

        let owned = object(
            r#"{"uid":"u","ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"o",
                "blockOwnerDeletion":true},{"uid":"\u0070"}]}"#,
        );
        let owned = Metadata::of(&owned);
        assert!(owned.is_of_interest() && !owned.is_being_deleted());
        assert_eq!(owned.owners[1].uid, "p");
        assert!(owned.owners[0].blocks() && !owned.owners[1].blocks());
    }

    #[test]
    fn malformed_metadata_is_ignored() {
        let odd = object(r#"{"uid":"u","ownerReferences":7}"#);
        assert_eq!(Metadata::of(&odd).owners, []);
        assert_eq!(Metadata::of(&odd).uid, "u");
        assert!(Metadata::parse(&odd).is_err());
    }
}
