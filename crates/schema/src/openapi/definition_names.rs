//! The names of definitions: each protobuf message has one in OpenAPI.

const PACKAGES: &[(&str, &str)] = &[
    ("meta", "io.k8s.apimachinery.pkg.apis."),
    ("apiextensions", "io.k8s.apiextensions-apiserver.pkg.apis."),
    ("apiregistration", "io.k8s.kube-aggregator.pkg.apis."),
];
const API: &str = "io.k8s.api.";

/// Returns the definition of a message: `core.v1.Pod` is `io.k8s.api.core.v1.Pod`.
pub(super) fn definition_of(message: &str) -> String {
    let word = message.split('.').next().unwrap_or_default();
    let package = PACKAGES.iter().find(|(package, _)| *package == word);
    format!("{}{message}", package.map_or(API, |(_, package)| package))
}

/// Returns the message of a definition; `None` if it is of no known package.
pub(super) fn message_of(definition: &str) -> Option<String> {
    let packages = PACKAGES.iter().map(|(_, package)| *package);
    let message = packages
        .chain([API])
        .find_map(|p| definition.strip_prefix(p))?;
    Some(message.to_owned())
}
