//! The verbs on resources, as the callers of the registry see them.

use std::sync::Arc;

use serde_json::Value;

use super::error::ApiError;
use super::registry::Registry;
use super::resource::Resource;
use super::subresource::Posted;
use super::target::{Deleted, Patch, Target};
use super::watch::Watch;
use super::{apply, connect, conversion, create, delete, metadata, patch, read, update};
use watchet_api::{DeleteOptions, GetOptions, ListOptions, Object, WriteOptions};
use watchet_auth::TokenAuthenticator;
use watchet_cacher::ObjectList;

impl Registry {
    /// Returns one object.
    ///
    /// # Errors
    /// 404 if it does not exist; those of its cache.
    pub async fn get(&self, target: &Target, options: GetOptions) -> Result<Arc<Object>, ApiError> {
        read::get(self, target, options).await
    }

    /// Lists the objects of one namespace or of all.
    ///
    /// # Errors
    /// 400 for a field that the resource does not have; those of its cache.
    pub async fn list(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<ObjectList, ApiError> {
        read::list(self, resource, namespace, options).await
    }

    /// Watches the objects of one namespace or of all.
    ///
    /// # Errors
    /// The errors of a list.
    pub async fn watch(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<Watch, ApiError> {
        read::watch(self, resource, namespace, options).await
    }

    /// Returns true if objects of `resource` may have to be converted after the verbs returned them.
    pub fn converts(&self, resource: &Resource) -> bool {
        conversion::may_differ(resource)
    }

    /// Returns what clients of `resource` see of `body`, or `None` if that is `body` itself. Objects that a webhook
    /// converts are converted by the verbs.
    ///
    /// # Errors
    /// [`ReadError::Undecodable`](watchet_cacher::ReadError::Undecodable) if `body` is not JSON.
    pub fn converted(&self, resource: &Resource, body: &[u8]) -> Result<Option<Vec<u8>>, ApiError> {
        conversion::converted(resource, body)
    }

    /// Creates an object.
    ///
    /// # Errors
    /// 409 if it exists; 422 if it is invalid; those of admission and storage.
    pub async fn create(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiError> {
        let created = create::create(self, resource, namespace, body, options).await?;
        after_request(resource, &created).await;
        Ok(created)
    }

    /// Handles a POST to a subresource, or of a review, which stores no object of that kind. `tokens` issues
    /// and authenticates the tokens of token requests and reviews.
    ///
    /// # Errors
    /// 405 if the resource has no such subresource; those of the request.
    pub async fn post(
        &self,
        target: &Target,
        mut body: Value,
        options: &WriteOptions,
        tokens: &TokenAuthenticator,
    ) -> Result<Posted, ApiError> {
        let resource = &target.resource;
        metadata::check_shape(&target.of_bodies(), &mut body)?;
        let namespace = target.namespace.as_deref();
        metadata::check_namespace(namespace.filter(|_| resource.namespaced), &mut body)?;
        if !resource.is_builtin() {
            return Err(ApiError::MethodNotAllowed(format!(
                "{} has no subresource {:?} with the verb create",
                resource.qualified(),
                target.subresource.as_deref().unwrap_or_default()
            )));
        }
        self.post_handler
            .post(self, target, body, options, tokens)
            .await
    }

    /// Returns the error for a subresource that [needs a kubelet](super::Subresource::needs_kubelet).
    pub async fn connect(&self, target: &Target) -> ApiError {
        connect::connect(self, target).await
    }

    /// Replaces an object (PUT). Also returns whether the object was created.
    ///
    /// # Errors
    /// 404, 409, 422; those of admission and storage.
    pub async fn update(
        &self,
        target: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<(Arc<Object>, bool), ApiError> {
        let (updated, created) = update::update(self, target, body, options).await?;
        after_request(&target.resource, &updated).await;
        Ok((updated, created))
    }

    /// Patches an object.
    ///
    /// # Errors
    /// The errors of an update.
    pub async fn patch(
        &self,
        target: &Target,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Arc<Object>, ApiError> {
        let patched = patch::patch(self, target, patch, options).await?;
        after_request(&target.resource, &patched).await;
        Ok(patched)
    }

    /// Applies the configuration of a field manager (server-side apply). Also returns whether the object was created.
    ///
    /// # Errors
    /// 409 with the fields that other managers own; as of an update.
    pub async fn apply(
        &self,
        target: &Target,
        config: &Value,
        options: &WriteOptions,
    ) -> Result<(Arc<Object>, bool), ApiError> {
        let (applied, created) = apply::apply(self, target, config, options).await?;
        after_request(&target.resource, &applied).await;
        Ok((applied, created))
    }

    /// Deletes an object, or marks it as being deleted.
    ///
    /// # Errors
    /// 404; 409 for preconditions that are not met; those of admission and storage.
    pub async fn delete(
        &self,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let deleted = delete::delete(self, target, options).await?;
        if let Deleted::Immediately(last) | Deleted::LastState(last) | Deleted::Pending(last) =
            &deleted
        {
            after_request(&target.resource, last).await;
        }
        Ok(deleted)
    }

    /// Deletes a pod whose eviction the admission chain has admitted. As upstream, the delete itself is not admitted
    /// again.
    ///
    /// # Errors
    /// The errors of [`Self::delete`] except those of admission.
    pub async fn delete_evicted(
        &self,
        pod: &Target,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        delete::delete_evicted(self, pod, options).await
    }

    /// Deletes the objects that a list selects, one by one, and returns them.
    ///
    /// # Errors
    /// The errors of the list, and the first error of a delete.
    pub async fn delete_collection(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        selection: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<ObjectList, ApiError> {
        delete::delete_collection(self, resource, namespace, selection, options).await
    }
}

/// Waits until the write of a client has taken effect in this server.
async fn after_request(resource: &Resource, written: &Object) {
    if let Some(effect) = resource.strategy.after_request(written) {
        effect.await;
    }
}
