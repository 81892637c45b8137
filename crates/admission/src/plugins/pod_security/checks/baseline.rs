//! The checks of the baseline level, except those of security profiles.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pod::{
    Pod, Violation, containers, counted, items, plural, quoted, setters, sorted, text, uses,
    violation,
};

/// The capabilities that container runtimes give by default.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

pub(super) fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    let mut forbidden = BTreeSet::new();
    let names = pod.names(|container| {
        let added = items(&container["securityContext"]["capabilities"]["add"]).map(text);
        let added: Vec<_> = added.filter(|name| !CAPABILITIES.contains(name)).collect();
        forbidden.extend(added.iter().copied());
        !added.is_empty()
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not include {} in securityContext.capabilities.add",
        containers(&names),
        quoted(&sorted(&forbidden))
    );
    violation("non-default capabilities", detail)
}

pub(super) fn host_namespaces(pod: Pod<'_>) -> Option<Violation> {
    let fields = ["hostNetwork", "hostPID", "hostIPC"];
    let set = fields.into_iter().filter(|field| pod.spec[field] == true);
    let set: Vec<_> = set.map(|field| format!("{field}=true")).collect();
    if set.is_empty() {
        return None;
    }
    violation("host namespaces", set.join(", "))
}

pub(super) fn host_path_volumes(pod: Pod<'_>) -> Option<Violation> {
    let volumes = items(&pod.spec["volumes"]).filter(|volume| !volume["hostPath"].is_null());
    let names: Vec<_> = volumes.map(|volume| text(&volume["name"])).collect();
    if names.is_empty() {
        return None;
    }
    violation("hostPath volumes", counted("volume", &names))
}

pub(super) fn host_ports(pod: Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let names = pod.names(|container| {
        let used = items(&container["ports"]).filter_map(|port| port["hostPort"].as_i64());
        let used: Vec<_> = used.filter(|port| *port != 0).collect();
        // Upstream sorts the ports as strings.
        ports.extend(used.iter().map(i64::to_string));
        !used.is_empty()
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        uses(names.len()),
        plural("hostPort", ports.len()),
        ports.into_iter().collect::<Vec<_>>().join(", ")
    );
    violation("hostPort", detail)
}

pub(super) fn probe_hosts(pod: Pod<'_>) -> Option<Violation> {
    let mut hosts = BTreeSet::new();
    let names = pod.names(|container| {
        let lifecycle = &container["lifecycle"];
        let handlers = [
            &container["livenessProbe"],
            &container["readinessProbe"],
            &container["startupProbe"],
            &lifecycle["postStart"],
            &lifecycle["preStop"],
        ];
        let mut found = false;
        for handler in handlers {
            for action in ["httpGet", "tcpSocket"] {
                let host = text(&handler[action]["host"]);
                if !host.is_empty() {
                    hosts.insert(host);
                    found = true;
                }
            }
        }
        found
    });
    if names.is_empty() {
        return None;
    }
    // Only in this check upstream lists the containers in the order of their names.
    let names = sorted(&names.into_iter().collect());
    let detail = format!(
        "{} {} {}",
        containers(&names),
        uses(names.len()),
        counted("probe or lifecycle host", &sorted(&hosts))
    );
    violation("probe or lifecycle host", detail)
}

pub(super) fn privileged(pod: Pod<'_>) -> Option<Violation> {
    let names = pod.names(|container| container["securityContext"]["privileged"] == true);
    if names.is_empty() {
        return None;
    }
    let names = containers(&names);
    violation(
        "privileged",
        format!("{names} must not set securityContext.privileged=true"),
    )
}

pub(super) fn proc_mount(pod: Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let names = pod.names(|container| {
        let mount = container["securityContext"]["procMount"].as_str();
        let mount = mount.filter(|mount| *mount != "Default");
        types.extend(mount);
        mount.is_some()
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not set securityContext.procMount to {}",
        containers(&names),
        quoted(&sorted(&types))
    );
    violation("procMount", detail)
}

pub(super) fn proc_mount_without_user_namespace(pod: Pod<'_>) -> Option<Violation> {
    match pod.has_user_namespace() {
        true => None,
        false => proc_mount(pod),
    }
}

/// Kernel parameters of a pod's own namespaces, with the first version that allows them.
const SYSCTLS: [(&str, u64); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

fn sysctls(pod: Pod<'_>, minor: u64) -> Option<Violation> {
    let is_allowed = |name: &str| {
        let mut allowed = SYSCTLS.iter().filter(|(_, since)| *since <= minor);
        allowed.any(|(allowed, _)| *allowed == name)
    };
    let set = items(&pod.spec["securityContext"]["sysctls"]).map(|sysctl| text(&sysctl["name"]));
    let forbidden: Vec<_> = set.filter(|name| !is_allowed(name)).collect();
    if forbidden.is_empty() {
        return None;
    }
    violation("forbidden sysctls", forbidden.join(", "))
}

pub(super) fn sysctls_0(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, 0)
}

pub(super) fn sysctls_27(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, 27)
}

pub(super) fn sysctls_29(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, 29)
}

pub(super) fn sysctls_32(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, 32)
}

pub(super) fn host_process(pod: Pod<'_>) -> Option<Violation> {
    let is_set = |of: &Value| of["securityContext"]["windowsOptions"]["hostProcess"] == true;
    let names = pod.names(is_set);
    let setters = setters(is_set(pod.spec), &names);
    if setters.is_empty() {
        return None;
    }
    let setters = setters.join(" and ");
    violation(
        "hostProcess",
        format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"),
    )
}
