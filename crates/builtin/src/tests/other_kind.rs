//! Tests of the errors for objects of another kind.

use crate::table;
use watchet_registry::other_kind_error as refusal;

fn check(plural: &str, api_version: &str, kind: &str, expected: &str) {
    let all = table::all();
    let resource = all
        .iter()
        .find(|resource| resource.plural == plural)
        .unwrap();
    let message = refusal(resource, api_version, kind).to_string();
    assert_eq!(message, expected, "{api_version} {kind}");
}

#[test]
fn body_of_another_kind_has_upstreams_error() {
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
    // Upstream converts an object of another version.
    check(
        "horizontalpodautoscalers",
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
        "the API version in the data (autoscaling/v1) does not match the expected API version \
         (autoscaling/v2)",
    );
}
