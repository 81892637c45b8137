//! ServiceAccount: a new pod runs as an existing service account, `default` if it specifies none, and mounts a token of
//! the account.

mod secrets;
mod token_volume;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::cluster::{Cluster, ClusterError, GroupResource};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Operation, Request};
use super::object::{list, name_of};
use super::plugin::AdmissionPlugin;

const ACCOUNTS: GroupResource<'static> = GroupResource::new("", "serviceaccounts");

/// The account of pods that specify none.
const DEFAULT: &str = "default";

/// The annotation of a mirror pod: a kubelet runs the pod without the API server and only reports it.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Restricts the pods of an account to the secrets that the account lists.
const ENFORCE_MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

/// How long a pod waits at least for the account `default`, which a controller creates soon after the namespace.
const DEFAULT_WAIT: Duration = Duration::from_millis(1500);
/// In a namespace younger than this, a pod waits for the account until the namespace reaches this age: a busy controller may
/// not have created the account yet. kube-apiserver waits equally long in namespaces of any age.
const NEW_NAMESPACE_AGE_MAX: Duration = Duration::from_secs(10);
/// The pauses between look-ups: until [`DEFAULT_WAIT`] has passed, and later.
const RETRY_INTERVAL: Duration = Duration::from_millis(150);
const LATER_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The ServiceAccount admission plugin; see the module.
#[derive(Debug)]
pub(super) struct ServiceAccount;

#[async_trait]
impl AdmissionPlugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn mutates(&self, request: Request<'_>) -> bool {
        request.creates("", "pods")
    }

    fn validates(&self, request: Request<'_>) -> bool {
        request.creates("", "pods") || updates_ephemeral_containers(request)
    }

    async fn mutate(
        &self,
        cluster: &dyn Cluster,
        attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        if is_mirror(&attributes.object) || !attributes.object["spec"].is_object() {
            return self.validate(cluster, attributes).await;
        }
        if account_name(&attributes.object).is_empty() {
            attributes.object.to_mut()["spec"]["serviceAccountName"] = DEFAULT.into();
        }
        let account = account_of(cluster, attributes).await?;
        let pod = attributes.object.to_mut();
        if has_token_volume(&account, pod) {
            token_volume::mount(&mut pod["spec"]);
        }
        let pull_secrets = account["imagePullSecrets"].as_array();
        let pull_secrets = pull_secrets.map_or(&[][..], Vec::as_slice);
        if list(&pod["spec"]["imagePullSecrets"]).is_empty() && !pull_secrets.is_empty() {
            let names = pull_secrets.iter().map(|one| json!({"name": one["name"]}));
            pod["spec"]["imagePullSecrets"] = names.collect();
        }
        check_secrets(attributes, &account)
    }

    async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        if attributes.operation == Operation::Create && is_mirror(&attributes.object) {
            return check_mirror(attributes);
        }
        if account_name(&attributes.object).is_empty() {
            let pod = name_of(&attributes.object);
            let namespace = attributes.namespace;
            let why = format!("no service account specified for pod {namespace}/{pod}");
            return Err(attributes.forbidden(why));
        }
        let account = account_of(cluster, attributes).await?;
        check_secrets(attributes, &account)
    }
}

fn updates_ephemeral_containers(request: Request<'_>) -> bool {
    request.operation == Operation::Update
        && request.is_of_subresource("", "pods", "ephemeralcontainers")
}

fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR).is_some()
}

fn account_name(pod: &Value) -> &str {
    let name = pod["spec"]["serviceAccountName"].as_str();
    name.unwrap_or_default()
}

/// Rejects a mirror pod that uses a service account or secrets. The kubelet runs the pod even if admission rejects it,
/// so the pod must not depend on them.
fn check_mirror(attributes: &AdmissionRequest<'_>) -> Result<(), AdmissionError> {
    let pod = &attributes.object;
    let sources = list(&pod["spec"]["volumes"]).iter();
    let mut sources = sources.flat_map(|volume| list(&volume["projected"]["sources"]));
    let why = if !account_name(pod).is_empty() {
        "a mirror pod may not reference service accounts"
    } else if secrets::references_any(&pod["spec"]) {
        "a mirror pod may not reference secrets"
    } else if sources.any(|source| !source["serviceAccountToken"].is_null()) {
        "a mirror pod may not use ServiceAccountToken volume projections"
    } else {
        return Ok(());
    };
    Err(attributes.forbidden(why))
}

/// Returns the account that the pod specifies.
async fn account_of(
    cluster: &dyn Cluster,
    attributes: &AdmissionRequest<'_>,
) -> Result<Value, AdmissionError> {
    let (namespace, name) = (attributes.namespace, account_name(&attributes.object));
    let failed = |why: String| {
        let what = format!("error looking up service account {namespace}/{name}: {why}");
        attributes.forbidden(what)
    };
    let lookup = async || {
        let found = cluster.object_or_latest(ACCOUNTS, namespace, name).await;
        found.map_err(|error| error.or_failed(failed))
    };
    if let Some(account) = lookup().await? {
        return Ok(account);
    }
    let wait = match name {
        DEFAULT => default_wait(cluster, namespace).await,
        _ => Ok(Duration::ZERO),
    };
    let wait = wait.map_err(|error| error.or_failed(failed))?;
    let begun = Instant::now();
    while begun.elapsed() < wait {
        let is_late = begun.elapsed() >= DEFAULT_WAIT;
        let interval = if is_late {
            LATER_RETRY_INTERVAL
        } else {
            RETRY_INTERVAL
        };
        tokio::time::sleep(interval).await;
        if let Some(account) = lookup().await? {
            return Ok(account);
        }
    }
    Err(failed(format!("serviceaccount {name:?} not found")))
}

/// Returns how long a pod of the namespace waits for the account `default`.
async fn default_wait(cluster: &dyn Cluster, namespace: &str) -> Result<Duration, ClusterError> {
    let namespace = cluster.namespace(namespace).await?.unwrap_or_default();
    let created = namespace["metadata"]["creationTimestamp"].as_str();
    let created = created.and_then(|time| time.parse::<Timestamp>().ok());
    // The absolute value, because the clock of the server that created the namespace may be ahead.
    let age = created.map(|created| Timestamp::now().duration_since(created).unsigned_abs());
    let rest = age.map_or(Duration::ZERO, |age| {
        NEW_NAMESPACE_AGE_MAX.saturating_sub(age)
    });
    Ok(rest.max(DEFAULT_WAIT))
}

/// Returns true if the pod mounts a token. The setting of the pod has precedence over that of the account.
fn has_token_volume(account: &Value, pod: &Value) -> bool {
    let chosen = pod["spec"]["automountServiceAccountToken"].as_bool();
    let chosen = chosen.or_else(|| account["automountServiceAccountToken"].as_bool());
    chosen.unwrap_or(true)
}

fn check_secrets(attributes: &AdmissionRequest<'_>, account: &Value) -> Result<(), AdmissionError> {
    let annotation = &account["metadata"]["annotations"][ENFORCE_MOUNTABLE_SECRETS];
    // The values that Go's `strconv.ParseBool` accepts as true.
    let is_true = ["1", "t", "T", "true", "TRUE", "True"];
    if !is_true.contains(&annotation.as_str().unwrap_or_default()) {
        return Ok(());
    }
    let spec = &attributes.object["spec"];
    let checked = match attributes.subresource {
        "ephemeralcontainers" => secrets::check_ephemeral_containers(spec, account),
        _ => secrets::check(spec, account),
    };
    checked.map_err(|why| attributes.forbidden(why))
}

#[cfg(test)]
mod tests;
