//! The consistency check: compares a digest of the cache with one of storage's list at the same version, periodically. A
//! difference is a bug or storage damage; `consistency` has what follows from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::object_map::ObjectMap;
use super::select::EXAMINED_MAX;
use super::source::LIST_PAGE;
use super::{Cacher, ReadError};
use watchet_api::{ObjectKey, ResourceVersion};
use watchet_metrics::ConsistencyChecks;
use watchet_storage::{ListRequest, StorageError};

/// A hash over keys and versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Digest {
    hash: u64,
    objects: u64,
}

impl Digest {
    const EMPTY: Self = Self {
        hash: 0xcbf2_9ce4_8422_2325,
        objects: 0,
    };

    /// Adds the next object in key order (FNV-1a).
    fn add(&mut self, key: &ObjectKey, version: ResourceVersion) {
        let bytes = key
            .as_str()
            .bytes()
            .chain([0])
            .chain(version.get().to_le_bytes());
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.objects += 1;
    }

    async fn of_cache(objects: &ObjectMap) -> Self {
        let mut digest = Self::EMPTY;
        for (index, (key, object)) in objects.iter().enumerate() {
            digest.add(key, object.resource_version());
            if index % EXAMINED_MAX == EXAMINED_MAX - 1 {
                tokio::task::yield_now().await;
            }
        }
        digest
    }
}

impl Cacher {
    /// Returns the number of consistency checks by result.
    pub fn consistency_checks(&self) -> ConsistencyChecks {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ConsistencyChecks {
            success: read(&self.consistency.success),
            failure: read(&self.consistency.failure),
            error: read(&self.consistency.error),
        }
    }

    /// Checks until the cache stops, each time after `period` plus a random delay of up to half of
    /// it, so that caches do not list simultaneously.
    pub(super) async fn check_consistency(self: Arc<Self>, period: Duration) {
        loop {
            tokio::time::sleep(period.mul_f64(1.0 + fastrand::f64() / 2.0)).await;
            let (counter, resource) = (&self.consistency, &self.resource.name);
            match self.compare_with_storage().await {
                Ok((at, cached, stored)) if cached == stored => {
                    counter.success.fetch_add(1, Ordering::Relaxed);
                    counter.broken.store(false, Ordering::Relaxed);
                    tracing::debug!(%resource, %at, objects = cached.objects, "consistent");
                }
                Ok((at, cached, stored)) => {
                    counter.failure.fetch_add(1, Ordering::Relaxed);
                    counter.broken.store(true, Ordering::Relaxed);
                    tracing::error!(
                        %resource, %at, ?cached, ?stored,
                        "cache differs from storage, listing again"
                    );
                    counter.relist.notify_one();
                }
                Err(error) => {
                    counter.error.fetch_add(1, Ordering::Relaxed);
                    match error {
                        // The outage itself is logged once, and so is the restore of an older state.
                        ReadError::Storage(StorageError::Unavailable(_))
                        | ReadError::TooLargeResourceVersion { .. }
                        | ReadError::NotReady { .. } => {
                            tracing::debug!(%resource, %error, "consistency check failed");
                        }
                        error => tracing::warn!(%resource, %error, "consistency check failed"),
                    }
                }
            }
        }
    }

    /// Returns the digests of the cache and of storage at one version.
    async fn compare_with_storage(&self) -> Result<(ResourceVersion, Digest, Digest), ReadError> {
        self.wait_for_a_state().await?;
        // Uses the current version, because storage may have compacted an older one. If the current
        // revision is unknown the check uses the cache's version.
        self.consistent().await?;
        let snapshot = self.snapshot().await?;
        let cached = Digest::of_cache(snapshot.objects()).await;
        let at = snapshot.at;
        drop(snapshot);
        Ok((at, cached, self.digest_of_storage(at).await?))
    }

    async fn digest_of_storage(&self, at: ResourceVersion) -> Result<Digest, ReadError> {
        let prefix = &self.resource.prefix;
        let mut request = ListRequest {
            prefix: prefix.clone(),
            start: String::new(),
            at: Some(at),
            limit: LIST_PAGE,
            count: false,
        };
        let mut digest = Digest::EMPTY;
        loop {
            let page = self.storage.list(request.clone()).await;
            let page = page.map_err(|error| ReadError::from_storage(error, None))?;
            for item in &page.items {
                let key = prefix.strip(item.key.as_str()).unwrap_or_default();
                digest.add(&ObjectKey::from(key), item.mod_revision);
                request.start = format!("{key}\0");
            }
            if !page.more {
                return Ok(digest);
            }
        }
    }
}
