//! Defaults (upstream's `SetDefaults_*`). Those that depend only on the absence of a field are rows of a table; the
//! others are functions over the members of an object.

mod cluster;
mod network;
mod pods;
mod storage;
mod volumes;
mod workloads;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use watchet_registry::Resource;
use watchet_registry::fields::{Fields, child, existing, items, set};

/// The default of an absent field.
#[derive(Debug, Clone, Copy)]
enum DefaultValue {
    Text(&'static str),
    Number(i64),
    Flag(bool),
    /// An object without members.
    Empty,
}
use DefaultValue::{Empty, Flag, Number, Text};

impl From<DefaultValue> for Value {
    fn from(default: DefaultValue) -> Self {
        match default {
            Text(text) => text.into(),
            Number(number) => number.into(),
            Flag(flag) => flag.into(),
            Empty => Self::Object(Map::new()),
        }
    }
}

/// One default: the path of a field and its value. A path is member names separated by dots; a name that ends in `[]`
/// is a list and stands for each of its items; one that ends in `+` is created if it is absent. Fields below any other
/// absent member get no defaults.
type Line = (&'static str, DefaultValue);

const WEBHOOKS: &[Line] = &[
    ("webhooks[].failurePolicy", Text("Fail")),
    ("webhooks[].matchPolicy", Text("Equivalent")),
    ("webhooks[].namespaceSelector", Empty),
    ("webhooks[].objectSelector", Empty),
    ("webhooks[].timeoutSeconds", Number(10)),
    ("webhooks[].clientConfig.service.port", Number(443)),
    ("webhooks[].rules[].scope", Text("*")),
];

const REINVOCATION: &[Line] = &[("webhooks[].reinvocationPolicy", Text("Never"))];

const ADMISSION_POLICY: &[Line] = &[
    ("spec+.failurePolicy", Text("Fail")),
    ("spec.matchConstraints.matchPolicy", Text("Equivalent")),
    ("spec.matchConstraints.namespaceSelector", Empty),
    ("spec.matchConstraints.objectSelector", Empty),
    ("spec.matchConstraints.resourceRules[].scope", Text("*")),
    (
        "spec.matchConstraints.excludeResourceRules[].scope",
        Text("*"),
    ),
];

const ADMISSION_POLICY_BINDING: &[Line] = &[
    ("spec.matchResources.matchPolicy", Text("Equivalent")),
    ("spec.matchResources.namespaceSelector", Empty),
    ("spec.matchResources.objectSelector", Empty),
    ("spec.matchResources.resourceRules[].scope", Text("*")),
    (
        "spec.matchResources.excludeResourceRules[].scope",
        Text("*"),
    ),
];

const CSI_DRIVER: &[Line] = &[
    ("spec+.attachRequired", Flag(true)),
    ("spec.podInfoOnMount", Flag(false)),
    ("spec.storageCapacity", Flag(false)),
    ("spec.fsGroupPolicy", Text("ReadWriteOnceWithFSType")),
    ("spec.requiresRepublish", Flag(false)),
    ("spec.seLinuxMount", Flag(false)),
];

const STORAGE_CLASS: &[Line] = &[
    ("reclaimPolicy", Text("Delete")),
    ("volumeBindingMode", Text("Immediate")),
];

/// Sets the absent fields of an object of `resource` that have a default.
pub(super) fn fill(resource: &Resource, object: &mut Fields) {
    match (&*resource.group, &*resource.plural) {
        ("", plural) => fill_core(plural, object),
        ("apps", "deployments") => workloads::deployment(object),
        ("apps", "replicasets") => workloads::replica_set(object),
        ("apps", "statefulsets") => workloads::stateful_set(object),
        ("apps", "daemonsets") => workloads::daemon_set(object),
        ("batch", "jobs") => workloads::job(object),
        ("batch", "cronjobs") => workloads::cron_job(object),
        ("autoscaling", "horizontalpodautoscalers") => cluster::autoscaler(object),
        ("networking.k8s.io", "networkpolicies") => network::network_policy(object),
        ("rbac.authorization.k8s.io", "clusterrolebindings" | "rolebindings") => {
            cluster::role_binding(object);
        }
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => cluster::flow_schema(object),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => {
            cluster::priority_level(object);
        }
        ("resource.k8s.io", "resourceclaims") => {
            child(object, "spec")
                .into_iter()
                .for_each(cluster::device_requests);
        }
        ("resource.k8s.io", "resourceclaimtemplates") => {
            let spec = child(object, "spec").and_then(|spec| child(spec, "spec"));
            spec.into_iter().for_each(cluster::device_requests);
        }
        (group, plural) => lines(group, plural).for_each(|line| apply(line, object)),
    }
    if resource.is("storage.k8s.io", "csidrivers")
        && let Some(spec) = existing(object, "spec")
    {
        set(spec, "volumeLifecycleModes", vec!["Persistent"]);
    }
}

fn fill_core(plural: &str, object: &mut Fields) {
    match plural {
        "pods" => pods::pod(object),
        "podtemplates" => pods::template(object),
        "replicationcontrollers" => workloads::replication_controller(object),
        "services" => network::service(object),
        "persistentvolumeclaims" => {
            storage::claim(object);
            if let Some(status) = existing(object, "status") {
                set(status, "phase", "Pending");
            }
        }
        "persistentvolumes" => storage::volume(object),
        "nodes" => cluster::node(object),
        "limitranges" => cluster::limit_range(object),
        plural => lines("", plural).for_each(|line| apply(line, object)),
    }
}

/// The table: the defaults of each resource.
fn lines(group: &str, plural: &str) -> impl Iterator<Item = &'static Line> {
    let lines: &[&[Line]] = match (group, plural) {
        ("", "secrets") => &[&[("type", Text("Opaque"))]],
        ("", "endpoints") => &[&[("subsets[].ports[].protocol", Text("TCP"))]],
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations") => {
            &[WEBHOOKS, REINVOCATION]
        }
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations") => &[WEBHOOKS],
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicies" | "validatingadmissionpolicies",
        ) => &[ADMISSION_POLICY],
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings" | "validatingadmissionpolicybindings",
        ) => &[ADMISSION_POLICY_BINDING],
        ("apiregistration.k8s.io", "apiservices") => &[&[("spec.service.port", Number(443))]],
        ("discovery.k8s.io", "endpointslices") => &[&[
            ("ports[].name", Text("")),
            ("ports[].protocol", Text("TCP")),
        ]],
        ("networking.k8s.io", "ingressclasses") => &[&[("spec.parameters.scope", Text("Cluster"))]],
        ("scheduling.k8s.io", "priorityclasses") => {
            &[&[("preemptionPolicy", Text("PreemptLowerPriority"))]]
        }
        ("storage.k8s.io", "csidrivers") => &[CSI_DRIVER],
        ("storage.k8s.io", "storageclasses") => &[STORAGE_CLASS],
        _ => &[],
    };
    lines.iter().copied().flatten()
}

fn apply((path, default): &Line, object: &mut Fields) {
    match path.split_once('.') {
        None => set(object, path, *default),
        Some((first, rest)) => {
            let line = (rest, *default);
            if let Some(list) = first.strip_suffix("[]") {
                items(object, list).for_each(|item| apply(&line, item));
            } else if let Some(made) = first.strip_suffix('+') {
                child(object, made)
                    .into_iter()
                    .for_each(|made| apply(&line, made));
            } else {
                existing(object, first)
                    .into_iter()
                    .for_each(|found| apply(&line, found));
            }
        }
    }
}
