//! Checks that a request body is an object of the expected kind, and handles unknown and duplicate
//! fields by the request's `fieldValidation`. Decoding is in `schema`; validation of the content is
//! in `registry`.

use serde_json::Value;

use watchet_api::WriteOptions;
use watchet_registry::{Registry, Resource, judge};
use watchet_schema::{Decoded, KindType};

use crate::error::HttpError;

/// The expected kind, with its type if known.
#[derive(Debug)]
pub(crate) struct ExpectedKind<'a> {
    api_version: String,
    version: &'a str,
    kind: &'a str,
    types: Option<KindType>,
}

impl<'a> ExpectedKind<'a> {
    /// Creates the expected kind of a resource's objects.
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

    /// Returns the object if it is acceptable.
    ///
    /// # Errors
    /// 400 if a value does not fit its type, or if unknown or duplicate fields are strictly
    /// rejected.
    pub(crate) fn accept(
        &self,
        decoded: Decoded,
        options: &WriteOptions,
    ) -> Result<Value, HttpError> {
        let given = |member: &str| decoded.value[member].as_str().filter(|s| !s.is_empty());
        let other_kind = given("kind").is_some_and(|kind| kind != self.kind);
        let other_version = given("apiVersion").is_some_and(|v| v != self.api_version);
        if other_kind || other_version {
            // The body has another kind than it was decoded as: the registry rejects that with its
            // own message.
            return Ok(decoded.value);
        }
        let problem = match decoded.type_error {
            Some(message) => message,
            None => match judge(options, decoded.mistakes) {
                Ok(()) => return Ok(decoded.value),
                Err(mistakes) => mistakes.to_string(),
            },
        };
        let (kind, version) = (self.kind, self.version);
        Err(HttpError::BadRequest(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {problem}"
        )))
    }
}
