//! The kind of object that a request's body must be, and what becomes of one that is read as it: what it
//! has beyond its kind, or twice, is told or refused as the client wants. How it is read is told by
//! `schema`; what an object may contain beyond its type is the business of `registry`.

use serde_json::Value;

use crate::api::WriteOptions;
use crate::registry::{Registry, Resource, judge};
use crate::schema::{Decoded, KindType};

use super::error::WireError;

/// A kind, with its type as far as there is one.
#[derive(Debug)]
pub(crate) struct WantedKind<'a> {
    api_version: String,
    version: &'a str,
    kind: &'a str,
    types: Option<KindType>,
}

impl<'a> WantedKind<'a> {
    /// That of a resource's objects.
    pub(crate) fn new(registry: &Registry, resource: &'a Resource) -> Self {
        Self {
            api_version: resource.api_version(),
            version: &resource.version,
            kind: &resource.kind,
            types: registry.kind_type(resource),
        }
    }

    pub(crate) fn types(&self) -> Option<&KindType> {
        self.types.as_ref()
    }

    /// The object, if it can be used.
    ///
    /// # Errors
    /// 400 when a value is not of its type, or when the client wants none of its mistakes stored.
    pub(crate) fn accept(
        &self,
        decoded: Decoded,
        options: &WriteOptions,
    ) -> Result<Value, WireError> {
        let given = |member: &str| decoded.value[member].as_str().filter(|s| !s.is_empty());
        let other_kind = given("kind").is_some_and(|kind| kind != self.kind);
        let other_version = given("apiVersion").is_some_and(|v| v != self.api_version);
        if other_kind || other_version {
            // It was read as what it is not: that will be refused, in words of its own.
            return Ok(decoded.value);
        }
        let refused = match decoded.misfit {
            Some(misfit) => misfit,
            None => match judge(options, decoded.mistakes) {
                Ok(()) => return Ok(decoded.value),
                Err(mistakes) => mistakes.to_string(),
            },
        };
        let (kind, version) = (self.kind, self.version);
        Err(WireError::BadRequest(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {refused}"
        )))
    }
}
