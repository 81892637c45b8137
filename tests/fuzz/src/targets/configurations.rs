//! The files that configure a server, and the objects and responses of webhooks.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use serde_json::{Value, json};
use watchet_admission::client::{ClientConfig, ServiceResolver, WebhookClient};
use watchet_admission::fuzzing::read_review;
use watchet_admission::{
    ConfigurationKind, DynamicAdmission, EnabledPlugins, PluginConfigurations, client_problems,
    problems,
};
use watchet_api::{ResourceVersion, UserInfo};
use watchet_apiextensions::fuzzing::read_conversion_response;
use watchet_audit::policy::{Policy, RequestAttributes, ResourceAttributes};
use watchet_auth::TokenFile;
use watchet_authenticators::AuthenticationConfiguration;
use watchet_authorizers::AuthorizationConfiguration;
use watchet_encryption::EncryptionConfiguration;
use watchet_flowcontrol::{
    DigestTarget, FlowControl, FlowSchema, PriorityLevelConfiguration, RequestDigest,
};
use watchet_http::fuzzing::decode_patch;
use watchet_metrics::Metrics;
use watchet_registry::Patch;
use watchet_registry::fuzzing::apply_json_patch;
use watchet_tasks::Tasks;

use super::{json_parts, parts};

/// A text is read as each kind of configuration, and used if it is one. The parts are also flow schemas and priority levels,
/// which are JSON.
pub(super) fn configurations(input: &[u8]) {
    let [text, _] = parts(input);
    if let Ok(text) = str::from_utf8(text) {
        audit_policy(text);
        drop(text.parse::<EncryptionConfiguration>());
        drop(TokenFile::parse(text));
        if let Ok(configuration) = text.parse::<AuthenticationConfiguration>() {
            drop(configuration.validate(&["https://kubernetes.default.svc".to_owned()]));
        }
        if let Ok(configuration) = text.parse::<AuthorizationConfiguration>() {
            drop(configuration.validate());
        }
    }
    flow_control(input);
}

fn audit_policy(text: &str) {
    let Ok(policy) = text.parse::<Policy>() else {
        return;
    };
    let user = UserInfo::anonymous();
    let resource = ResourceAttributes {
        version: "v1",
        resource: "pods",
        namespace: "default",
        name: "a",
        ..ResourceAttributes::default()
    };
    for (path, resource) in [
        ("/api/v1/namespaces/default/pods/a", Some(resource)),
        ("/healthz", None),
    ] {
        let request = RequestAttributes {
            user: Some(&user),
            verb: "get",
            path,
            resource,
        };
        let first = format!("{:?}", policy.evaluate(&request));
        assert_eq!(format!("{:?}", policy.evaluate(&request)), first);
    }
}

/// Each request belongs to a level, whatever the configuration.
fn flow_control(input: &[u8]) {
    let (mut schemas, mut levels) = (Vec::new(), Vec::new());
    for part in crate::mutate::split(input).take(16) {
        // The server stores no object without a name.
        let schema = FlowSchema::parse(part).ok();
        schemas.extend(schema.filter(|schema| !schema.name().is_empty()));
        let level = PriorityLevelConfiguration::parse(part).ok();
        levels.extend(level.filter(|level| !level.name().is_empty()));
    }
    if schemas.is_empty() && levels.is_empty() {
        return;
    }
    let metrics = Metrics::new();
    let control = FlowControl::new(600, metrics.flow_control().clone());
    control.configure(&schemas, &levels);
    control.adjust_limits();
    let groups = ["system:authenticated".to_owned()];
    let targets = [
        DigestTarget::Resource {
            api_group: "",
            resource: "pods",
            subresource: "",
            namespace: "default",
        },
        DigestTarget::Path("/healthz".into()),
    ];
    for target in targets {
        let request = RequestDigest {
            user: "jane",
            groups: &groups,
            verb: "get".into(),
            target,
        };
        let class = control.classify(&request);
        assert!(!class.priority_level().is_empty() && !class.flow_schema().is_empty());
    }
    // The objects are deleted, which leaves the mandatory ones.
    control.configure(&[], &[]);
    control.adjust_limits();
}

/// Resolves no service.
#[derive(Debug)]
struct NoServices;

#[async_trait]
impl ServiceResolver for NoServices {
    async fn resolve(&self, _: &str, _: &str, _: u16) -> Result<(String, u16), String> {
        Err("there are no services".to_owned())
    }
}

static ADMISSION: LazyLock<DynamicAdmission> = LazyLock::new(|| {
    let tasks = Tasks::new();
    let client = WebhookClient::new(&tasks, Arc::new(NoServices));
    DynamicAdmission::new(
        &client,
        &tasks,
        &EnabledPlugins::default(),
        &PluginConfigurations::default(),
    )
});

/// The first part is a webhook configuration, a policy, a client configuration or a response; the second the object that a
/// response is about.
pub(super) fn webhooks(input: &[u8]) {
    let [response, _] = parts(input);
    for mutating in [false, true] {
        if let Ok((_, patch)) = read_review(response, mutating)
            && let Ok(Patch::Json(patch)) = decode_patch("application/json-patch+json", &patch)
        {
            let mut object = json!({"metadata": {"name": "a"}, "spec": {"list": [1, 2, 3]}});
            drop(apply_json_patch(&mut object, &patch));
        }
    }
    let Some([configuration, object]) = json_parts::<2>(input) else {
        return;
    };
    let original = object.clone();
    if let Ok(converted) = read_conversion_response(vec![object], "example.com/v2", response) {
        assert_eq!(converted.len(), 1);
        let member = |name: &str| {
            (
                converted[0]["metadata"][name].clone(),
                original["metadata"][name].clone(),
            )
        };
        for name in ["name", "namespace", "uid"] {
            let (converted, original) = member(name);
            assert_eq!(converted, original, "{name}");
        }
    }
    drop(client_problems("clientConfig", &configuration));
    if let Ok(client) = ClientConfig::parse(&configuration) {
        assert_eq!(ClientConfig::parse(&configuration).ok(), Some(client));
    }
    for kind in ConfigurationKind::ALL {
        let found = problems(kind, &configuration);
        if found.is_empty() && configuration.is_object() {
            ADMISSION.replace(kind, vec![configuration.clone()], ResourceVersion::new(1));
        }
        ADMISSION.replace(
            kind,
            vec![Value::Null, configuration.clone()],
            ResourceVersion::new(2),
        );
    }
}
