//! Every rule of FlowSchemas and PriorityLevelConfigurations, with kube-apiserver's fields and messages.

use serde_json::{Value, json};

use super::{LEVELS, SCHEMAS};
use crate::admission::cluster::Cluster;
use crate::harness::Server;

async fn start() -> Server {
    Server::start(&["--storage=memory", "--authorization-mode=AlwaysAllow"]).await
}

/// Returns `object` after a merge patch.
fn with(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    json_patch::merge(&mut object, patch);
    object
}

/// Returns the causes of a refused write as `field: message`.
fn causes(refused: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let causes = refused["details"]["causes"].as_array();
    let causes = causes.unwrap_or_else(|| panic!("{refused}"));
    causes
        .iter()
        .map(|cause| format!("{}: {}", text(&cause["field"]), text(&cause["message"])))
        .collect()
}

/// Checks that the creation of `object` after each merge patch has these causes.
async fn check(cluster: &Cluster<'_>, path: &str, object: &Value, cases: &[(Value, &[&str])]) {
    for (patch, expected) in cases {
        let response = cluster.post(path, &with(object, patch)).await;
        assert_eq!(causes(&response.refused(422, "Invalid", "")), *expected);
    }
}

#[tokio::test]
async fn flow_schemas_are_validated() {
    let server = start().await;
    let cluster = Cluster(&server);
    let subject = json!({"kind": "User", "user": {"name": "ann"}});
    let resources =
        json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]});
    let schema = json!({"metadata": {"name": "f"}, "spec": {
        "priorityLevelConfiguration": {"name": "l"},
        "rules": [{"subjects": [subject], "resourceRules": [resources]}],
    }});
    let of = |spec: Value| json!({"spec": spec});
    check(&cluster, SCHEMAS, &schema, &[
        (json!({"metadata": {"name": "A_b"}}), &["metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"]),
        (of(json!({"matchingPrecedence": -1})), &["spec.matchingPrecedence: Invalid value: -1: must be a positive value"]),
        (of(json!({"matchingPrecedence": 10_001})), &["spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000"]),
        (of(json!({"matchingPrecedence": 1})), &["spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1"]),
        (of(json!({"distinguisherMethod": {"type": "Odd"}})), &["spec.distinguisherMethod.type: Unsupported value: {\"type\":\"Odd\"}: supported values: \"ByNamespace\", \"ByUser\""]),
        (of(json!({"priorityLevelConfiguration": {"name": ""}})), &["spec.priorityLevelConfiguration.name: Required value: must reference a priority level"]),
        (of(json!({"priorityLevelConfiguration": {"name": "-"}})), &["spec.priorityLevelConfiguration.name: Invalid value: \"-\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"]),
        (of(json!({"rules": [{}]})), &[
            "spec.rules[0].subjects: Required value: subjects must contain at least one value",
            "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty",
        ]),
    ])
    .await;
    cluster.post(SCHEMAS, &schema).await.ok(201);
    server.stop().await;
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

#[tokio::test]
async fn subjects_of_flow_schemas_are_validated() {
    let server = start().await;
    let cluster = Cluster(&server);
    let schema = |subject: &Value| {
        let rule = json!({"subjects": [subject], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]});
        json!({"metadata": {"name": "f"}, "spec": {
            "priorityLevelConfiguration": {"name": "l"}, "rules": [rule],
        }})
    };
    let (user, group) = (json!({"name": "u"}), json!({"name": "g"}));
    let account = json!({"namespace": "n", "name": "s"});
    let namespace = format!("serviceAccount.namespace: Invalid value: \"N\": {LABEL}");
    let cases: &[(Value, &[&str])] = &[
        (
            json!({"kind": "Odd"}),
            &[
                "kind: Unsupported value: \"Odd\": supported values: \"Group\", \"ServiceAccount\", \"User\"",
            ],
        ),
        (
            json!({"kind": ""}),
            &[
                "kind: Unsupported value: \"\": supported values: \"Group\", \"ServiceAccount\", \"User\"",
            ],
        ),
        (
            json!({"kind": "User"}),
            &["user: Required value: user is required when subject kind is 'User'"],
        ),
        (
            json!({"kind": "User", "user": {"name": ""}}),
            &["user.name: Required value"],
        ),
        (
            json!({"kind": "User", "user": user, "group": group, "serviceAccount": account}),
            &[
                "serviceAccount: Forbidden: serviceAccount is forbidden when subject kind is not 'ServiceAccount'",
                "group: Forbidden: group is forbidden when subject kind is not 'Group'",
            ],
        ),
        (
            json!({"kind": "Group"}),
            &["group: Required value: group is required when subject kind is 'Group'"],
        ),
        (
            json!({"kind": "Group", "group": {"name": ""}}),
            &["group.name: Required value"],
        ),
        (
            json!({"kind": "Group", "group": group, "user": user, "serviceAccount": account}),
            &[
                "serviceAccount: Forbidden: serviceAccount is forbidden when subject kind is not 'ServiceAccount'",
                "user: Forbidden: user is forbidden when subject kind is not 'User'",
            ],
        ),
        (
            json!({"kind": "ServiceAccount"}),
            &[
                "serviceAccount: Required value: serviceAccount is required when subject kind is 'ServiceAccount'",
            ],
        ),
        (
            json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "", "name": ""}}),
            &[
                "serviceAccount.name: Required value",
                "serviceAccount.namespace: Required value: must specify namespace for service account",
            ],
        ),
        (
            json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "N", "name": "*"}}),
            &[&namespace],
        ),
        (
            json!({"kind": "ServiceAccount", "serviceAccount": account, "user": user, "group": group}),
            &[
                "user: Forbidden: user is forbidden when subject kind is not 'User'",
                "group: Forbidden: group is forbidden when subject kind is not 'Group'",
            ],
        ),
    ];
    for (subject, expected) in cases {
        let refused = cluster.post(SCHEMAS, &schema(subject)).await;
        let expected = expected
            .iter()
            .map(|rest| format!("spec.rules[0].subjects[0].{rest}"));
        let expected: Vec<_> = expected.collect();
        assert_eq!(causes(&refused.refused(422, "Invalid", "")), expected);
    }
    server.stop().await;
}

#[tokio::test]
async fn rules_of_flow_schemas_are_validated() {
    let server = start().await;
    let cluster = Cluster(&server);
    let post = async |rules: Value| {
        let mut rule = json!({"subjects": [{"kind": "User", "user": {"name": "ann"}}]});
        json_patch::merge(&mut rule, &rules);
        let schema = json!({"metadata": {"name": "f"}, "spec": {
            "priorityLevelConfiguration": {"name": "l"}, "rules": [rule],
        }});
        causes(
            &cluster
                .post(SCHEMAS, &schema)
                .await
                .refused(422, "Invalid", ""),
        )
    };
    let verbs = "supported values: \"create\", \"delete\", \"deletecollection\", \"get\", \"list\", \"patch\", \"proxy\", \"update\", \"watch\"";
    let unsupported = format!("verbs: Unsupported value: [\"get\",\"odd\"]: {verbs}");
    let namespace = format!(
        "namespaces[1]: Invalid value: \"N\": each member of this list must be '*' or a DNS-1123 label; {LABEL}"
    );
    let cases: &[(Value, &[&str])] = &[
        (
            json!({"verbs": [], "apiGroups": [], "resources": [], "namespaces": []}),
            &[
                "verbs: Required value: verbs must contain at least one value",
                "apiGroups: Required value: resource rules must supply at least one api group",
                "resources: Required value: resource rules must supply at least one resource",
                "namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace",
            ],
        ),
        (
            json!({"verbs": ["*", "get"], "apiGroups": ["*", ""], "resources": ["*", "pods"], "namespaces": ["*", "n"]}),
            &[
                "verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs",
                "apiGroups: Invalid value: [\"*\",\"\"]: if '*' is present, must not specify other api groups",
                "resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other resources",
                "namespaces: Invalid value: [\"*\",\"n\"]: if '*' is present, must not specify other namespaces",
            ],
        ),
        (
            json!({"verbs": ["get", "odd"], "namespaces": ["n", "N"]}),
            &[&unsupported, &namespace],
        ),
    ];
    let fine = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]});
    for (patch, expected) in cases {
        let at = |rest: &&str| format!("spec.rules[0].resourceRules[0].{rest}");
        let expected: Vec<_> = expected.iter().map(at).collect();
        assert_eq!(
            post(json!({"resourceRules": [with(&fine, patch)]})).await,
            expected
        );
    }
    let cases: &[(Value, &[&str])] = &[
        (
            json!({"verbs": [], "nonResourceURLs": []}),
            &[
                "verbs: Required value: verbs must contain at least one value",
                "nonResourceURLs: Required value: nonResourceURLs must contain at least one value",
            ],
        ),
        (
            json!({"verbs": ["*", "get"], "nonResourceURLs": ["*", "/healthz"]}),
            &[
                "verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs",
                "nonResourceURLs: Invalid value: [\"*\",\"/healthz\"]: if '*' is present, must not specify other non-resource URLs",
            ],
        ),
        (
            json!({"verbs": ["get", "odd"], "nonResourceURLs": ["/", "/a/*"]}),
            &[&unsupported],
        ),
        (
            json!({"verbs": ["get"], "nonResourceURLs": ["", "a", "/a b", "/a//b", "/a*", "/*/*"]}),
            &[
                "nonResourceURLs[0]: Invalid value: \"\": must not be empty",
                "nonResourceURLs[1]: Invalid value: \"a\": must start with slash",
                "nonResourceURLs[2]: Invalid value: \"/a b\": must not contain white-space",
                "nonResourceURLs[3]: Invalid value: \"/a//b\": must not contain double slash",
                "nonResourceURLs[4]: Invalid value: \"/a*\": wildcard can only do suffix matching",
                "nonResourceURLs[5]: Invalid value: \"/*/*\": wildcard can only do suffix matching",
            ],
        ),
    ];
    for (rule, expected) in cases {
        let at = |rest: &&str| format!("spec.rules[0].nonResourceRules[0].{rest}");
        let expected: Vec<_> = expected.iter().map(at).collect();
        assert_eq!(post(json!({"nonResourceRules": [rule]})).await, expected);
    }
    server.stop().await;
}

#[tokio::test]
async fn priority_levels_are_validated() {
    let server = start().await;
    let cluster = Cluster(&server);
    let queuing = json!({"queues": 64, "handSize": 6, "queueLengthLimit": 50});
    let level = json!({"metadata": {"name": "l"}, "spec": {"type": "Limited", "limited": {
        "limitResponse": {"type": "Queue", "queuing": queuing},
    }}});
    let spec = |spec: Value| json!({"spec": spec});
    let limited = |limited: Value| spec(json!({"limited": limited}));
    let response = |response: Value| limited(json!({"limitResponse": response}));
    let queuing = |queuing: Value| response(json!({"queuing": queuing}));
    let preserve = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
    let annotation =
        format!("metadata.annotations: Forbidden: annotation '{preserve}' is forbidden");
    check(&cluster, LEVELS, &level, &[
        (json!({"metadata": {"annotations": {preserve: ""}}}), &[&annotation]),
        (spec(json!({"type": "Odd"})), &["spec.type: Unsupported value: \"Odd\": supported values: \"Exempt\", \"Limited\""]),
        (spec(json!({"type": "Exempt"})), &[
            "spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'",
            "spec.limited: Forbidden: must be nil if the type is not Limited",
        ]),
        (spec(json!({"exempt": {}})), &["spec.exempt: Forbidden: must be nil if the type is Limited"]),
        (limited(Value::Null), &["spec.limited: Required value: must not be empty when type is Limited"]),
        (limited(json!({"nominalConcurrencyShares": -1})), &["spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer"]),
        (limited(json!({"lendablePercent": 101, "borrowingLimitPercent": -1})), &[
            "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
            "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer",
        ]),
        (response(json!({"type": "Odd"})), &["spec.limited.limitResponse.type: Unsupported value: \"Odd\": supported values: \"Queue\", \"Reject\""]),
        (response(json!({"type": null})), &["spec.limited.limitResponse.type: Unsupported value: \"\": supported values: \"Queue\", \"Reject\""]),
        (response(json!({"type": "Reject"})), &["spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited"]),
        (queuing(Value::Null), &["spec.limited.limitResponse.queuing: Required value: must not be empty if limited.limitResponse.type is Limited"]),
        (queuing(json!({"queues": -1, "handSize": -2, "queueLengthLimit": -3})), &[
            "spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: -3: must be positive",
            "spec.limited.limitResponse.queuing.queues: Invalid value: -1: must be positive",
            "spec.limited.limitResponse.queuing.handSize: Invalid value: -2: must be positive",
        ]),
        (queuing(json!({"queues": 10_000_001, "handSize": 1})), &["spec.limited.limitResponse.queuing.queues: Invalid value: 10000001: must not be greater than 10000000"]),
        (queuing(json!({"queues": 4})), &["spec.limited.limitResponse.queuing.handSize: Invalid value: 6: should not be greater than queues (4)"]),
        (queuing(json!({"queues": 1_048_576, "handSize": 4})), &["spec.limited.limitResponse.queuing.handSize: Invalid value: 4: required entropy bits of deckSize 1048576 and handSize 4 should not be greater than 60"]),
    ])
    .await;
    let created = cluster.post(LEVELS, &level).await.ok(201);
    assert_eq!(created["spec"]["limited"]["nominalConcurrencyShares"], 30);
    server.stop().await;
}

#[tokio::test]
async fn conditions_are_validated() {
    let server = start().await;
    let cluster = Cluster(&server);
    let conditions = json!([{"type": "A"}, {"type": "A"}, {}]);
    let status = json!({"status": {"conditions": conditions}});
    for path in [
        format!("{SCHEMAS}/system-nodes"),
        format!("{LEVELS}/system"),
    ] {
        let refused = cluster.patch(&format!("{path}/status"), &status).await;
        let expected = [
            "status.conditions[1].type: Duplicate value: \"A\"",
            "status.conditions[2].type: Required value",
        ];
        assert_eq!(causes(&refused.refused(422, "Invalid", "")), expected);
    }
    server.stop().await;
}

#[tokio::test]
async fn specs_of_mandatory_objects_are_fixed() {
    let server = start().await;
    let cluster = Cluster(&server);
    for (path, name, spec, but) in [
        (SCHEMAS, "exempt", json!({"matchingPrecedence": 2}), ""),
        (
            SCHEMAS,
            "catch-all",
            json!({"distinguisherMethod": null}),
            "",
        ),
        (SCHEMAS, "catch-all", json!({"rules": []}), ""),
        (
            LEVELS,
            "catch-all",
            json!({"limited": {"nominalConcurrencyShares": 6}}),
            "",
        ),
        (
            LEVELS,
            "catch-all",
            json!({"limited": {"borrowingLimitPercent": 0}}),
            "",
        ),
        (
            LEVELS,
            "exempt",
            json!({"type": "Limited", "exempt": null, "limited": {"limitResponse": {"type": "Reject"}}}),
            " except the 'spec.exempt' field",
        ),
    ] {
        let path = format!("{path}/{name}");
        let before = cluster.get(&path).await.ok(200)["spec"].clone();
        let refused = cluster.patch(&path, &json!({"spec": spec})).await;
        let refused = refused.refused(422, "Invalid", "");
        let causes = causes(&refused);
        let last = causes.last().expect("a cause");
        assert!(last.starts_with("spec: Invalid value: {"), "{last}");
        let message = format!("}}: spec of '{name}'{but} must equal the fixed value");
        assert!(last.ends_with(&message), "{last}");
        assert_eq!(cluster.get(&path).await.ok(200)["spec"], before);
    }
    // What users may change, and a write that changes nothing in the spec.
    let exempt = format!("{LEVELS}/exempt");
    let settings = json!({"nominalConcurrencyShares": 3, "lendablePercent": 10});
    let changed = cluster
        .patch(&exempt, &json!({"spec": {"exempt": settings}}))
        .await;
    assert_eq!(changed.ok(200)["spec"]["exempt"], settings);
    for (settings, expected) in [
        (
            json!({"nominalConcurrencyShares": -1}),
            "spec.exempt.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
        ),
        (
            json!({"lendablePercent": 101}),
            "spec.exempt.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
        ),
    ] {
        let refused = cluster
            .patch(&exempt, &json!({"spec": {"exempt": settings}}))
            .await;
        assert_eq!(causes(&refused.refused(422, "Invalid", "")), [expected]);
    }
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    for path in [SCHEMAS, LEVELS] {
        cluster
            .patch(&format!("{path}/catch-all"), &label)
            .await
            .ok(200);
    }
    server.stop().await;
}
