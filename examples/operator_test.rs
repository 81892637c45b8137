//! An example of the test of an operator: both the operator and a real API server run in the process of the test. The
//! operator creates a quota in every namespace with the label `team`.
//!
//! ```text
//! cargo run --example operator_test
//! ```

#![allow(clippy::print_stdout, reason = "the example prints its steps")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;
use watchet::testing::Server;

/// The time limit of the operator, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reconciles one namespace.
async fn reconcile(namespace: Arc<Namespace>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let quotas: Api<ResourceQuota> = Api::namespaced(Client::clone(&client), &namespace.name_any());
    let needs_quota = namespace.labels().contains_key("team");
    match (needs_quota, quotas.get_opt("team").await?) {
        (true, None) => {
            let quota = serde_json::from_value(json!({
                "metadata": {"name": "team"},
                "spec": {"hard": {"pods": "10"}},
            }));
            let quota = quota.map_err(kube::Error::SerdeError)?;
            quotas.create(&PostParams::default(), &quota).await?;
        }
        (false, Some(_)) => drop(quotas.delete("team", &DeleteParams::default()).await?),
        _ => {}
    }
    Ok(Action::await_change())
}

/// Runs the operator until the future is dropped.
async fn operate(client: Client) {
    Controller::new(Api::all(client.clone()), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_millis(100)),
            Arc::new(client),
        )
        .for_each(|_| async {})
        .await;
}

/// The test: labels a namespace, and later removes the label.
async fn labelled_namespace_has_a_quota(client: Client) -> Result<(), Box<dyn Error>> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let quotas: Api<ResourceQuota> = Api::namespaced(client, "shop");
    let shop = json!({"metadata": {"name": "shop", "labels": {"team": "blue"}}});
    let shop = serde_json::from_value(shop)?;
    namespaces.create(&PostParams::default(), &shop).await?;

    let exists = |quota: Option<&ResourceQuota>| quota.is_some();
    let made = await_condition(quotas.clone(), "team", exists);
    let made = tokio::time::timeout(PATIENCE, made).await??;
    let uid = made.and_then(|quota| quota.uid()).unwrap_or_default();

    let unlabelled = kube::api::Patch::Merge(json!({"metadata": {"labels": {"team": null}}}));
    namespaces
        .patch("shop", &Default::default(), &unlabelled)
        .await?;
    let gone = await_condition(quotas, "team", conditions::is_deleted(&uid));
    tokio::time::timeout(PATIENCE, gone).await??;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let server = Server::start().await?;
    println!("{} is ready after {:?}", server.url(), started.elapsed());

    let kubeconfig = Kubeconfig::from_yaml(server.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    tokio::select! {
        () = operate(client.clone()) => return Err("the operator has ended".into()),
        tested = labelled_namespace_has_a_quota(client) => tested?,
    }
    println!("tested after {:?}", started.elapsed());
    server.stop().await?;
    println!("ended after {:?}", started.elapsed());
    Ok(())
}
