//! Where a Service is, for the client of webhooks. There is no proxy here that would lead from a Service's own
//! address to what serves it, so what serves it is looked up: this is for servers beside us, not for pods.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use serde_json::Value;

use crate::admission::client::ServiceResolver;
use crate::api::{ListOptions, Object};
use crate::registry::guaranteed_update::Place;
use crate::registry::{Registry, read};

/// Finds Services for the client of webhooks. There is no proxy that would lead from a Service's own address to
/// what serves it, so its Endpoints are used, or its EndpointSlices; of a Service that names a host outside, that.
#[derive(Debug)]
pub(crate) struct Services(pub(crate) Weak<Registry>);

#[async_trait]
impl ServiceResolver for Services {
    async fn resolve(
        &self,
        namespace: &str,
        name: &str,
        port: u16,
    ) -> Result<(String, u16), String> {
        let registry = self.0.upgrade().ok_or("the server is shutting down")?;
        let service = registry.read_core("services", namespace, name).await?;
        let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
        let spec = &service["spec"];
        if spec["type"] == "ExternalName" {
            let host = spec["externalName"].as_str().unwrap_or_default();
            return Ok((host.to_owned(), port));
        }
        let ports = spec["ports"].as_array().into_iter().flatten();
        let wanted = ports.into_iter().find(|p| p["port"] == port);
        let wanted =
            wanted.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
        let port_name = wanted["name"].as_str().unwrap_or_default();
        let endpoints = registry.read_core("endpoints", namespace, name).await?;
        let endpoints = endpoints.unwrap_or_default();
        let subsets = endpoints["subsets"].as_array().into_iter().flatten();
        let found = subsets.into_iter().find_map(|subset| {
            endpoint(&subset["addresses"][0]["ip"], &subset["ports"], port_name)
        });
        if let Some(found) = found {
            return Ok(found);
        }
        let slices = registry.slices(namespace, name).await?;
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

/// An address with the port of this name; one port needs none.
fn endpoint(address: &Value, ports: &Value, name: &str) -> Option<(String, u16)> {
    let named = |port: &&Value| port["name"].as_str().unwrap_or_default() == name;
    let port = ports.as_array()?.iter().find(named)?;
    let port = port["port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok())?;
    Some((address.as_str()?.to_owned(), port))
}

impl Registry {
    async fn read_core(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, String> {
        let resource = self.resource("", "v1", plural).ok_or("it is not served")?;
        let place = Place::new(&resource, Some(namespace), name).map_err(|e| e.to_string())?;
        match self.read_stored(&place).await {
            Ok(current) => Ok(Some(current.value)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn slices(&self, namespace: &str, service: &str) -> Result<Vec<Value>, String> {
        let resource = self.resource("discovery.k8s.io", "v1", "endpointslices");
        let resource = resource.ok_or("endpointslices are not served")?;
        let labels = format!("kubernetes.io/service-name={service}");
        let options = ListOptions {
            labels: labels.parse().map_err(|error| format!("{error}"))?,
            ..ListOptions::default()
        };
        let list = read::list(self, &resource, Some(namespace), &options).await;
        let list = list.map_err(|error| error.to_string())?;
        let value = |object: &Arc<Object>| serde_json::from_slice(object.body_slice());
        let values = list.items.iter().map(value).collect::<Result<_, _>>();
        values.map_err(|error| error.to_string())
    }
}
