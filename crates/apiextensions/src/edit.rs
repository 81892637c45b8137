//! Changes of definitions by the server itself.

use serde_json::Value;

use watchet_registry::{ApiError, Change, Current, Decide, ObjectLocation, Registry};

/// A change of an existing object by the server itself.
struct Edit<'a, F> {
    location: &'a ObjectLocation,
    edit: F,
}

impl<F: FnMut(&Value) -> Change + Send> Decide for Edit<'_, F> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let current = current.ok_or_else(|| self.location.not_found())?;
        Ok((self.edit)(&current.value))
    }
}

/// Stores the result of `edit` for the object at `location`. Does nothing if the object does not exist.
pub(super) async fn write_edited(
    registry: &Registry,
    location: &ObjectLocation,
    edit: impl FnMut(&Value) -> Change + Send,
) -> Result<(), ApiError> {
    let mut edit = Edit { location, edit };
    match registry.guaranteed_write(location, false, &mut edit).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
