//! Tests of webhooks that are configured by a Service: the server finds the address in Endpoints, EndpointSlices or the
//! external name, and verifies the certificate for the name of the Service.

use std::net::{IpAddr, UdpSocket};

use serde_json::{Value, json};

use super::cluster::{Cluster, allow, deny, hook, requests};
use crate::harness::{Reply, Webhook, WebhookRequest, on_both};

on_both!(|server| (&Cluster(server)) => [
    service_is_resolved_by_its_endpoints,
    service_is_resolved_by_its_endpoint_slices,
    service_is_resolved_by_its_external_name,
    certificate_must_have_the_name_of_the_service,
]);

const SERVICES: &str = "/api/v1/namespaces/default/services";
const NAME: &str = "hook.default.svc";

/// Returns an address of this machine that is not a loopback address: Endpoints must not have those.
fn own_address() -> IpAddr {
    // Connecting a UDP socket sends nothing: it only selects a route.
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket
        .connect("192.0.2.1:9")
        .expect("a machine with a network");
    socket.local_addr().expect("it is bound").ip()
}

fn answer(call: &WebhookRequest) -> Reply {
    match call.body["request"]["name"] == "refused" {
        true => deny(call, "found"),
        false => allow(call),
    }
}

async fn listen(ip: IpAddr, name: &str) -> Webhook {
    Webhook::start_at(ip, name, |call| {
        let reply = answer(&call);
        Box::pin(async move { reply })
    })
    .await
}

/// Configures a webhook with the Service `hook` at `port`.
async fn configure(cluster: &Cluster<'_>, webhook: &Webhook, port: u16) {
    let of_service = json!({"caBundle": webhook.ca_bundle(), "service": {
        "namespace": "default", "name": "hook", "path": "/by-service", "port": port}});
    let hooks = [hook(
        webhook,
        "/by-service",
        json!({"clientConfig": of_service}),
    )];
    cluster.configure("Validating", "w", &hooks).await;
}

async fn is_asked(cluster: &Cluster<'_>, webhook: &Webhook) {
    cluster.make("allowed").await.ok(201);
    let response = cluster.make("refused").await;
    response.refused(403, "Forbidden", "denied the request: found");
    assert_eq!(requests(webhook, "/by-service").len(), 2);
}

fn service(spec: Value) -> Value {
    json!({"metadata": {"name": "hook"}, "spec": spec})
}

fn ports() -> Value {
    json!([{"name": "metrics", "port": 9090}, {"name": "https", "port": 443}])
}

async fn service_is_resolved_by_its_endpoints(cluster: &Cluster<'_>) {
    let ip = own_address();
    let webhook = listen(ip, NAME).await;
    let made = service(json!({"ports": ports()}));
    cluster.post(SERVICES, &made).await.ok(201);
    let endpoints = json!({"metadata": {"name": "hook"}, "subsets": [{
        "addresses": [{"ip": ip.to_string()}],
        "ports": [{"name": "metrics", "port": 1}, {"name": "https", "port": webhook.port()}]}]});
    let path = "/api/v1/namespaces/default/endpoints";
    cluster.post(path, &endpoints).await.ok(201);
    configure(cluster, &webhook, 443).await;
    is_asked(cluster, &webhook).await;
}

async fn service_is_resolved_by_its_endpoint_slices(cluster: &Cluster<'_>) {
    let ip = own_address();
    let webhook = listen(ip, NAME).await;
    let made = service(json!({"ports": ports()}));
    cluster.post(SERVICES, &made).await.ok(201);
    let slice = json!({
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": if ip.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [
            {"addresses": ["192.0.2.7"], "conditions": {"ready": false}},
            {"addresses": [ip.to_string()], "conditions": {"ready": true}},
        ],
        "ports": [{"name": "https", "port": webhook.port()}],
    });
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    cluster.post(path, &slice).await.ok(201);
    configure(cluster, &webhook, 443).await;
    is_asked(cluster, &webhook).await;
}

async fn service_is_resolved_by_its_external_name(cluster: &Cluster<'_>) {
    let webhook = listen(IpAddr::from([127, 0, 0, 1]), NAME).await;
    let made = service(json!({"type": "ExternalName", "externalName": "localhost"}));
    cluster.post(SERVICES, &made).await.ok(201);
    configure(cluster, &webhook, webhook.port()).await;
    is_asked(cluster, &webhook).await;
}

async fn certificate_must_have_the_name_of_the_service(cluster: &Cluster<'_>) {
    let webhook = listen(IpAddr::from([127, 0, 0, 1]), "another.default.svc").await;
    let made = service(json!({"type": "ExternalName", "externalName": "localhost"}));
    cluster.post(SERVICES, &made).await.ok(201);
    let of_service = json!({"caBundle": webhook.ca_bundle(), "service": {
        "namespace": "default", "name": "hook", "port": webhook.port()}});
    let strict = hook(&webhook, "/strict", json!({"clientConfig": of_service}));
    cluster.configure("Validating", "w", &[strict]).await;
    let response = cluster.make("one").await;
    response.refused(500, "InternalError", "x509: certificate is valid for");
}
