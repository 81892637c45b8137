//! Custom resources on the real binary, on the embedded store and on etcd, as kubectl, kube-rs and raw
//! HTTP meet them.

mod conversions;
mod hanging;
mod lifecycle;
mod managers;
mod reading;
mod schemas;
mod showing;
mod typed;
mod under_way;
mod versions;
mod webhooks;

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Kubectl, PATIENCE, Protocol, Server, Wire};
use crate::storage::etcd::EtcdProcess;

/// A server with what its clients need.
struct World {
    server: Server,
    kubectl: Kubectl,
    wire: Wire,
    etcd: Option<EtcdProcess>,
}

/// Runs every case on both back ends.
macro_rules! on_both {
    ($($module:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        mod embedded {
            $($(#[tokio::test] async fn $case() {
                let mut world = super::World::start(super::Server::start(&[]).await, None).await;
                super::$module::$case(&mut world).await;
                world.server.stop().await;
            })*)*
        }
        mod etcd {
            $($(#[tokio::test] async fn $case() {
                let etcd = super::EtcdProcess::start(&[]).await;
                let servers = format!("--etcd-servers={}", etcd.url());
                let server = super::Server::start(&["--storage=etcd", &servers]).await;
                let mut world = super::World::start(server, Some(etcd)).await;
                super::$module::$case(&mut world).await;
                world.server.stop().await;
            })*)*
        }
    };
}

on_both!(
    lifecycle: [
        an_established_definition_is_served,
        a_definition_goes_with_its_objects_and_comes_back_empty,
        objects_outlive_their_server,
        another_server_serves_it_too,
    ],
    reading: [
        stored_objects_are_pruned_and_defaulted_by_the_present_schema,
        a_default_of_another_version_is_no_change,
        a_watch_ends_when_its_definition_says_something_else,
        a_watch_sees_its_definition_go,
        a_definition_that_serves_nothing_goes_with_its_objects,
        a_recreated_definition_survives_the_deletion_of_the_old_one,
    ],
    schemas: [
        objects_are_filled_and_judged,
        unknown_fields_are_warned_about_or_rejected,
        an_object_that_a_stricter_schema_makes_invalid_can_be_updated,
        definitions_are_judged,
        rules_and_patterns_are_judged,
        conversion_webhooks_are_judged,
        kubectl_applies_again,
    ],
    versions: [
        each_version_sees_the_others_objects,
        tables_are_by_version,
    ],
    under_way: [
        a_write_under_way_keeps_a_field_that_its_definition_gets,
        a_write_under_way_is_stored_in_the_version_of_today,
        a_create_under_way_does_not_outlive_its_definition,
        a_create_under_way_is_refused_when_its_definition_goes,
        what_a_definition_says_holds_once_it_is_answered,
    ],
    typed: [kube_speaks_every_version, kube_watches_every_version],
    webhooks: [
        each_version_has_its_own_form,
        kubectl_speaks_every_version,
        watchers_share_converted_objects,
        fields_select_in_every_version,
    ],
    conversions: [
        a_failed_conversion_is_an_error,
        the_stored_version_can_change,
        a_long_conversion_delays_no_other_request,
        services_and_admission,
    ],
    managers: [
        fields_are_compared_in_the_version_of_each_manager,
        a_field_released_in_another_version_is_removed,
        managers_of_a_version_that_is_removed_are_dropped,
        a_failed_conversion_fails_an_apply_and_keeps_the_managers_of_an_update,
    ],
    hanging: [
        a_namespace_goes_without_its_webhook,
        a_definition_goes_beside_one_whose_webhook_hangs,
        garbage_is_found_without_a_webhook,
        a_replaced_webhook_delays_no_request,
    ],
    showing: [
        kubectl_finds_waits_and_prints,
        fields_select,
        wc_013_051_214_writes_keep_the_rules_of_custom_resources,
    ],
);

impl World {
    async fn start(server: Server, etcd: Option<EtcdProcess>) -> Self {
        Self {
            kubectl: Kubectl::new(&server.kubeconfig()),
            wire: server.plain(Protocol::Http1).await,
            server,
            etcd,
        }
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        media: &str,
        body: &Value,
    ) -> (u16, Value) {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let headers = [("content-type", media)];
        let answer = self.wire.send(method, path, &headers, &body).await;
        (answer.status.as_u16(), answer.json())
    }

    async fn get(&mut self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, "application/json", &Value::Null)
            .await
    }

    async fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        self.send(Method::POST, path, "application/json", body)
            .await
    }

    async fn put(&mut self, path: &str, body: &Value) -> (u16, Value) {
        self.send(Method::PUT, path, "application/json", body).await
    }

    async fn patch(&mut self, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let media = format!("application/{kind}-patch+json");
        self.send(Method::PATCH, path, &media, body).await
    }

    async fn delete(&mut self, path: &str) -> (u16, Value) {
        self.send(Method::DELETE, path, "application/json", &Value::Null)
            .await
    }

    /// Asks for `path` until the answer is as is_expected.
    async fn until(&mut self, path: &str, is_expected: impl Fn(u16, &Value) -> bool) -> Value {
        let asking = async {
            loop {
                let (code, body) = self.get(path).await;
                if is_expected(code, &body) {
                    return body;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let asked = tokio::time::timeout(PATIENCE, asking).await;
        asked.unwrap_or_else(|_| panic!("in vain: {path}"))
    }

    /// Creates a definition and waits until it is established.
    async fn define(&mut self, definition: &Value) {
        let (code, body) = self.post(DEFINITIONS, definition).await;
        assert_eq!(code, 201, "{body}");
        let name = definition["metadata"]["name"].as_str().unwrap();
        let path = format!("{DEFINITIONS}/{name}");
        self.until(&path, |_, body| condition(body, "Established") == "True")
            .await;
    }
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";

/// The status of a condition; empty when there is none.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let all = object["status"]["conditions"].as_array();
    let one = all.into_iter().flatten().find(|c| c["type"] == kind);
    one.and_then(|c| c["status"].as_str()).unwrap_or_default()
}

/// A definition of foos in one version, with a status.
fn foos() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "shortNames": ["fo"],
                "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {"color": {"type": "string"}, "size": {"type": "integer"}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
                "selectableFields": [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}],
                "additionalPrinterColumns": [
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                    {"name": "Ready", "type": "string",
                        "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

fn foo(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}, "spec": spec})
}
