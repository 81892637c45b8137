//! The checks of the Pod Security Standards: the checks of each level and version, and their violations by a pod. The
//! texts are upstream's.

mod baseline;
mod pod;
mod profiles;
mod restricted;

use super::level::{Level, LevelVersion, Version};
pub(super) use pod::{Pod, Violation};

type Check = fn(Pod<'_>) -> Option<Violation>;

/// The implementation of a check from a minor version on.
struct Versioned {
    since: u64,
    check: Check,
    /// The baseline check that it replaces at the restricted level.
    replaces: Option<&'static str>,
}

/// A check with all its versions, oldest first.
struct Entry {
    id: &'static str,
    level: Level,
    versions: &'static [Versioned],
}

const fn at(since: u64, check: Check) -> Versioned {
    Versioned {
        since,
        check,
        replaces: None,
    }
}

const fn over(since: u64, check: Check, replaced: &'static str) -> Versioned {
    Versioned {
        since,
        check,
        replaces: Some(replaced),
    }
}

const fn entry(id: &'static str, level: Level, versions: &'static [Versioned]) -> Entry {
    Entry {
        id,
        level,
        versions,
    }
}

/// The checks in the order in which violations are reported: baseline first, and the checks of each level by name.
#[rustfmt::skip]
const CHECKS: &[Entry] = &[
    entry("appArmorProfile", Level::Baseline, &[at(0, profiles::app_armor)]),
    entry("capabilities_baseline", Level::Baseline, &[at(0, baseline::capabilities)]),
    entry("hostNamespaces", Level::Baseline, &[at(0, baseline::host_namespaces)]),
    entry("hostPathVolumes", Level::Baseline, &[at(0, baseline::host_path_volumes)]),
    entry("hostPorts", Level::Baseline, &[at(0, baseline::host_ports)]),
    entry("hostProbesAndHostLifecycle", Level::Baseline, &[at(34, baseline::probe_hosts)]),
    entry("privileged", Level::Baseline, &[at(0, baseline::privileged)]),
    entry("procMount", Level::Baseline, &[
        at(0, baseline::proc_mount),
        at(35, baseline::proc_mount_without_user_namespace),
    ]),
    entry("seLinuxOptions", Level::Baseline, &[
        at(0, profiles::se_linux_0),
        at(31, profiles::se_linux_31),
    ]),
    entry("seccompProfile_baseline", Level::Baseline, &[
        at(0, profiles::seccomp_annotations),
        at(19, profiles::seccomp_baseline),
    ]),
    entry("sysctls", Level::Baseline, &[
        at(0, baseline::sysctls_0),
        at(27, baseline::sysctls_27),
        at(29, baseline::sysctls_29),
        at(32, baseline::sysctls_32),
    ]),
    entry("windowsHostProcess", Level::Baseline, &[at(0, baseline::host_process)]),
    entry("allowPrivilegeEscalation", Level::Restricted, &[
        at(8, restricted::privilege_escalation),
        at(25, restricted::privilege_escalation_but_windows),
    ]),
    entry("capabilities_restricted", Level::Restricted, &[
        over(22, restricted::capabilities, "capabilities_baseline"),
        over(25, restricted::capabilities_but_windows, "capabilities_baseline"),
    ]),
    entry("procMount_restricted", Level::Restricted, &[over(35, baseline::proc_mount, "procMount")]),
    entry("restrictedVolumes", Level::Restricted, &[
        over(0, restricted::volumes, "hostPathVolumes"),
    ]),
    entry("runAsNonRoot", Level::Restricted, &[
        at(0, restricted::non_root),
        at(35, restricted::non_root_without_user_namespace),
    ]),
    entry("runAsUser", Level::Restricted, &[
        at(23, restricted::user),
        at(35, restricted::user_without_user_namespace),
    ]),
    entry("seccompProfile_restricted", Level::Restricted, &[
        over(19, profiles::seccomp_restricted, "seccompProfile_baseline"),
        over(25, profiles::seccomp_restricted_but_windows, "seccompProfile_baseline"),
    ]),
];

/// Returns the violations of a level by `pod`.
pub(super) fn violations(policy: LevelVersion, pod: Pod<'_>) -> Vec<Violation> {
    let minor = match policy.version {
        Version::Minor(minor) => minor,
        Version::Latest => u64::MAX,
    };
    let applicable = |entry: &'static Entry| -> Option<(&'static str, &'static Versioned)> {
        let mut newest_first = entry.versions.iter().rev();
        let versioned = newest_first.find(|versioned| versioned.since <= minor)?;
        (entry.level <= policy.level).then_some((entry.id, versioned))
    };
    let checks: Vec<_> = CHECKS.iter().filter_map(applicable).collect();
    let is_replaced = |id: &str| checks.iter().any(|(_, check)| check.replaces == Some(id));
    let remaining = checks.iter().filter(|(id, _)| !is_replaced(id));
    remaining
        .filter_map(|(_, versioned)| (versioned.check)(pod))
        .collect()
}

/// Returns all violations in one line.
pub(super) fn details(violations: &[Violation]) -> String {
    let each = violations.iter().map(|Violation { reason, detail }| {
        if detail.is_empty() {
            reason.clone()
        } else {
            format!("{reason} ({detail})")
        }
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Returns the kinds of the violations in one line.
pub(super) fn reasons(violations: &[Violation]) -> String {
    let each: Vec<&str> = violations.iter().map(|v| v.reason.as_str()).collect();
    each.join(", ")
}

#[cfg(test)]
mod tests;
