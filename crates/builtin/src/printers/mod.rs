//! Printers: the columns and cells of each resource in a Table. A resource without a printer of its own shows its
//! name and age. `http` encodes Tables.

mod cells;
mod core;
mod network;
mod policy;
mod printer;
mod replicas;
mod storage;
mod workloads;

use cells::{created, name, text};
use watchet_registry::table_columns::{AGE, NAME, TableColumn};

use printer::Fields;
pub(super) use printer::Printer;

const GENERIC: Printer = Printer {
    columns: &[NAME, AGE],
    fields: Fields::Paths(&["metadata.name", "metadata.creationTimestamp"]),
    cells: |object, now| vec![name(object), created(object, now)],
};

/// The printer of resources without an upstream printer: the creation time instead of the age.
const WITHOUT_AGE: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::column("Created At", "date", "", "When the object was created.", 0),
    ],
    fields: Fields::Paths(&["metadata.name", "metadata.creationTimestamp"]),
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

#[cfg(test)]
mod tests;
