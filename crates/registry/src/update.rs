//! Update: PUT of an object or of a subresource.

use std::sync::Arc;

use serde_json::Value;

use super::allocator::WriteId;
use super::create_authorization::authorize_create;
use super::error::ApiError;
use super::guaranteed_update::{Change, Decide};
use super::location::ObjectLocation;
use super::pipeline::Pipeline;
use super::preconditions::{check_body, check_subresource, check_uid, check_version_present};
use super::registry::Registry;
use super::scale;
use super::stored_form::Current;
use super::target::Target;
use watchet_api::{Object, WriteOptions};

/// Replaces an object, or creates it if the resource allows that. Also returns whether it was created.
pub(crate) async fn update(
    registry: &Registry,
    target: &Target,
    mut body: Value,
    options: &WriteOptions,
) -> Result<(Arc<Object>, bool), ApiError> {
    let resource = &target.resource;
    check_subresource(target, "update")?;
    let location = ObjectLocation::of(target)?;
    check_body(target, &mut body)?;
    let creates = target.subresource.is_none() && resource.strategy.rules().allows_create_on_update;
    let mut update = Update {
        pipeline: Pipeline::new(registry, target, options),
        body,
        creates,
        created: false,
    };
    let written = registry
        .guaranteed_write(&location, options.dry_run, &mut update)
        .await;
    let object = scale::object_or_scale(target, written?.into_object())?;
    Ok((object, update.created))
}

/// A PUT.
struct Update<'a> {
    pipeline: Pipeline<'a>,
    body: Value,
    /// True if the write creates an object that does not exist.
    creates: bool,
    /// True if the write has created the object.
    created: bool,
}

impl Decide for Update<'_> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let Target { resource, name, .. } = self.pipeline.target;
        self.created = current.is_none();
        check_uid(resource, name, current, &self.body)?;
        match (current, self.creates) {
            (Some(current), _) => {
                if !scale::is_of(self.pipeline.target) {
                    check_version_present(resource, name, &self.body)?;
                }
                self.pipeline
                    .replace_with_body(current, self.body.clone())
                    .await
            }
            (None, true) => {
                let Pipeline {
                    registry,
                    target,
                    options,
                    ..
                } = &self.pipeline;
                authorize_create(registry, target, options).await?;
                let draft = self.pipeline.draft(self.body.clone()).await?;
                self.pipeline.complete(draft).await.map(Change::Put)
            }
            (None, false) => Err(ApiError::not_found(resource, name)),
        }
    }

    fn write_id(&self) -> Option<WriteId> {
        Some(self.pipeline.id)
    }
}
