//! Tests of reading and validating configurations.

use super::*;

impl EncryptionConfiguration {
    fn providers(&self, group: &str, resource: &str) -> Vec<&ProviderConfiguration> {
        let rules = self.rules_of(group, resource).into_iter();
        rules.flat_map(|rule| &self.rules[rule].providers).collect()
    }
}

/// Returns a configuration with the rules `resources`, in the flow style of YAML.
fn parse(resources: &str) -> Result<EncryptionConfiguration, String> {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: {resources}\n"
    );
    text.parse()
        .map_err(|error: InvalidConfiguration| error.to_string())
}

const KEY_16: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";
const KEY_32: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

#[test]
fn every_provider_is_read() {
    let configuration = parse(&format!(
        "[{{resources: [secrets, widgets.example.com], providers: [
            {{aesgcm: {{keys: [{{name: g, secret: {KEY_16}}}]}}}},
            {{aescbc: {{keys: [{{name: c1, secret: {KEY_32}}}, {{name: c2, secret: {KEY_16}}}]}}}},
            {{secretbox: {{keys: [{{name: s, secret: {KEY_32}}}]}}}},
            {{kms: {{apiVersion: v2, name: k, endpoint: 'unix:///run/kms.sock', timeout: 1.5s}}}},
            {{identity: {{}}}}
        ]}}]"
    ))
    .unwrap();
    let key = |name: &str, secret: &[u8]| Key {
        name: name.to_owned(),
        secret: secret.to_vec(),
    };
    let (short, long) = (b"0123456789abcdef", b"0123456789abcdef0123456789abcdef");
    let expected = [
        ProviderConfiguration::AesGcm(vec![key("g", short)]),
        ProviderConfiguration::AesCbc(vec![key("c1", long), key("c2", short)]),
        ProviderConfiguration::Secretbox(vec![key("s", long)]),
        ProviderConfiguration::Kms(KmsConfiguration {
            name: "k".to_owned(),
            socket: "/run/kms.sock".to_owned(),
            timeout: Duration::from_millis(1500),
        }),
        ProviderConfiguration::Identity,
    ];
    let expected: Vec<_> = expected.iter().collect();
    assert_eq!(configuration.providers("", "secrets"), expected);
    assert_eq!(configuration.providers("example.com", "widgets"), expected);
    assert!(configuration.providers("", "configmaps").is_empty());
    assert!(configuration.providers("", "widgets").is_empty());
    let shown = format!("{configuration:?}");
    assert!(
        !shown.contains("0123") && !shown.contains("48, 49"),
        "{shown}"
    );
}

#[test]
fn the_most_specific_rules_apply() {
    let configuration = parse(&format!(
        "[{{resources: [secrets], providers: [{{identity: {{}}}}]}},
          {{resources: [secrets, '*.apps'], providers: [{{aesgcm: {{keys: [{{name: a, secret: {KEY_16}}}]}}}}]}},
          {{resources: ['*.'], providers: [{{aesgcm: {{keys: [{{name: b, secret: {KEY_16}}}]}}}}]}},
          {{resources: ['*.*'], providers: [{{aesgcm: {{keys: [{{name: c, secret: {KEY_16}}}]}}}}]}}]"
    ))
    .unwrap();
    let names = |group: &str, resource: &str| -> Vec<String> {
        let providers = configuration.providers(group, resource);
        let name = |provider: &&ProviderConfiguration| match provider {
            ProviderConfiguration::AesGcm(keys) => keys[0].name.clone(),
            _ => "identity".to_owned(),
        };
        providers.iter().map(name).collect()
    };
    assert_eq!(names("", "secrets"), ["identity", "a"]);
    assert_eq!(names("apps", "deployments"), ["a"]);
    assert_eq!(names("", "configmaps"), ["b"]);
    assert_eq!(names("example.com", "widgets"), ["c"]);
}

#[test]
fn problems_name_the_field_and_not_the_key() {
    let provider = "providers: [{identity: {}}]";
    let key = |key: &str| {
        format!("[{{resources: [secrets], providers: [{{aescbc: {{keys: [{key}]}}}}]}}]")
    };
    let kms = |kms: &str| format!("[{{resources: [secrets], providers: [{{kms: {{{kms}}}}}]}}]");
    let resources = |names: &str| format!("[{{resources: [{names}], {provider}}}]");
    let cases = [
        (
            "[]".to_owned(),
            "resources: Required value: at least one resources is required",
        ),
        (
            "[{}]".to_owned(),
            "resources[0].resources: Required value: at least one resources[0].resources is required, \
          resources[0].providers: Required value: at least one resources[0].providers is required",
        ),
        (
            resources("secrets, secrets"),
            "the same resource cannot be specified multiple times",
        ),
        (
            resources("secrets, '*.'"),
            "Invalid value: [\"secrets\", \"*.\"]: using overlapping resources",
        ),
        (resources("secrets, '*.*'"), "using overlapping resources"),
        (
            resources("Secrets"),
            "resources[0].resources[0]: Invalid value: \"Secrets\": resource name should not contain",
        ),
        (
            resources("'*'"),
            "use '*.' to encrypt all the resources from core API group",
        ),
        (
            resources("serviceipallocations"),
            "resources which do not have REST API/s cannot be encrypted",
        ),
        (
            resources("events.events.k8s.io"),
            "Use 'events' instead in the config file",
        ),
        (
            resources("ingresses.extensions"),
            "'extensions' group has been removed",
        ),
        (
            resources("'secrets.*'"),
            "encrypting the same resource across groups is not supported",
        ),
        (
            format!("[{{resources: ['*.*'], {provider}}}, {{resources: [secrets], {provider}}}]"),
            "resources[1].resources[0]: Invalid value: \"secrets\": resource \"secrets\" is masked by earlier rule \"*.*\"",
        ),
        (
            format!(
                "[{{resources: ['*.apps'], {provider}}}, {{resources: [deployments.apps], {provider}}}]"
            ),
            "resource \"deployments.apps\" is masked by earlier rule \"*.apps\"",
        ),
        (
            "[{resources: [secrets], providers: [{}]}]".to_owned(),
            "provider does not contain any of the expected",
        ),
        (
            "[{resources: [secrets], providers: [{identity: {}, aescbc: {keys: []}}]}]".to_owned(),
            "resources[0].providers[0]: Invalid value: [\"aescbc\", \"identity\"]: more than one provider specified",
        ),
        (
            key(""),
            "resources[0].providers[0].aescbc.keys: Required value: at least one keys is required",
        ),
        (
            key("{secret: c2VjcmV0}"),
            "resources[0].providers[0].aescbc.keys[0].name: Required value",
        ),
        (
            key("{name: a}"),
            "keys[0].secret: Required value: secret is a mandatory field for a key",
        ),
        (
            key("{name: a, secret: c2VjcmV0}"),
            "Invalid value: \"REDACTED\": secret is not of the expected length, got 6, expected one of [16 24 32]",
        ),
        (
            key("{name: a, secret: s3cr/et!}"),
            "Invalid value: \"REDACTED\": secrets must be base64 encoded",
        ),
        (
            kms("apiVersion: v2, endpoint: 'unix:///s'"),
            "kms.name: Required value: name is a mandatory field",
        ),
        (
            kms("apiVersion: v2, name: 'a:b', endpoint: 'unix:///s'"),
            "must not contain ':'",
        ),
        (
            kms("apiVersion: v2, name: a"),
            "kms.endpoint: Invalid value: \"\": endpoint is a mandatory field for a kms",
        ),
        (
            kms("apiVersion: v2, name: a, endpoint: 'https://kms'"),
            "must be unix:// and the path of a socket",
        ),
        (
            kms("apiVersion: v2, name: a, endpoint: 'unix:///s', timeout: 0s"),
            "timeout should be a positive value",
        ),
        (
            kms("apiVersion: v2, name: a, endpoint: 'unix:///s', cachesize: 5"),
            "cachesize is not supported in v2",
        ),
        (
            kms("name: a, endpoint: 'unix:///s'"),
            "KMSv1 is deprecated and not supported",
        ),
        (
            kms("apiVersion: v3, name: a, endpoint: 'unix:///s'"),
            "unsupported apiVersion v3",
        ),
        (
            "[{resources: [secrets], provider: []}]".to_owned(),
            "unknown field",
        ),
        (
            key("{name: a, secret: c2VjcmV0, key: c2VjcmV0}"),
            "unknown field",
        ),
    ];
    for (text, expected) in cases {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}");
        for secret in ["c2VjcmV0", "s3cr/et!"] {
            assert!(!error.contains(secret), "{text}\n{error}");
        }
    }
}

#[test]
fn names_of_kms_providers_are_unique_in_all_rules() {
    let rule = |resource: &str| {
        format!(
            "{{resources: [{resource}], providers: [{{kms: {{apiVersion: v2, name: a, endpoint: 'unix:///s'}}}}]}}"
        )
    };
    let error = parse(&format!("[{}, {}]", rule("secrets"), rule("configmaps"))).unwrap_err();
    assert!(
        error.contains("resources[1].providers[0].kms.name: Invalid value: \"a\": duplicate KMS provider name a"),
        "{error}"
    );
}

#[test]
fn other_kinds_are_refused() {
    let error = "apiVersion: v1\nkind: Secret\n"
        .parse::<EncryptionConfiguration>()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "apiVersion is \"v1\" and kind is \"Secret\": must be \"apiserver.config.k8s.io/v1\" and \
         \"EncryptionConfiguration\""
    );
}

#[test]
fn abstract_sockets_are_read() {
    let configuration = parse(
        "[{resources: [secrets], providers: [{kms: {apiVersion: v2, name: a, endpoint: 'unix:///@kms'}}]}]",
    )
    .unwrap();
    let ProviderConfiguration::Kms(kms) = configuration.providers("", "secrets")[0] else {
        panic!("another provider");
    };
    assert_eq!(
        (kms.socket.as_str(), kms.timeout),
        ("@kms", Duration::from_secs(3))
    );
}
