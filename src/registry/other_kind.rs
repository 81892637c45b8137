//! Objects that are sent to a resource of another kind: why they are refused, in the words of upstream's decoder.
//! It converts what it knows to the kind that it expects, and says so when it cannot.

use super::{ApiError, Resource};
use crate::builtin::table;

/// The name of upstream's table of built-in types in messages.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";

/// The error for an object of `kind` in `api_version`, which is not what `resource` has.
pub(crate) fn refusal(resource: &Resource, api_version: &str, kind: &str) -> ApiError {
    let expected = resource.api_version();
    let other_version = format!(
        "the API version in the data ({api_version}) does not match the expected API version ({expected})"
    );
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_known = table::is_kind(group, version, kind);
    let wanted = &resource.kind;
    let is_convertible = kind == wanted && package(group) == package(&resource.group);
    let message = match resource.custom.is_some() {
        true if api_version != expected => other_version,
        true => format!("{kind} in version {version:?} cannot be handled as a {wanted}"),
        false if is_known && is_convertible => other_version,
        false => {
            let why = match is_known {
                true => {
                    let package = package(&resource.group);
                    format!(
                        "converting ({version}.{kind}) to ({package}.{wanted}): unknown conversion"
                    )
                }
                false => format!(
                    "no kind {kind:?} is registered for version {api_version:?} in scheme {SCHEME:?}"
                ),
            };
            format!("{kind} in version {version:?} cannot be handled as a {wanted}: {why}")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(plural: &str, api_version: &str, kind: &str, expected: &str) {
        let all = table::resources();
        let resource = all
            .iter()
            .find(|resource| resource.plural == plural)
            .unwrap();
        let message = refusal(resource, api_version, kind).to_string();
        assert_eq!(message, expected, "{api_version} {kind}");
    }

    #[test]
    fn objects_of_other_kinds_are_refused_as_by_upstream() {
        check(
            "namespaces",
            "v1",
            "Pod",
            "Pod in version \"v1\" cannot be handled as a Namespace: converting (v1.Pod) to \
             (core.Namespace): unknown conversion",
        );
        check(
            "roles",
            "apps/v1",
            "Deployment",
            "Deployment in version \"v1\" cannot be handled as a Role: converting (v1.Deployment) to \
             (rbac.Role): unknown conversion",
        );
        check(
            "pods",
            "v1",
            "PodList",
            "PodList in version \"v1\" cannot be handled as a Pod: converting (v1.PodList) to \
             (core.Pod): unknown conversion",
        );
        for (api_version, kind) in [("v1", "Sofa"), ("apps/v9", "Pod")] {
            let version = api_version.rsplit('/').next().unwrap();
            check(
                "pods",
                api_version,
                kind,
                &format!(
                    "{kind} in version \"{version}\" cannot be handled as a Pod: no kind \"{kind}\" is \
                     registered for version \"{api_version}\" in scheme \
                     \"pkg/api/legacyscheme/scheme.go:30\""
                ),
            );
        }
        // What upstream converts is of another version.
        check(
            "horizontalpodautoscalers",
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            "the API version in the data (autoscaling/v1) does not match the expected API version \
             (autoscaling/v2)",
        );
    }
}
