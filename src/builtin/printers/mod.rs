//! Printers: what a Table shows of each resource. A resource without a printer of its own shows its
//! name and age. How a Table is encoded, and who asked for one, is the business of `http`.

mod core;
mod network;
mod policy;
mod replicas;
mod storage;
mod workloads;

use jiff::Timestamp;
use serde_json::Value;

use crate::registry::age;
use crate::registry::table_columns::{AGE, NAME, TableColumn};

/// How one resource is shown: its columns, and the cells of one object in the same order.
#[derive(Debug)]
pub(super) struct Printer {
    pub(super) columns: &'static [TableColumn],
    pub(super) cells: fn(&Value, Timestamp) -> Vec<Value>,
}

const GENERIC: Printer = Printer {
    columns: &[NAME, AGE],
    cells: |object, now| vec![name(object), created(object, now)],
};

/// Upstream's for what it has no printer for either: when it was made, as a time.
const WITHOUT_AGE: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::column("Created At", "date", "", "When the object was created.", 0),
    ],
    cells: |object, _| {
        vec![
            name(object),
            text(object, "metadata.creationTimestamp").into(),
        ]
    },
};

/// The printer of a built-in resource.
pub(super) fn printer(group: &str, plural: &str) -> &'static Printer {
    match group {
        "" | "events.k8s.io" => core_printer(plural),
        "apps" | "batch" | "autoscaling" | "policy" => workload_printer(plural),
        "storage.k8s.io" | "resource.k8s.io" => storage_printer(plural),
        "networking.k8s.io" | "discovery.k8s.io" => network_printer(plural),
        group => policy_printer(group, plural),
    }
}

fn core_printer(plural: &str) -> &'static Printer {
    match plural {
        "pods" => &workloads::PODS,
        "nodes" => &core::NODES,
        "services" => &core::SERVICES,
        "componentstatuses" => &core::COMPONENT_STATUSES,
        "configmaps" => &core::CONFIG_MAPS,
        "secrets" => &core::SECRETS,
        "namespaces" => &core::NAMESPACES,
        "events" => &core::EVENTS,
        "endpoints" => &network::ENDPOINTS,
        "persistentvolumes" => &storage::VOLUMES,
        "persistentvolumeclaims" => &storage::CLAIMS,
        "podtemplates" => &replicas::POD_TEMPLATES,
        "replicationcontrollers" => &replicas::REPLICATION_CONTROLLERS,
        "resourcequotas" => &policy::QUOTAS,
        "serviceaccounts" => &policy::SERVICE_ACCOUNTS,
        "limitranges" => &WITHOUT_AGE,
        _ => &GENERIC,
    }
}

fn workload_printer(plural: &str) -> &'static Printer {
    match plural {
        "deployments" => &workloads::DEPLOYMENTS,
        "jobs" => &workloads::JOBS,
        "replicasets" => &replicas::REPLICA_SETS,
        "statefulsets" => &replicas::STATEFUL_SETS,
        "daemonsets" => &replicas::DAEMON_SETS,
        "cronjobs" => &replicas::CRON_JOBS,
        "controllerrevisions" => &replicas::CONTROLLER_REVISIONS,
        "horizontalpodautoscalers" => &replicas::AUTOSCALERS,
        "poddisruptionbudgets" => &replicas::DISRUPTION_BUDGETS,
        _ => &GENERIC,
    }
}

fn storage_printer(plural: &str) -> &'static Printer {
    match plural {
        "storageclasses" => &storage::STORAGE_CLASSES,
        "volumeattributesclasses" => &storage::ATTRIBUTES_CLASSES,
        "volumeattachments" => &storage::ATTACHMENTS,
        "csinodes" => &storage::CSI_NODES,
        "csidrivers" => &storage::CSI_DRIVERS,
        "csistoragecapacities" => &storage::CSI_CAPACITIES,
        "resourceclaims" => &storage::RESOURCE_CLAIMS,
        "resourceslices" => &storage::RESOURCE_SLICES,
        _ => &GENERIC,
    }
}

fn network_printer(plural: &str) -> &'static Printer {
    match plural {
        "ingresses" => &network::INGRESSES,
        "ingressclasses" => &network::INGRESS_CLASSES,
        "networkpolicies" => &network::NETWORK_POLICIES,
        "endpointslices" => &network::ENDPOINT_SLICES,
        "servicecidrs" => &network::SERVICE_CIDRS,
        "ipaddresses" => &network::IP_ADDRESSES,
        _ => &GENERIC,
    }
}

fn policy_printer(group: &str, plural: &str) -> &'static Printer {
    match (group, plural) {
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => &policy::BINDINGS,
        ("rbac.authorization.k8s.io", _)
        | ("apiextensions.k8s.io", "customresourcedefinitions") => &WITHOUT_AGE,
        ("certificates.k8s.io", "certificatesigningrequests") => &policy::CERTIFICATE_REQUESTS,
        ("coordination.k8s.io", "leases") => &policy::LEASES,
        ("scheduling.k8s.io", "priorityclasses") => &policy::PRIORITY_CLASSES,
        ("node.k8s.io", "runtimeclasses") => &policy::RUNTIME_CLASSES,
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => &policy::WEBHOOK_CONFIGURATIONS,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => &policy::MUTATING_POLICIES,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            &policy::VALIDATING_POLICIES
        }
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings" | "validatingadmissionpolicybindings",
        ) => &policy::ADMISSION_BINDINGS,
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => &policy::FLOW_SCHEMAS,
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => &policy::PRIORITY_LEVELS,
        ("apiregistration.k8s.io", "apiservices") => &policy::API_SERVICES,
        _ => &GENERIC,
    }
}

/// The value at a dotted path; `Null` when it is absent.
fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, name| &value[name])
}

/// The text at a dotted path; empty when it is absent.
fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// The text at a dotted path, or `otherwise` when it is absent or empty.
fn text_or<'a>(object: &'a Value, path: &str, otherwise: &'a str) -> &'a str {
    Some(text(object, path))
        .filter(|t| !t.is_empty())
        .unwrap_or(otherwise)
}

/// The whole number at a dotted path; zero when it is absent.
fn number(object: &Value, path: &str) -> i64 {
    at(object, path).as_i64().unwrap_or_default()
}

/// The list at a dotted path; empty when it is absent.
fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).as_array().map_or(&[], Vec::as_slice)
}

/// How many members the map at a dotted path has.
fn members(object: &Value, path: &str) -> usize {
    at(object, path).as_object().map_or(0, serde_json::Map::len)
}

/// How long the list at a dotted path is, as a cell.
fn count(object: &Value, path: &str) -> Value {
    items(object, path).len().into()
}

/// The boolean at a dotted path, as upstream prints pointers to one.
fn flag(object: &Value, path: &str, otherwise: &str) -> Value {
    match at(object, path) {
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        _ => otherwise.into(),
    }
}

/// What is a number or a text at a dotted path, as a text, or `otherwise`.
fn quantity(object: &Value, path: &str, otherwise: &str) -> Value {
    match at(object, path) {
        Value::String(text) => text.as_str().into(),
        Value::Number(number) => number.to_string().into(),
        _ => otherwise.into(),
    }
}

/// How much of a load balancer's addresses is shown.
const LOAD_BALANCER_WIDTH_MAX: usize = 16;

/// The addresses that a load balancer gives to an object, cut where they get long.
fn balancer_addresses(object: &Value) -> String {
    let ingress = items(object, "status.loadBalancer.ingress").iter();
    let mut addresses: Vec<&str> = ingress
        .map(|i| text_or(i, "ip", text(i, "hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let mut shown = addresses.join(",");
    if shown.len() > LOAD_BALANCER_WIDTH_MAX && shown.is_ascii() {
        shown.truncate(LOAD_BALANCER_WIDTH_MAX - 3);
        shown.push_str("...");
    }
    shown
}

fn name(object: &Value) -> Value {
    text(object, "metadata.name").into()
}

fn created(object: &Value, now: Timestamp) -> Value {
    age::age(age::time(at(object, "metadata.creationTimestamp")), now).into()
}

/// The condition of this type, if the object reports it.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "status.conditions")
        .iter()
        .find(|c| c["type"] == kind)
}

/// The texts joined by commas; `<none>` when there are none.
fn joined<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let joined = texts.into_iter().collect::<Vec<_>>().join(",");
    if joined.is_empty() {
        "<none>".to_owned()
    } else {
        joined
    }
}

/// `k=v,…` of a map of strings; `<none>` when it is empty.
fn label_map(map: &Value) -> String {
    let pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    joined(pairs.iter().map(String::as_str))
}

/// A `metav1.LabelSelector` as a label selector's text; `<none>` when it is empty or absent.
fn selector(selector: &Value) -> String {
    let mut terms: Vec<String> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        terms.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in items(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values: Vec<&str> = items(expression, "values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        terms.push(match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.sort_unstable();
    joined(terms.iter().map(String::as_str))
}

#[cfg(test)]
mod tests;
