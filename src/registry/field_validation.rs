//! Field validation (KEP-2885): members that a kind does not have, or that are given twice, are dropped in
//! any case, and reported or refused as the client asks. `schema` finds them.

use crate::api::{FieldValidation, WriteOptions};

/// A client that wants to be told of its mistakes made some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("strict decoding error: {}", .0.join(", "))]
pub struct StrictDecodingError(Vec<String>);

/// Tells the client of its mistakes, if it wants to be told.
///
/// # Errors
/// It wants none to be stored.
pub fn judge(options: &WriteOptions, mistakes: Vec<String>) -> Result<(), StrictDecodingError> {
    match options.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => mistakes.into_iter().for_each(|m| options.warnings.add(m)),
        FieldValidation::Strict if mistakes.is_empty() => {}
        FieldValidation::Strict => return Err(StrictDecodingError(mistakes)),
    }
    Ok(())
}
