//! Tests of the verbs over the memory store and real caches. Pure functions are tested in their own modules.

mod admission;
mod claims;
mod clients;
mod creates;
mod custom;
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

use std::ops::Deref;
use std::sync::Arc;

use serde_json::{Value, json};
use watchet_api::{
    DeleteOptions, GetOptions, ListOptions, Object, ObjectKey, ResourceVersion, StatusCause,
    StorageKey, WriteOptions,
};
use watchet_metrics::Metrics;
use watchet_registry::*;
use watchet_services::ServiceRanges;
use watchet_storage::memory::Memory;
use watchet_storage::{Storage, StorageError};
use watchet_tasks::Tasks;
use watchet_test_registry::{
    Before, ConcurrentWriter, TestRegistry, definition, deployment, named, pod, value,
};

use crate::{RegistryConfig, new_registry, new_registry_with_config};

/// The registry of the built-in resources over memory storage.
pub(crate) struct Fixture(TestRegistry);

impl Deref for Fixture {
    type Target = TestRegistry;

    fn deref(&self) -> &TestRegistry {
        &self.0
    }
}

pub(crate) async fn fixture() -> Fixture {
    let started = TestRegistry::start(|storage, tasks| {
        new_registry(storage, tasks, CacherConfig::default(), Metrics::new())
    });
    Fixture(started.await)
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
