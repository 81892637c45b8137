//! Authorization of a PUT or an apply that creates its object: the request itself was only authorized to update.

use super::error::ApiError;
use super::registry::Registry;
use super::target::Target;
use watchet_admission::AdmissionError;
use watchet_api::WriteOptions;
use watchet_auth::Attributes;

/// Checks that the user may create the object that `target` names.
///
/// # Errors
/// 403, as for a create.
pub(crate) async fn authorize_create(
    registry: &Registry,
    target: &Target,
    options: &WriteOptions,
) -> Result<(), ApiError> {
    let resource = &target.resource;
    let attributes = Attributes {
        user: options.user.clone(),
        verb: "create".to_owned(),
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
        false => {
            let status = attributes.forbidden(decision.reason());
            Err(ApiError::Admission(AdmissionError::Denied(Box::new(
                status,
            ))))
        }
    }
}
