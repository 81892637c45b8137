//! Resolves the Service of a webhook to an endpoint. This server may run outside of the cluster network, where no proxy
//! serves cluster IPs, so it connects to an address of the Endpoints or EndpointSlices instead.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use serde_json::Value;

use watchet_admission::client::ServiceResolver;
use watchet_api::{ListOptions, Object};
use watchet_registry::ObjectLocation;
use watchet_registry::Registry;

/// Resolves Services to ready endpoints, and those of type ExternalName to their host.
#[derive(Debug)]
pub(crate) struct ServiceEndpoints(pub(crate) Weak<Registry>);

#[async_trait]
impl ServiceResolver for ServiceEndpoints {
    async fn resolve(
        &self,
        namespace: &str,
        name: &str,
        port: u16,
    ) -> Result<(String, u16), String> {
        let registry = self.0.upgrade().ok_or("the server is shutting down")?;
        let service = read_core(&registry, "services", namespace, name).await?;
        let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
        let spec = &service["spec"];
        if spec["type"] == "ExternalName" {
            let host = spec["externalName"].as_str().unwrap_or_default();
            return Ok((host.to_owned(), port));
        }
        let ports = spec["ports"].as_array().into_iter().flatten();
        let service_port = ports.into_iter().find(|p| p["port"] == port);
        let service_port = service_port
            .ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
        let port_name = service_port["name"].as_str().unwrap_or_default();
        let endpoints = read_core(&registry, "endpoints", namespace, name).await?;
        let endpoints = endpoints.unwrap_or_default();
        let subsets = endpoints["subsets"].as_array().into_iter().flatten();
        let found = subsets.into_iter().find_map(|subset| {
            endpoint(&subset["addresses"][0]["ip"], &subset["ports"], port_name)
        });
        if let Some(found) = found {
            return Ok(found);
        }
        let slices = slices(&registry, namespace, name).await?;
        let found = slices.iter().find_map(|slice| {
            let ready = slice["endpoints"]
                .as_array()?
                .iter()
                .find(|endpoint| endpoint["conditions"]["ready"].as_bool() != Some(false))?;
            endpoint(&ready["addresses"][0], &slice["ports"], port_name)
        });
        found.ok_or_else(|| format!("no endpoints available for service {name:?}"))
    }
}

/// Returns `address` with the number of the port called `name`. A single port may have no name.
fn endpoint(address: &Value, ports: &Value, name: &str) -> Option<(String, u16)> {
    let named = |port: &&Value| port["name"].as_str().unwrap_or_default() == name;
    let port = ports.as_array()?.iter().find(named)?;
    let port = port["port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok())?;
    Some((address.as_str()?.to_owned(), port))
}

/// Returns an object of the core group as it is stored; `None` if it does not exist.
async fn read_core(
    registry: &Registry,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, String> {
    let resource = registry
        .resource("", "v1", plural)
        .ok_or("it is not served")?;
    let location =
        ObjectLocation::new(&resource, Some(namespace), name).map_err(|e| e.to_string())?;
    match registry.read_stored(&location).await {
        Ok(current) => Ok(Some(current.value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the EndpointSlices of a Service.
async fn slices(registry: &Registry, namespace: &str, service: &str) -> Result<Vec<Value>, String> {
    let resource = registry.resource("discovery.k8s.io", "v1", "endpointslices");
    let resource = resource.ok_or("endpointslices are not served")?;
    let labels = format!("kubernetes.io/service-name={service}");
    let options = ListOptions {
        labels: labels.parse().map_err(|error| format!("{error}"))?,
        ..ListOptions::default()
    };
    let list = registry.list(&resource, Some(namespace), &options).await;
    let list = list.map_err(|error| error.to_string())?;
    let value = |object: &Arc<Object>| serde_json::from_slice(object.body_slice());
    let values = list.items.iter().map(value).collect::<Result<_, _>>();
    values.map_err(|error| error.to_string())
}
