//! `ServiceStrategy`: the strategy of services, and the allocator of their addresses and node ports.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use async_trait::async_trait;
use serde_json::Value;

use crate::allocation::{Allocation, release, release_new};
use crate::claims::Allocated;
use crate::ranges::ServiceRanges;
use crate::spec;
use watchet_api::{ResourceVersion, UserInfo};
use watchet_registry::{
    Allocator, ApiError, ObjectIdentity, Resource, Strategy, WriteId, metadata,
};
use watchet_storage::{Storage, StorageError};

/// Allocates the addresses and node ports of services.
#[derive(Debug)]
pub struct ServiceStrategy {
    ranges: ServiceRanges,
}

impl ServiceStrategy {
    /// Creates an allocator for these ranges.
    pub fn new(ranges: ServiceRanges) -> Self {
        Self { ranges }
    }
}

impl Strategy for ServiceStrategy {
    fn prepare_for_create(&self, _resource: &Resource, _user: &UserInfo, service: &mut Value) {
        let spec = service.get_mut("spec").and_then(Value::as_object_mut);
        if let Some(spec) = spec {
            spec::pair_addresses(spec);
        }
    }

    fn prepare_for_update(
        &self,
        resource: &Resource,
        subresource: Option<&str>,
        stored: &Value,
        service: &mut Value,
    ) {
        resource.reset_unwritable(subresource, stored, service);
        if let (Some(old), Some(new)) = (stored.as_object(), service.as_object_mut()) {
            spec::patch_allocated_values(old, new);
        }
    }

    fn allocator(&self) -> Option<&dyn Allocator> {
        Some(self)
    }
}

#[async_trait]
impl Allocator for ServiceStrategy {
    async fn reserve(
        &self,
        storage: &dyn Storage,
        owner: ObjectIdentity<'_>,
        write: WriteId,
        old: Option<(&Value, ResourceVersion)>,
        service: &mut Value,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let uid = metadata::text(service, "uid").to_owned();
        let mut hasher = DefaultHasher::new();
        uid.hash(&mut hasher);
        let allocation = Allocation {
            storage,
            ranges: &self.ranges,
            owner,
            uid,
            writer: write,
            base: old.map_or(ResourceVersion::ZERO, |(_, at)| at),
            dry_run,
            seed: hasher.finish(),
        };
        let allocated = allocation.fill(old.map(|(old, _)| old), service).await;
        if allocated.is_err() && !dry_run {
            // No service uses the values that were claimed before the failure.
            release_new(storage, owner, Some(write), old, service).await;
        }
        allocated
    }

    async fn release_unstored(
        &self,
        storage: &dyn Storage,
        owner: ObjectIdentity<'_>,
        write: Option<WriteId>,
        old: Option<(&Value, ResourceVersion)>,
        service: &Value,
        error: Option<&ApiError>,
    ) {
        // Storage may have stored the object, which then uses its claims. If it has not, another service can take over
        // the claims later. Unavailable storage could not delete the claims.
        if let Some(ApiError::Storage(
            StorageError::Unavailable(_) | StorageError::OutcomeUnknown(_),
        )) = error
        {
            return;
        }
        release_new(storage, owner, write, old, service).await;
    }

    async fn release_replaced(
        &self,
        storage: &dyn Storage,
        owner: ObjectIdentity<'_>,
        before: &Value,
        after: &Value,
        at: ResourceVersion,
    ) {
        let has = Allocated::all_of(after);
        release(storage, owner, None, &has, before, at).await;
    }

    async fn release_deleted(
        &self,
        storage: &dyn Storage,
        owner: ObjectIdentity<'_>,
        states: [&Value; 2],
    ) {
        for state in states {
            // The service is deleted, so holds of any revision are ignored.
            let end = ResourceVersion::new(u64::MAX);
            release(storage, owner, None, &[], state, end).await;
            if states[0]["spec"] == states[1]["spec"] {
                break;
            }
        }
    }
}
