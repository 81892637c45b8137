//! The error for an object that is sent to a resource of another kind. The text is that of upstream's decoder, which tries to
//! convert objects of kinds that it knows.

use super::error::ApiError;
use super::resource::Resource;

/// The name of upstream's table of built-in types in messages.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";

/// Returns the error for an object of `kind` in `api_version` that was sent to `resource`.
pub fn refusal(resource: &Resource, api_version: &str, kind: &str) -> ApiError {
    let expected = resource.api_version();
    let other_version = format!(
        "the API version in the data ({api_version}) does not match the expected API version ({expected})"
    );
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_known = resource.strategy.is_known_kind(group, version, kind);
    let own = &resource.kind;
    let is_convertible = kind == own && package(group) == package(&resource.group);
    let message = match !resource.strategy.is_builtin() {
        true if api_version != expected => other_version,
        true => format!("{kind} in version {version:?} cannot be handled as a {own}"),
        false if is_known && is_convertible => other_version,
        false => {
            let why = match is_known {
                true => {
                    let package = package(&resource.group);
                    format!(
                        "converting ({version}.{kind}) to ({package}.{own}): unknown conversion"
                    )
                }
                false => format!(
                    "no kind {kind:?} is registered for version {api_version:?} in scheme {SCHEME:?}"
                ),
            };
            format!("{kind} in version {version:?} cannot be handled as a {own}: {why}")
        }
    };
    ApiError::BadRequest(message)
}

/// Upstream's package of the types that all versions of a group are converted to.
fn package(group: &str) -> &str {
    match group {
        "" | "events.k8s.io" => "core",
        "rbac.authorization.k8s.io" => "rbac",
        group => group.split('.').next().unwrap_or(group),
    }
}
