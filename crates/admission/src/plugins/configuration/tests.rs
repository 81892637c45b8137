//! Tests of configuration files: valid ones, and invalid ones with the error.

use super::*;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
const POD_SECURITY: &str =
    "apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration";
const QUOTA: &str = "apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration";
const WEBHOOK: &str = "apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration";

fn load(text: &str) -> Result<PluginConfigurations, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admission.yaml");
    std::fs::write(&path, text).unwrap();
    PluginConfigurations::load(&path).map_err(|error| error.to_string())
}

fn plugin(name: &str, configuration: &str) -> String {
    format!("{HEAD}plugins:\n- name: {name}\n  configuration: {{{configuration}}}\n")
}

fn check(text: &str, expected: &str) {
    let error = load(text).unwrap_err();
    assert!(error.starts_with(expected), "{text}\n{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn files_without_configurations_mean_the_defaults() {
    for text in [
        HEAD.to_owned(),
        format!("{HEAD}plugins:"),
        format!("{HEAD}plugins: [{{name: PodSecurity}}, {{name: Priority, path: ''}}]"),
        plugin("PodSecurity", POD_SECURITY),
        plugin("ResourceQuota", QUOTA),
        plugin(
            "ResourceQuota",
            "apiVersion: resourcequota.admission.k8s.io/v1beta1, kind: Configuration",
        ),
        r#"{"apiVersion": "apiserver.k8s.io/v1alpha1", "kind": "AdmissionConfiguration"}"#
            .to_owned(),
    ] {
        assert_eq!(load(&text), Ok(PluginConfigurations::default()), "{text}");
    }
}

#[test]
fn a_plugin_file_is_relative_to_the_file_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let text =
        format!("{{{QUOTA}, limitedResources: [{{resource: pods, matchContains: [pods]}}]}}");
    write("quota.yaml", &text);
    let file = write(
        "admission.yaml",
        &format!("{HEAD}plugins: [{{name: ResourceQuota, path: quota.yaml}}]"),
    );
    let loaded = PluginConfigurations::load(&file).unwrap();
    assert_ne!(loaded.limited_resources, LimitedResources::default());
    write("quota.yaml", "a: [");
    let error = PluginConfigurations::load(&file).unwrap_err().to_string();
    assert!(
        error.starts_with("plugins[0]: \"ResourceQuota\" names a file that cannot be used: ")
            && error.contains("quota.yaml: is not valid YAML"),
        "{error}"
    );
}

#[test]
fn invalid_admission_configuration_files_are_rejected() {
    check("a: [", "is not valid YAML: ");
    check(
        "",
        "must be a mapping with apiVersion: apiserver.config.k8s.io/v1 and kind: AdmissionConfiguration",
    );
    check(
        "apiVersion: v1\nkind: Pod",
        "apiVersion \"v1\" and kind \"Pod\" are not supported: write one of apiserver.config.k8s.io/v1 \
         AdmissionConfiguration, ",
    );
    check(
        &format!("{HEAD}plugin: []"),
        "unknown field `plugin`, expected `plugins`",
    );
    check(
        &format!("{HEAD}plugins: [{{name: PodSecurity, config: {{}}}}]"),
        "unknown field `config`, expected one of `name`, `path`, `configuration`",
    );
    check(
        &format!("{HEAD}plugins: [{{path: x}}]"),
        "missing field `name`",
    );
    check(
        &format!("{HEAD}plugins: [{{name: PodSecurity, path: no-such}}]"),
        "plugins[0]: \"PodSecurity\" names a file that cannot be used: ",
    );
    let error = PluginConfigurations::load(Path::new("no-such")).unwrap_err();
    assert!(error.to_string().starts_with("no-such: "), "{error}");
}

#[test]
fn plugins_that_cannot_be_configured_are_refused() {
    check(
        &plugin("PodSecurty", POD_SECURITY),
        "plugins[0]: \"PodSecurty\" is no admission plugin: choose among AlwaysAdmit, ",
    );
    for name in [
        "EventRateLimit",
        "PodNodeSelector",
        "ImagePolicyWebhook",
        "PodTolerationRestriction",
    ] {
        let expected = format!("plugins[0]: {name:?} is not part of this server: remove the entry");
        check(&plugin(name, ""), &expected);
    }
    check(
        &plugin("Priority", "a: 1"),
        "plugins[0]: \"Priority\" has no configuration: remove the entry",
    );
    check(
        &format!("{HEAD}plugins: [{{name: PodSecurity}}, {{name: PodSecurity}}]"),
        "plugins[1]: \"PodSecurity\" is configured twice: merge the two entries",
    );
}

fn invalid(name: &str, configuration: &str, expected: &str) {
    let expected = format!("plugins[0]: {name:?} has an invalid configuration: {expected}");
    check(&plugin(name, configuration), &expected);
}

#[test]
fn invalid_configurations_of_pod_security_are_refused() {
    let refused = |members: &str, expected: &str| {
        invalid(
            "PodSecurity",
            &format!("{POD_SECURITY}, {members}"),
            expected,
        );
    };
    invalid(
        "PodSecurity",
        QUOTA,
        "apiVersion \"apiserver.config.k8s.io/v1\" and kind \"ResourceQuotaConfiguration\" are not \
         supported: write one of pod-security.admission.config.k8s.io/v1 PodSecurityConfiguration, ",
    );
    refused(
        "default: {}",
        "unknown field `default`, expected `defaults` or `exemptions`",
    );
    refused(
        "defaults: {enforceVersion: latest}",
        "unknown field `enforceVersion`",
    );
    refused(
        "defaults: {enforce: 1}",
        "invalid type: integer `1`, expected a string",
    );
    refused(
        "defaults: {enforce: base, warn-version: '1.30'}",
        "defaults.enforce: Invalid value: \"base\": must be one of privileged, baseline, restricted; \
         defaults.warn-version: Invalid value: \"1.30\": must be \"latest\" or \"v1.x\"",
    );
    refused(
        "exemptions: {usernames: [a, a], namespaces: ['A'], runtimeClasses: ['']}",
        "exemptions.namespaces[0]: Invalid value: \"A\": a lowercase RFC 1123 label must",
    );
    refused(
        "exemptions: {usernames: [a, a, '']}",
        "exemptions.usernames[1]: Duplicate value: \"a\"; exemptions.usernames[2]: Invalid value: \
         \"\": username must not be empty",
    );
    refused("exemptions: {users: []}", "unknown field `users`");
}

#[test]
fn invalid_configurations_of_resource_quota_are_refused() {
    let refused = |resource: &str, expected: &str| {
        let members = format!("{QUOTA}, limitedResources: [{resource}]");
        invalid("ResourceQuota", &members, expected);
    };
    refused("{}", "limitedResources[0].resource: Required value");
    refused(
        "{resource: pods, matchContain: []}",
        "unknown field `matchContain`",
    );
    let scope = |members: &str| format!("{{resource: pods, matchScopes: [{{{members}}}]}}");
    refused(
        &scope("scopeName: Priority, operator: Exists"),
        "limitedResources[0].matchScopes[0].scopeName: Unsupported value: \"Priority\": supported values: ",
    );
    refused(
        &scope("scopeName: PriorityClass, operator: Is"),
        "limitedResources[0].matchScopes[0].operator: Unsupported value: \"Is\": supported values: ",
    );
    refused(
        &scope("scopeName: PriorityClass, operator: In"),
        "limitedResources[0].matchScopes[0].values: Required value: must be at least one value",
    );
    refused(
        &scope("scopeName: PriorityClass"),
        "missing field `operator`",
    );
}

#[test]
fn invalid_configurations_of_webhooks_are_refused() {
    for name in ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"] {
        invalid(
            name,
            WEBHOOK,
            "kubeConfigFile: Invalid value: \"\": must be an absolute file path",
        );
        let relative = format!("{WEBHOOK}, kubeConfigFile: x");
        invalid(
            name,
            &relative,
            "kubeConfigFile: Invalid value: \"x\": must be an absolute file path",
        );
        let missing = format!("{WEBHOOK}, kubeConfigFile: /no/such");
        invalid(
            name,
            &missing,
            "kubeConfigFile: Invalid value: \"/no/such\": /no/such: No such file",
        );
        let other = format!("{WEBHOOK}, kubeconfigFile: /x");
        invalid(
            name,
            &other,
            "unknown field `kubeconfigFile`, expected `kubeConfigFile`",
        );
    }
}
