//! A cluster in memory for the plugins' unit tests, and requests to plugins.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::super::cluster::{
    Cluster, ClusterError, Equivalent, Freshness, GroupResource, Mapping, Mutation, MutationError,
    NamespaceState, ParamError, ParamQuery,
};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation};
use super::super::testing::write;
use super::object::name_of;
use super::plugin::AdmissionPlugin;
use watchet_api::Status;
use watchet_auth::{Attributes, Authorizer, Decision};

/// Returns a pod `p` with this spec.
pub(crate) fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec})
}

/// Returns the message of a rejection.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, AdmissionError>) -> String {
    status_of(result).message
}

/// Returns the status of a rejection.
pub(crate) fn status_of<T: std::fmt::Debug>(result: Result<T, AdmissionError>) -> Status {
    result.unwrap_err().status()
}

/// A cluster with the objects that a test adds. Its authorizer allows what `allowed` contains.
pub(crate) struct FakeCluster {
    pub(super) objects: Mutex<Vec<(String, String, Value)>>,
    pub(crate) allowed: fn(&Attributes) -> bool,
}

impl Default for FakeCluster {
    fn default() -> Self {
        Self {
            objects: Mutex::default(),
            allowed: |_| true,
        }
    }
}

impl FakeCluster {
    /// Adds an object.
    pub(crate) fn add(&mut self, group: &str, resource: &str, object: Value) {
        let entry = (group.to_owned(), resource.to_owned(), object);
        self.objects.get_mut().push(entry);
    }

    /// Returns a new object of the core group after `plugin` has mutated it.
    pub(crate) async fn create(
        &self,
        plugin: &dyn AdmissionPlugin,
        resource: &str,
        object: Value,
    ) -> Result<Value, AdmissionError> {
        self.create_of(plugin, ("", resource), object).await
    }

    /// Returns a new object after `plugin` has mutated it.
    pub(crate) async fn create_of(
        &self,
        plugin: &dyn AdmissionPlugin,
        resource: (&str, &str),
        object: Value,
    ) -> Result<Value, AdmissionError> {
        let attributes = attributes(Operation::Create, resource, &object, &Value::Null);
        self.mutate(plugin, attributes).await
    }

    /// Returns the new state of an updated object of the core group after `plugin` has mutated it.
    pub(crate) async fn update(
        &self,
        plugin: &dyn AdmissionPlugin,
        resource: &str,
        old: Value,
        new: Value,
    ) -> Result<Value, AdmissionError> {
        let attributes = attributes(Operation::Update, ("", resource), &new, &old);
        self.mutate(plugin, attributes).await
    }

    /// Returns the object of a request after `plugin` has mutated it.
    pub(crate) async fn mutate(
        &self,
        plugin: &dyn AdmissionPlugin,
        mut attributes: AdmissionRequest<'_>,
    ) -> Result<Value, AdmissionError> {
        if plugin.mutates(attributes.request()) {
            plugin.mutate(self, &mut attributes).await?;
        }
        Ok(attributes.object.into_owned())
    }

    /// Validates the creation of an object by `plugin`.
    pub(crate) async fn validate_create(
        &self,
        plugin: &dyn AdmissionPlugin,
        resource: (&str, &str),
        object: Value,
    ) -> Result<(), AdmissionError> {
        let attributes = attributes(Operation::Create, resource, &object, &Value::Null);
        self.validate(plugin, attributes).await
    }

    /// Validates a request by `plugin`.
    pub(crate) async fn validate(
        &self,
        plugin: &dyn AdmissionPlugin,
        attributes: AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        match plugin.validates(attributes.request()) {
            true => plugin.validate(self, &attributes).await,
            false => Ok(()),
        }
    }
}

/// Returns a request of an admin.
pub(crate) fn attributes<'a>(
    operation: Operation,
    (group, resource): (&str, &'a str),
    object: &'a Value,
    old_object: &'a Value,
) -> AdmissionRequest<'a> {
    let any = if object.is_null() { old_object } else { object };
    let namespace = any["metadata"]["namespace"].as_str().unwrap_or_default();
    AdmissionRequest {
        resource: GroupVersionResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
        },
        object: Cow::Borrowed(object),
        old_object: Cow::Borrowed(old_object),
        ..write(operation, resource, namespace, name_of(any))
    }
}

#[derive(Debug)]
struct FakeAuthorizer(fn(&Attributes) -> bool);

#[async_trait]
impl Authorizer for FakeAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        match (self.0)(attributes) {
            true => Decision::Allow("".into()),
            false => Decision::NoOpinion("".into()),
        }
    }
}

#[async_trait]
impl Cluster for FakeCluster {
    async fn namespace(&self, name: &str) -> Result<Option<Value>, ClusterError> {
        let namespaces = GroupResource::new("", "namespaces");
        self.object(namespaces, "", name, Freshness::Cached).await
    }

    async fn namespace_state(&self, name: &str) -> Result<NamespaceState, ClusterError> {
        Ok(match self.namespace(name).await? {
            None => NamespaceState::Absent,
            Some(found) if found["status"]["phase"] == "Terminating" => NamespaceState::Terminating,
            Some(_) => NamespaceState::Active,
        })
    }

    async fn object(
        &self,
        resource: GroupResource<'_>,
        namespace: &str,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Value>, ClusterError> {
        let mut objects = self.objects(resource, namespace, freshness).await?;
        objects.retain(|object| name_of(object) == name);
        Ok(objects.pop())
    }

    async fn objects(
        &self,
        resource: GroupResource<'_>,
        namespace: &str,
        _freshness: Freshness,
    ) -> Result<Vec<Value>, ClusterError> {
        let is_meant = |group: &str, plural: &str, object: &Value| {
            let own = object["metadata"]["namespace"].as_str();
            (group, plural) == (resource.group, resource.resource)
                && (namespace.is_empty() || own == Some(namespace))
        };
        let objects = self.objects.lock();
        let meant = objects.iter().filter(|(g, r, o)| is_meant(g, r, o));
        Ok(meant.map(|(_, _, object)| object.clone()).collect())
    }

    fn mapping(&self, kind: &GroupVersionKind) -> Option<Mapping> {
        let is_known = kind.kind == "ConfigMap";
        is_known.then(|| Mapping {
            resource: GroupVersionResource {
                group: String::new(),
                version: "v1".to_owned(),
                resource: "configmaps".to_owned(),
            },
            is_namespaced: true,
        })
    }

    /// An object has a resourceVersion after its first replacement.
    async fn replace_status(
        &self,
        resource: GroupResource<'_>,
        object: &Value,
    ) -> Result<bool, ClusterError> {
        // Other tasks run between a read and the write that follows.
        tokio::task::yield_now().await;
        let mut objects = self.objects.lock();
        let is_meant = |(group, plural, stored): &&mut (String, String, Value)| {
            (&**group, &**plural) == (resource.group, resource.resource)
                && stored["metadata"]["namespace"] == object["metadata"]["namespace"]
                && name_of(stored) == name_of(object)
        };
        let Some((_, _, stored)) = objects.iter_mut().find(is_meant) else {
            return Ok(false);
        };
        let version = &mut stored["metadata"]["resourceVersion"];
        if *version != object["metadata"]["resourceVersion"] {
            return Ok(false);
        }
        let next = version
            .as_str()
            .map_or(1, |version| version.parse().unwrap_or(0) + 1_u64);
        *version = next.to_string().into();
        stored["status"] = object["status"].clone();
        Ok(true)
    }

    fn authorizer(&self) -> Arc<dyn Authorizer> {
        Arc::new(FakeAuthorizer(self.allowed))
    }

    fn equivalents(&self, _resource: &GroupVersionResource) -> Vec<Equivalent> {
        Vec::new()
    }

    async fn convert(&self, object: Value, _kind: &GroupVersionKind) -> Result<Value, String> {
        Ok(object)
    }

    async fn patched(
        &self,
        _write: &AdmissionRequest<'_>,
        _kind: &GroupVersionKind,
        object: Value,
        _patch: json_patch::Patch,
    ) -> Result<Value, String> {
        Ok(object)
    }

    async fn mutated(
        &self,
        _write: &AdmissionRequest<'_>,
        _kind: &GroupVersionKind,
        object: &Value,
        mutation: Mutation,
    ) -> Result<Value, MutationError> {
        let mut object = object.clone();
        match mutation {
            Mutation::Apply(configuration) => json_patch::merge(&mut object, &configuration),
            Mutation::Patch(patch) => json_patch::patch(&mut object, &patch)
                .map_err(|error| MutationError::Failed(error.to_string()))?,
        }
        Ok(object)
    }

    async fn params(
        &self,
        _kind: &GroupVersionKind,
        _given: &str,
        _of_write: &str,
        _query: &ParamQuery,
    ) -> Result<Vec<Value>, ParamError> {
        Ok(Vec::new())
    }
}
