//! `Cluster`: sends the writes of a controller that creates and deletes pods, of a scheduler and of kubelets.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use watchet_client::{
    ApiResource, DynamicObject, InvalidRestConfig, PartialObjectMetadata, Patch, ResourceClient,
    RestClient, RestConfig, RestError,
};

use super::engine::Outcome;
use super::error::DemoError;
use super::objects::{self, LEASE_NAMESPACE, NAMESPACE, REPORTS};
use super::pod::{NODES, Pod};
use super::stage::WriteKind;

/// The maximum number of attempts of a write.
const ATTEMPTS: u32 = 3;

/// The pause before each retry of a write.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// How long to wait for the default service account, which a controller of the server creates.
const SERVICE_ACCOUNT_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause between two requests for the default service account.
const SERVICE_ACCOUNT_PAUSE: Duration = Duration::from_millis(50);

/// The clients that write. Each has its own user agent, from which the server derives the field manager.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    controller: RestClient,
    scheduler: RestClient,
    kubelet: RestClient,
}

/// A write of a pod.
#[derive(Debug)]
pub(crate) struct PodWrite {
    kind: WriteKind,
    name: String,
    /// The object or the patch; null for deletions.
    body: Value,
}

impl PodWrite {
    /// Returns the write that changes the object to the current state of `pod`.
    pub(crate) fn new(kind: WriteKind, pod: &Pod, now: Timestamp) -> Self {
        Self {
            kind,
            name: pod.name.clone(),
            body: match kind {
                WriteKind::Create => objects::pod(pod),
                WriteKind::Bind => objects::binding(pod),
                WriteKind::Status => objects::pod_status(pod, now),
                WriteKind::Delete | WriteKind::ConfirmDeletion => Value::Null,
            },
        }
    }

    /// Returns the outcome of the write after `error`; `None` to retry. After a retry, an error that shows that the write
    /// has already happened counts as success: an earlier attempt may have succeeded without a response.
    fn outcome_of(&self, error: &RestError, attempt: u32) -> Option<Outcome> {
        let is_repeated = attempt > 1;
        match self.kind {
            WriteKind::Create if error.is_already_exists() => Some(match is_repeated {
                true => Outcome::Done,
                // Another object has the name. The next create of a Deployment or Job has another suffix.
                false => Outcome::Gone,
            }),
            WriteKind::Bind if error.is_conflict() && is_repeated => Some(Outcome::Done),
            WriteKind::ConfirmDeletion if error.is_not_found() => Some(Outcome::Done),
            _ if error.is_not_found() => Some(Outcome::Gone),
            _ if attempt < ATTEMPTS => None,
            WriteKind::Create => Some(Outcome::Gone),
            // The next change deletes it.
            _ => Some(Outcome::Terminating),
        }
    }
}

impl Cluster {
    /// Creates the clients of the server of `config`.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub(crate) fn new(config: &RestConfig) -> Result<Self, InvalidRestConfig> {
        let client = |user_agent: &str| {
            RestClient::new(&RestConfig {
                user_agent: user_agent.to_owned(),
                ..config.clone()
            })
        };
        Ok(Self {
            controller: client("demo-controller")?,
            scheduler: client("demo-scheduler")?,
            kubelet: client("demo-kubelet")?,
        })
    }

    /// Creates the nodes with their leases, and the config maps, and waits until pods can be created.
    ///
    /// # Errors
    /// The server rejects an object.
    pub(crate) async fn prepare(&self, rng: &mut fastrand::Rng) -> Result<(), DemoError> {
        self.await_service_account().await?;
        for number in 0..NODES {
            let failed = |source| DemoError::Prepare {
                object: format!("node {}", objects::node_name(number)),
                source,
            };
            let nodes = resource_client::<DynamicObject>(&self.kubelet, &NODE);
            nodes
                .create(&dynamic(objects::node(number)))
                .await
                .map_err(failed)?;
            let now = Timestamp::now();
            let status = Patch::Merge(objects::node_status(number, now));
            let name = objects::node_name(number);
            nodes.patch_status(&name, &status).await.map_err(failed)?;
            let lease = dynamic(objects::lease(number, now));
            let leases = resource_client::<DynamicObject>(&self.kubelet, &LEASE);
            leases.create(&lease).await.map_err(failed)?;
        }
        for number in 0..REPORTS {
            let report = dynamic(objects::report(number, rng));
            let reports = resource_client::<DynamicObject>(&self.controller, &REPORT);
            let created = reports.create(&report).await;
            created.map_err(|source| DemoError::Prepare {
                object: format!("configmap {}", objects::report_name(number)),
                source,
            })?;
        }
        Ok(())
    }

    /// Waits until the service account `default` exists: until then the server rejects pods.
    async fn await_service_account(&self) -> Result<(), DemoError> {
        let accounts = resource_client::<PartialObjectMetadata>(&self.controller, &SERVICE_ACCOUNT);
        let deadline = Instant::now() + SERVICE_ACCOUNT_TIMEOUT;
        loop {
            match accounts.get("default").await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_not_found() && Instant::now() < deadline => {
                    sleep(SERVICE_ACCOUNT_PAUSE).await;
                }
                Err(source) => {
                    return Err(DemoError::Prepare {
                        object: "serviceaccount default".to_owned(),
                        source,
                    });
                }
            }
        }
    }

    /// Sends a write of a pod, with retries, and returns its outcome.
    pub(crate) async fn write(&self, write: &PodWrite) -> Outcome {
        let mut attempt = 1;
        loop {
            let error = match self.try_write(write).await {
                Ok(outcome) => return outcome,
                Err(error) => error,
            };
            let outcome = write.outcome_of(&error, attempt);
            if outcome != Some(Outcome::Done) {
                tracing::warn!(%error, pod = write.name, kind = ?write.kind, attempt, "cannot change a pod");
            }
            if let Some(outcome) = outcome {
                return outcome;
            }
            sleep(RETRY_PAUSE).await;
            attempt += 1;
        }
    }

    async fn try_write(&self, write: &PodWrite) -> Result<Outcome, RestError> {
        let PodWrite { kind, name, body } = write;
        match kind {
            WriteKind::Create => {
                let pods = resource_client::<DynamicObject>(&self.controller, &POD);
                pods.create(&dynamic(body.clone())).await?;
            }
            WriteKind::Bind => {
                let path = format!(
                    "{}/{name}/binding",
                    POD.api_resource().url_path(Some(NAMESPACE))
                );
                let body = body.to_string().into();
                self.scheduler.post_to::<Value>(&path, body).await?;
            }
            WriteKind::Status => {
                let pods = resource_client::<PartialObjectMetadata>(&self.kubelet, &POD);
                let patch = Patch::Merge(body.clone());
                let pod = pods.patch_status(name, &patch).await?;
                if pod.metadata.deletion_timestamp.is_some() {
                    return Ok(Outcome::Terminating);
                }
            }
            WriteKind::Delete => {
                let pods = resource_client::<PartialObjectMetadata>(&self.controller, &POD);
                pods.delete(name, &DeleteOptions::default()).await?;
            }
            WriteKind::ConfirmDeletion => self.confirm_deletion(name, None).await?,
        }
        Ok(Outcome::Done)
    }

    /// Deletes a pod with grace period 0, as a kubelet does when the containers have ended. With `uid`, only the pod
    /// with this UID.
    ///
    /// # Errors
    /// [`RestError`]
    pub(crate) async fn confirm_deletion(
        &self,
        name: &str,
        uid: Option<String>,
    ) -> Result<(), RestError> {
        let pods = resource_client::<PartialObjectMetadata>(&self.kubelet, &POD);
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            preconditions: uid.map(|uid| Preconditions {
                uid: Some(uid),
                ..Preconditions::default()
            }),
            ..DeleteOptions::default()
        };
        pods.delete(name, &options).await
    }

    /// Renews the lease of a node.
    ///
    /// # Errors
    /// [`RestError`]
    pub(crate) async fn renew_lease(&self, node: u32) -> Result<(), RestError> {
        let leases = resource_client::<PartialObjectMetadata>(&self.kubelet, &LEASE);
        let patch = Patch::Merge(objects::renewed_lease(Timestamp::now()));
        let renewed = leases.patch(&objects::node_name(node), &patch).await;
        renewed.map(drop)
    }

    /// Changes the content of a config map.
    ///
    /// # Errors
    /// [`RestError`]
    pub(crate) async fn change_report(
        &self,
        number: u32,
        rng: &mut fastrand::Rng,
    ) -> Result<(), RestError> {
        let reports = resource_client::<PartialObjectMetadata>(&self.controller, &REPORT);
        let patch = Patch::Merge(objects::changed_report(rng));
        let name = objects::report_name(number);
        reports.patch(&name, &patch).await.map(drop)
    }
}

/// A resource that the clients use, and the namespace of its objects; `None` for a cluster-scoped resource.
struct DemoResource {
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespace: Option<&'static str>,
}

const POD: DemoResource = demo_resource("", "pods", "Pod", Some(NAMESPACE));
const NODE: DemoResource = demo_resource("", "nodes", "Node", None);
const REPORT: DemoResource = demo_resource("", "configmaps", "ConfigMap", Some(NAMESPACE));
const LEASE: DemoResource = demo_resource(
    "coordination.k8s.io",
    "leases",
    "Lease",
    Some(LEASE_NAMESPACE),
);
const SERVICE_ACCOUNT: DemoResource =
    demo_resource("", "serviceaccounts", "ServiceAccount", Some(NAMESPACE));

const fn demo_resource(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespace: Option<&'static str>,
) -> DemoResource {
    DemoResource {
        group,
        plural,
        kind,
        namespace,
    }
}

impl DemoResource {
    fn api_resource(&self) -> ApiResource {
        let new = match self.namespace {
            Some(_) => ApiResource::namespaced,
            None => ApiResource::cluster,
        };
        new(self.group, "v1", self.plural, self.kind)
    }
}

fn resource_client<T>(client: &RestClient, resource: &DemoResource) -> ResourceClient<T> {
    let objects = client.resource(resource.api_resource());
    match resource.namespace {
        Some(namespace) => objects.namespace(namespace),
        None => objects,
    }
}

/// Converts JSON of [`objects`] for [`ResourceClient::create`].
fn dynamic(object: Value) -> DynamicObject {
    serde_json::from_value(object).expect("`objects` returns objects with metadata")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(code: u16, reason: &str) -> RestError {
        let status = json!({"status": "Failure", "code": code, "reason": reason, "message": ""});
        RestError::Status {
            status: Box::new(serde_json::from_value(status).unwrap()),
            retry_after: None,
        }
    }

    #[test]
    fn failures_are_repeated_unless_their_meaning_is_known() {
        use WriteKind::{Bind, ConfirmDeletion, Create, Status};
        let [exists, conflict, missing, failed] = [
            error(409, "AlreadyExists"),
            error(409, "Conflict"),
            error(404, "NotFound"),
            error(500, "InternalError"),
        ];
        for (kind, error, attempt, expected) in [
            (Create, &exists, 1, Some(Outcome::Gone)),
            (Create, &exists, 2, Some(Outcome::Done)),
            (Create, &failed, 1, None),
            (Create, &failed, ATTEMPTS, Some(Outcome::Gone)),
            (Bind, &conflict, 1, None),
            (Bind, &conflict, 2, Some(Outcome::Done)),
            (Status, &missing, 1, Some(Outcome::Gone)),
            (Status, &failed, ATTEMPTS, Some(Outcome::Terminating)),
            (ConfirmDeletion, &missing, 1, Some(Outcome::Done)),
        ] {
            let write = PodWrite {
                kind,
                name: "a".to_owned(),
                body: Value::Null,
            };
            assert_eq!(
                write.outcome_of(error, attempt),
                expected,
                "{kind:?} {error:?}"
            );
        }
    }
}
