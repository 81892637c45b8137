//! The CustomResourceDefinitions of widgets and gadgets, which the loads create before they begin.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::conversion::{V1_FIELD, V2_FIELD, Webhook};
use super::{Spec, collection, make, make_namespace, render};
use crate::args::Resource;
use crate::client::{self, Call, ClientError, Connection};
use crate::error::BenchError;
use crate::target::Target;
use watchet_tasks::Tasks;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// How long a server may take to serve a new definition.
const ESTABLISHED_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The namespace of the object that shows that the server calls the conversion webhook.
const PROBE_NAMESPACE: &str = "bench-probe";

/// Creates or updates the definition of `resource`, if it is a custom resource, and waits until the
/// server serves it. Gadgets are converted by `webhook`.
///
/// # Errors
/// A request fails, or the server does not serve the resource in time.
pub(crate) async fn install(
    resource: Resource,
    webhook: &Webhook,
    target: &Arc<Target>,
) -> Result<(), BenchError> {
    let definition = match resource {
        Resource::Configmaps | Resource::Pods => return Ok(()),
        Resource::Widgets => widgets(),
        Resource::Gadgets => gadgets(webhook),
    };
    let tasks = Tasks::new();
    let served = client::with_connection(target, &tasks, async |connection| {
        write(connection, &definition).await?;
        let deadline = Instant::now() + ESTABLISHED_TIMEOUT;
        let mut problem = is_served(connection, resource, webhook).await?;
        while problem.is_some() && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
            problem = is_served(connection, resource, webhook).await?;
        }
        Ok(problem)
    });
    let served = served.await;
    tasks.cancel();
    match served? {
        None => Ok(()),
        Some(problem) => Err(BenchError::Setup(format!(
            "the server does not serve {} within {ESTABLISHED_TIMEOUT:?}: {problem}",
            resource.plural()
        ))),
    }
}

/// Creates the definition, or replaces the spec of an existing one.
async fn write(connection: &mut Connection, definition: &Value) -> Result<(), ClientError> {
    let body = Bytes::from(definition.to_string());
    if make(connection, DEFINITIONS, body).await? {
        return Ok(());
    }
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let patch = json!({"spec": definition["spec"]}).to_string();
    let path = format!("{DEFINITIONS}/{name}");
    connection.send(Method::PATCH, &path, patch.into()).await?;
    Ok(())
}

/// Returns why the resource is not yet served as defined.
async fn is_served(
    connection: &mut Connection,
    resource: Resource,
    webhook: &Webhook,
) -> Result<Option<String>, ClientError> {
    let path = format!("{}?limit=1", collection(resource, None));
    if let Some(problem) = problem(connection.call(Call::list(&path)).await)? {
        return Ok(Some(problem));
    }
    match resource {
        Resource::Gadgets => is_converted(connection, webhook).await,
        _ => Ok(None),
    }
}

/// Returns why the server does not convert gadgets by this webhook yet: the definition may have
/// named the webhook of an earlier run.
async fn is_converted(
    connection: &mut Connection,
    webhook: &Webhook,
) -> Result<Option<String>, ClientError> {
    make_namespace(connection, PROBE_NAMESPACE).await?;
    let converted = webhook.converted();
    // A new name, because a server may have the result of an earlier conversion.
    let name = format!("bench-probe-{:08x}", fastrand::u32(..));
    let spec = Spec {
        name: &name,
        namespace: PROBE_NAMESPACE,
        ..Spec::default()
    };
    let path = collection(Resource::Gadgets, Some(PROBE_NAMESPACE));
    let body = render(Resource::Gadgets, &spec);
    if let Some(problem) = problem(connection.send(Method::POST, &path, body).await)? {
        return Ok(Some(problem));
    }
    let path = format!("{path}/{name}");
    connection.send(Method::DELETE, &path, Bytes::new()).await?;
    Ok((webhook.converted() == converted).then(|| "it does not call the webhook".to_owned()))
}

/// Returns the failure of a request that may succeed later.
fn problem(result: Result<Bytes, ClientError>) -> Result<Option<String>, ClientError> {
    match result {
        Ok(_) => Ok(None),
        Err(error) => match error.status() {
            // Unauthorized and forbidden requests do not succeed later.
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) | None => Err(error),
            Some(_) => Ok(Some(error.to_string())),
        },
    }
}

fn definition(resource: Resource, versions: &[Value], conversion: Value) -> Value {
    let (plural, kind) = (resource.plural(), resource.kind());
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.bench.watchet.dev")},
        "spec": {
            "group": "bench.watchet.dev",
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "singular": singular,
                "kind": kind,
                "listKind": format!("{kind}List"),
            },
            "versions": versions,
            "conversion": conversion,
        },
    })
}

fn widgets() -> Value {
    let version = version("v1", true, "payload");
    definition(Resource::Widgets, &[version], json!({"strategy": "None"}))
}

fn gadgets(webhook: &Webhook) -> Value {
    let versions = [
        version("v1", true, V1_FIELD),
        version("v2", false, V2_FIELD),
    ];
    let conversion = json!({
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": webhook.client_config(),
        },
    });
    definition(Resource::Gadgets, &versions, conversion)
}

/// Returns a version whose objects have their padding in `field`. The schema has what operators
/// use: bounds, defaults, a list of type map, and rules of which one compares with the old object.
fn version(name: &str, storage: bool, field: &str) -> Value {
    let mut selectable = vec![json!({"jsonPath": ".spec.nodeName"})];
    if !storage {
        // kube-apiserver 1.36 rejects a definition whose versions have the same selectable fields
        // and different schemas.
        selectable.push(json!({"jsonPath": ".spec.replicas"}));
    }
    json!({
        "name": name,
        "served": true,
        "storage": storage,
        "subresources": {"status": {}},
        "selectableFields": selectable,
        "additionalPrinterColumns": [
            {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
            {"name": "Node", "type": "string", "jsonPath": ".spec.nodeName"},
        ],
        "schema": {"openAPIV3Schema": {
            "type": "object",
            "required": ["spec"],
            "properties": {
                "spec": spec_schema(field),
                "status": {"type": "object", "properties": {"ready": {"type": "integer"}}},
            },
        }},
    })
}

fn spec_schema(field: &str) -> Value {
    json!({
        "type": "object",
        "required": [field],
        "properties": {
            field: {"type": "string"},
            "nodeName": {"type": "string", "maxLength": 253},
            "replicas": {"type": "integer", "minimum": 0, "maximum": 1000, "default": 1},
            "limits": {
                "type": "object",
                "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}},
            },
            "ports": {
                "type": "array",
                "maxItems": 16,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": port_schema(),
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.limits) || self.limits.min <= self.limits.max",
                "message": "min must not exceed max",
            },
            {
                "rule": "!has(self.ports) || self.ports.all(p, p.port != 22)",
                "message": "port 22 is reserved",
            },
            {
                "rule": "!has(oldSelf.nodeName) || \
                         has(self.nodeName) && self.nodeName == oldSelf.nodeName",
                "message": "nodeName is immutable",
            },
        ],
    })
}

fn port_schema() -> Value {
    json!({
        "type": "object",
        "required": ["name", "port"],
        "properties": {
            "name": {"type": "string", "maxLength": 63, "pattern": "^[a-z]+$"},
            "port": {"type": "integer", "minimum": 1, "maximum": 65535},
            "protocol": {"type": "string", "enum": ["TCP", "UDP"], "default": "TCP"},
        },
    })
}
