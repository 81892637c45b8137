//! Converts objects that a kube-apiserver has stored to the form in which this server stores them.

use std::sync::Arc;

use serde_json::Value;
use watchet_protobuf::VersionConversion;
use watchet_schema::Types;

use super::resource::Resource;

/// The version in which the objects of a resource are stored.
#[derive(Debug)]
pub(crate) struct StoredVersion {
    types: Arc<Types>,
    /// The resource of the version that is stored.
    resource: Arc<Resource>,
}

impl StoredVersion {
    /// Returns the conversion to the version of `resource`.
    pub(crate) fn conversion(
        types: Arc<Types>,
        resource: Arc<Resource>,
    ) -> Arc<dyn VersionConversion> {
        Arc::new(Self { types, resource })
    }
}

impl VersionConversion for StoredVersion {
    fn convert(&self, api_version: &str, json: Vec<u8>) -> Result<Vec<u8>, serde_json::Error> {
        let stored = self.resource.api_version();
        let strategy = &self.resource.strategy;
        if api_version == stored && !strategy.is_stored_without_defaults() {
            return Ok(json);
        }
        // Raw values, such as `fieldsV1`, are JSON that is not parsed before.
        let object: Value = serde_json::from_slice(&json)?;
        let mut object = strategy
            .to_version(&self.types, &object, &stored)
            .into_owned();
        if strategy.is_stored_without_defaults() {
            strategy.set_defaults(&self.resource, &mut object);
        }
        Ok(object.to_string().into())
    }

    fn convert_json(&self, json: &[u8]) -> Option<Vec<u8>> {
        self.resource.strategy.upgrade_stored(json)
    }
}
