//! Tests of custom resources with the real program on the embedded store and on etcd, with kubectl, kube-rs and HTTP
//! requests.

mod conversions;
mod hanging;
mod lifecycle;
mod managers;
mod reading;
mod schemas;
mod showing;
mod typed;
mod versions;
pub(crate) mod webhooks;
mod writes_in_flight;

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Kubectl, PATIENCE, Protocol, Server, Wire};
use crate::storage::etcd::EtcdProcess;

/// A server and its clients.
struct World {
    server: Server,
    kubectl: Kubectl,
    wire: Wire,
    etcd: Option<EtcdProcess>,
}

/// Runs every test on both back ends.
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
        recreated_definition_has_no_objects,
        objects_outlive_their_server,
        definition_is_served_by_another_server,
    ],
    reading: [
        stored_objects_are_pruned_and_defaulted_by_the_present_schema,
        a_default_of_another_version_is_no_change,
        watch_ends_when_its_definition_changes,
        watch_ends_after_the_deletion_of_its_definition,
        definition_without_served_versions_is_deleted_with_its_objects,
        a_recreated_definition_survives_the_deletion_of_the_old_one,
    ],
    schemas: [
        objects_are_defaulted_and_validated,
        unknown_fields_are_warned_about_or_rejected,
        an_object_that_a_stricter_schema_makes_invalid_can_be_updated,
        definitions_are_validated,
        rules_and_patterns_are_validated,
        conversion_webhook_clients_are_validated,
        kubectl_applies_changes_repeatedly,
    ],
    versions: [
        each_version_lists_the_objects_of_the_others,
        tables_have_the_columns_of_their_version,
    ],
    writes_in_flight: [
        write_in_flight_stores_a_field_that_is_added_to_its_schema,
        write_in_flight_is_stored_in_the_new_storage_version,
        create_in_flight_does_not_outlive_its_definition,
        create_in_flight_fails_when_its_definition_is_deleted,
        definition_applies_to_requests_after_its_response,
    ],
    typed: [kube_rs_reads_and_writes_every_version, kube_rs_watches_every_version],
    webhooks: [
        each_version_has_its_own_form,
        kubectl_reads_and_writes_every_version,
        watchers_share_converted_objects,
        fields_select_in_every_version,
    ],
    conversions: [
        a_failed_conversion_is_an_error,
        storage_version_can_change,
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
        namespace_is_deleted_while_its_webhook_hangs,
        definition_is_deleted_while_the_webhook_of_another_hangs,
        garbage_collection_does_not_wait_for_a_webhook,
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

    /// Repeats a GET of `path` until the response is as expected.
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

/// Returns the status of a condition; an empty string if it is absent.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let all = object["status"]["conditions"].as_array();
    let one = all.into_iter().flatten().find(|c| c["type"] == kind);
    one.and_then(|c| c["status"].as_str()).unwrap_or_default()
}

/// Returns a definition of foos with one version and a status.
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
