//! Documents in YAML.

use serde_json::Value;

use crate::response::chunks::ChunkError;

/// Encodes a document as YAML.
pub(crate) fn yaml(value: &Value) -> Result<String, ChunkError> {
    serde_saphyr::to_string(value).map_err(|error| ChunkError::Yaml(error.to_string()))
}
