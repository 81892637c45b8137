//! What the crate `watchet-fuzz` calls: schemas, paths and conversions without a registry.

use serde_json::Value;
use watchet_api::StatusCause;
use watchet_registry::Causes;

use crate::json_path::JsonPath;
use crate::review::Review;
use crate::schema::{Compiler, Schema, validate};
use crate::structural;

/// Returns the values that a JSONPath finds; `None` if it is invalid.
pub fn find_by_json_path<'a>(path: &str, value: &'a Value) -> Option<Vec<&'a Value>> {
    JsonPath::parse(path).ok().map(|path| path.find(value))
}

/// A compiled structural schema.
#[derive(Debug)]
pub struct StructuralSchema(Schema);

impl StructuralSchema {
    /// Compiles an `openAPIV3Schema`.
    ///
    /// # Errors
    /// The schema is invalid.
    pub fn compile(schema: &Value) -> Result<Self, Vec<StatusCause>> {
        let mut compiler = Compiler::default();
        let mut causes = Causes::default();
        structural::check(schema, "schema", &mut compiler, &mut causes);
        let causes = causes.into_vec();
        // Stored definitions can be invalid; they are compiled too.
        let compiled = Self(compiler.version(schema));
        match causes.is_empty() {
            true => Ok(compiled),
            false => Err(causes),
        }
    }

    /// Sets defaults and prunes.
    ///
    /// # Errors
    /// The defaults are too large.
    pub fn fill(&self, object: &mut Value) -> Result<(), String> {
        let filled = self.0.fill_all(object);
        filled.map_err(|too_many| too_many.to_string())
    }

    /// Validates an object, which replaces `old`.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<StatusCause> {
        let mut causes = Causes::default();
        validate(&self.0, object, old, &mut causes);
        causes.into_vec()
    }
}

/// Reads the response of a conversion webhook that was sent `objects` to convert them to the version `to`. The uid of
/// the request is `uid`.
///
/// # Errors
/// The response is invalid.
pub fn read_conversion_response(
    objects: Vec<Value>,
    to: &str,
    response: &[u8],
) -> Result<Vec<Value>, String> {
    Review::with_uid(objects, to, "uid").converted(response)
}
