//! The checks of security profiles: AppArmor, SELinux and seccomp.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pod::{Pod, Violation, containers, counted, plural, quoted, setters, text, violation};

const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER_ANNOTATION: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// The allowed profile types of both AppArmor and seccomp.
const CONFINED: [&str; 2] = ["RuntimeDefault", "Localhost"];

pub(super) fn app_armor(pod: Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let mut is_bad = |of: &Value| {
        let profile = &of["securityContext"]["appArmorProfile"];
        let kind = text(&profile["type"]);
        let is_bad = !profile.is_null() && !CONFINED.contains(&kind);
        if is_bad {
            types.insert(kind.to_owned());
        }
        is_bad
    };
    let of_pod = is_bad(pod.spec);
    let names = pod.names(is_bad);
    let mut setters = setters(of_pod, &names);
    let is_allowed = |profile: &str| {
        profile.is_empty() || profile == "runtime/default" || profile.starts_with("localhost/")
    };
    let annotations = pod.metadata["annotations"]
        .as_object()
        .into_iter()
        .flatten();
    let mut annotations: Vec<_> = annotations
        .filter(|(name, profile)| {
            name.starts_with(APP_ARMOR_ANNOTATION) && !is_allowed(text(profile))
        })
        .map(|(name, profile)| format!("{name}={:?}", text(profile)))
        .collect();
    annotations.sort();
    if !annotations.is_empty() {
        setters.push(plural("annotation", annotations.len()));
    }
    if setters.is_empty() {
        return None;
    }
    let values: Vec<_> = types.into_iter().chain(annotations).collect();
    let detail = format!(
        "{} must not set AppArmor profile type to {}",
        setters.join(" and "),
        quoted(&values)
    );
    violation(&plural("forbidden AppArmor profile", values.len()), detail)
}

pub(super) fn se_linux_0(pod: Pod<'_>) -> Option<Violation> {
    se_linux(
        pod,
        &["", "container_t", "container_init_t", "container_kvm_t"],
    )
}

pub(super) fn se_linux_31(pod: Pod<'_>) -> Option<Violation> {
    let types = [
        "",
        "container_t",
        "container_init_t",
        "container_kvm_t",
        "container_engine_t",
    ];
    se_linux(pod, &types)
}

fn se_linux(pod: Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let (mut user, mut role) = (false, false);
    let mut is_bad = |of: &Value| {
        let options = &of["securityContext"]["seLinuxOptions"];
        let kind = text(&options["type"]);
        let sets = |member: &str| !text(&options[member]).is_empty();
        let bad_type = !allowed.contains(&kind);
        if bad_type {
            types.insert(kind.to_owned());
        }
        user |= sets("user");
        role |= sets("role");
        bad_type || sets("user") || sets("role")
    };
    let of_pod = is_bad(pod.spec);
    let names = pod.names(is_bad);
    let setters = setters(of_pod, &names);
    if setters.is_empty() {
        return None;
    }
    let types: Vec<_> = types.iter().map(String::as_str).collect();
    let types = (!types.is_empty()).then(|| counted("type", &types));
    let user = user.then(|| "user may not be set".to_owned());
    let role = role.then(|| "role may not be set".to_owned());
    let data: Vec<_> = types.into_iter().chain(user).chain(role).collect();
    let detail = format!(
        "{} set forbidden securityContext.seLinuxOptions: {}",
        setters.join(" and "),
        data.join("; ")
    );
    violation("seLinuxOptions", detail)
}

/// Checks the annotations that specified seccomp profiles before pods had fields for them.
pub(super) fn seccomp_annotations(pod: Pod<'_>) -> Option<Violation> {
    let of_containers = pod.containers().map(|container| {
        let name = text(&container["name"]);
        format!("{SECCOMP_CONTAINER_ANNOTATION}{name}")
    });
    let names = std::iter::once(SECCOMP_ANNOTATION.to_owned()).chain(of_containers);
    let is_allowed = |profile: &str| {
        ["runtime/default", "docker/default"].contains(&profile)
            || profile.starts_with("localhost/")
    };
    let forbidden: BTreeSet<_> = names
        .filter_map(|name| {
            let profile = pod.annotation(&name)?;
            (!is_allowed(profile)).then(|| format!("{name}={profile:?}"))
        })
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let noun = plural("annotation", forbidden.len());
    let forbidden = forbidden.into_iter().collect::<Vec<_>>().join(", ");
    violation("seccompProfile", format!("forbidden {noun} {forbidden}"))
}

pub(super) fn seccomp_baseline(pod: Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let mut is_bad = |of: &Value| {
        let kind = seccomp_type(of).filter(|kind| !CONFINED.contains(kind));
        types.extend(kind.map(str::to_owned));
        kind.is_some()
    };
    let of_pod = is_bad(pod.spec);
    let names = pod.names(is_bad);
    let setters = setters(of_pod, &names);
    if setters.is_empty() {
        return None;
    }
    let types: Vec<_> = types.iter().map(String::as_str).collect();
    let detail = format!(
        "{} must not set securityContext.seccompProfile.type to {}",
        setters.join(" and "),
        quoted(&types)
    );
    violation("seccompProfile", detail)
}

pub(super) fn seccomp_restricted(pod: Pod<'_>) -> Option<Violation> {
    if let Some(explicit) = seccomp_baseline(pod) {
        return Some(explicit);
    }
    if seccomp_type(pod.spec).is_some() {
        return None;
    }
    let names = pod.names(|container| seccomp_type(container).is_none());
    if names.is_empty() {
        return None;
    }
    let names = containers(&names);
    let detail = format!(
        "pod or {names} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
         \"Localhost\""
    );
    violation("seccompProfile", detail)
}

pub(super) fn seccomp_restricted_but_windows(pod: Pod<'_>) -> Option<Violation> {
    match pod.is_for_windows() {
        true => None,
        false => seccomp_restricted(pod),
    }
}

/// Returns the type of the profile in a pod's spec or a container, if it has one.
fn seccomp_type(of: &Value) -> Option<&str> {
    let profile = &of["securityContext"]["seccompProfile"];
    (!profile.is_null()).then(|| text(&profile["type"]))
}
