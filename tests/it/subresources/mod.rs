//! Tests of subresources and reviews with kubectl and other clients of the real program, on the embedded store and on
//! etcd.

mod facts;
mod identity;
mod kubelet;
mod pods;
mod reviews;
mod scale;
mod tokens;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::harness::{Kubectl, Server};
use crate::storage::etcd::EtcdProcess;

/// Runs a test, a function of a [`Cluster`], on both back ends.
macro_rules! on_both {
    ($($module:ident::$name:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test] async fn $name() {
                super::$module::$name(&super::Cluster::embedded().await).await;
            })*
        }
        mod etcd {
            $(#[tokio::test] async fn $name() {
                super::$module::$name(&super::Cluster::etcd().await).await;
            })*
        }
    };
}

on_both!(
    facts::component_statuses_can_be_read,
    facts::discovery_has_upstreams_order,
    facts::objects_of_another_kind_are_rejected_with_a_reason,
    facts::tables_of_reviews_are_not_acceptable,
    identity::impersonation_headers_without_a_user_are_rejected,
    identity::reviews_and_webhooks_have_the_impersonated_user,
    kubelet::subresources_that_need_a_kubelet_are_errors,
    pods::bindings_assign_pods_to_nodes,
    pods::evictions_respect_disruption_budgets,
    pods::kubectl_drains,
    pods::containers_are_added_and_resized,
    reviews::kubectl_whoami_and_can_i,
    reviews::access_reviews_of_other_users,
    scale::kubectl_scales,
    scale::scale_updates_check_preconditions,
    scale::kube_scales,
    scale::custom_resources_scale,
    scale::kubectl_autoscales,
    tokens::token_authenticates_its_service_account,
    tokens::tokens_can_be_bound_to_objects,
    tokens::public_keys_are_served,
);

/// A server and a kubectl for it.
struct Cluster {
    server: Server,
    kubectl: Kubectl,
    _etcd: Option<EtcdProcess>,
}

impl Cluster {
    async fn embedded() -> Self {
        Self::of(Server::start(&[]).await, None)
    }

    async fn etcd() -> Self {
        let etcd = EtcdProcess::start(&[]).await;
        let servers = format!("--etcd-servers={}", etcd.url());
        let server = Server::start(&["--storage=etcd", &servers]).await;
        Self::of(server, Some(etcd))
    }

    fn of(server: Server, etcd: Option<EtcdProcess>) -> Self {
        Self {
            kubectl: Kubectl::new(&server.kubeconfig()),
            server,
            _etcd: etcd,
        }
    }

    /// Creates an object.
    async fn create(&self, object: &Value) {
        let output = self
            .kubectl
            .run_with(&["create", "-f", "-"], &object.to_string())
            .await;
        assert!(output.ends_with(" created\n"), "{output}");
    }

    /// Returns an object.
    async fn get(&self, args: &[&str]) -> Value {
        let output = self
            .kubectl
            .run(&[&["get", "-o", "json"], args].concat())
            .await;
        serde_json::from_str(&output).expect("JSON")
    }

    /// Returns a kube-rs client with the administrator's credentials.
    async fn client(&self) -> Client {
        let file = Kubeconfig::read_from(self.server.kubeconfig()).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(file, &options).await;
        Client::try_from(config.expect("it is whole")).expect("a client")
    }

    /// Merges `status` into the status of an object.
    async fn report(&self, resource: &str, name: &str, status: &Value) {
        let patch = json!({"status": status}).to_string();
        let args = [
            "patch",
            resource,
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ];
        self.kubectl.run(&args).await;
    }

    /// Posts a body to a path with `kubectl create --raw`; returns the response.
    async fn post(&self, path: &str, body: &Value) -> Value {
        let output = self
            .kubectl
            .run_with(&["create", "--raw", path, "-f", "-"], &body.to_string())
            .await;
        serde_json::from_str(&output).expect("JSON")
    }

    /// As [`Self::post`] for a request that must fail; returns kubectl's output.
    async fn refused(&self, path: &str, body: &Value) -> String {
        self.kubectl
            .run_failing_with(&["create", "--raw", path, "-f", "-"], &body.to_string())
            .await
    }
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    })
}
