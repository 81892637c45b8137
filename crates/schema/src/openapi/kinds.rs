//! The built-in kinds with their k8s-openapi types. A test compares the list with the tables.

use k8s_openapi::api::{
    admissionregistration, apps, authentication, authorization, autoscaling, batch, certificates,
    coordination, core, discovery, events, flowcontrol, networking, node, policy, rbac, resource,
    scheduling, storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
use schemars::{Schema, SchemaGenerator};

/// Adds the schema of a type and of all types that it refers to.
pub(super) type Describe = fn(&mut SchemaGenerator) -> Schema;

macro_rules! kinds {
    ($($api_version:literal $group:ident $version:ident [$($kind:ident)*])*) => {
        &[$($((
            $api_version,
            stringify!($kind),
            |generator| generator.subschema_for::<$group::$version::$kind>(),
        ),)*)*]
    };
}

/// apiVersion, kind and schema function.
#[rustfmt::skip]
pub(super) const KINDS: &[(&str, &str, Describe)] = kinds! {
    "admissionregistration.k8s.io/v1" admissionregistration v1 [
        MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
        ValidatingWebhookConfiguration
    ]
    "admissionregistration.k8s.io/v1" promoted v1 [
        MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
    ]
    "apiextensions.k8s.io/v1" apiextensions v1 [CustomResourceDefinition]
    "apiregistration.k8s.io/v1" apiregistration v1 [APIService]
    "apps/v1" apps v1 [ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet]
    "authentication.k8s.io/v1" authentication v1 [SelfSubjectReview TokenRequest TokenReview]
    "authorization.k8s.io/v1" authorization v1 [
        LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview
    ]
    "autoscaling/v1" autoscaling v1 [HorizontalPodAutoscaler Scale]
    "autoscaling/v2" autoscaling v2 [HorizontalPodAutoscaler]
    "batch/v1" batch v1 [CronJob Job]
    "certificates.k8s.io/v1" certificates v1 [CertificateSigningRequest]
    "coordination.k8s.io/v1" coordination v1 [Lease]
    "v1" core v1 [
        Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume
        PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service
        ServiceAccount
    ]
    "discovery.k8s.io/v1" discovery v1 [EndpointSlice]
    "events.k8s.io/v1" events v1 [Event]
    "flowcontrol.apiserver.k8s.io/v1" flowcontrol v1 [FlowSchema PriorityLevelConfiguration]
    "networking.k8s.io/v1" networking v1 [IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR]
    "node.k8s.io/v1" node v1 [RuntimeClass]
    "policy/v1" policy v1 [Eviction PodDisruptionBudget]
    "rbac.authorization.k8s.io/v1" rbac v1 [ClusterRole ClusterRoleBinding Role RoleBinding]
    "resource.k8s.io/v1" resource v1 [DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice]
    "scheduling.k8s.io/v1" scheduling v1 [PriorityClass]
    "storage.k8s.io/v1" storage v1 [
        CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass
    ]
};

/// Kinds of which k8s-openapi has the types only in an earlier version, which has the same members.
mod promoted {
    pub(super) mod v1 {
        use std::borrow::Cow;

        use k8s_openapi::api::admissionregistration::v1beta1;
        use schemars::{JsonSchema, Schema, SchemaGenerator};

        macro_rules! promoted {
            ($($kind:ident)*) => {$(
                /// Describes v1 by v1beta1.
                pub(in super::super) struct $kind;

                impl JsonSchema for $kind {
                    fn schema_name() -> Cow<'static, str> {
                        promoted(&v1beta1::$kind::schema_name()).into()
                    }

                    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                        describe::<v1beta1::$kind>(generator)
                    }
                }
            )*};
        }

        promoted!(MutatingAdmissionPolicy MutatingAdmissionPolicyBinding);

        fn promoted(text: &str) -> String {
            text.replace(
                ".admissionregistration.v1beta1.",
                ".admissionregistration.v1.",
            )
        }

        /// The schema of `T`, whose parts become definitions, with the names of v1.
        fn describe<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
            let mut of_beta = generator.settings().clone().into_generator();
            of_beta.subschema_for::<T>();
            let mut definitions = of_beta.take_definitions(false);
            let root = definitions.remove(&*T::schema_name()).unwrap_or_default();
            for (name, schema) in definitions {
                let known = generator.definitions_mut();
                known.entry(promoted(&name)).or_insert(rename(schema));
            }
            rename(root).try_into().unwrap_or_default()
        }

        /// A schema with the references of v1.
        fn rename(mut schema: serde_json::Value) -> serde_json::Value {
            match &mut schema {
                serde_json::Value::String(text) => *text = promoted(text),
                serde_json::Value::Array(items) => {
                    items
                        .iter_mut()
                        .for_each(|item| *item = rename(item.take()));
                }
                serde_json::Value::Object(members) => members
                    .values_mut()
                    .for_each(|member| *member = rename(member.take())),
                _ => {}
            }
            schema
        }
    }
}

/// Types that the requests and responses of every group use.
pub(super) const COMMON: &[Describe] = &[
    |generator| generator.subschema_for::<meta::v1::DeleteOptions>(),
    |generator| generator.subschema_for::<meta::v1::ListMeta>(),
    |generator| generator.subschema_for::<meta::v1::ObjectMeta>(),
    |generator| generator.subschema_for::<meta::v1::Status>(),
    |generator| generator.subschema_for::<k8s_openapi::apimachinery::pkg::runtime::RawExtension>(),
];

/// Returns the schema function of a kind.
pub(super) fn describe(api_version: &str, kind: &str) -> Option<Describe> {
    let mut kinds = KINDS.iter();
    let found = kinds.find(|(v, k, _)| (*v, *k) == (api_version, kind));
    found.map(|(_, _, describe)| *describe)
}
