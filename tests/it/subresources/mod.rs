//! What has a path of its own beside an object, and what is only asked: through kubectl and clients of
//! the real binary, on the embedded store and on etcd.

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

/// Runs a case, a function of a [`Cluster`], on both back ends.
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
    facts::discovery_is_in_upstreams_order,
    facts::objects_of_another_kind_are_refused_with_a_reason,
    facts::only_what_is_stored_has_rows,
    identity::impersonation_without_a_user_is_refused,
    identity::reviews_and_webhooks_have_the_impersonated_user,
    kubelet::subresources_that_need_a_kubelet_are_errors,
    pods::a_scheduler_binds,
    pods::an_eviction_asks_the_budget,
    pods::kubectl_drains,
    pods::containers_are_added_and_resized,
    reviews::kubectl_asks_who_and_what,
    reviews::others_are_asked_about,
    scale::kubectl_scales,
    scale::a_scale_is_written_on_conditions,
    scale::kube_scales,
    scale::custom_resources_scale,
    scale::kubectl_autoscales,
    tokens::an_account_gets_in_with_its_token,
    tokens::a_token_is_bound_to_an_object,
    tokens::keys_are_shown,
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

    /// Makes an object.
    async fn create(&self, object: &Value) {
        let output = self
            .kubectl
            .run_with(&["create", "-f", "-"], &object.to_string())
            .await;
        assert!(output.ends_with(" created\n"), "{output}");
    }

    /// An object, as it is now.
    async fn get(&self, args: &[&str]) -> Value {
        let output = self
            .kubectl
            .run(&[&["get", "-o", "json"], args].concat())
            .await;
        serde_json::from_str(&output).expect("JSON")
    }

    /// A client in Rust, of the admin.
    async fn client(&self) -> Client {
        let file = Kubeconfig::read_from(self.server.kubeconfig()).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(file, &options).await;
        Client::try_from(config.expect("it is whole")).expect("a client")
    }

    /// Merges a patch into a subresource of an object.
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

    /// Sends a body to a path as kubectl does; the answer.
    async fn post(&self, path: &str, body: &Value) -> Value {
        let output = self
            .kubectl
            .run_with(&["create", "--raw", path, "-f", "-"], &body.to_string())
            .await;
        serde_json::from_str(&output).expect("JSON")
    }

    /// The same for what is refused; what kubectl says of it.
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
