//! Field validation (KEP-2885): unknown and duplicate members are always dropped, and ignored, reported or rejected as the
//! client requests. `schema` finds them.

use watchet_api::{FieldValidation, WriteOptions};

/// A body has unknown, duplicate or mistyped fields, and the client requests strict validation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("strict decoding error: {}", .0.join(", "))]
pub struct StrictDecodingError(Vec<String>);

/// Reports `mistakes` as the client requests: not at all, as warnings or as an error.
///
/// # Errors
/// There are mistakes, and the client requests strict validation.
pub fn judge(options: &WriteOptions, mistakes: Vec<String>) -> Result<(), StrictDecodingError> {
    match options.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => mistakes.into_iter().for_each(|m| options.warnings.add(m)),
        FieldValidation::Strict if mistakes.is_empty() => {}
        FieldValidation::Strict => return Err(StrictDecodingError(mistakes)),
    }
    Ok(())
}
