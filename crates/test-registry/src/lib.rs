//! A registry over memory storage for tests of the crates above `watchet-registry`. The test builds the registry; this
//! crate has the storage, whose concurrent writer makes conflicts, and short methods for the verbs.
//!
//! The methods panic if a required resource or object is absent. Those whose names do not begin with `try_` also panic if
//! the registry returns an error.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by a panic"
)]

mod concurrent_writer;
mod objects;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use watchet_api::{GetOptions, StorageKey, WriteOptions};
use watchet_registry::{ApiError, Deleted, Patch, Registry, Resource, Target};
use watchet_storage::Storage;
use watchet_storage::memory::Memory;
use watchet_tasks::Tasks;

pub use concurrent_writer::{Before, ConcurrentWriter};
pub use objects::{definition, deployment, named, pod, value};

/// A registry, its storage, and its tasks, which end when this is dropped.
pub struct TestRegistry {
    /// The registry.
    pub registry: Arc<Registry>,
    /// The storage of the registry.
    pub storage: Arc<ConcurrentWriter>,
    /// The owner of the registry's tasks.
    pub tasks: Tasks,
}

impl Drop for TestRegistry {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl TestRegistry {
    /// Builds a registry with `build` over an empty memory storage, and creates the objects that every registry has.
    pub async fn start(build: impl FnOnce(Arc<dyn Storage>, &Tasks) -> Arc<Registry>) -> Self {
        let memory = Memory::new(Duration::from_secs(300)).unwrap();
        let storage = Arc::new(ConcurrentWriter::new(memory));
        let tasks = Tasks::new();
        let registry = build(storage.clone(), &tasks);
        registry.bootstrap().await.unwrap();
        Self {
            registry,
            storage,
            tasks,
        }
    }

    /// Returns the first resource of this plural name.
    pub fn resource(&self, plural: &str) -> Arc<Resource> {
        let mut all = self.registry.resources().into_iter();
        all.find(|r| r.plural == plural).unwrap()
    }

    /// Returns the target of a path, which is `plural/name` or `plural/name/subresource`; a namespaced object is in the namespace
    /// `default`.
    pub fn target(&self, path: &str) -> Target {
        let mut parts = path.split('/');
        let resource = self.resource(parts.next().unwrap());
        Target {
            namespace: resource.namespaced.then(|| "default".to_owned()),
            resource,
            name: parts.next().unwrap().to_owned(),
            subresource: parts.next().map(str::to_owned),
        }
    }

    /// Creates an object, in the namespace `default` if it is namespaced.
    pub async fn try_create(&self, plural: &str, body: Value) -> Result<Value, ApiError> {
        self.create_in("default", plural, body).await
    }

    /// Creates an object, in `namespace` if it is namespaced, and returns it or the error.
    pub async fn create_in(
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

    /// Creates an object, in the namespace `default` if it is namespaced.
    pub async fn create(&self, plural: &str, body: Value) -> Value {
        self.try_create(plural, body).await.unwrap()
    }

    /// Updates the object or subresource at [a path](Self::target).
    pub async fn try_update(&self, path: &str, body: Value) -> Result<Value, ApiError> {
        let target = self.target(path);
        let options = WriteOptions::default();
        let updated = self.registry.update(&target, body, &options).await?;
        Ok(value(&updated.0))
    }

    /// Updates the object or subresource at [a path](Self::target).
    pub async fn update(&self, path: &str, body: Value) -> Value {
        self.try_update(path, body).await.unwrap()
    }

    /// Patches the object or subresource at [a path](Self::target).
    pub async fn try_patch(&self, path: &str, patch: Patch) -> Result<Value, ApiError> {
        let target = self.target(path);
        let options = WriteOptions::default();
        let patched = self.registry.patch(&target, &patch, &options).await?;
        Ok(value(&patched))
    }

    /// Patches the object or subresource at [a path](Self::target) with a JSON merge patch.
    pub async fn merge_patch(&self, path: &str, patch: Value) -> Value {
        self.try_patch(path, Patch::Merge(patch)).await.unwrap()
    }

    /// Deletes the object at [a path](Self::target), with DeleteOptions as JSON.
    pub async fn try_delete(&self, path: &str, options: Value) -> Result<Deleted, ApiError> {
        let options = serde_json::from_value(options).unwrap();
        self.registry.delete(&self.target(path), &options).await
    }

    /// Deletes the object at [a path](Self::target).
    pub async fn delete(&self, path: &str) -> Deleted {
        self.try_delete(path, json!({})).await.unwrap()
    }

    /// Returns the object or subresource at [a path](Self::target).
    pub async fn try_get(&self, path: &str) -> Result<Value, ApiError> {
        let target = self.target(path);
        let got = self.registry.get(&target, GetOptions::default()).await?;
        Ok(value(&got))
    }

    /// Returns the object or subresource at [a path](Self::target).
    pub async fn get(&self, path: &str) -> Value {
        self.try_get(path).await.unwrap()
    }

    /// Returns the value that storage has at a key, without a cache.
    pub async fn stored(&self, key: &str) -> Option<Value> {
        let key = StorageKey::new(key).unwrap();
        let (stored, _) = self.storage.get(&key).await.unwrap();
        stored.map(|s| serde_json::from_slice(&s.value).unwrap())
    }
}
