//! Simulates the deployment controller and the kubelets, which watchet does not have: sets the status of every deployment
//! to ready, without creating pods.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

/// Runs until the future is dropped.
pub(crate) async fn roll_out(client: Client) {
    let deployments: Api<Deployment> = Api::all(client.clone());
    Controller::new(deployments, watcher::Config::default())
        .run(
            finish,
            |_, _, _| Action::requeue(Duration::from_millis(100)),
            Arc::new(client),
        )
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn finish(deployment: Arc<Deployment>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let namespace = deployment.namespace().unwrap_or_default();
    let deployments: Api<Deployment> = Api::namespaced(Client::clone(&client), &namespace);
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let status = Patch::Apply(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "status": {
            "observedGeneration": deployment.metadata.generation,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "availableReplicas": replicas,
            "readyReplicas": replicas,
        },
    }));
    let params = PatchParams::apply("rollout").force();
    let name = deployment.name_any();
    match deployments.patch_status(&name, &params, &status).await {
        // It was deleted meanwhile.
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => drop(other?),
    }
    Ok(Action::await_change())
}
