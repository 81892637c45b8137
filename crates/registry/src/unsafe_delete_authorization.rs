//! Authorization of the deletion of an object that cannot be decoded. Admission plugins cannot check such a deletion, because
//! they cannot read the object, so that the permission to delete is not enough.

use super::error::ApiError;
use super::registry::Registry;
use super::target::Target;
use watchet_api::DeleteOptions;
use watchet_auth::Attributes;

const VERB: &str = "unsafe-delete-ignore-read-errors";

/// Checks that the user may delete the object that `target` names although it cannot be decoded.
///
/// # Errors
/// 403
pub(crate) async fn authorize_unsafe_delete(
    registry: &Registry,
    target: &Target,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let resource = &target.resource;
    let attributes = Attributes {
        user: options.user.clone(),
        verb: VERB.to_owned(),
        is_resource_request: true,
        api_group: resource.group.clone(),
        api_version: resource.version.clone(),
        resource: resource.plural.clone(),
        namespace: target.namespace.clone().unwrap_or_default(),
        name: target.name.clone(),
        ..Attributes::default()
    };
    let decision = registry.authorizer.authorize(&attributes).await;
    match decision.is_allowed() {
        true => Ok(()),
        false => Err(ApiError::Forbidden {
            resource: resource.qualified(),
            name: target.name.clone(),
            detail: format!(
                "not permitted to do {VERB:?}, reason: {}",
                decision.reason()
            ),
            causes: Vec::new(),
        }),
    }
}
