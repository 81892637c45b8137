//! The table of built-in resources: every property of a resource that is data. Code is in `strategies`.

use std::sync::Arc;
use std::time::Duration;

use super::dependencies::Dependencies;
use super::strategies::{self, Builtin};
use super::subresources;
use watchet_api::{ColumnSet, FieldColumn, FieldRef};
use watchet_registry::Resource;
use watchet_registry::Rules;
use watchet_registry::names::NameRule;

/// One line of the table.
struct Row {
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    flags: &'static [Flag],
    /// Selectable fields; see [`column()`] for the notation.
    fields: &'static [&'static str],
}

/// A property of a resource.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flag {
    /// Its objects are cluster-scoped.
    Cluster,
    /// It has a `status` subresource.
    Status,
    /// It is in the category `all`.
    All,
    /// It is in the category `api-extensions`.
    ApiExtensions,
    /// Its group is part of its storage prefix, as with custom resources.
    GroupInPrefix,
    /// It does not support the field selector `metadata.namespace`; other cluster-scoped resources do.
    NoNamespaceField,
    /// Its objects have a `metadata.generation`.
    Generation,
    /// A PUT creates an object that does not exist.
    CreateOnUpdate,
    /// A PUT requires a resourceVersion.
    ConditionalUpdate,
    /// A delete that completes returns the object.
    ReturnsDeleted,
    /// A delete without a propagation policy orphans the dependents: as in the first versions of Kubernetes, because
    /// clients depend on it.
    OrphansByDefault,
    /// Names are DNS labels.
    LabelName,
    /// Names are any path segment: an IPv6 address has colons, and roles are called `system:node`. Upstream does not validate
    /// the names of core events and disruption budgets further.
    PathName,
    /// Storage deletes objects after [`EVENT_TTL`], and nothing depends on them.
    Expires,
    /// Readiness waits for the cache.
    RequiredCache,
}
use Flag::{
    All, ApiExtensions, Cluster, ConditionalUpdate, CreateOnUpdate, Expires, Generation,
    GroupInPrefix, LabelName, NoNamespaceField, OrphansByDefault, PathName, RequiredCache,
    ReturnsDeleted, Status,
};

/// How long storage retains an event; upstream's default.
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// A group, in a version.
struct Group {
    name: &'static str,
    version: &'static str,
    rows: &'static [Row],
}

const fn row(
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    flags: &'static [Flag],
    fields: &'static [&'static str],
) -> Row {
    Row {
        plural,
        kind,
        short_names,
        flags,
        fields,
    }
}

/// Storage prefixes from the first versions of Kubernetes, which upstream never changed: group, plural, prefix.
const HISTORIC_PREFIXES: &[(&str, &str, &str)] = &[
    ("", "nodes", "minions"),
    ("", "services", "services/specs"),
    ("", "endpoints", "services/endpoints"),
    ("", "replicationcontrollers", "controllers"),
    ("networking.k8s.io", "ingresses", "ingress"),
];

/// Fields with an index in the cache: kubelets watch their own pods by `spec.nodeName`.
const TRIGGERS: &[(&str, &str)] = &[
    ("pods", "spec.nodeName"),
    ("nodes", "metadata.name"),
    ("secrets", "metadata.name"),
    ("configmaps", "metadata.name"),
];

/// Order and paths are shared with [`REGARDING_FIELDS`]: both groups select on the same stored
/// events.
const INVOLVED_OBJECT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "type",
    "source@source.component?reportingComponent",
];

const REGARDING_FIELDS: &[&str] = &[
    "regarding.kind@involvedObject.kind",
    "regarding.namespace@involvedObject.namespace",
    "regarding.name@involvedObject.name",
    "regarding.uid@involvedObject.uid",
    "regarding.apiVersion@involvedObject.apiVersion",
    "regarding.resourceVersion@involvedObject.resourceVersion",
    "regarding.fieldPath@involvedObject.fieldPath",
    "reason",
    "reportingController@reportingComponent",
    "type",
];

const POD_FIELDS: &[&str] = &[
    "spec.nodeName|spec.host",
    "spec.restartPolicy=Always",
    "spec.schedulerName=default-scheduler",
    "spec.serviceAccountName",
    "spec.hostNetwork=false",
    "status.phase",
    "status.podIP",
    "status.podIPs@-",
    "status.nominatedNodeName",
];

/// The groups, in the order in which discovery lists them.
#[rustfmt::skip]
const GROUPS: &[Group] = &[
    Group { name: "", version: "v1", rows: &[
        row("configmaps", "ConfigMap", &["cm"], &[], &[]),
        row("endpoints", "Endpoints", &["ep"], &[CreateOnUpdate], &[]),
        row("events", "Event", &["ev"], &[CreateOnUpdate, Expires, PathName], INVOLVED_OBJECT_FIELDS),
        row("limitranges", "LimitRange", &["limits"], &[CreateOnUpdate], &[]),
        row("namespaces", "Namespace", &["ns"], &[Cluster, Status, NoNamespaceField, LabelName, RequiredCache], &["status.phase"]),
        row("nodes", "Node", &["no"], &[Cluster, Status, NoNamespaceField], &["spec.unschedulable=false"]),
        row("persistentvolumeclaims", "PersistentVolumeClaim", &["pvc"], &[Status, ReturnsDeleted], &[]),
        row("persistentvolumes", "PersistentVolume", &["pv"], &[Cluster, Status, ReturnsDeleted], &[]),
        row("pods", "Pod", &["po"], &[Status, All, Generation, ReturnsDeleted], POD_FIELDS),
        row("podtemplates", "PodTemplate", &[], &[Generation, ReturnsDeleted], &[]),
        row("replicationcontrollers", "ReplicationController", &["rc"], &[Status, All, Generation, OrphansByDefault], &["status.replicas=0"]),
        row("resourcequotas", "ResourceQuota", &["quota"], &[Status, ReturnsDeleted], &[]),
        row("secrets", "Secret", &[], &[], &["type=Opaque"]),
        row("serviceaccounts", "ServiceAccount", &["sa"], &[ReturnsDeleted], &[]),
        row("services", "Service", &["svc"], &[Status, All, CreateOnUpdate, ReturnsDeleted, LabelName], &["spec.clusterIP", "spec.type=ClusterIP"]),
    ]},
    Group { name: "apiregistration.k8s.io", version: "v1", rows: &[
        row("apiservices", "APIService", &[], &[Cluster, Status, ApiExtensions, GroupInPrefix, ConditionalUpdate, PathName], &[]),
    ]},
    Group { name: "apps", version: "v1", rows: &[
        row("controllerrevisions", "ControllerRevision", &[], &[], &[]),
        row("daemonsets", "DaemonSet", &["ds"], &[Status, All, Generation], &[]),
        row("deployments", "Deployment", &["deploy"], &[Status, All, Generation], &[]),
        row("replicasets", "ReplicaSet", &["rs"], &[Status, All, Generation], &["status.replicas=0"]),
        row("statefulsets", "StatefulSet", &["sts"], &[Status, All, Generation], &[]),
    ]},
    Group { name: "events.k8s.io", version: "v1", rows: &[
        row("events", "Event", &["ev"], &[CreateOnUpdate, Expires], REGARDING_FIELDS),
    ]},
    Group { name: "autoscaling", version: "v2", rows: &[
        row("horizontalpodautoscalers", "HorizontalPodAutoscaler", &["hpa"], &[Status, All], &[]),
    ]},
    Group { name: "autoscaling", version: "v1", rows: &[
        row("horizontalpodautoscalers", "HorizontalPodAutoscaler", &["hpa"], &[Status, All], &[]),
    ]},
    Group { name: "batch", version: "v1", rows: &[
        row("cronjobs", "CronJob", &["cj"], &[Status, All, Generation], &[]),
        row("jobs", "Job", &[], &[Status, All, Generation, OrphansByDefault], &["status.successful@status.succeeded=0"]),
    ]},
    Group { name: "certificates.k8s.io", version: "v1", rows: &[
        row("certificatesigningrequests", "CertificateSigningRequest", &["csr"], &[Cluster, Status, PathName], &["spec.signerName"]),
    ]},
    Group { name: "networking.k8s.io", version: "v1", rows: &[
        row("ingressclasses", "IngressClass", &[], &[Cluster, Generation], &[]),
        row("ingresses", "Ingress", &["ing"], &[Status, Generation], &[]),
        row("ipaddresses", "IPAddress", &["ip"], &[Cluster, PathName], &[]),
        row("networkpolicies", "NetworkPolicy", &["netpol"], &[Generation], &[]),
        row("servicecidrs", "ServiceCIDR", &[], &[Cluster, Status], &[]),
    ]},
    Group { name: "policy", version: "v1", rows: &[
        row("poddisruptionbudgets", "PodDisruptionBudget", &["pdb"], &[Status, Generation, ConditionalUpdate, PathName], &[]),
    ]},
    Group { name: "rbac.authorization.k8s.io", version: "v1", rows: &[
        row("clusterrolebindings", "ClusterRoleBinding", &[], &[Cluster, CreateOnUpdate, PathName], &[]),
        row("clusterroles", "ClusterRole", &[], &[Cluster, CreateOnUpdate, PathName], &[]),
        row("rolebindings", "RoleBinding", &[], &[CreateOnUpdate, PathName], &[]),
        row("roles", "Role", &[], &[CreateOnUpdate, PathName], &[]),
    ]},
    Group { name: "storage.k8s.io", version: "v1", rows: &[
        row("csidrivers", "CSIDriver", &[], &[Cluster, ConditionalUpdate, ReturnsDeleted], &[]),
        row("csinodes", "CSINode", &[], &[Cluster, ConditionalUpdate, ReturnsDeleted], &[]),
        row("csistoragecapacities", "CSIStorageCapacity", &[], &[ConditionalUpdate], &[]),
        row("storageclasses", "StorageClass", &["sc"], &[Cluster, ReturnsDeleted], &[]),
        row("volumeattachments", "VolumeAttachment", &[], &[Cluster, Status, ConditionalUpdate, ReturnsDeleted], &[]),
        row("volumeattributesclasses", "VolumeAttributesClass", &["vac"], &[Cluster, ReturnsDeleted], &[]),
    ]},
    Group { name: "admissionregistration.k8s.io", version: "v1", rows: &[
        row("mutatingadmissionpolicies", "MutatingAdmissionPolicy", &[], &[Cluster, ApiExtensions, Generation, ConditionalUpdate, RequiredCache], &[]),
        row("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", &[], &[Cluster, ApiExtensions, Generation, ConditionalUpdate, RequiredCache], &[]),
        row("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", &[], &[Cluster, ApiExtensions, Generation, ConditionalUpdate, RequiredCache], &[]),
        row("validatingadmissionpolicies", "ValidatingAdmissionPolicy", &[], &[Cluster, Status, ApiExtensions, Generation, ConditionalUpdate, RequiredCache], &[]),
        row("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", &[], &[Cluster, ApiExtensions, Generation, ConditionalUpdate, RequiredCache], &[]),
        row("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", &[], &[Cluster, ApiExtensions, Generation, ConditionalUpdate, RequiredCache], &[]),
    ]},
    Group { name: "apiextensions.k8s.io", version: "v1", rows: &[
        row("customresourcedefinitions", "CustomResourceDefinition", &["crd", "crds"], &[Cluster, Status, ApiExtensions, GroupInPrefix, Generation, ConditionalUpdate, RequiredCache], &[]),
    ]},
    Group { name: "scheduling.k8s.io", version: "v1", rows: &[
        row("priorityclasses", "PriorityClass", &["pc"], &[Cluster, Generation], &[]),
    ]},
    Group { name: "coordination.k8s.io", version: "v1", rows: &[
        row("leases", "Lease", &[], &[CreateOnUpdate, ConditionalUpdate], &[]),
    ]},
    Group { name: "node.k8s.io", version: "v1", rows: &[
        row("runtimeclasses", "RuntimeClass", &[], &[Cluster, CreateOnUpdate, ConditionalUpdate], &[]),
    ]},
    Group { name: "discovery.k8s.io", version: "v1", rows: &[
        row("endpointslices", "EndpointSlice", &[], &[Generation], &[]),
    ]},
    Group { name: "flowcontrol.apiserver.k8s.io", version: "v1", rows: &[
        row("flowschemas", "FlowSchema", &[], &[Cluster, Status, Generation], &[]),
        row("prioritylevelconfigurations", "PriorityLevelConfiguration", &[], &[Cluster, Status, Generation], &[]),
    ]},
    Group { name: "resource.k8s.io", version: "v1", rows: &[
        row("deviceclasses", "DeviceClass", &[], &[Cluster], &[]),
        row("resourceclaims", "ResourceClaim", &[], &[Status], &[]),
        row("resourceclaimtemplates", "ResourceClaimTemplate", &[], &[], &[]),
        row("resourceslices", "ResourceSlice", &[], &[Cluster, NoNamespaceField, Generation], &["spec.nodeName", "spec.driver"]),
    ]},
];

/// Every built-in resource that is stored, groups in discovery order.
pub(crate) fn resources(dependencies: &Dependencies) -> Vec<Arc<Resource>> {
    let rows = |group: &'static Group| group.rows.iter().map(move |row| (group, row));
    GROUPS
        .iter()
        .flat_map(rows)
        .map(|(group, row)| Arc::new(resource(group, row, dependencies)))
        .collect()
}

/// Every built-in resource, with default dependencies.
#[cfg(test)]
pub(crate) fn all() -> Vec<Arc<Resource>> {
    resources(&Dependencies::default())
}

/// Returns true if this name is a built-in kind, or the list kind of one.
pub(crate) fn is_kind(group: &str, version: &str, kind: &str) -> bool {
    let of = kind.strip_suffix("List").unwrap_or(kind);
    let mut groups = GROUPS.iter();
    let is_row = |row: &Row| row.kind == kind || row.kind == of;
    let is_stored = groups.any(|known| {
        (known.name, known.version) == (group, version) && known.rows.iter().any(is_row)
    });
    is_stored || subresources::is_virtual_kind(group, version, kind)
}

fn resource(group: &'static Group, row: &'static Row, dependencies: &Dependencies) -> Resource {
    let has = |flag: Flag| row.flags.contains(&flag);
    let mut columns = ColumnSet::new(row.fields.iter().map(|field| column(field)).collect());
    if has(NoNamespaceField) {
        columns = columns.without_namespace();
    }
    let triggers: Vec<FieldRef> = TRIGGERS
        .iter()
        .filter(|(plural, _)| group.name.is_empty() && *plural == row.plural)
        .filter_map(|(_, label)| columns.resolve(label).ok())
        .collect();
    let mut verbs = vec![
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    if row.plural == "namespaces" {
        verbs.retain(|verb| *verb != "deletecollection");
    }
    let categories = [(All, "all"), (ApiExtensions, "api-extensions")];
    Resource {
        group: group.name.to_owned(),
        version: group.version.to_owned(),
        kind: row.kind.to_owned(),
        plural: row.plural.to_owned(),
        singular: row.kind.to_lowercase(),
        short_names: row.short_names.iter().map(|&s| s.to_owned()).collect(),
        categories: categories
            .iter()
            .filter(|(flag, _)| has(*flag))
            .map(|(_, category)| (*category).to_owned())
            .collect(),
        namespaced: !has(Cluster),
        subresources: subresources::of_builtin(group.name, row.plural, has(Status)),
        verbs: verbs.into_iter().map(str::to_owned).collect(),
        storage_prefix: storage_prefix(group.name, row.plural, has(GroupInPrefix)),
        columns: Arc::new(columns),
        triggers,
        strategy: Arc::new(Builtin::new(
            (group.name, group.version, row.plural),
            rules(group, row),
            is_kind,
            strategies::of(group.name, row.plural, dependencies),
        )),
    }
}

fn rules(group: &Group, row: &Row) -> Rules {
    let has = |flag: Flag| row.flags.contains(&flag);
    let name_rules = [
        (LabelName, NameRule::Label),
        (PathName, NameRule::PathSegment),
    ];
    let name_rule = name_rules.into_iter().find(|(flag, _)| has(*flag));
    let is = |known: (&str, &str)| (group.name, row.plural) == known;
    Rules {
        name_rule: name_rule.map_or(NameRule::Subdomain, |(_, rule)| rule),
        has_generation: has(Generation),
        allows_create_on_update: has(CreateOnUpdate),
        allows_unconditional_update: !has(ConditionalUpdate),
        ttl: has(Expires).then_some(EVENT_TTL),
        returns_deleted_object: has(ReturnsDeleted),
        orphans_by_default: has(OrphansByDefault),
        is_garbage_collected: !has(Expires),
        metadata_written_with_status: match is(("apps", "deployments")) {
            true => &["annotations"],
            false => Rules::DEFAULT.metadata_written_with_status,
        },
        allows_unqualified_finalizers: allows_unqualified_finalizers(group.name, row.plural),
        is_cache_required: has(RequiredCache),
        is_namespaces: is(("", "namespaces")),
    }
}

/// Returns true for the resources whose finalizers need no domain. The finalizer of definitions has none, and kube-apiserver
/// does not validate the metadata of the others in this respect.
fn allows_unqualified_finalizers(group: &str, plural: &str) -> bool {
    matches!(
        (group, plural),
        ("apiextensions.k8s.io", "customresourcedefinitions")
            | ("" | "events.k8s.io", "events")
            | ("coordination.k8s.io", "leases")
            | ("policy", "poddisruptionbudgets")
            | ("node.k8s.io", "runtimeclasses")
            | ("admissionregistration.k8s.io", _)
    )
}

fn storage_prefix(group: &str, plural: &str, group_in_prefix: bool) -> String {
    let historic = HISTORIC_PREFIXES
        .iter()
        .find(|(g, p, _)| *g == group && *p == plural);
    match historic {
        Some((_, _, prefix)) => (*prefix).to_owned(),
        None if group_in_prefix => format!("{group}/{plural}"),
        None => plural.to_owned(),
    }
}

/// Parses `label[|alias][@path][?fallback][=default]`: the path is the label if it is absent, and there is no path if
/// it is `-`; the fallback is another label. The default replaces the value that upstream sets when an object is
/// written and that this server does not store.
fn column(notation: &str) -> FieldColumn {
    let (rest, default) = notation.split_once('=').unwrap_or((notation, ""));
    let (rest, fallback) = rest.split_once('?').unwrap_or((rest, ""));
    let (names, path) = rest.split_once('@').unwrap_or((rest, ""));
    let (label, alias) = match names.split_once('|') {
        Some((label, alias)) => (label, Some(alias)),
        None => (names, None),
    };
    let mut column = FieldColumn::new(if path.is_empty() { label } else { path });
    column.label = label.into();
    column.alias = alias.map(Into::into);
    column.default = default.into();
    column.fallback = Some(fallback.into()).filter(|_| !fallback.is_empty());
    if path == "-" {
        column.path = [].into();
    }
    column
}

#[cfg(test)]
mod tests;
