//! Tests of validation: each case is an object, or an update of one, and its expected causes.

mod cluster;
mod devices;
mod events;
mod jobs;
mod limit_ranges;
mod messages;
mod network;
mod pods;
mod quotas;
mod scaling;
mod storage;
mod workloads;
mod writes;

use serde_json::{Value, json};

use self::writes::{merge, prepare_update, problems_of_new, problems_of_update};
use super::*;
use crate::table;
use crate::{default, prepare_create};
use watchet_services::spec;

fn texts_of(causes: Causes) -> Vec<String> {
    let causes = causes.into_vec();
    causes
        .into_iter()
        .map(|c| format!("{}: {}", c.field, c.message))
        .collect()
}

/// Returns an object as the server would store it.
fn made(resource: &Resource, mut object: Value) -> Value {
    default(resource, &mut object);
    object["metadata"]["uid"] = json!("u");
    prepare_create(
        resource,
        &mut object,
        resource.subresource("status").is_some(),
    );
    if resource.is("", "services") {
        spec::pair_addresses(object["spec"].as_object_mut().unwrap());
    }
    object
}

fn resource(plural: &str) -> std::sync::Arc<Resource> {
    let mut all = table::all().into_iter();
    all.find(|resource| resource.plural == plural).unwrap()
}

#[track_caller]
fn check(plural: &str, object: Value, expected: &[&str]) {
    let resource = resource(plural);
    let mut causes = Causes::default();
    problems_of_new(&resource, &made(&resource, object), &mut causes);
    assert_eq!(texts_of(causes), expected);
}

/// Checks the causes of a change of the object by a merge patch.
#[track_caller]
fn check_update(plural: &str, old: Value, patch: Value, expected: &[&str]) {
    check_write(plural, None, old, patch, expected);
}

/// Checks the causes of a change of a subresource by a merge patch.
#[track_caller]
fn check_write(
    plural: &str,
    subresource: Option<&str>,
    old: Value,
    patch: Value,
    expected: &[&str],
) {
    let resource = resource(plural);
    let old = made(&resource, old);
    let mut new = old.clone();
    merge(&mut new, &patch);
    default(&resource, &mut new);
    prepare_update(plural, &old, &mut new);
    let mut causes = Causes::default();
    problems_of_update(&resource, subresource, &old, &new, &mut causes);
    assert_eq!(texts_of(causes), expected);
}

fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": spec})
}

fn container() -> Value {
    json!({"name": "c", "image": "i"})
}

/// Returns a spec whose selector matches its template.
fn workload(more: Value) -> Value {
    let mut object = json!({"metadata": {"name": "w"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container()]}},
    }});
    merge(&mut object["spec"], &more);
    object
}

#[test]
fn workloads() {
    let unselected = "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match \
                      template `labels`";
    let without_selector = ["spec.selector: Required value", unselected];
    for plural in ["deployments", "replicasets", "daemonsets", "statefulsets"] {
        check(plural, workload(json!({})), &[]);
        check(
            plural,
            workload(json!({"selector": {"matchLabels": {"a": "c"}}})),
            &[unselected],
        );
        check(
            plural,
            workload(json!({"selector": null})),
            &without_selector[usize::from(plural == "daemonsets")..],
        );
        let never = json!({"template": {"spec": {"restartPolicy": "Never"}}});
        check(
            plural,
            workload(never),
            &[
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \
               \"Always\"",
            ],
        );
    }
    let negative = workload(json!({"replicas": -1}));
    let expected = "spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    check("deployments", negative.clone(), &[expected]);
    check("statefulsets", negative, &[expected]);
    check(
        "deployments",
        workload(json!({"strategy": {"type": "Recreate", "rollingUpdate": {}}})),
        &[
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is \
           'Recreate'",
        ],
    );
    let selector = json!({"spec": {
        "selector": {"matchLabels": {"x": "y"}},
        "template": {"metadata": {"labels": {"x": "y"}}},
    }});
    for plural in ["deployments", "replicasets", "daemonsets"] {
        check_update(
            plural,
            workload(json!({})),
            selector.clone(),
            &[
                "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"x\":\"y\"}}: field is \
               immutable",
            ],
        );
    }
    check_update(
        "statefulsets",
        workload(json!({})),
        json!({"spec": {"serviceName": "s"}}),
        &[
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', \
           'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', \
           'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ],
    );
}

#[test]
fn services() {
    let service = |spec: Value| json!({"metadata": {"name": "s"}, "spec": spec});
    check("services", service(json!({"ports": [{"port": 80}]})), &[]);
    check("services", service(json!({"clusterIP": "None"})), &[]);
    check(
        "services",
        service(json!({})),
        &["spec.ports: Required value"],
    );
    check(
        "services",
        service(
            json!({"ports": [{"port": 0}, {"port": 80, "nodePort": 30000}], "type": "ClusterIP"}),
        ),
        &[
            "spec.ports[0].name: Required value",
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.ports[1].name: Required value",
            "spec.ports[1].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ],
    );
    check(
        "services",
        service(json!({"type": "ExternalName"})),
        &["spec.externalName: Required value"],
    );
    check_update(
        "services",
        service(json!({"ports": [{"port": 80}], "clusterIP": "10.96.0.7"})),
        json!({"spec": {"clusterIP": "10.96.0.8"}}),
        &["spec.clusterIPs[0]: Invalid value: [\"10.96.0.8\"]: may not change once set"],
    );
}

#[test]
fn data() {
    check(
        "configmaps",
        json!({"data": {"a b": "", "k": ""}, "binaryData": {"k": ""}}),
        &[
            "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric \
             characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex \
             used for validation is '[-._a-zA-Z0-9]+')",
            "binaryData[k]: Invalid value: \"k\": duplicate of key present in data",
        ],
    );
    let large = json!({"data": {"k": "x".repeat((1 << 20) + 1)}});
    check(
        "configmaps",
        large,
        &["[]: Too long: may not be more than 1048576 bytes"],
    );
    check(
        "secrets",
        json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
        &["data[tls.key]: Required value"],
    );
    let sealed = json!({"data": {"a": "b"}, "immutable": true});
    let why = "Forbidden: field is immutable when `immutable` is set";
    check_update(
        "configmaps",
        sealed.clone(),
        json!({"data": {"a": "c"}, "immutable": null}),
        &[&format!("immutable: {why}"), &format!("data: {why}")],
    );
    check_update(
        "secrets",
        sealed,
        json!({"data": {"a": "c"}}),
        &[&format!("data: {why}")],
    );
    check_update(
        "secrets",
        json!({"type": "a/b"}),
        json!({"type": "a/c"}),
        &["type: Invalid value: \"a/c\": field is immutable"],
    );
}

#[test]
fn storage() {
    let claim = json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    check("persistentvolumeclaims", claim.clone(), &[]);
    check(
        "persistentvolumeclaims",
        json!({"spec": {}}),
        &[
            "spec.accessModes: Required value: at least 1 access mode is required",
            "spec.resources[storage]: Required value",
        ],
    );
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let why = "spec: Forbidden: spec is immutable after creation except resources.requests and \
               volumeAttributesClassName for bound claims";
    check_update("persistentvolumeclaims", claim.clone(), more, &[why]);
    let bind = json!({"spec": {"volumeName": "v"}});
    check_update("persistentvolumeclaims", claim, bind, &[]);
    check(
        "persistentvolumes",
        json!({"spec": {}}),
        &[
            "spec.accessModes: Required value",
            "spec.capacity: Required value",
            "spec.capacity: Unsupported value: null: supported values: \"storage\"",
            "spec: Required value: must specify a volume type",
        ],
    );
    check(
        "storageclasses",
        json!({}),
        &["provisioner: Required value"],
    );
    check_update(
        "storageclasses",
        json!({"provisioner": "a"}),
        json!({"provisioner": "b", "reclaimPolicy": "Retain"}),
        &[
            "provisioner: Invalid value: \"b\": field is immutable",
            "reclaimPolicy: Invalid value: \"Retain\": field is immutable",
        ],
    );
}

#[test]
fn network() {
    let ingress = json!({"spec": {"rules": [{"host": "10.0.0.1", "http": {"paths": [{}]}}]}});
    check(
        "ingresses",
        ingress,
        &[
            "spec.rules[0].host: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address",
            "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
        ],
    );
    check(
        "ingressclasses",
        json!({"spec": {}}),
        &["spec.controller: Required value"],
    );
    check(
        "networkpolicies",
        json!({"spec": {"ingress": [{"from": [{}, {"ipBlock": {"cidr": "x"}}]}]}}),
        &[
            "spec.ingress[0].from[0]: Required value: must specify a peer",
            "spec.ingress[0].from[1].ipBlock.cidr: Invalid value: \"x\": must be a valid CIDR \
             value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        ],
    );
    check(
        "endpointslices",
        json!({"addressType": "IPv4", "endpoints": [{}]}),
        &["endpoints[0].addresses: Required value: must contain at least 1 address"],
    );
}

#[test]
fn policies() {
    check(
        "roles",
        json!({"rules": [{"resources": ["pods"]}]}),
        &[
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        ],
    );
    check(
        "rolebindings",
        json!({"roleRef": null}),
        &[
            "roleRef.kind: Unsupported value: \"\": supported values: \"Role\", \"ClusterRole\"",
            "roleRef.name: Required value",
        ],
    );
    let binding = json!({"roleRef": {"kind": "Role", "name": "r"}});
    check("rolebindings", binding.clone(), &[]);
    check_update(
        "rolebindings",
        binding,
        json!({"roleRef": {"name": "s"}}),
        &[
            "roleRef: Invalid value: {\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"Role\",\
           \"name\":\"s\"}: cannot change roleRef",
        ],
    );
    check(
        "horizontalpodautoscalers",
        json!({"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "minReplicas": 2,
            "maxReplicas": 1}}),
        &["spec.maxReplicas: Invalid value: 1: must be greater than or equal to `minReplicas`"],
    );
    check(
        "horizontalpodautoscalers",
        json!({"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "minReplicas": 1}}),
        &[
            "spec.maxReplicas: Required value: must be set and greater than 0",
            "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
        ],
    );
    check("runtimeclasses", json!({}), &["handler: Required value"]);
    check_update(
        "priorityclasses",
        json!({"metadata": {"name": "p"}, "value": 1}),
        json!({"value": 2}),
        &["value: Forbidden: may not be changed in an update."],
    );
    check(
        "leases",
        json!({"spec": {"leaseDurationSeconds": 0}}),
        &["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
    );
    check(
        "poddisruptionbudgets",
        json!({"spec": {"minAvailable": "110%"}}),
        &["spec.minAvailable: Invalid value: \"110%\": must not be greater than 100%"],
    );
}

/// At most a hundred problems of a body are reported, with truncated values.
#[test]
fn number_of_reported_causes_is_limited() {
    let bad = json!({"name": "x".repeat(10_000), "image": ""});
    let many = pod(json!({"containers": vec![bad; 1_000]}));
    let resource = resource("pods");
    let mut causes = Causes::default();
    problems_of_new(&resource, &made(&resource, many), &mut causes);
    let texts = texts_of(causes);
    assert_eq!(texts.len(), Causes::MAX + 1);
    assert!(
        texts.iter().all(|cause| cause.len() < 2_000),
        "{}",
        texts[0].len()
    );
}
