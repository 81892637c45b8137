//! The audit annotations of a request: one list per request, in the request's extensions. There is no audit
//! log yet; the annotations of a request are logged with its other messages.

use http::request::Parts;

use watchet_api::AuditAnnotations;

/// The annotation that each checked pod has, whatever the result.
const ENFORCED_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";

/// Returns the annotations of a request.
pub(crate) fn annotations(parts: &Parts) -> AuditAnnotations {
    let annotations = parts.extensions.get::<AuditAnnotations>();
    annotations.cloned().unwrap_or_default()
}

/// Logs what admission has recorded about a request.
pub(crate) fn log(parts: &Parts, audit_id: &str, user: &str) {
    let annotations = annotations(parts).all();
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
