//! Strategies with rules that only single resources have.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::prepare;
use crate::subresources::{certificates, pods};
use watchet_api::{DeleteOptions, UserInfo};
use watchet_registry::Causes;
use watchet_registry::ScalePaths;
use watchet_registry::{Grace, Strategy, put};
use watchet_registry::{Resource, metadata};

#[derive(Debug)]
pub(super) struct LimitRanges;

impl Strategy for LimitRanges {
    fn default_name(&self) -> Option<String> {
        Some(uuid::Uuid::new_v4().to_string())
    }
}

#[derive(Debug)]
pub(super) struct Namespaces;

impl Strategy for Namespaces {
    fn canonicalize(&self, object: &mut Value) {
        let name = object["metadata"]["name"].clone();
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }

    fn prepare_for_create(&self, _resource: &Resource, _user: &UserInfo, object: &mut Value) {
        if !object["spec"].is_object() {
            object["spec"] = json!({});
        }
        let finalizers = &mut object["spec"]["finalizers"];
        match finalizers.as_array_mut() {
            Some(list) if list.iter().any(|f| f == "kubernetes") => {}
            Some(list) => list.push("kubernetes".into()),
            None => *finalizers = json!(["kubernetes"]),
        }
    }

    fn prepare_for_update(
        &self,
        resource: &Resource,
        subresource: Option<&str>,
        stored: &Value,
        object: &mut Value,
    ) {
        resource.reset_unwritable(subresource, stored, object);
        // Only the subresource `finalize` changes them.
        if subresource.is_none() {
            if !object["spec"].is_object() {
                object["spec"] = json!({});
            }
            let finalizers = stored["spec"].get("finalizers").cloned();
            put(&mut object["spec"], "finalizers", finalizers);
        }
    }

    fn has_finalizers(&self, object: &Value) -> bool {
        let finalizers = object["spec"]["finalizers"].as_array();
        finalizers.is_some_and(|list| !list.is_empty())
    }

    fn mark_terminating(&self, object: &mut Value) {
        if !object["status"].is_object() {
            object["status"] = json!({});
        }
        object["status"]["phase"] = "Terminating".into();
    }
}

#[derive(Debug)]
pub(super) struct PersistentVolumes;

impl Strategy for PersistentVolumes {
    fn prepare_for_update(
        &self,
        resource: &Resource,
        subresource: Option<&str>,
        stored: &Value,
        object: &mut Value,
    ) {
        resource.reset_unwritable(subresource, stored, object);
        prepare::keep_phase_time(stored, object);
    }
}

#[derive(Debug)]
pub(super) struct Pods;

impl Strategy for Pods {
    fn prepare_for_update(
        &self,
        resource: &Resource,
        subresource: Option<&str>,
        stored: &Value,
        object: &mut Value,
    ) {
        match subresource {
            Some(part @ ("ephemeralcontainers" | "resize")) => {
                pods::retain_unwritable_fields(part, stored, object)
            }
            _ => resource.reset_unwritable(subresource, stored, object),
        }
    }

    fn validate_update(
        &self,
        _resource: &Resource,
        subresource: Option<&str>,
        old: &Value,
        new: &Value,
        causes: &mut Causes,
    ) {
        let problems = pods::problems(subresource, old, new);
        problems.into_iter().for_each(|cause| causes.push(cause));
    }

    fn grace(&self, stored: &Value, options: &DeleteOptions) -> Grace {
        pod_grace(stored, options)
    }
}

fn pod_grace(pod: &Value, options: &DeleteOptions) -> Grace {
    // A negative period becomes one second, the shortest period that does not delete immediately.
    let one_if_negative = |seconds: i64| if seconds < 0 { 1 } else { seconds };
    let asked = options.grace_period_seconds.map(one_if_negative);
    let metadata = &pod["metadata"];
    if metadata::is_terminating(pod) {
        let recorded = metadata["deletionGracePeriodSeconds"].as_i64();
        return match (recorded.map_or(0, one_if_negative), asked) {
            // The recorded grace period is over, so this delete may change what still blocks the deletion.
            (0, _) => Grace::Seconds(0),
            (recorded, Some(asked)) if asked < recorded => Grace::Seconds(asked),
            _ => Grace::Pending,
        };
    }
    let spec = &pod["spec"];
    let scheduled = spec["nodeName"].as_str().is_some_and(|n| !n.is_empty());
    let ended = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    if !scheduled || ended {
        return Grace::Seconds(0);
    }
    let own = spec["terminationGracePeriodSeconds"].as_i64();
    Grace::Seconds(asked.unwrap_or_else(|| own.map_or(DEFAULT_GRACE, one_if_negative)))
}

/// The default `terminationGracePeriodSeconds` of a pod, in seconds, as upstream.
const DEFAULT_GRACE: i64 = 30;

#[derive(Debug)]
pub(super) struct ReplicationControllers;

impl Strategy for ReplicationControllers {
    fn scale_paths(&self) -> ScalePaths {
        ScalePaths::with_label_map()
    }
}

#[derive(Debug)]
pub(super) struct Secrets;

impl Strategy for Secrets {
    /// Moves `stringData` into `data`: it is write-only and never stored.
    fn canonicalize(&self, secret: &mut Value) {
        let given = secret.as_object_mut().and_then(|s| s.remove("stringData"));
        let Some(Value::Object(texts)) = given else {
            return;
        };
        if !secret["data"].is_object() {
            secret["data"] = json!({});
        }
        for (key, text) in texts {
            secret["data"][key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
        }
    }
}

/// Upstream's warning about the default policy of jobs.
const JOBS_KEEP_PODS: &str = "child pods are preserved by default when jobs are deleted; set \
                              propagationPolicy=Background to remove them or set \
                              propagationPolicy=Orphan to suppress this warning";

#[derive(Debug)]
pub(super) struct Jobs;

impl Strategy for Jobs {
    fn unknown_field_label(&self, _resource: &Resource, label: &str) -> String {
        format!("field label {label:?} not supported for batchv1.Job")
    }

    fn default_propagation_warning(&self) -> Option<&'static str> {
        Some(JOBS_KEEP_PODS)
    }
}

#[derive(Debug)]
pub(super) struct CertificateSigningRequests;

impl Strategy for CertificateSigningRequests {
    fn prepare_for_create(&self, _resource: &Resource, user: &UserInfo, object: &mut Value) {
        certificates::sign(user, object);
    }

    fn prepare_for_update(
        &self,
        _resource: &Resource,
        subresource: Option<&str>,
        stored: &Value,
        object: &mut Value,
    ) {
        certificates::retain_unwritable_fields(subresource, stored, object, metadata::now());
    }
}

#[derive(Debug)]
pub(super) struct ResourceSlices;

impl Strategy for ResourceSlices {
    fn unknown_field_label(&self, resource: &Resource, label: &str) -> String {
        format!(
            "field label not supported for {}, Kind={}: {label}",
            resource.api_version(),
            resource.kind
        )
    }
}
