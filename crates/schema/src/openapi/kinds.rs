//! The built-in kinds with their k8s-openapi types. `scripts/type-tables` generates the list.

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
pub(super) const KINDS: &[(&str, &str, Describe)] = include!("kinds.in");

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
