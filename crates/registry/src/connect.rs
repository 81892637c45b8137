//! Subresources that connect to a container or process: they need a kubelet, so requests fail.

use super::error::ApiError;
use super::registry::Registry;
use super::target::Target;
use watchet_api::GetOptions;

/// Returns the error of a request for such a subresource: 404 if the object does not exist, otherwise 501.
pub(crate) async fn connect(registry: &Registry, target: &Target) -> ApiError {
    let name = target.subresource.as_deref().unwrap_or_default();
    if let Err(error) = check_exists(registry, target).await {
        return error;
    }
    let qualified = target.resource.qualified();
    ApiError::NotImplemented(format!(
        "{qualified} {:?}: {name} needs a kubelet, and there is none here: this server keeps objects \
         and runs no containers",
        target.name
    ))
}

/// Checks that the object of a subresource exists. For `proxy`, the name in the URL may have a scheme before and a port
/// after it.
async fn check_exists(registry: &Registry, target: &Target) -> Result<(), ApiError> {
    let name = match target.subresource.as_deref() {
        Some("proxy") => match target.name.split(':').collect::<Vec<_>>()[..] {
            [_, name, _] | [name, _] => name,
            _ => &target.name,
        },
        _ => &target.name,
    };
    let object = Target {
        name: name.to_owned(),
        ..target.clone()
    };
    registry.get(&object, GetOptions::default()).await.map(drop)
}
