//! Publishes the API server in the cluster: creates the service `kubernetes` in `default` with its Endpoints and
//! EndpointSlice, and creates them again after a deletion. If several servers share one storage, the endpoints contain
//! the address of the server that started last.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use watchet_api::WriteOptions;
use watchet_registry::ObjectLocation;
use watchet_registry::{ApiError, Registry, Resource, Target};
use watchet_services::ServiceRanges;

const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";

/// The first and the longest pause between attempts; each pause is twice as long as the one before. An attempt can fail
/// because storage or a webhook does not respond yet, or because another server that starts at the same time has
/// allocated the address.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How often the controller checks that the objects exist; upstream's interval.
const RECONCILE_EVERY: Duration = Duration::from_secs(10);

/// What to do with an object that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfExists {
    /// Overwrite it with the object of this server.
    Overwrite,
    /// Do not change it: another server may have started since.
    LeaveUnchanged,
}

/// Publishes a server as the service `kubernetes`.
#[derive(Debug, Clone, Copy)]
pub struct KubernetesService {
    /// The cluster IP of the service.
    address: IpAddr,
    /// The address that the server listens on.
    secure: SocketAddr,
}

impl KubernetesService {
    /// Creates the service of a server that listens on `secure`, with a cluster IP from `ranges`.
    pub fn new(ranges: &ServiceRanges, secure: SocketAddr) -> Self {
        Self {
            address: ranges.api_address(),
            secure,
        }
    }

    /// Writes the service and its endpoints. Errors are logged, and the write is retried.
    pub async fn publish(&self, registry: &Registry) {
        self.publish_until_done(registry, IfExists::Overwrite).await;
    }

    /// Creates the service and its endpoints again whenever they were deleted; never returns.
    pub async fn keep_published(&self, registry: &Registry) {
        loop {
            tokio::time::sleep(RECONCILE_EVERY).await;
            self.publish_until_done(registry, IfExists::LeaveUnchanged)
                .await;
        }
    }

    async fn publish_until_done(&self, registry: &Registry, if_exists: IfExists) {
        let mut pause = PAUSE_MIN;
        while let Err(error) = try_to_publish(registry, *self, if_exists).await {
            // An outage of storage itself is logged once.
            match error.is_outage() {
                true => {
                    tracing::debug!(%error, again_in = ?pause, "cannot make the service kubernetes")
                }
                false => {
                    tracing::warn!(%error, again_in = ?pause, "cannot make the service kubernetes")
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

async fn try_to_publish(
    registry: &Registry,
    published: KubernetesService,
    if_exists: IfExists,
) -> Result<(), ApiError> {
    let KubernetesService { address, secure } = published;
    let leaves_unchanged = if_exists == IfExists::LeaveUnchanged;
    let resource = |group: &str, plural: &str| {
        let found = registry.resource(group, "v1", plural);
        found.expect("the table has services and endpoints")
    };
    let services = resource("", "services");
    let made = service(address, secure.port());
    let ports = made["spec"]["ports"].clone();
    let same = |stored: &Value| leaves_unchanged || stored["spec"]["ports"] == ports;
    put(registry, &services, made, same).await?;
    // Endpoints must not contain loopback addresses; a server on the loopback interface is reachable only on its own
    // machine.
    let Some(ip) = advertised(secure.ip()) else {
        return Ok(());
    };
    let made = endpoints(ip, secure.port());
    let subsets = made["subsets"].clone();
    let same = |stored: &Value| leaves_unchanged || stored["subsets"] == subsets;
    put(registry, &resource("", "endpoints"), made, same).await?;
    let made = slice(ip, secure.port());
    let (endpoints, ports) = (made["endpoints"].clone(), made["ports"].clone());
    let same = |stored: &Value| {
        leaves_unchanged || stored["endpoints"] == endpoints && stored["ports"] == ports
    };
    put(
        registry,
        &resource("discovery.k8s.io", "endpointslices"),
        made,
        same,
    )
    .await
}

/// Returns the address under which other machines reach a server that listens on `ip`.
fn advertised(ip: IpAddr) -> Option<IpAddr> {
    if !ip.is_unspecified() {
        return Some(ip).filter(|ip| !ip.is_loopback());
    }
    // Finds the source address that this machine uses for other hosts. Connecting a UDP socket sends nothing.
    let (any, other) = match ip {
        IpAddr::V4(_) => ("0.0.0.0:0", "192.0.2.1:9"),
        IpAddr::V6(_) => ("[::]:0", "[2001:db8::1]:9"),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(other).ok()?;
    let own = socket.local_addr().ok()?.ip();
    Some(own).filter(|own| !own.is_loopback() && !own.is_unspecified())
}

/// Creates an object if it does not exist, or updates it if it differs.
async fn put(
    registry: &Registry,
    resource: &Arc<Resource>,
    mut object: Value,
    same: impl Fn(&Value) -> bool,
) -> Result<(), ApiError> {
    let location = ObjectLocation::new(resource, Some(NAMESPACE), NAME)?;
    let options = WriteOptions::of_server();
    match registry.read_stored(&location).await {
        Ok(current) if same(&current.value) => Ok(()),
        Ok(_) => {
            // An existing service retains its address, even if the range has changed.
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.retain(|member, _| !matches!(&**member, "clusterIP" | "clusterIPs"));
            }
            let target = Target {
                resource: resource.clone(),
                namespace: Some(NAMESPACE.to_owned()),
                name: NAME.to_owned(),
                subresource: None,
            };
            registry.update(&target, object, &options).await.map(drop)
        }
        Err(error) if error.is_not_found() => {
            let created = registry.create(resource, Some(NAMESPACE), object, &options);
            match created.await {
                // Another server has created it concurrently.
                Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

fn service(ip: IpAddr, port: u16) -> Value {
    let labels = json!({"component": "apiserver", "provider": NAME});
    json!({
        "metadata": {"name": NAME, "labels": labels},
        "spec": {
            "type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "sessionAffinity": "None",
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
        },
    })
}

fn endpoints(ip: IpAddr, port: u16) -> Value {
    // The EndpointSlice is created too.
    let labels = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    json!({
        "metadata": {"name": NAME, "labels": labels},
        "subsets": [{
            "addresses": [{"ip": ip}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }],
    })
}

fn slice(ip: IpAddr, port: u16) -> Value {
    json!({
        "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": if ip.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture;

    fn service_of(secure: SocketAddr) -> KubernetesService {
        KubernetesService::new(&ServiceRanges::default(), secure)
    }

    async fn publish(registry: &Registry, secure: SocketAddr) {
        service_of(secure).publish(registry).await;
    }

    #[test]
    fn loopback_is_not_advertised() {
        let advertised_for = |text: &str| advertised(text.parse().unwrap());
        assert_eq!(advertised_for("127.0.0.1"), None);
        assert_eq!(advertised_for("::1"), None);
        assert_eq!(
            advertised_for("192.0.2.7"),
            Some("192.0.2.7".parse().unwrap())
        );
        assert!(advertised_for("0.0.0.0").is_none_or(|ip| !ip.is_unspecified()));
    }

    /// When one of them was deleted, for example with the content of its namespace, it was absent until the next start.
    #[tokio::test]
    async fn deleted_objects_are_created_again() {
        let fixture = fixture().await;
        let first = "192.0.2.7:6443".parse().unwrap();
        let second = "192.0.2.8:6443".parse().unwrap();
        publish(&fixture.registry, first).await;
        publish(&fixture.registry, second).await;
        for plural in ["services", "endpoints", "endpointslices"] {
            fixture.delete(&format!("{plural}/{NAME}")).await;
        }
        service_of(first)
            .publish_until_done(&fixture.registry, IfExists::LeaveUnchanged)
            .await;
        let service = fixture.get("services/kubernetes").await;
        assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
        for key in ["/services/endpoints/default", "/endpointslices/default"] {
            let stored = fixture.stored(&format!("{key}/{NAME}")).await.unwrap();
            assert!(stored.to_string().contains("192.0.2.7"), "{stored}");
        }
        // Existing endpoints are not changed: they belong to the server that started last.
        service_of(second)
            .publish_until_done(&fixture.registry, IfExists::LeaveUnchanged)
            .await;
        let slice = fixture.stored("/endpointslices/default/kubernetes").await;
        assert_eq!(
            slice.unwrap()["endpoints"][0]["addresses"],
            json!(["192.0.2.7"])
        );
    }

    #[tokio::test]
    async fn kubernetes_service_is_created_once_and_its_endpoints_are_updated() {
        let fixture = fixture().await;
        let first = "192.0.2.7:6443".parse().unwrap();
        publish(&fixture.registry, first).await;
        let service = fixture.get("services/kubernetes").await;
        assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
        assert_eq!(service["spec"]["ports"][0]["targetPort"], 6443);
        publish(&fixture.registry, first).await;
        let again = fixture.get("services/kubernetes").await;
        assert_eq!(
            again["metadata"]["resourceVersion"],
            service["metadata"]["resourceVersion"]
        );
        publish(&fixture.registry, "192.0.2.8:7443".parse().unwrap()).await;
        let moved = fixture.get("services/kubernetes").await;
        assert_eq!(moved["spec"]["ports"][0]["targetPort"], 7443);
        assert_eq!(moved["spec"]["clusterIP"], "10.96.0.1");
        let endpoints = fixture
            .stored("/services/endpoints/default/kubernetes")
            .await
            .unwrap();
        assert_eq!(
            endpoints["subsets"][0]["addresses"],
            json!([{"ip": "192.0.2.8"}])
        );
        let slice = fixture
            .stored("/endpointslices/default/kubernetes")
            .await
            .unwrap();
        assert_eq!(slice["ports"][0]["port"], 7443);
        assert_eq!(slice["endpoints"][0]["addresses"], json!(["192.0.2.8"]));
    }
}
