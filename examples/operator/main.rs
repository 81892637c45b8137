//! An operator and the API server that it needs, in one process. The operator (`website.rs`) has a custom resource, a
//! finalizer, owned objects and status, and writes with server-side apply.
//!
//! ```text
//! cargo run --example operator
//! ```

#![allow(clippy::print_stdout, reason = "the example prints its steps")]

mod rollout;
mod website;

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Config, CustomResourceExt as _, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;
use watchet::testing::Server;
use website::{LISTING, Website, WebsiteSpec};

/// The time limit of the example, which takes less than a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Creates, changes and deletes a website as a user, and waits for the effects.
async fn run_story(client: Client) -> Result<(), Box<dyn Error>> {
    await_condition(
        Api::all(client.clone()),
        Website::crd_name(),
        conditions::is_crd_established(),
    )
    .await?;
    let websites: Api<Website> = Api::default_namespaced(client.clone());
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);

    let spec = WebsiteSpec {
        html: "<h1>Hello</h1>".to_owned(),
        replicas: 3,
    };
    let shop = Website::new("shop", spec);
    let shop = websites.create(&PostParams::default(), &shop).await?;
    let ready = |website: Option<&Website>| website.is_some_and(Website::is_ready);
    await_condition(websites.clone(), "shop", ready).await?;
    println!("the website is ready");

    let scaled = Patch::Merge(json!({"spec": {"replicas": 0}}));
    let params = PatchParams::default();
    deployments.patch("shop", &params, &scaled).await?;
    println!("a user scales its deployment to 0");
    let restored = |deployment: Option<&Deployment>| {
        let spec = deployment.and_then(|deployment| deployment.spec.as_ref());
        spec.is_some_and(|spec| spec.replicas == Some(3))
    };
    let servers = await_condition(deployments.clone(), "shop", restored).await?;
    println!("the operator has scaled it to 3");

    let page = maps.get(&shop.page()).await?;
    websites.delete("shop", &DeleteParams::default()).await?;
    wait_until_deleted(&websites, &shop).await?;
    let listing = maps.get(LISTING).await?.data.unwrap_or_default();
    println!(
        "the website is deleted; the listing has {:?}",
        listing.keys()
    );
    wait_until_deleted(&deployments, &servers.ok_or("no deployment")?).await?;
    wait_until_deleted(&maps, &page).await?;
    println!("the garbage collector has deleted its deployment and its config map");
    Ok(())
}

/// Waits until an object is deleted.
async fn wait_until_deleted<K>(api: &Api<K>, object: &K) -> Result<(), Box<dyn Error>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let uid = object.uid().ok_or("an object without a UID")?;
    await_condition(
        api.clone(),
        &object.name_any(),
        conditions::is_deleted(&uid),
    )
    .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start().await?;
    let kubeconfig = Kubeconfig::from_yaml(server.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let report = |outcome: Result<String, String>| match outcome {
        Ok(website) => println!("  operator: reconciled {website}"),
        Err(error) => println!("  operator: {error}"),
    };
    tokio::select! {
        ended = website::operate(client.clone(), report) => {
            ended?;
            return Err("the operator has ended".into());
        }
        () = rollout::roll_out(client.clone()) => return Err("the rollout has ended".into()),
        ended = tokio::time::timeout(PATIENCE, run_story(client)) => ended??,
    }
    server.stop().await?;
    Ok(())
}
