//! Tests of reading and validating configurations.

use std::time::Duration;

use super::{
    AuthorizationConfiguration, AuthorizerType, ValidAuthorizer, ValidConfiguration, ValidWebhook,
};
use crate::review::ReviewVersion;
use crate::webhook::FailurePolicy;

/// An existing file with an absolute path.
const KUBECONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

fn webhook(more: &str) -> String {
    format!(
        "
- type: Webhook
  name: w.example.com
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    failurePolicy: NoOpinion
    connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {KUBECONFIG}}}
{more}"
    )
}

fn validate(authorizers: &str) -> Result<ValidConfiguration, String> {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:{authorizers}\n"
    );
    let config = text.parse::<AuthorizationConfiguration>();
    let config = config.map_err(|error| error.to_string())?;
    config.validate().map_err(|error| error.to_string())
}

fn valid_webhook(authorizers: &str) -> ValidWebhook {
    match validate(authorizers).unwrap().authorizers.remove(0) {
        ValidAuthorizer::Webhook(_, webhook) => webhook,
        ValidAuthorizer::Local(local) => panic!("{local:?}"),
    }
}

#[test]
fn authorizers_keep_their_order_and_webhooks_may_be_several() {
    let text = webhook("")
        + "\n- {type: Node, name: node}\n- {type: RBAC, name: rbac}"
        + &webhook("").replace("w.example.com", "other");
    let valid = validate(&text).unwrap();
    let names = valid.authorizers.iter().map(|authorizer| match authorizer {
        ValidAuthorizer::Local(local) => local.name(),
        ValidAuthorizer::Webhook(name, _) => name,
    });
    let names: Vec<&str> = names.collect();
    assert_eq!(names, ["w.example.com", "Node", "RBAC", "other"]);
}

#[test]
fn a_webhook_has_upstreams_defaults() {
    let defaults = valid_webhook(&webhook(""));
    assert_eq!(defaults.timeout, Duration::from_secs(3));
    assert_eq!(defaults.kubeconfig.to_str(), Some(KUBECONFIG));
    let settings = &defaults.settings;
    assert_eq!(settings.version, ReviewVersion::V1);
    assert_eq!(settings.failure_policy, FailurePolicy::NoOpinion);
    assert_eq!(
        (settings.authorized_ttl, settings.unauthorized_ttl),
        (Duration::from_secs(300), Duration::from_secs(30))
    );
    assert!(settings.match_conditions.is_empty());

    let uncached = valid_webhook(&webhook(
        "    authorizedTTL: 1m
    cacheAuthorizedRequests: true
    cacheUnauthorizedRequests: false
    matchConditionSubjectAccessReviewVersion: v1
    matchConditions: [{expression: request.user == 'a'}]",
    ));
    let settings = uncached.settings;
    assert_eq!(
        (settings.authorized_ttl, settings.unauthorized_ttl),
        (Duration::from_secs(60), Duration::ZERO)
    );
    assert!(!settings.match_conditions.is_empty());
}

#[test]
fn invalid_fields_have_upstreams_errors() {
    let supported = r#"supported values: "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook""#;
    for (authorizers, expected) in [
        (
            " []".to_owned(),
            "authorizers: Required value: at least one authorization mode must be defined".to_owned(),
        ),
        (
            "\n- {name: a}".to_owned(),
            "authorizers[0].type: Required value".to_owned(),
        ),
        (
            "\n- {type: ABAC, name: abac}".to_owned(),
            format!("authorizers[0].type: Unsupported value: \"ABAC\": {supported}"),
        ),
        (
            "\n- {type: RBAC, name: rbac}\n- {type: RBAC, name: other}".to_owned(),
            "authorizers[1].type: Duplicate value: \"RBAC\"".to_owned(),
        ),
        (
            "\n- {type: RBAC}".to_owned(),
            "authorizers[0].name: Required value".to_owned(),
        ),
        (
            webhook("") + &webhook(""),
            "authorizers[1].name: Duplicate value: \"w.example.com\"".to_owned(),
        ),
        (
            "\n- {type: RBAC, name: a_b}".to_owned(),
            "authorizers[0].name: Invalid value: \"a_b\": authorizer name is invalid: a lowercase RFC 1123 \
             subdomain must consist of"
                .to_owned(),
        ),
        (
            "\n- {type: RBAC, name: roles}\n- {type: Node, name: nodes}".to_owned(),
            "[expected name rbac for authorizer RBAC instead of roles, expected name node for authorizer Node \
             instead of nodes]"
                .to_owned(),
        ),
        (
            "\n- {type: RBAC, name: rbac, webhook: {}}".to_owned(),
            "authorizers[0].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook"
                .to_owned(),
        ),
        (
            "\n- {type: Webhook, name: w}".to_owned(),
            "authorizers[0].webhook: Required value: required when type=Webhook".to_owned(),
        ),
        (
            "\n- {type: Webhook, name: w, webhook: {}}".to_owned(),
            "[authorizers[0].timeout: Required value, authorizers[0].subjectAccessReviewVersion: Required value, \
             authorizers[0].failurePolicy: Required value, authorizers[0].connectionInfo.type: Required value]"
                .to_owned(),
        ),
        (
            "\n- {type: RBAC, name: rbac, users: []}".to_owned(),
            "is no AuthorizationConfiguration: ".to_owned(),
        ),
    ] {
        let error = validate(&authorizers).unwrap_err();
        assert!(error.starts_with(&expected), "{authorizers}: {error}");
    }
}

#[test]
fn invalid_fields_of_webhooks_have_upstreams_errors() {
    let conditions = |text: &str| {
        format!("    matchConditionSubjectAccessReviewVersion: v1\n    matchConditions: {text}")
    };
    let many: Vec<String> = (0..65)
        .map(|n| format!("{{expression: '{n} == 1'}}"))
        .collect();
    for (valid, invalid, expected) in [
        (
            "timeout: 3s",
            "timeout: 31s",
            r#"timeout: Invalid value: "31s": must be > 0s and <= 30s"#,
        ),
        (
            "timeout: 3s",
            "timeout: -1s",
            r#"timeout: Invalid value: "-1s": must be > 0s and <= 30s"#,
        ),
        (
            "timeout: 3s",
            "timeout: soon",
            r#"timeout: Invalid value: "soon": must be a duration"#,
        ),
        (
            "timeout: 3s",
            "timeout: 3s\n    authorizedTTL: -1s",
            r#"authorizedTTL: Invalid value: "-1s": must be > 0s"#,
        ),
        (
            "timeout: 3s",
            "timeout: 3s\n    unauthorizedTTL: -1s",
            r#"unauthorizedTTL: Invalid value: "-1s": must be > 0s"#,
        ),
        (
            "Version: v1",
            "Version: v2",
            r#"subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", "v1beta1""#,
        ),
        (
            "failurePolicy: NoOpinion",
            "failurePolicy: Allow",
            r#"failurePolicy: Unsupported value: "Allow": supported values: "NoOpinion", "Deny""#,
        ),
        (
            "type: KubeConfigFile",
            "type: InClusterConfig",
            r#"connectionInfo.type: Unsupported value: "InClusterConfig": supported values: "KubeConfigFile""#,
        ),
        (
            KUBECONFIG,
            "w.kubeconfig",
            r#"connectionInfo.kubeConfigFile: Invalid value: "w.kubeconfig": must be an absolute path"#,
        ),
        (
            KUBECONFIG,
            "/nowhere/w",
            r#"connectionInfo.kubeConfigFile: Invalid value: "/nowhere/w": error loading file: "#,
        ),
        (
            KUBECONFIG,
            "/",
            r#"connectionInfo.kubeConfigFile: Invalid value: "/": must be a regular file"#,
        ),
        (
            "    timeout: 3s",
            "    timeout: 3s\n    matchConditions: [{expression: 'true'}]",
            "matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified",
        ),
        (
            "    timeout: 3s",
            &format!("    timeout: 3s\n{}", conditions("[{}]")),
            "matchConditions[0].expression: Required value",
        ),
        (
            "    timeout: 3s",
            &format!(
                "    timeout: 3s\n{}",
                conditions("[{expression: 'true'}, {expression: 'true'}]")
            ),
            r#"matchConditions[1].expression: Duplicate value: "true""#,
        ),
        (
            "    timeout: 3s",
            &format!(
                "    timeout: 3s\n{}",
                conditions("[{expression: request.user}]")
            ),
            r#"matchConditions[0].expression: Invalid value: "request.user": must evaluate to bool but got string"#,
        ),
        (
            "    timeout: 3s",
            &format!(
                "    timeout: 3s\n{}",
                conditions(&format!("[{}]", many.join(", ")))
            ),
            "matchConditions: Too many: 65: must have at most 64 items",
        ),
    ] {
        let text = webhook("");
        assert!(text.contains(valid), "{valid}");
        let error = validate(&text.replacen(valid, invalid, 1)).unwrap_err();
        assert!(
            error.starts_with(&format!("authorizers[0].{expected}")),
            "{invalid}: {error}"
        );
    }
}

#[test]
fn types_have_kube_apiservers_names() {
    for (authorizer_type, name) in AuthorizerType::ALL.into_iter().zip([
        "alwaysallow",
        "alwaysdeny",
        "node",
        "rbac",
        "webhook",
    ]) {
        assert_eq!(authorizer_type.authorizer_name(), name);
        assert_eq!(
            AuthorizerType::from_name(authorizer_type.name()),
            Some(authorizer_type)
        );
    }
    assert_eq!(AuthorizerType::from_name("rbac"), None);
}
