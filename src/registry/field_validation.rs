//! What becomes of members that a kind does not have or that are given twice (KEP-2885): they are dropped
//! in any case, and by the client's choice it is told, or refused. How they are noticed is told by
//! `schema`.

use serde_json::Value;

use super::{ApiError, Registry, Resource};
use crate::api::{FieldValidation, StatusCause, WriteOptions};

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

/// What a patch made of an object, read as what it must still be.
///
/// # Errors
/// 422 when it is no object of its kind any more, or when its client wants none of its mistakes stored.
pub(super) fn conform(
    registry: &Registry,
    resource: &Resource,
    patched: Value,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    let Some(kind) = registry.kind_type(resource) else {
        return Ok(patched);
    };
    let decoded = kind.conform(&patched);
    let refused = match decoded.misfit {
        Some(misfit) => misfit,
        None => {
            let mistakes = options.body_mistakes.iter().cloned();
            let mistakes = mistakes.chain(decoded.mistakes).collect();
            match judge(options, mistakes) {
                Ok(()) => return Ok(decoded.value),
                Err(mistakes) => mistakes.to_string(),
            }
        }
    };
    // Upstream names neither kind nor object here.
    let value = patched.to_string();
    Err(ApiError::Invalid {
        group: String::new(),
        kind: String::new(),
        name: String::new(),
        causes: vec![StatusCause::invalid("patch", &value, &refused)],
    })
}
