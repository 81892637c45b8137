//! Tests of the verbs over the memory store and real caches. Pure functions are tested in their own modules.

mod claims;
mod clients;
pub(crate) mod concurrent_writer;
mod creates;
pub(crate) mod custom;
mod delete_decisions;
mod deletes;
mod namespaces;
mod other_kind;
mod patches;
mod races;
mod scale;
mod services;
mod stored;
mod updates;
mod versions;

use std::sync::Arc;

use serde_json::{Value, json};

use self::concurrent_writer::ConcurrentWriter;
use crate::api::{
    DeleteOptions, GetOptions, ListOptions, Object, ObjectKey, ResourceVersion, StatusCause,
    StorageKey, WriteOptions,
};
use crate::builtin::{RegistryConfig, new_registry, new_registry_with_config};
use crate::metrics::Metrics;
use crate::registry::*;
use crate::services::ServiceRanges;
use crate::storage::Storage;
use crate::storage::memory::Memory;
use crate::tasks::Tasks;

pub(crate) struct Fixture {
    pub(crate) registry: Arc<Registry>,
    pub(crate) storage: Arc<ConcurrentWriter>,
    pub(crate) tasks: Tasks,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

pub(crate) async fn fixture() -> Fixture {
    let memory = Memory::new(std::time::Duration::from_secs(300)).unwrap();
    let storage = Arc::new(ConcurrentWriter::new(memory));
    let tasks = Tasks::new();
    let registry = new_registry(
        storage.clone(),
        &tasks,
        CacherConfig::default(),
        Metrics::new(),
    );
    registry.bootstrap().await.unwrap();
    Fixture {
        registry,
        storage,
        tasks,
    }
}

impl Fixture {
    /// Returns the first resource of this plural name.
    pub(crate) fn resource(&self, plural: &str) -> Arc<Resource> {
        let mut all = self.registry.resources().into_iter();
        all.find(|r| r.plural == plural).unwrap()
    }

    /// `plural/name`, or `plural/name/subresource`, in `default` if it is namespaced.
    pub(crate) fn target(&self, path: &str) -> Target {
        let mut parts = path.split('/');
        let resource = self.resource(parts.next().unwrap());
        Target {
            namespace: resource.namespaced.then(|| "default".to_owned()),
            resource,
            name: parts.next().unwrap().to_owned(),
            subresource: parts.next().map(str::to_owned),
        }
    }

    pub(crate) async fn try_create(&self, plural: &str, body: Value) -> Result<Value, ApiError> {
        self.create_in("default", plural, body).await
    }

    /// Returns a new object, in `namespace` if it is namespaced.
    pub(crate) async fn create_in(
        &self,
        namespace: &str,
        plural: &str,
        body: Value,
    ) -> Result<Value, ApiError> {
        let resource = self.resource(plural);
        let namespace = resource.namespaced.then_some(namespace);
        let options = WriteOptions::default();
        let created = self.registry.create(&resource, namespace, body, &options);
        Ok(value(&*created.await?))
    }

    pub(crate) async fn create(&self, plural: &str, body: Value) -> Value {
        self.try_create(plural, body).await.unwrap()
    }

    pub(crate) async fn try_update(&self, path: &str, body: Value) -> Result<Value, ApiError> {
        let target = self.target(path);
        let options = WriteOptions::default();
        let updated = self.registry.update(&target, body, &options).await?;
        Ok(value(&updated.0))
    }

    pub(crate) async fn update(&self, path: &str, body: Value) -> Value {
        self.try_update(path, body).await.unwrap()
    }

    pub(crate) async fn try_patch(&self, path: &str, patch: Patch) -> Result<Value, ApiError> {
        let target = self.target(path);
        let options = WriteOptions::default();
        let patched = self.registry.patch(&target, &patch, &options).await?;
        Ok(value(&patched))
    }

    pub(crate) async fn merge_patch(&self, path: &str, patch: Value) -> Value {
        self.try_patch(path, Patch::Merge(patch)).await.unwrap()
    }

    pub(crate) async fn try_delete(&self, path: &str, options: Value) -> Result<Deleted, ApiError> {
        let options = serde_json::from_value(options).unwrap();
        self.registry.delete(&self.target(path), &options).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Deleted {
        self.try_delete(path, json!({})).await.unwrap()
    }

    pub(crate) async fn try_get(&self, path: &str) -> Result<Value, ApiError> {
        let target = self.target(path);
        let got = self.registry.get(&target, GetOptions::default()).await?;
        Ok(value(&got))
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.try_get(path).await.unwrap()
    }

    pub(crate) async fn stored(&self, key: &str) -> Option<Value> {
        let key = StorageKey::new(key).unwrap();
        let (stored, _) = self.storage.get(&key).await.unwrap();
        stored.map(|s| serde_json::from_slice(&s.value).unwrap())
    }
}

pub(crate) fn value(object: &Object) -> Value {
    serde_json::from_slice(object.body_slice()).unwrap()
}

pub(crate) fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "i"}]}})
}

pub(crate) fn deployment(name: &str) -> Value {
    let labels = json!({"app": name});
    json!({"metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod(name)["spec"]},
    }})
}

fn rv(object: &Value) -> ResourceVersion {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// Returns the fields and messages of a 422.
fn causes(error: ApiError) -> Vec<(String, String)> {
    match error {
        ApiError::Invalid { causes, .. } => causes
            .into_iter()
            .map(|StatusCause { field, message, .. }| (field, message))
            .collect(),
        other => panic!("not Invalid: {other}"),
    }
}

fn bad_request(error: ApiError) -> String {
    match error {
        ApiError::BadRequest(message) => message,
        other => panic!("not BadRequest: {other}"),
    }
}

fn conflict(error: ApiError) -> String {
    match error {
        ApiError::Conflict { detail, .. } => detail,
        other => panic!("not Conflict: {other}"),
    }
}
