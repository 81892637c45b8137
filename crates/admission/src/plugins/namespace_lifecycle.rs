//! NamespaceLifecycle: objects are created only in namespaces that exist and are not being deleted, and the
//! namespaces that every cluster has are never deleted.

use async_trait::async_trait;

use super::super::cluster::{Cluster, NamespaceState};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Operation, Request};
use super::plugin::AdmissionPlugin;
use watchet_api::StatusCause;

/// The namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The NamespaceLifecycle admission plugin; see the module.
#[derive(Debug)]
pub(super) struct NamespaceLifecycle;

impl NamespaceLifecycle {
    fn handles(request: Request<'_>) -> bool {
        let is_of_namespaces = request.group.is_empty() && request.resource == "namespaces";
        match request.operation {
            Operation::Delete => is_of_namespaces,
            Operation::Create | Operation::Update => {
                // An error about the namespace would reveal which namespaces exist.
                let is_review = request.is_of("authorization.k8s.io", "localsubjectaccessreviews");
                !is_of_namespaces && !is_review
            }
            Operation::Connect => false,
        }
    }
}

#[async_trait]
impl AdmissionPlugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn mutates(&self, request: Request<'_>) -> bool {
        Self::handles(request)
    }

    fn validates(&self, request: Request<'_>) -> bool {
        request.operation == Operation::Create && Self::handles(request)
    }

    /// Rejects the request before any other plugin or webhook receives it.
    async fn mutate(
        &self,
        cluster: &dyn Cluster,
        attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        check(cluster, attributes).await
    }

    /// Checks the namespace again, because webhooks can take seconds and the namespace may have been deleted meanwhile.
    async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        check(cluster, attributes).await
    }
}

async fn check(
    cluster: &dyn Cluster,
    attributes: &AdmissionRequest<'_>,
) -> Result<(), AdmissionError> {
    let namespace = attributes.namespace;
    if attributes.operation == Operation::Delete {
        return match IMMORTAL.contains(&attributes.name) {
            true => Err(attributes.forbidden("this namespace may not be deleted")),
            false => Ok(()),
        };
    }
    if namespace.is_empty() {
        return Ok(());
    }
    match cluster.namespace_state(namespace).await? {
        NamespaceState::Absent => Err(AdmissionError::NotFound {
            resource: "namespaces",
            name: namespace.to_owned(),
        }),
        NamespaceState::Terminating if attributes.operation == Operation::Create => {
            let cause = StatusCause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".to_owned(),
            };
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            Err(attributes.forbidden(why).with_cause(cause))
        }
        NamespaceState::Active | NamespaceState::Terminating => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{FakeCluster, refusal, status_of};
    use super::*;
    use crate::testing::write;

    async fn check(
        operation: Operation,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), AdmissionError> {
        let mut cluster = FakeCluster::default();
        cluster.add("", "namespaces", json!({"metadata": {"name": "live"}}));
        let terminating =
            json!({"metadata": {"name": "ending"}, "status": {"phase": "Terminating"}});
        cluster.add("", "namespaces", terminating);
        let attributes = write(operation, resource, namespace, name);
        match NamespaceLifecycle::handles(attributes.request()) {
            true => super::check(&cluster, &attributes).await,
            false => Ok(()),
        }
    }

    #[tokio::test]
    async fn objects_need_a_namespace_that_is_not_terminating() {
        use Operation::{Create, Delete, Update};
        for operation in [Create, Update, Delete] {
            check(operation, "pods", "live", "p").await.unwrap();
        }
        check(Update, "pods", "ending", "p").await.unwrap();
        check(Delete, "pods", "gone", "p").await.unwrap();
        check(Create, "nodes", "", "n").await.unwrap();
        check(Create, "namespaces", "new", "new").await.unwrap();
        for operation in [Create, Update] {
            let refused = check(operation, "pods", "gone", "p").await;
            assert_eq!(refusal(refused), r#"namespaces "gone" not found"#);
        }
        let refused = check(Create, "pods", "ending", "p").await;
        let status = status_of(refused);
        assert_eq!(
            status.message,
            "pods \"p\" is forbidden: unable to create new content in namespace ending because it is \
             being terminated"
        );
        let causes = status.details.unwrap().causes;
        assert_eq!(causes[0].reason, "NamespaceTerminating");
    }

    #[tokio::test]
    async fn system_namespaces_are_not_deleted() {
        check(Operation::Delete, "namespaces", "live", "live")
            .await
            .unwrap();
        let refused = check(
            Operation::Delete,
            "namespaces",
            "kube-system",
            "kube-system",
        )
        .await;
        assert_eq!(
            refusal(refused),
            r#"namespaces "kube-system" is forbidden: this namespace may not be deleted"#
        );
    }
}
