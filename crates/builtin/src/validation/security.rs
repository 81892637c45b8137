//! Validates the security contexts of pods and containers.

use serde_json::Value;

use super::members::numbered;
use super::members::{nullable_range, one_of};
use super::text as rules;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, flag, is_unset, list, text};

const ID_MAX: i64 = i32::MAX as i64;
const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
/// The maximum length of the name of an AppArmor profile: that of a file name.
const PROFILE_BYTES_MAX: usize = 4095;

/// `securityContext` of a pod.
pub(super) fn pod_security_context(context: &Fields, at: &Path<'_>, causes: &mut Causes) {
    identities(context, at, causes);
    nullable_range(context, "fsGroup", 0, ID_MAX, at, causes);
    let groups_at = at.member("supplementalGroups");
    for (index, group) in list(context, "supplementalGroups").iter().enumerate() {
        if let Some(group) = group.as_i64() {
            let problems = rules::range(group, 0, ID_MAX);
            numbered(&groups_at.item(index), group, problems, causes);
        }
    }
    for (member, supported) in [
        ("fsGroupChangePolicy", &["Always", "OnRootMismatch"]),
        ("seLinuxChangePolicy", &["MountOption", "Recursive"]),
        ("supplementalGroupsPolicy", &["Merge", "Strict"]),
    ] {
        one_of(context, member, supported, at, causes);
    }
    sysctls(context, at, causes);
    profiles(context, at, causes);
}

/// `securityContext` of a container.
pub(super) fn of_container(context: &Fields, at: &Path<'_>, causes: &mut Causes) {
    identities(context, at, causes);
    one_of(context, "procMount", &["Default", "Unmasked"], at, causes);
    profiles(context, at, causes);
    if context.get("allowPrivilegeEscalation") != Some(&Value::Bool(false)) {
        return;
    }
    let shown = || Value::Object(context.clone());
    if flag(context, "privileged") {
        let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        causes.invalid(at, shown(), why);
    }
    let added = context.get("capabilities").map(|all| &all["add"]);
    let added = added.and_then(Value::as_array).into_iter().flatten();
    if added
        .into_iter()
        .any(|capability| capability == "CAP_SYS_ADMIN")
    {
        let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` \
                   CAP_SYS_ADMIN";
        causes.invalid(at, shown(), why);
    }
}

/// Users and groups by their numbers.
fn identities(context: &Fields, at: &Path<'_>, causes: &mut Causes) {
    for member in ["runAsUser", "runAsGroup"] {
        nullable_range(context, member, 0, ID_MAX, at, causes);
    }
}

fn sysctls(context: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("sysctls");
    let mut names = std::collections::HashSet::new();
    for (index, sysctl) in super::members::objects(list(context, "sysctls")) {
        let at = at.item(index);
        let (at, name) = (at.member("name"), text(sysctl, "name"));
        if name.is_empty() {
            causes.required(&at, "");
        } else if !is_sysctl_name(name) {
            let why = format!(
                "must have at most {SYSCTL_LENGTH_MAX} characters and match regex {SYSCTL_PATTERN}"
            );
            causes.invalid(&at, name, &why);
        } else if names.contains(name) {
            causes.duplicate(&at, name);
        }
        names.insert(name);
    }
}

/// The maximum length of the name of a sysctl.
const SYSCTL_LENGTH_MAX: usize = 253;

/// The regular expression of a sysctl name in error messages: segments separated by dots or slashes.
const SYSCTL_PATTERN: &str =
    r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn is_sysctl_name(name: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_segment = |segment: &str| {
        segment.starts_with(is_end)
            && segment.ends_with(is_end)
            && segment.chars().all(|c| is_end(c) || matches!(c, '-' | '_'))
    };
    name.len() <= SYSCTL_LENGTH_MAX && name.split(['.', '/']).all(is_segment)
}

fn profiles(context: &Fields, at: &Path<'_>, causes: &mut Causes) {
    for (member, what) in [
        ("seccompProfile", "seccomp"),
        ("appArmorProfile", "AppArmor"),
    ] {
        let Some(profile) = context.get(member).and_then(Value::as_object) else {
            continue;
        };
        let at = at.member(member);
        let kind = text(profile, "type");
        if kind.is_empty() {
            let why = format!("type is required when {member} is set");
            causes.required(&at.member("type"), &why);
        } else if !PROFILES.contains(&kind) {
            causes.not_supported(&at.member("type"), kind, PROFILES);
        }
        let given = profile.get("localhostProfile").and_then(Value::as_str);
        let at = at.member("localhostProfile");
        match given {
            None if kind == "Localhost" => {
                let why = format!("must be set when {what} type is Localhost");
                causes.required(&at, &why);
            }
            Some(name) if kind != "Localhost" => {
                let why = format!("can only be set when {what} type is Localhost");
                causes.invalid(&at, name, &why);
            }
            Some(name) if member == "seccompProfile" => descending(name, &at, causes),
            Some(name) => loaded(name, &at, causes),
            None => {}
        }
    }
}

/// Validates the path of a file relative to the profile directory of the kubelet.
fn descending(name: &str, at: &Path<'_>, causes: &mut Causes) {
    if name.starts_with('/') {
        causes.invalid(at, name, "must be a relative path");
    }
    if name.split('/').any(|part| part == "..") {
        causes.invalid(at, name, "must not contain '..'");
    }
}

/// Validates the name of a profile that is loaded on the node.
fn loaded(name: &str, at: &Path<'_>, causes: &mut Causes) {
    if name.trim().is_empty() {
        causes.required(at, "must be set when AppArmor type is Localhost");
    } else if name.trim() != name {
        causes.invalid(at, name, "must not be padded with whitespace");
    } else if name.len() > PROFILE_BYTES_MAX {
        causes.too_long(at, PROFILE_BYTES_MAX);
    }
}

/// Returns the security context of a pod or container, if it has one.
pub(super) fn within(fields: &Fields) -> Option<&Fields> {
    match is_unset(fields, "securityContext") {
        true => None,
        false => fields.get("securityContext")?.as_object(),
    }
}
