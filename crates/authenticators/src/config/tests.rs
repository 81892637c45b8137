//! Tests of the configuration: what is accepted, and the messages about what is not.

use super::*;

/// Returns the error of a configuration with one issuer that has `members` instead of the default ones.
fn error(replaced: &str, by: &str) -> String {
    let text = "
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://a.example.com
    audiences: [one]
  claimMappings:
    username: {claim: sub, prefix: ''}
";
    assert!(text.contains(replaced), "{replaced}");
    let text = text.replace(replaced, by);
    let config: AuthenticationConfiguration = match text.parse() {
        Ok(config) => config,
        Err(error) => return error.to_string(),
    };
    let own = ["https://own".to_owned()];
    match config.validate(&own) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn complete_configuration_is_valid() {
    let all = "username: {expression: 'claims.email_verified ? claims.email : claims.sub'}
    groups: {claim: groups, prefix: 'oidc:'}
    uid: {claim: sub}
    extra: [{key: example.com/tenant, valueExpression: claims.tenant}]
  claimValidationRules:
  - {claim: hd, requiredValue: example.com}
  - {expression: 'claims.exp - claims.nbf <= 86400', message: too long}
  userValidationRules: [{expression: \"!user.username.startsWith('system:')\", message: reserved}]
- issuer:
    url: https://b.example.com
    discoveryURL: https://c.example.com/discovery
    audiences: [one, two]
    audienceMatchPolicy: MatchAny
    certificateAuthority: null
  claimMappings: {username: {claim: sub, prefix: 'b:'}}
anonymous: {enabled: true, conditions: [{path: /livez}]}";
    assert_eq!(error("username: {claim: sub, prefix: ''}", all), "");
    for version in ["v1beta1", "v1alpha1"] {
        let version = format!("apiserver.config.k8s.io/{version}");
        assert_eq!(error("apiserver.config.k8s.io/v1", &version), "");
    }
}

#[test]
fn wrong_issuers_are_reported() {
    let url = "https://a.example.com";
    for (by, expected) in [
        ("", "jwt[0].issuer.url: Required value"),
        (
            "http://a",
            "jwt[0].issuer.url: Invalid value: \"http://a\": URL scheme must be https",
        ),
        (
            "https://u@a",
            "jwt[0].issuer.url: Invalid value: \"https://u@a\": URL must not contain a username or password",
        ),
        (
            "https://a?b=c",
            "jwt[0].issuer.url: Invalid value: \"https://a?b=c\": URL must not contain a query",
        ),
        (
            "https://a#b",
            "jwt[0].issuer.url: Invalid value: \"https://a#b\": URL must not contain a fragment",
        ),
        (
            "https://own",
            "jwt[0].issuer.url: Invalid value: \"https://own\": URL must not overlap with disallowed issuers: [https://own]",
        ),
        (
            "https://a\n    discoveryURL: https://a/",
            "jwt[0].issuer.discoveryURL: Invalid value: \"https://a/\": discoveryURL must be different from URL",
        ),
        (
            "https://a\n    egressSelectorType: cluster",
            "jwt[0].issuer.egressSelectorType: Invalid value: \"cluster\": egress selector is not supported: remove it",
        ),
        (
            "https://a\n    certificateAuthority: junk",
            "jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\": data does not contain any valid RSA or ECDSA certificates",
        ),
        (
            "https://a\n    clientID: x",
            "is no AuthenticationConfiguration: ",
        ),
    ] {
        let error = error(url, by);
        assert!(error.starts_with(expected), "{by}: {error}");
    }
    for (by, expected) in [
        (
            "[]",
            "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
        ),
        (
            "[a, a]",
            "[jwt[0].issuer.audiences[1]: Duplicate value: \"a\", jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences]",
        ),
        (
            "[a]\n    audienceMatchPolicy: All",
            "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"All\": audienceMatchPolicy must be empty or MatchAny for single audience",
        ),
        ("['']", "jwt[0].issuer.audiences[0]: Required value"),
    ] {
        assert_eq!(error("[one]", by), expected, "{by}");
    }
    let twice = "{claim: sub, prefix: ''}
- issuer: {url: https://a.example.com, audiences: [one]}
  claimMappings: {username: {claim: sub, prefix: ''}}";
    assert_eq!(
        error("{claim: sub, prefix: ''}", twice),
        "jwt[1].issuer.url: Duplicate value: \"https://a.example.com\""
    );
    let many = "\n- issuer: {}".repeat(65);
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:{many}"
    );
    let config: AuthenticationConfiguration = text.parse().unwrap();
    let error = config.validate(&[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "jwt: Too many: 65: must have at most 64 items"
    );
}

#[test]
fn wrong_mappings_are_reported() {
    let username = "username: {claim: sub, prefix: ''}";
    for (by, expected) in [
        (
            "groups: {}",
            "jwt[0].claimMappings.username: Required value: claim or expression is required",
        ),
        (
            "username: {claim: sub}",
            "jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing",
        ),
        (
            "username: {claim: sub, expression: claims.sub}",
            "jwt[0].claimMappings.username: Invalid value: \"\": claim and expression can't both be set",
        ),
        (
            "username: {prefix: p, expression: claims.sub}",
            "jwt[0].claimMappings.username.prefix: Invalid value: \"p\": may not be specified when expression is set",
        ),
        (
            "username: {expression: claims.}",
            "jwt[0].claimMappings.username.expression: Invalid value: \"claims.\": compilation failed: ",
        ),
        (
            "username: {expression: user.name}",
            "jwt[0].claimMappings.username.expression: Invalid value: \"user.name\": compilation failed: ",
        ),
        (
            "username: {expression: claims.email}",
            "jwt[0].claimMappings.username.expression: Invalid value: \"claims.email\": claims.email_verified must be used in ",
        ),
        (
            "username: {claim: sub, prefix: ''}\n    uid: {claim: a, expression: claims.a}",
            "jwt[0].claimMappings.uid: Invalid value: \"\": claim and expression can't both be set",
        ),
        (
            "username: {claim: sub, prefix: ''}\n    extra: [{key: a, valueExpression: claims.a}]",
            "jwt[0].claimMappings.extra[0].key: Invalid value: \"a\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        (
            "username: {claim: sub, prefix: ''}\n    extra: [{key: A.io/b, valueExpression: claims.a}]",
            "jwt[0].claimMappings.extra[0].key: Invalid value: \"A.io/b\": must be lowercase",
        ),
        (
            "username: {claim: sub, prefix: ''}\n    extra: [{key: x.k8s.io/b, valueExpression: claims.a}]",
            "jwt[0].claimMappings.extra[0].key: Invalid value: \"x.k8s.io/b\": k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use",
        ),
        (
            "username: {claim: sub, prefix: ''}\n    extra: [{key: a.io/b}]",
            "jwt[0].claimMappings.extra[0].valueExpression: Required value",
        ),
        (
            "username: {claim: sub, prefix: ''}\n  claimValidationRules: [{}]",
            "jwt[0].claimValidationRules[0]: Required value: claim or expression is required",
        ),
        (
            "username: {claim: sub, prefix: ''}\n  claimValidationRules: [{claim: a, expression: 'true'}]",
            "jwt[0].claimValidationRules[0]: Invalid value: \"a\": claim and expression can't both be set",
        ),
        (
            "username: {claim: sub, prefix: ''}\n  claimValidationRules: [{claim: a, message: m}]",
            "jwt[0].claimValidationRules[0].message: Invalid value: \"m\": may not be specified when claim is set",
        ),
        (
            "username: {claim: sub, prefix: ''}\n  claimValidationRules: [{expression: \"'a'\"}]",
            "jwt[0].claimValidationRules[0].expression: Invalid value: \"'a'\": must evaluate to bool",
        ),
        (
            "username: {claim: sub, prefix: ''}\n  userValidationRules: [{}]",
            "jwt[0].userValidationRules[0].expression: Required value",
        ),
        (
            "username: {claim: sub, prefix: ''}\n  userValidationRules: [{expression: 'true'}, {expression: 'true'}]",
            "jwt[0].userValidationRules[1].expression: Duplicate value: \"true\"",
        ),
        (
            "username: {claim: sub, prefix: ''}\nanonymous: {enabled: false, conditions: [{path: /a}]}",
            "anonymous.conditions: Invalid value: \"/a\": enabled should be set to true when conditions are defined",
        ),
    ] {
        let error = error(username, by);
        assert!(error.starts_with(expected), "{by}: {error}");
    }
}

#[test]
fn kind_and_version_are_checked() {
    assert!(error("AuthenticationConfiguration", "Config").starts_with("has the kind \"Config\""));
    assert!(
        error("config.k8s.io/v1", "config.k8s.io/v2")
            .contains("write kind AuthenticationConfiguration")
    );
    let empty = "".parse::<AuthenticationConfiguration>();
    assert!(empty.is_err());
}
