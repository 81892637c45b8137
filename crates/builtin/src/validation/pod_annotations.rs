//! Validates the annotations of pods that kubelets and controllers act on.

use std::collections::HashSet;

use super::members::objects;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, object, text};

/// The annotation of a mirror pod, which a kubelet creates to report a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The prefix of the annotation with the AppArmor profile of a container; the name of the container follows.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The annotation that determines which pods of a replica set are deleted first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

fn annotations(pod: &Fields) -> Option<&Fields> {
    object(object(pod, "metadata")?, "annotations")
}

fn container_names(spec: &Fields) -> HashSet<&str> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let containers = lists.iter().flat_map(|member| objects(list(spec, member)));
    containers.map(|(_, one)| text(one, "name")).collect()
}

pub(super) fn pod_annotations(pod: &Fields, causes: &mut Causes) {
    let at = Path::Top("metadata");
    let at = at.member("annotations");
    let empty = Fields::new();
    let spec = object(pod, "spec").unwrap_or(&empty);
    let containers = container_names(spec);
    for (name, value) in annotations(pod).into_iter().flatten() {
        if causes.is_full() {
            return;
        }
        let at = at.key(name);
        let value = value.as_str().unwrap_or_default();
        if name == MIRROR && text(spec, "nodeName").is_empty() {
            let why = "must set spec.nodeName if mirror pod annotation is set";
            causes.invalid(&at, value, why);
        }
        if name == DELETION_COST && !is_deletion_cost(value) {
            causes.invalid(&at, value, "must be a 32bit integer");
        }
        if let Some(container) = name.strip_prefix(APP_ARMOR) {
            if !containers.contains(container) {
                causes.invalid(&at, container, "container not found");
            }
            app_armor(value, &at, causes);
        }
    }
}

fn app_armor(profile: &str, at: &Path<'_>, causes: &mut Causes) {
    let is_known = ["", "runtime/default", "unconfined"].contains(&profile);
    if !is_known && !profile.starts_with("localhost/") {
        let why = format!("invalid AppArmor profile name: {profile:?}");
        causes.invalid(at, profile, &why);
    }
}

/// Returns true if the text is a 32-bit integer that begins with neither a plus sign nor a superfluous zero.
fn is_deletion_cost(text: &str) -> bool {
    let is_plain =
        text == "0" || text.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    is_plain && text.parse::<i32>().is_ok()
}

/// Validates that annotations that take effect when the pod starts do not change.
pub(super) fn update(old: &Fields, new: &Fields, causes: &mut Causes) {
    let at = Path::Top("metadata");
    let at = at.member("annotations");
    let kind = |name: &str| match name {
        MIRROR => Some("mirror pod annotation"),
        _ if name.starts_with(APP_ARMOR) => Some("AppArmor annotations"),
        _ => None,
    };
    let empty = Fields::new();
    let [old, new] = [old, new].map(|pod| annotations(pod).unwrap_or(&empty));
    for (name, value) in old {
        if let Some(kind) = kind(name).filter(|_| new.get(name) != Some(value)) {
            let why = format!("may not remove or update {kind}");
            causes.forbidden(&at.key(name), &why);
        }
    }
    for name in new.keys().filter(|name| !old.contains_key(*name)) {
        if let Some(kind) = kind(name) {
            causes.forbidden(&at.key(name), &format!("may not add {kind}"));
        }
    }
}
