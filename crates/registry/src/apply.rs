//! Server-side apply (KEP-555): a field manager sends its complete configuration of an object, which is created if it does
//! not exist. `field_managers` merges the configuration; the result is written as an update is.

use std::sync::Arc;

use serde_json::Value;

use super::allocator::WriteId;
use super::create_authorization::authorize_create;
use super::error::ApiError;
use super::guaranteed_update::{Change, Decide};
use super::location::ObjectLocation;
use super::pipeline::Pipeline;
use super::registry::Registry;
use super::stored_form::Current;
use super::target::Target;
use super::{preconditions, scale};
use watchet_api::{Object, WriteOptions};

/// Applies `config`. Also returns whether the object was created.
pub(crate) async fn apply(
    registry: &Registry,
    target: &Target,
    config: &Value,
    options: &WriteOptions,
) -> Result<(Arc<Object>, bool), ApiError> {
    preconditions::check_subresource(target, "patch")?;
    let location = ObjectLocation::of(target)?;
    if !config.is_object() {
        return Err(ApiError::BadRequest(format!(
            "an applied configuration must be an object, not {config}"
        )));
    }
    let mut write = Applying {
        pipeline: Pipeline::new(registry, target, options),
        config,
        created: false,
    };
    let written = registry
        .guaranteed_write(&location, options.dry_run, &mut write)
        .await?;
    let object = scale::object_or_scale(target, written.into_object())?;
    Ok((object, write.created))
}

/// A server-side apply.
struct Applying<'a> {
    pipeline: Pipeline<'a>,
    config: &'a Value,
    /// True if the write has created the object.
    created: bool,
}

impl Decide for Applying<'_> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let Target { resource, name, .. } = self.pipeline.target;
        self.created = current.is_none();
        let Some(current) = current else {
            return self.create().await;
        };
        let applied = self.pipeline.apply(Some(current), self.config).await?;
        preconditions::check_uid(resource, name, Some(current), &applied)?;
        preconditions::check_version(resource, name, current, &applied)?;
        self.pipeline.replace_with_applied(current, applied).await
    }

    fn requires_managed_fields(&self) -> bool {
        true
    }

    fn write_id(&self) -> Option<WriteId> {
        Some(self.pipeline.id)
    }
}

impl Applying<'_> {
    async fn create(&self) -> Result<Change, ApiError> {
        let Target {
            resource,
            name,
            subresource,
            ..
        } = self.pipeline.target;
        if subresource.is_some() {
            return Err(ApiError::not_found(resource, name));
        }
        let (registry, options) = (self.pipeline.registry, self.pipeline.options);
        authorize_create(registry, self.pipeline.target, options).await?;
        let applied = self.pipeline.apply(None, self.config).await?;
        if let Some(uid) = applied["metadata"]["uid"]
            .as_str()
            .filter(|u| !u.is_empty())
        {
            let detail = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was \
                 found"
            );
            return Err(ApiError::conflict(resource, name, detail));
        }
        resource.strategy.check_creatable()?;
        let draft = self.pipeline.draft_applied(applied).await?;
        self.pipeline.complete(draft).await.map(Change::Put)
    }
}
