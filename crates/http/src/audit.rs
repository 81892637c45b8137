//! The audit annotations of a request: one list per request, in the request's extensions. They are part of the
//! audit events; what admission has recorded is also logged with the other messages of the request.

use http::request::Parts;

use watchet_api::AuditAnnotations;

/// The annotation that each checked pod has, whatever the result.
const ENFORCED_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";

/// The prefixes of the annotations that are not admission's: of the authorizer, which every recorded request has, and of
/// authentication.
const OTHERS: [&str; 2] = ["authorization.k8s.io/", "authentication.k8s.io/"];

/// Returns the annotations of a request.
pub(crate) fn annotations(parts: &Parts) -> AuditAnnotations {
    let annotations = parts.extensions.get::<AuditAnnotations>();
    annotations.cloned().unwrap_or_default()
}

/// Logs what admission has recorded about a request.
pub(crate) fn log(parts: &Parts, audit_id: &str, user: &str) {
    let mut annotations = annotations(parts).all();
    annotations.retain(|key, _| !OTHERS.iter().any(|prefix| key.starts_with(prefix)));
    let (method, uri) = (&parts.method, &parts.uri);
    if annotations.is_empty() {
        return;
    }
    // Every write of a pod has the annotation of the policy; alone it is not worth a line at `info`.
    match annotations.keys().all(|key| key == ENFORCED_POLICY) {
        true => tracing::debug!(audit_id, user, %method, %uri, ?annotations, "audit annotations"),
        false => tracing::info!(audit_id, user, %method, %uri, ?annotations, "audit annotations"),
    }
}
