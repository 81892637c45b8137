//! Server-side apply (KEP-555): somebody says all that it wants of an object, which is made if it is not
//! there. What becomes of the object's fields is told by `managers`; then it is written like others.

use std::sync::Arc;

use serde_json::Value;

use super::allocator::WriteId;
use super::create_authorization::authorize_create;
use super::guaranteed_update::{Change, Current, Decide, Place};
use super::pipeline::Writing;
use super::subresource;
use super::{ApiError, Registry, Target, update};
use crate::api::{Object, WriteOptions};

/// Also says whether the object was made.
pub(crate) async fn apply(
    registry: &Registry,
    target: &Target,
    config: &Value,
    options: &WriteOptions,
) -> Result<(Arc<Object>, bool), ApiError> {
    update::check_subresource(target, "patch")?;
    let place = Place::of(target)?;
    if !config.is_object() {
        return Err(ApiError::BadRequest(format!(
            "an applied configuration must be an object, not {config}"
        )));
    }
    let mut write = Applying {
        writing: Writing::new(registry, target, options),
        config,
        created: false,
    };
    let written = registry
        .guaranteed_write(&place, options.dry_run, &mut write)
        .await?;
    let object = subresource::shown(target, written.into_object())?;
    Ok((object, write.created))
}

struct Applying<'a> {
    writing: Writing<'a>,
    config: &'a Value,
    /// Whether it made the object.
    created: bool,
}

impl Decide for Applying<'_> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let Target { resource, name, .. } = self.writing.target;
        self.created = current.is_none();
        let Some(current) = current else {
            return self.create().await;
        };
        let applied = self.writing.apply(Some(current), self.config).await?;
        update::check_uid(resource, name, Some(current), &applied)?;
        update::check_version(resource, name, current, &applied)?;
        self.writing.follow(current, applied).await
    }

    fn is_about_managers(&self) -> bool {
        true
    }

    fn write_id(&self) -> Option<WriteId> {
        Some(self.writing.id)
    }
}

impl Applying<'_> {
    async fn create(&self) -> Result<Change, ApiError> {
        let Target {
            resource,
            name,
            subresource,
            ..
        } = self.writing.target;
        if subresource.is_some() {
            return Err(ApiError::not_found(resource, name));
        }
        let (registry, options) = (self.writing.registry, self.writing.options);
        authorize_create(registry, self.writing.target, options).await?;
        let applied = self.writing.apply(None, self.config).await?;
        if let Some(uid) = applied["metadata"]["uid"]
            .as_str()
            .filter(|u| !u.is_empty())
        {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was \
                 found"
            );
            return Err(ApiError::conflict(resource, name, why));
        }
        resource.strategy.check_creatable()?;
        let draft = self.writing.draft_applied(applied).await?;
        self.writing.complete(draft).await.map(Change::Put)
    }
}
