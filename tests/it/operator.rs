//! Tests of the operator of `examples/operator` with the real program on both back ends: it reaches the desired state
//! across a crash of the server, corrects changes of its objects by others, and cleans up after a deletion.

#[path = "../../examples/operator/rollout.rs"]
mod rollout;
#[path = "../../examples/operator/website.rs"]
mod website;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Kubectl, PATIENCE, Server, free_port};
use crate::storage::etcd::EtcdProcess;
use website::{FINALIZER, LISTING, Website};

/// The number of websites that are not ready when the server is killed.
const MANY: usize = 12;

#[tokio::test]
async fn operator_works_on_the_embedded_store() {
    run_operator(&[]).await;
}

#[tokio::test]
async fn operator_works_on_etcd() {
    let etcd = EtcdProcess::start(&[]).await;
    let servers = format!("--etcd-servers={}", etcd.url());
    run_operator(&["--storage=etcd", &servers]).await;
}

/// Starts a server, a client and the operator, which run during all steps.
async fn run_operator(args: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let host = Host {
        directory: directory.path().to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        port: free_port(),
    };
    let server = host.start().await;
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    let seen_to = Cell::new(0);
    let seen = |outcome: Result<String, String>| match outcome {
        Ok(_) => seen_to.set(seen_to.get() + 1),
        Err(error) => println!("operator: {error}"),
    };
    let scenario = Scenario {
        websites: Api::default_namespaced(client.clone()),
        deployments: Api::default_namespaced(client.clone()),
        maps: Api::default_namespaced(client.clone()),
        client: client.clone(),
        seen_to: &seen_to,
    };
    tokio::select! {
        ended = website::operate(client, seen) => panic!("the operator has ended: {ended:?}"),
        () = scenario.play(&host, server) => {}
    }
}

/// The data directory and the flags with which a server is started.
struct Host {
    directory: PathBuf,
    args: Vec<String>,
    port: u16,
}

impl Host {
    async fn start(&self) -> Server {
        let port = format!("--secure-port={}", self.port);
        let mut args = vec![port.as_str(), "--watch-cache-consistency-check-interval=2s"];
        args.extend(self.args.iter().map(String::as_str));
        Server::start_exactly(&self.directory, &args).await
    }
}

struct Scenario<'a> {
    client: Client,
    websites: Api<Website>,
    deployments: Api<Deployment>,
    maps: Api<ConfigMap>,
    /// The number of reconciliations.
    seen_to: &'a Cell<usize>,
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < PATIENCE, "in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Scenario<'_> {
    async fn play(&self, host: &Host, server: Server) {
        until("the definition", async || {
            let websites = self.websites.list(&ListParams::default()).await;
            websites.is_ok()
        })
        .await;

        self.with_rollout(async {
            self.create("first", None).await;
            self.until_ready("first").await;
            self.website_has_its_objects_and_managers(&server).await;
            self.unchanged_website_causes_no_writes().await;
        })
        .await;

        // The rollout is stopped: none of these websites can be ready when the server is killed.
        for at in 0..MANY {
            self.create(&format!("site-{at}"), Some(3)).await;
        }
        until("a first deployment", async || {
            let deployments = self.deployments.list(&ListParams::default()).await;
            deployments.unwrap().items.len() > 1
        })
        .await;
        let before = self.deployments.get("first").await.unwrap();
        server.kill().await;
        let server = host.start().await;
        self.with_rollout(async {
            for at in 0..MANY {
                self.until_ready(&format!("site-{at}")).await;
            }
            assert_eq!(self.listed().await.len(), MANY + 1);
            let after = self.deployments.get("first").await.unwrap();
            assert_eq!(after.uid(), before.uid());
            self.drift_is_corrected().await;
            self.change_is_applied().await;
            self.deletion().await;
        })
        .await;
        server.stop().await;
    }

    async fn with_rollout(&self, work: impl Future<Output = ()>) {
        tokio::select! {
            () = rollout::roll_out(self.client.clone()) => panic!("the rollout has ended"),
            () = work => {}
        }
    }

    /// Creates a website. Without `replicas` the default of the definition applies.
    async fn create(&self, name: &str, replicas: Option<i32>) {
        let mut website = json!({
            "apiVersion": "example.com/v1",
            "kind": "Website",
            "metadata": {"name": name},
            "spec": {"html": "<h1>Hello</h1>"},
        });
        if let Some(replicas) = replicas {
            website["spec"]["replicas"] = json!(replicas);
        }
        let (group, version, plural) = ("example.com", "v1", "websites");
        let gvk = kube::core::GroupVersionKind::gvk(group, version, "Website");
        let resource = kube::core::ApiResource::from_gvk_with_plural(&gvk, plural);
        let websites: Api<kube::core::DynamicObject> =
            Api::default_namespaced_with(self.client.clone(), &resource);
        let website = serde_json::from_value(website).unwrap();
        let created = websites.create(&PostParams::default(), &website).await;
        let created = created.unwrap();
        let expected = json!(replicas.unwrap_or(2));
        assert_eq!(created.data["spec"]["replicas"], expected);
    }

    async fn until_ready(&self, name: &str) {
        until(name, async || {
            let website = self.websites.get(name).await.unwrap();
            website.is_ready()
        })
        .await;
    }

    async fn listed(&self) -> Vec<String> {
        let listing = self.maps.get(LISTING).await.unwrap();
        listing.data.unwrap_or_default().into_keys().collect()
    }

    /// Checks the finalizer, the owned objects with their owner, and the field managers.
    async fn website_has_its_objects_and_managers(&self, server: &Server) {
        let website = self.websites.get("first").await.unwrap();
        assert_eq!(website.finalizers(), [FINALIZER]);
        let status = website.status.as_ref().unwrap();
        assert_eq!(status.ready_replicas, 2);
        assert_eq!(status.observed_generation, Some(1));
        assert!(managed(&website).contains(&"website-operator Apply status".to_owned()));

        let deployment = self.deployments.get("first").await.unwrap();
        let page = self.maps.get(&website.page()).await.unwrap();
        let owner = OwnerReference {
            api_version: "example.com/v1".to_owned(),
            kind: "Website".to_owned(),
            name: "first".to_owned(),
            uid: website.uid().unwrap(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        let owners = [owner];
        assert_eq!(deployment.owner_references(), owners);
        assert_eq!(page.owner_references(), owners);
        assert_eq!(
            managed(&deployment),
            ["rollout Apply status", "website-operator Apply "]
        );
        assert_eq!(managed(&page), ["website-operator Apply "]);
        assert_eq!(self.listed().await, ["first"]);

        let kubectl = Kubectl::new(&server.kubeconfig());
        let table = kubectl.run(&["get", "websites"]).await;
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows, [["NAME", "READY"], ["first", "2"]], "{table}");
    }

    /// An apply without changes writes nothing, so that the operator becomes idle.
    async fn unchanged_website_causes_no_writes(&self) {
        let mut seen_to = self.seen_to.get();
        let mut rested = Instant::now();
        let started = Instant::now();
        while rested.elapsed() < Duration::from_secs(1) {
            assert!(started.elapsed() < PATIENCE, "the operator has no rest");
            tokio::time::sleep(Duration::from_millis(20)).await;
            if self.seen_to.get() != seen_to {
                seen_to = self.seen_to.get();
                rested = Instant::now();
            }
        }
        let children = self.versions().await;
        let label = Patch::Merge(json!({"metadata": {"labels": {"tier": "web"}}}));
        let params = PatchParams::default();
        let labelled = self.websites.patch("first", &params, &label).await.unwrap();
        until("another look", async || self.seen_to.get() > seen_to).await;
        let website = self.websites.get("first").await.unwrap();
        assert_eq!(website.resource_version(), labelled.resource_version());
        assert_eq!(self.versions().await, children);
    }

    /// Returns the versions of the objects that the operator created for the first website.
    async fn versions(&self) -> [Option<String>; 3] {
        let deployment = self.deployments.get("first").await.unwrap();
        let page = self.maps.get("first-page").await.unwrap();
        let listing = self.maps.get(LISTING).await.unwrap();
        [
            deployment.resource_version(),
            page.resource_version(),
            listing.resource_version(),
        ]
    }

    async fn drift_is_corrected(&self) {
        let params = PatchParams {
            field_manager: Some("another".to_owned()),
            ..PatchParams::default()
        };
        let drift = json!({"metadata": {"labels": {"mine": "1"}}, "spec": {"replicas": 0}});
        let drift = Patch::Merge(drift);
        let drifted = self.deployments.patch("first", &params, &drift).await;
        assert_eq!(drifted.unwrap().spec.unwrap().replicas, Some(0));
        until("the replicas", async || {
            let deployment = self.deployments.get("first").await.unwrap();
            deployment.spec.unwrap().replicas == Some(2)
        })
        .await;
        // A field that the operator does not set is not changed.
        let deployment = self.deployments.get("first").await.unwrap();
        assert_eq!(deployment.labels()["mine"], "1");
        assert!(managed(&deployment).contains(&"another Update ".to_owned()));

        let page = self.maps.get("first-page").await.unwrap();
        let params = DeleteParams::default();
        self.maps.delete("first-page", &params).await.unwrap();
        until("another page", async || {
            let found = self.maps.get_opt("first-page").await.unwrap();
            found.is_some_and(|found| found.uid() != page.uid())
        })
        .await;
    }

    async fn change_is_applied(&self) {
        let html = json!({"spec": {"html": "<h1>Bye</h1>", "replicas": 4}});
        let params = PatchParams::default();
        let changed = Patch::Merge(html);
        let changed = self.websites.patch("first", &params, &changed).await;
        assert_eq!(changed.unwrap().metadata.generation, Some(2));
        self.until_ready("first").await;
        let page = self.maps.get("first-page").await.unwrap();
        assert_eq!(page.data.unwrap()["index.html"], "<h1>Bye</h1>");
        let website = self.websites.get("first").await.unwrap();
        assert_eq!(website.status.unwrap().ready_replicas, 4);

        let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
        let refused = self.websites.patch("first", &params, &none).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("spec.replicas"), "{refused}");
    }

    /// The finalizer is processed before the deletion, and the owned objects are deleted after it.
    async fn deletion(&self) {
        let background = DeleteParams::background();
        self.websites.delete("first", &background).await.unwrap();
        until("the end of the first", async || {
            self.websites.get_opt("first").await.unwrap().is_none()
        })
        .await;
        assert!(!self.listed().await.contains(&"first".to_owned()));
        until("the collection", async || self.children("first").await == 0).await;

        let foreground = DeleteParams::foreground();
        self.websites.delete("site-0", &foreground).await.unwrap();
        until("the end of site-0", async || {
            self.websites.get_opt("site-0").await.unwrap().is_none()
        })
        .await;
        assert_eq!(self.children("site-0").await, 0);
        assert_eq!(self.listed().await.len(), MANY - 1);

        let all = ListParams::default();
        let deleted = self.websites.delete_collection(&background, &all).await;
        deleted.unwrap();
        until("the end of all", async || {
            let websites = self.websites.list(&all).await.unwrap();
            let deployments = self.deployments.list(&all).await.unwrap();
            websites.items.is_empty() && deployments.items.is_empty()
        })
        .await;
        assert_eq!(self.listed().await, Vec::<String>::new());
        until("the last page", async || {
            let maps = self.maps.list(&all).await.unwrap();
            maps.iter().all(|map| !map.name_any().ends_with("-page"))
        })
        .await;
    }

    async fn children(&self, name: &str) -> usize {
        let deployment = self.deployments.get_opt(name).await.unwrap();
        let page = self.maps.get_opt(&format!("{name}-page")).await.unwrap();
        usize::from(deployment.is_some()) + usize::from(page.is_some())
    }
}

/// Returns manager, operation and subresource of each managedFields entry, in order.
fn managed<K: Resource>(object: &K) -> Vec<String> {
    let mut managers: Vec<String> = object
        .managed_fields()
        .iter()
        .map(|entry| {
            let value: Value = serde_json::to_value(entry).unwrap();
            let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
            let (manager, operation) = (text("manager"), text("operation"));
            format!("{manager} {operation} {}", text("subresource"))
        })
        .collect();
    managers.sort();
    managers
}
