//! Component statuses: the health of the parts of a control plane, probed at each read and not stored. Deprecated since
//! Kubernetes 1.19; `kubectl get componentstatuses` shows them.

mod probe;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use self::probe::Health;
use super::strategies::{Builtin, IsKnownKind};
use watchet_api::{ListOptions, Object, ResourceVersion};
use watchet_cacher::ObjectList;
use watchet_registry::{ApiError, Resource, Target, predicate, response};
use watchet_registry::{Rules, Strategy, VirtualObjects};
use watchet_storage::Storage;

/// The deprecation warning of reads.
const DEPRECATION: &str = "v1 ComponentStatus is deprecated in v1.19+";

/// The components whose `/healthz` is probed on this machine, with their default ports, as upstream.
const LISTENERS: [(&str, u16); 2] = [("controller-manager", 10257), ("scheduler", 10259)];

/// The name under which storage is reported, as upstream.
const STORAGE: &str = "etcd-0";

/// The timeout of a probe; upstream's value.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// The name of the resource in upstream's 404.
const SINGULAR: &str = "componentstatus";

/// Returns the resource, which is read-only.
pub(super) fn resource(is_known_kind: IsKnownKind) -> Arc<Resource> {
    Arc::new(Resource {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ComponentStatus".to_owned(),
        plural: "componentstatuses".to_owned(),
        singular: SINGULAR.to_owned(),
        short_names: vec!["cs".to_owned()],
        categories: Vec::new(),
        namespaced: false,
        subresources: Vec::new(),
        verbs: ["get", "list"].map(str::to_owned).to_vec(),
        storage_prefix: String::new(),
        columns: Arc::default(),
        triggers: Vec::new(),
        strategy: Arc::new(Builtin::new(
            ("", "v1", "componentstatuses"),
            Rules::DEFAULT,
            is_known_kind,
            Arc::new(ComponentStatuses),
        )),
    })
}

/// Reads the component statuses.
#[derive(Debug)]
pub(super) struct ComponentStatuses;

impl Strategy for ComponentStatuses {
    fn deprecation_warning(&self) -> Option<&str> {
        Some(DEPRECATION)
    }

    fn virtual_objects(&self) -> Option<&dyn VirtualObjects> {
        Some(self)
    }
}

#[async_trait]
impl VirtualObjects for ComponentStatuses {
    async fn get(
        &self,
        storage: &dyn Storage,
        resource: &Arc<Resource>,
        name: &str,
    ) -> Result<Arc<Object>, ApiError> {
        get(storage, resource, name).await
    }

    async fn list(
        &self,
        storage: &dyn Storage,
        resource: &Arc<Resource>,
        options: &ListOptions,
    ) -> Result<ObjectList, ApiError> {
        list(storage, resource, options).await
    }
}

/// Returns the status of one component.
async fn get(
    storage: &dyn Storage,
    resource: &Arc<Resource>,
    name: &str,
) -> Result<Arc<Object>, ApiError> {
    let listener = LISTENERS.iter().find(|(component, _)| *component == name);
    let condition = match listener {
        Some((_, port)) => listening(*port).await,
        None if name == STORAGE => storing(storage).await,
        None => {
            return Err(ApiError::NotFound {
                resource: SINGULAR.to_owned(),
                name: name.to_owned(),
            });
        }
    };
    object(resource, name, condition)
}

/// Returns the statuses of all components that `options` select.
async fn list(
    storage: &dyn Storage,
    resource: &Arc<Resource>,
    options: &ListOptions,
) -> Result<ObjectList, ApiError> {
    let predicate = predicate(resource, None, options)?;
    let [(manager, first), (scheduler, second)] = LISTENERS;
    let conditions = tokio::join!(listening(first), listening(second), storing(storage));
    let all = [
        (manager, conditions.0),
        (scheduler, conditions.1),
        (STORAGE, conditions.2),
    ];
    let items = all.map(|(name, condition)| object(resource, name, condition));
    let mut items = items.into_iter().collect::<Result<Vec<_>, _>>()?;
    items.retain(|object| predicate.matches(object));
    Ok(ObjectList {
        resource_version: ResourceVersion::ZERO,
        items,
        continue_token: None,
        remaining: None,
    })
}

fn object(resource: &Arc<Resource>, name: &str, condition: Value) -> Result<Arc<Object>, ApiError> {
    let status = json!({
        "kind": resource.kind,
        "apiVersion": resource.api_version(),
        "metadata": {"name": name},
        "conditions": [condition],
    });
    let target = Target {
        resource: resource.clone(),
        namespace: None,
        name: name.to_owned(),
        subresource: None,
    };
    response::unstored(&target, &status)
}

/// Probes the health of a component at its port on this machine.
async fn listening(port: u16) -> Value {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    condition(probe::probe(address, PROBE_TIMEOUT).await)
}

/// Returns the condition of a component, as upstream's.
fn condition(health: Health) -> Value {
    let (status, message) = match health {
        Health::Healthy(message) => ("True", message),
        Health::Unhealthy(message) => ("False", message),
        Health::Unknown(message) => ("Unknown", message),
    };
    json!({"type": "Healthy", "status": status, "message": message})
}

/// Probes storage by reading its revision.
async fn storing(storage: &dyn Storage) -> Value {
    let asked = tokio::time::timeout(PROBE_TIMEOUT, storage.current_revision()).await;
    let error = match asked {
        Ok(Ok(_)) => return condition(Health::Healthy("ok".to_owned())),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "context deadline exceeded".to_owned(),
    };
    json!({"type": "Healthy", "status": "False", "error": error})
}
