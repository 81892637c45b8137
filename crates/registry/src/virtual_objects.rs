//! [`VirtualObjects`]: objects that are not stored.

use std::sync::Arc;

use async_trait::async_trait;

use super::error::ApiError;
use super::resource::Resource;
use watchet_api::{ListOptions, Object};
use watchet_cacher::ObjectList;
use watchet_storage::Storage;

/// Reads objects that the server computes for each request and does not store.
#[async_trait]
pub trait VirtualObjects: Send + Sync {
    /// Returns one object.
    ///
    /// # Errors
    /// 404.
    async fn get(
        &self,
        storage: &dyn Storage,
        resource: &Arc<Resource>,
        name: &str,
    ) -> Result<Arc<Object>, ApiError>;

    /// Returns all objects that `options` select.
    ///
    /// # Errors
    /// 400 for options that are not supported.
    async fn list(
        &self,
        storage: &dyn Storage,
        resource: &Arc<Resource>,
        options: &ListOptions,
    ) -> Result<ObjectList, ApiError>;
}
