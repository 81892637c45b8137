//! The checks of the restricted level, except those of security profiles.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pod::{
    Pod, Violation, containers, counted, items, quoted, setters, sorted, text, uses, violation,
};

pub(super) fn privilege_escalation(pod: Pod<'_>) -> Option<Violation> {
    let field = "allowPrivilegeEscalation";
    let names = pod.names(|container| container["securityContext"][field] != false);
    if names.is_empty() {
        return None;
    }
    let names = containers(&names);
    violation(
        "allowPrivilegeEscalation != false",
        format!("{names} must set securityContext.allowPrivilegeEscalation=false"),
    )
}

pub(super) fn privilege_escalation_but_windows(pod: Pod<'_>) -> Option<Violation> {
    match pod.is_for_windows() {
        true => None,
        false => privilege_escalation(pod),
    }
}

pub(super) fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    let capabilities = |container: &'_ Value, member: &str| {
        let capabilities = &container["securityContext"]["capabilities"];
        items(&capabilities[member])
            .map(|name| text(name).to_owned())
            .collect::<Vec<_>>()
    };
    let keeping =
        pod.names(|container| !capabilities(container, "drop").contains(&"ALL".to_owned()));
    let mut forbidden = BTreeSet::new();
    let adding = pod.names(|container| {
        let mut added = capabilities(container, "add");
        added.retain(|name| name != "NET_BIND_SERVICE");
        let adds = !added.is_empty();
        forbidden.extend(added);
        adds
    });
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let names = containers(&keeping);
        details.push(format!(
            "{names} must set securityContext.capabilities.drop=[\"ALL\"]"
        ));
    }
    if !adding.is_empty() {
        let forbidden: Vec<_> = forbidden.into_iter().collect();
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&adding),
            quoted(&forbidden)
        ));
    }
    if details.is_empty() {
        return None;
    }
    violation("unrestricted capabilities", details.join("; "))
}

pub(super) fn capabilities_but_windows(pod: Pod<'_>) -> Option<Violation> {
    match pod.is_for_windows() {
        true => None,
        false => capabilities(pod),
    }
}

const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

const RESTRICTED_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn volumes(pod: Pod<'_>) -> Option<Violation> {
    let has = |volume: &Value, kind: &str| !volume[kind].is_null();
    let restricted = items(&pod.spec["volumes"])
        .filter(|volume| !ALLOWED_VOLUMES.iter().any(|kind| has(volume, kind)));
    let mut types = BTreeSet::new();
    let names: Vec<_> = restricted
        .map(|volume| {
            let mut known = RESTRICTED_VOLUMES.into_iter();
            types.insert(known.find(|kind| has(volume, kind)).unwrap_or("unknown"));
            text(&volume["name"])
        })
        .collect();
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {}",
        counted("volume", &names),
        uses(names.len()),
        counted("restricted volume type", &sorted(&types))
    );
    violation("restricted volume types", detail)
}

pub(super) fn non_root(pod: Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let setting = |of: &Value| of["securityContext"]["runAsNonRoot"].as_bool();
    let of_pod = setting(pod.spec);
    let names = pod.names(|container| setting(container) == Some(false));
    let setters = setters(of_pod == Some(false), &names);
    if !setters.is_empty() {
        let setters = setters.join(" and ");
        let detail = format!("{setters} must not set securityContext.runAsNonRoot=false");
        return violation(REASON, detail);
    }
    let names = pod.names(|container| setting(container).is_none());
    if of_pod == Some(true) || names.is_empty() {
        return None;
    }
    let names = containers(&names);
    violation(
        REASON,
        format!("pod or {names} must set securityContext.runAsNonRoot=true"),
    )
}

pub(super) fn non_root_without_user_namespace(pod: Pod<'_>) -> Option<Violation> {
    match pod.has_user_namespace() {
        true => None,
        false => non_root(pod),
    }
}

pub(super) fn user(pod: Pod<'_>) -> Option<Violation> {
    let is_root = |of: &Value| of["securityContext"]["runAsUser"].as_i64() == Some(0);
    let names = pod.names(is_root);
    let setters = setters(is_root(pod.spec), &names);
    if setters.is_empty() {
        return None;
    }
    let setters = setters.join(" and ");
    violation("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}

pub(super) fn user_without_user_namespace(pod: Pod<'_>) -> Option<Violation> {
    match pod.has_user_namespace() {
        true => None,
        false => user(pod),
    }
}
