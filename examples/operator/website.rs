//! The operator. It creates a config map with the page and a deployment for each `Website`, both owned by it, and lists
//! all websites of a namespace in another config map.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Api, Client, CustomResource, CustomResourceExt as _, Resource as _, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The field manager of the operator.
pub(crate) const MANAGER: &str = "website-operator";

/// The finalizer of a website, removed when the website is no longer in the listing.
pub(crate) const FINALIZER: &str = "example.com/listed";

/// The config map that lists the websites of a namespace. No website owns it.
pub(crate) const LISTING: &str = "websites";

/// The condition of a website whose replicas are all ready.
const READY: &str = "Ready";

/// The desired state, set by the user.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Website",
    namespaced,
    status = "WebsiteStatus",
    printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.readyReplicas"}"#
)]
pub(crate) struct WebsiteSpec {
    /// The page.
    pub(crate) html: String,
    /// The number of web servers.
    #[serde(default = "replicas")]
    #[schemars(range(min = 1, max = 9))]
    pub(crate) replicas: i32,
}

/// The observed state, set by the operator.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebsiteStatus {
    /// The generation that the rest describes.
    pub(crate) observed_generation: Option<i64>,
    /// The number of web servers that are ready.
    pub(crate) ready_replicas: i32,
    /// The conditions, by type.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub(crate) conditions: Vec<Condition>,
}

fn replicas() -> i32 {
    2
}

impl Website {
    /// Returns true if everything that the spec requires exists.
    pub(crate) fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| {
            let mut ready = status.conditions.iter().filter(|c| c.type_ == READY);
            status.observed_generation == self.metadata.generation
                && ready.any(|condition| condition.status == "True")
        })
    }

    /// Returns the name of the config map with the page.
    pub(crate) fn page(&self) -> String {
        format!("{}-page", self.name_any())
    }

    fn owner(&self) -> Option<OwnerReference> {
        let mut owner = self.controller_owner_ref(&())?;
        // A foreground deletion of the website waits for the objects that it owns.
        owner.block_owner_deletion = Some(true);
        Some(owner)
    }
}

type Failure = finalizer::Error<kube::Error>;

/// Creates the definition of websites and reconciles them until the future is dropped. Calls `report` with each reconciled
/// website and with each error; a failed website is reconciled again.
pub(crate) async fn operate(
    client: Client,
    report: impl Fn(Result<String, String>),
) -> Result<(), Box<dyn std::error::Error>> {
    define(&client).await?;
    let everything = watcher::Config::default;
    Controller::new(Api::<Website>::all(client.clone()), everything())
        .owns(Api::<ConfigMap>::all(client.clone()), everything())
        .owns(Api::<Deployment>::all(client.clone()), everything())
        .run(reconcile, again, Arc::new(client))
        .for_each(|outcome| {
            match outcome {
                Ok((website, _)) => report(Ok(website.to_string())),
                // The event of an owned object came after the deletion of its website.
                Err(controller::Error::ObjectNotFound(_)) => {}
                Err(error) => report(Err(error.to_string())),
            }
            std::future::ready(())
        })
        .await;
    Ok(())
}

async fn define(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = Website::crd_name();
    let definition = Patch::Apply(Website::crd());
    definitions.patch(name, &applying(), &definition).await?;
    await_condition(definitions, name, conditions::is_crd_established()).await?;
    Ok(())
}

async fn reconcile(website: Arc<Website>, client: Arc<Client>) -> Result<Action, Failure> {
    let namespace = website.namespace().unwrap_or_default();
    let websites: Api<Website> = Api::namespaced(Client::clone(&client), &namespace);
    finalizer(&websites, FINALIZER, website, async |event| match event {
        finalizer::Event::Apply(website) => apply(&website, &client, &namespace).await,
        finalizer::Event::Cleanup(website) => unlist(&website, &client, &namespace).await,
    })
    .await
}

fn again(_: Arc<Website>, _: &Failure, _: Arc<Client>) -> Action {
    Action::requeue(Duration::from_millis(100))
}

fn applying() -> PatchParams {
    PatchParams::apply(MANAGER).force()
}

/// Applies the objects of the website, and writes the status.
async fn apply(website: &Website, client: &Client, namespace: &str) -> Result<Action, kube::Error> {
    let name = website.name_any();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let page = Patch::Apply(page(website));
    maps.patch(&website.page(), &applying(), &page).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let servers = Patch::Apply(servers(website));
    let servers = deployments.patch(&name, &applying(), &servers).await?;

    let listing = json!({"data": {&name: website.spec.replicas.to_string()}});
    list(&name, &maps, listing).await?;

    let websites: Api<Website> = Api::namespaced(client.clone(), namespace);
    let status = json!({
        "apiVersion": Website::api_version(&()),
        "kind": Website::kind(&()),
        "status": status(website, &servers),
    });
    let status = Patch::Apply(status);
    websites.patch_status(&name, &applying(), &status).await?;
    Ok(Action::await_change())
}

/// Removes the website from the listing. The garbage collector deletes the objects that it owns.
async fn unlist(
    website: &Website,
    client: &Client,
    namespace: &str,
) -> Result<Action, kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    // In a namespace that is being deleted the listing may be deleted already, and cannot be created again.
    if maps.get_opt(LISTING).await?.is_some() {
        list(&website.name_any(), &maps, json!({})).await?;
    }
    Ok(Action::await_change())
}

/// Applies the entries of one website in the listing. Each website has its own field manager, so an apply without entries
/// removes those of this website only.
async fn list(name: &str, maps: &Api<ConfigMap>, mut entries: Value) -> Result<(), kube::Error> {
    entries["apiVersion"] = json!("v1");
    entries["kind"] = json!("ConfigMap");
    entries["metadata"] = json!({"name": LISTING});
    let params = PatchParams::apply(&format!("{MANAGER}/{name}")).force();
    let entries = Patch::Apply(entries);
    maps.patch(LISTING, &params, &entries).await?;
    Ok(())
}

fn page(website: &Website) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": website.page(), "ownerReferences": [website.owner()]},
        "data": {"index.html": website.spec.html},
    })
}

fn servers(website: &Website) -> Value {
    let labels = json!({"website": website.name_any()});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": website.name_any(),
            "labels": labels,
            "ownerReferences": [website.owner()],
        },
        "spec": {
            "replicas": website.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{
                        "name": "server",
                        "image": "nginx:1.29",
                        "ports": [{"containerPort": 80}],
                        "volumeMounts": [{"name": "page", "mountPath": "/usr/share/nginx/html"}],
                    }],
                    "volumes": [{"name": "page", "configMap": {"name": website.page()}}],
                },
            },
        },
    })
}

fn status(website: &Website, servers: &Deployment) -> WebsiteStatus {
    let ready_replicas = servers.status.as_ref().and_then(|s| s.ready_replicas);
    let ready_replicas = ready_replicas.unwrap_or(0);
    let (status, reason) = match ready_replicas == website.spec.replicas {
        true => ("True", "AllReplicasReady"),
        false => ("False", "WaitingForReplicas"),
    };
    let before = website.status.iter().flat_map(|status| &status.conditions);
    let since = before
        .filter(|condition| condition.type_ == READY && condition.status == status)
        .map(|condition| condition.last_transition_time.clone())
        .next();
    WebsiteStatus {
        observed_generation: website.metadata.generation,
        ready_replicas,
        conditions: vec![Condition {
            type_: READY.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: format!("{ready_replicas} of {}", website.spec.replicas),
            last_transition_time: since.unwrap_or_else(|| Time(Timestamp::now())),
            observed_generation: website.metadata.generation,
        }],
    }
}
