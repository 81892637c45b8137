//! Which lists of the built-in resources are merged, and by which key. A list that is not named
//! here is replaced as a whole, a map is merged. These are the facts that the API's types carry as
//! patch strategies and merge keys.

use crate::registry::Resource;

/// What a strategic merge knows of the members of one object type.
pub(crate) type Schema = [(&'static str, Rule)];

/// How one member is merged.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rule {
    /// An object with members of note.
    Map(&'static Schema),
    /// An object that a patch replaces.
    ReplaceMap,
    /// A list of objects, told apart by this member.
    List(&'static str, &'static Schema),
    /// A list of primitives, merged as a set.
    Set,
}
use Rule::{List, Map, ReplaceMap, Set};

const METADATA: (&str, Rule) = (
    "metadata",
    Map(&[("ownerReferences", List("uid", &[])), ("finalizers", Set)]),
);

const CONTAINER: &Schema = &[
    ("env", List("name", &[])),
    ("ports", List("containerPort", &[])),
    ("volumeDevices", List("devicePath", &[])),
    ("volumeMounts", List("mountPath", &[])),
];

const POD_SPEC: &Schema = &[
    ("containers", List("name", CONTAINER)),
    ("ephemeralContainers", List("name", CONTAINER)),
    ("hostAliases", List("ip", &[])),
    ("imagePullSecrets", List("name", &[])),
    ("initContainers", List("name", CONTAINER)),
    ("resourceClaims", List("name", &[])),
    ("schedulingGates", List("name", &[])),
    ("topologySpreadConstraints", List("topologyKey", &[])),
    ("volumes", List("name", &[])),
];

const TEMPLATE: (&str, Rule) = ("template", Map(&[METADATA, ("spec", Map(POD_SPEC))]));

/// `status.conditions` by type, which most resources with conditions have.
const CONDITIONS: (&str, Rule) = ("status", Map(&[("conditions", List("type", &[]))]));

const PLAIN: &Schema = &[METADATA];
const WITH_CONDITIONS: &Schema = &[METADATA, CONDITIONS];
/// What makes pods from a template.
const WORKLOAD: &Schema = &[METADATA, ("spec", Map(&[TEMPLATE])), CONDITIONS];

const POD: &Schema = &[
    METADATA,
    ("spec", Map(POD_SPEC)),
    (
        "status",
        Map(&[
            ("conditions", List("type", &[])),
            ("hostIPs", List("ip", &[])),
            ("podIPs", List("ip", &[])),
            ("resourceClaimStatuses", List("name", &[])),
        ]),
    ),
];

const CRON_JOB: &Schema = &[
    METADATA,
    (
        "spec",
        Map(&[("jobTemplate", Map(&[METADATA, ("spec", Map(&[TEMPLATE]))]))]),
    ),
];

const NODE: &Schema = &[
    METADATA,
    ("spec", Map(&[("podCIDRs", Set)])),
    (
        "status",
        Map(&[
            ("addresses", List("type", &[])),
            ("conditions", List("type", &[])),
        ]),
    ),
];

const SERVICE: &Schema = &[
    METADATA,
    ("spec", Map(&[("ports", List("port", &[]))])),
    CONDITIONS,
];

const DISRUPTION_BUDGET: &Schema = &[
    METADATA,
    ("spec", Map(&[("selector", ReplaceMap)])),
    CONDITIONS,
];

const WEBHOOKS: &Schema = &[
    METADATA,
    (
        "webhooks",
        List("name", &[("matchConditions", List("name", &[]))]),
    ),
];

const ADMISSION_POLICY: &Schema = &[
    METADATA,
    (
        "spec",
        Map(&[
            ("matchConditions", List("name", &[])),
            ("variables", List("name", &[])),
        ]),
    ),
];

/// The schema of a built-in resource's objects.
pub(crate) fn schema(resource: &Resource) -> &'static Schema {
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => POD,
        ("", "nodes") => NODE,
        ("", "services") => SERVICE,
        ("", "podtemplates") => &[METADATA, TEMPLATE],
        ("", "serviceaccounts") => &[METADATA, ("secrets", List("name", &[]))],
        ("", "namespaces" | "persistentvolumeclaims") => WITH_CONDITIONS,
        ("", "replicationcontrollers") | ("apps", _) | ("batch", "jobs") => WORKLOAD,
        ("batch", "cronjobs") => CRON_JOB,
        ("policy", "poddisruptionbudgets") => DISRUPTION_BUDGET,
        ("storage.k8s.io", "csinodes") => {
            &[METADATA, ("spec", Map(&[("drivers", List("name", &[]))]))]
        }
        ("resource.k8s.io", "resourceclaims") => &[
            METADATA,
            ("status", Map(&[("reservedFor", List("uid", &[]))])),
        ],
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => ADMISSION_POLICY,
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => WEBHOOKS,
        ("autoscaling" | "apiregistration.k8s.io" | "flowcontrol.apiserver.k8s.io", _)
        | ("networking.k8s.io", "servicecidrs") => WITH_CONDITIONS,
        _ => PLAIN,
    }
}

/// The rule of one member.
pub(crate) fn rule(schema: &Schema, member: &str) -> Option<Rule> {
    schema
        .iter()
        .find(|(name, _)| *name == member)
        .map(|(_, rule)| *rule)
}
