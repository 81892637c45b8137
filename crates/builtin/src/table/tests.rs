//! Tests of the table.

use k8s_openapi::api::*;

use super::*;
use watchet_api::{EventType, Object, ObjectKey, ResourceVersion};
use watchet_registry::Subresource;

fn find(group: &str, plural: &str) -> Arc<Resource> {
    let mut all = all().into_iter();
    all.find(|r| r.group == group && r.plural == plural)
        .unwrap_or_else(|| panic!("no {plural}.{group}"))
}

fn find_version(group: &str, version: &str, plural: &str) -> Arc<Resource> {
    let mut all = all().into_iter();
    all.find(|r| r.is(group, plural) && r.version == version)
        .unwrap_or_else(|| panic!("no {plural}.{version}.{group}"))
}

/// The facts about a kind in the generated client types; the compiler checks its scope.
fn check<T, S>(seen: &mut Vec<(String, String)>, namespaced: bool)
where
    T: k8s_openapi::Resource<Scope = S>,
{
    let resource = find_version(T::GROUP, T::VERSION, T::URL_PATH_SEGMENT);
    let said = (T::GROUP, T::VERSION, T::KIND, namespaced);
    let table = (
        &*resource.group,
        &*resource.version,
        &*resource.kind,
        resource.namespaced,
    );
    assert_eq!(table, said);
    seen.push((resource.group.clone(), resource.plural.clone()));
}

macro_rules! check_all {
    ($seen:ident, $scope:ty, $namespaced:literal: $($kind:ty),* $(,)?) => {
        $(
            check::<$kind, $scope>(&mut $seen, $namespaced);
        )*
    };
}

#[test]
fn the_table_agrees_with_the_types_of_k8s_openapi() {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
    use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
    let mut seen = Vec::new();
    check_all!(seen, k8s_openapi::NamespaceResourceScope, true:
        core::v1::ConfigMap, core::v1::Endpoints, core::v1::Event, core::v1::LimitRange,
        core::v1::PersistentVolumeClaim, core::v1::Pod, core::v1::PodTemplate,
        core::v1::ReplicationController, core::v1::ResourceQuota, core::v1::Secret,
        core::v1::ServiceAccount, core::v1::Service, apps::v1::ControllerRevision,
        apps::v1::DaemonSet, apps::v1::Deployment, apps::v1::ReplicaSet, apps::v1::StatefulSet,
        events::v1::Event, autoscaling::v1::HorizontalPodAutoscaler,
        autoscaling::v2::HorizontalPodAutoscaler, batch::v1::CronJob,
        batch::v1::Job, networking::v1::Ingress, networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget, rbac::v1::RoleBinding, rbac::v1::Role,
        storage::v1::CSIStorageCapacity, coordination::v1::Lease, discovery::v1::EndpointSlice,
        resource::v1::ResourceClaim, resource::v1::ResourceClaimTemplate,
    );
    check_all!(seen, k8s_openapi::ClusterResourceScope, false:
        core::v1::Namespace, core::v1::Node, core::v1::PersistentVolume,
        apiregistration::APIService, certificates::v1::CertificateSigningRequest,
        networking::v1::IngressClass, networking::v1::IPAddress, networking::v1::ServiceCIDR,
        rbac::v1::ClusterRoleBinding, rbac::v1::ClusterRole, storage::v1::CSIDriver,
        storage::v1::CSINode, storage::v1::StorageClass, storage::v1::VolumeAttachment,
        storage::v1::VolumeAttributesClass,
        admissionregistration::v1::MutatingAdmissionPolicy,
        admissionregistration::v1::MutatingAdmissionPolicyBinding,
        admissionregistration::v1::MutatingWebhookConfiguration,
        admissionregistration::v1::ValidatingAdmissionPolicy,
        admissionregistration::v1::ValidatingAdmissionPolicyBinding,
        admissionregistration::v1::ValidatingWebhookConfiguration,
        apiextensions::CustomResourceDefinition, scheduling::v1::PriorityClass,
        node::v1::RuntimeClass, flowcontrol::v1::FlowSchema,
        flowcontrol::v1::PriorityLevelConfiguration, resource::v1::DeviceClass,
        resource::v1::ResourceSlice,
    );
    let mut table: Vec<_> = all()
        .iter()
        .map(|r| (r.group.clone(), r.plural.clone()))
        .collect();
    table.sort();
    seen.sort();
    assert_eq!(table, seen, "every row is checked, once");
}

/// A kind that a newer Kubernetes version adds to the type tables needs a row.
#[test]
fn kinds_of_the_type_tables_are_served() {
    let types = watchet_schema::Types::builtins();
    let of_other_paths = [
        ("authentication.k8s.io/v1", "TokenRequest"),
        ("autoscaling/v1", "Scale"),
        ("policy/v1", "Eviction"),
        ("v1", "ComponentStatus"),
    ];
    let mut unserved: Vec<(String, &str)> = types
        .kinds()
        .map(|(api_version, kind, _)| (api_version, kind))
        .filter(|(api_version, kind)| {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            !is_kind(group, version, kind)
        })
        .collect();
    unserved.sort_unstable();
    let unserved: Vec<(&str, &str)> = unserved.iter().map(|(v, kind)| (&**v, *kind)).collect();
    assert_eq!(unserved, of_other_paths);
}

/// The keys must be those of kube-apiserver, so that this server can serve its data.
#[test]
fn storage_prefixes_are_kubernetes_own() {
    for (group, plural, prefix) in [
        ("", "pods", "pods"),
        ("", "nodes", "minions"),
        ("", "services", "services/specs"),
        ("", "endpoints", "services/endpoints"),
        ("", "replicationcontrollers", "controllers"),
        ("", "events", "events"),
        ("events.k8s.io", "events", "events"),
        ("networking.k8s.io", "ingresses", "ingress"),
        ("apps", "deployments", "deployments"),
        (
            "apiregistration.k8s.io",
            "apiservices",
            "apiregistration.k8s.io/apiservices",
        ),
        (
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "apiextensions.k8s.io/customresourcedefinitions",
        ),
    ] {
        assert_eq!(find(group, plural).storage_prefix, prefix);
    }
    let mut prefixes: Vec<String> = all().iter().map(|r| r.storage_prefix.clone()).collect();
    prefixes.sort();
    let all = prefixes.len();
    prefixes.dedup();
    assert_eq!(
        prefixes.len(),
        all - 2,
        "two events and two autoscalers share one each"
    );
}

/// If two resources with one storage prefix converted objects, they would send each other's frames.
#[test]
fn at_most_one_resource_per_storage_prefix_converts() {
    let all = all();
    let converts = |r: &&Arc<Resource>| r.strategy.differs_from_storage();
    let mut prefixes: Vec<&str> = all
        .iter()
        .filter(converts)
        .map(|r| &*r.storage_prefix)
        .collect();
    let converted = prefixes.len();
    assert!(converted > 0, "events are converted");
    prefixes.sort_unstable();
    prefixes.dedup();
    assert_eq!(prefixes.len(), converted);
}

#[test]
fn both_events_resources_have_the_same_columns() {
    let (core, newer) = (find("", "events"), find("events.k8s.io", "events"));
    for (a, b) in core.columns.fields().iter().zip(newer.columns.fields()) {
        assert_eq!(a.path, b.path);
    }
    let field = newer.columns.resolve("regarding.name");
    assert_eq!(field, core.columns.resolve("involvedObject.name"));
    assert!(newer.columns.resolve("involvedObject.name").is_err());
}

#[test]
fn field_notation_is_parsed() {
    let pods = find("", "pods");
    let node = pods.columns.resolve("spec.nodeName");
    assert_eq!(pods.columns.resolve("spec.host"), node);
    assert_eq!(pods.triggers, [node.unwrap()]);
    assert_eq!(find("", "nodes").triggers, [FieldRef::Name]);
    let jobs = find("batch", "jobs");
    let status = r#""status":{"succeeded":2}"#;
    assert_eq!(field(&jobs, "status.successful", status), "2");
    assert!(jobs.columns.resolve("status.successful").is_ok());
    let events = find("", "events");
    for (json, source) in [
        (
            r#""source":{"component":"a"},"reportingComponent":"b""#,
            "a",
        ),
        (r#""source":{},"reportingComponent":"b""#, "b"),
        (r#""source":{}"#, ""),
    ] {
        assert_eq!(field(&events, "source", json), source, "{json}");
    }
    assert!(
        pods.columns.resolve("status.podIPs").is_ok(),
        "accepted, and never set"
    );
    let secrets = find("", "secrets");
    assert_eq!(field(&secrets, "type", r#""data":{}"#), "Opaque");
    for (group, plural, known) in [
        ("", "nodes", false),
        ("", "namespaces", false),
        ("resource.k8s.io", "resourceslices", false),
        ("", "persistentvolumes", true),
    ] {
        let found = find(group, plural).columns.resolve("metadata.namespace");
        assert_eq!(found.is_ok(), known, "{plural}");
    }
    let nodes = find("", "nodes");
    assert_eq!(field(&nodes, "spec.unschedulable", r#""spec":{}"#), "false");
}

/// Returns the value of the field `label` in an object with these members.
fn field(resource: &Resource, label: &str, members: &str) -> String {
    let json = format!(r#"{{"metadata":{{}},{members}}}"#);
    let object = Object::decode(
        ObjectKey::from("a"),
        ResourceVersion::new(1),
        EventType::Added,
        json.as_bytes(),
        &resource.columns,
    );
    let at = resource.columns.resolve(label).unwrap();
    object.unwrap().field(at).to_owned()
}

#[test]
fn discovery_facts() {
    let namespaces = find("", "namespaces");
    assert_eq!(
        namespaces.subresources,
        [Subresource::FINALIZE, Subresource::STATUS]
    );
    assert!(!namespaces.verbs.contains(&"deletecollection".to_owned()));
    let deployments = find("apps", "deployments");
    assert_eq!(deployments.singular, "deployment");
    assert_eq!(deployments.short_names, ["deploy"]);
    assert_eq!(deployments.categories, ["all"]);
    assert_eq!(find("", "configmaps").subresources, []);
    let order: Vec<_> = all().iter().map(|r| r.group.clone()).collect();
    assert_eq!(order.first().map(String::as_str), Some(""));
}
