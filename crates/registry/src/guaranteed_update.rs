//! GuaranteedUpdate: reads an object, changes it as a verb decides, and writes it by compare-and-swap. Retries after
//! each conflict.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

use super::allocator::WriteId;
use super::error::ApiError;
use super::location::ObjectLocation;
use super::registry::Registry;
use super::stored_form::{Current, encode, parse};
use super::{conversion, metadata};
use watchet_api::{EventType, Object, ResourceVersion};
use watchet_cacher::ReadError;
use watchet_storage::{Expect, KeyValue, Outcome, Put, Storage as _, StorageError};

/// The time limit of one write, including its retries after conflicts: kube-apiserver's limit of a mutating request.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(34);

/// The decision of a write for the present object.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Store this object, which is in stored form.
    Put(Value),
    /// Delete the object; the response has this last state.
    Delete(Value),
    /// Delete the object because this write removed the last finalizer; the response has this last state.
    Finish(Value),
}

/// The result of a write.
#[derive(Debug, Clone)]
pub enum WriteOutcome {
    /// The object as it is stored.
    Stored(Arc<Object>),
    /// The last state of the deleted object.
    Deleted(Arc<Object>),
}

impl WriteOutcome {
    /// Returns the object, stored or deleted.
    pub fn into_object(self) -> Arc<Object> {
        match self {
            Self::Stored(object) | Self::Deleted(object) => object,
        }
    }
}

/// Decides what a write changes. Called again for each newer state of the object after a conflict.
pub trait Decide: Send {
    /// Returns the change of `current`, which is `None` if the object does not exist in storage.
    fn decide(
        &mut self,
        current: Option<&Current>,
    ) -> impl Future<Output = Result<Change, ApiError>> + Send;

    /// Returns true if the write is an apply, whose managed fields must be stored even if the object is too large.
    fn requires_managed_fields(&self) -> bool {
        false
    }

    /// Returns the identity of the write in the reservations of an allocator, if it makes any.
    fn write_id(&self) -> Option<WriteId> {
        None
    }
}

impl Registry {
    /// Changes the object at `location` as `write` decides.
    ///
    /// # Errors
    /// The errors of `write` for the object in storage; 504 if other writes conflict until the deadline.
    pub async fn guaranteed_write(
        &self,
        location: &ObjectLocation,
        dry_run: bool,
        write: &mut impl Decide,
    ) -> Result<WriteOutcome, ApiError> {
        let deadline = Instant::now() + WRITE_DEADLINE;
        let mut current = match self.suggested(location).await {
            Some(current) => Some(current),
            None => self.find_stored(location).await?,
        };
        loop {
            if Instant::now() >= deadline {
                return Err(ApiError::Timeout(format!(
                    "the write of {} {:?} conflicted with other writes for {WRITE_DEADLINE:?}: try again",
                    location.resource.qualified(),
                    location.name
                )));
            }
            let decided = write.decide(current.as_ref()).await;
            // A suggestion may be stale. It does not suffice to reject a write, to skip it as unchanged, or to finish a
            // deletion: these are decided again on the object in storage.
            let is_conclusive = match &decided {
                Ok(Change::Put(value)) => current.as_ref().is_some_and(|c| !c.is_stored_as(value)),
                Ok(Change::Delete(_)) => true,
                // `finish` does not check later states, so this state must be from storage.
                Ok(Change::Finish(_)) | Err(_) => false,
            };
            let is_fresh = current.as_ref().is_none_or(|current| current.is_fresh);
            if !is_fresh && (!is_conclusive || dry_run) {
                let stored = self.find_stored(location).await?;
                let at = |current: &Option<Current>| current.as_ref().map(|current| current.at);
                let is_same = at(&stored) == at(&current);
                current = stored;
                if !is_same {
                    continue;
                }
                // The decision holds for the stored object too: webhooks are not called again.
            }
            let at = current.as_ref().map(|current| current.at);
            let change = decided?;
            if matches!(change, Change::Put(_)) {
                // Also for a write that changes nothing: by the present definition it might.
                location.resource.strategy.begin_write()?;
            }
            let outcome = match change {
                Change::Put(value)
                    if dry_run || current.as_ref().is_some_and(|c| c.is_stored_as(&value)) =>
                {
                    let object =
                        self.unstored_response(location, &value, at.unwrap_or_default())?;
                    return Ok(WriteOutcome::Stored(object));
                }
                Change::Delete(value) | Change::Finish(value) if dry_run => {
                    let object =
                        self.unstored_response(location, &value, at.unwrap_or_default())?;
                    return Ok(WriteOutcome::Deleted(object));
                }
                Change::Finish(value) => {
                    let current = current.ok_or_else(|| location.not_found())?;
                    return self.finish(location, &current, &value).await;
                }
                Change::Put(value) => {
                    let converted = conversion::stored_form(&location.resource, &value).await?;
                    let current_form = current.as_ref().filter(|current| !current.is_stale);
                    let raw = current_form.and_then(|current| current.raw.as_ref());
                    if raw.is_some_and(|raw| raw == converted.as_ref().unwrap_or(&value)) {
                        let object =
                            self.unstored_response(location, &value, at.unwrap_or_default())?;
                        return Ok(WriteOutcome::Stored(object));
                    }
                    let mut value = converted.unwrap_or(value);
                    let expect = at.map_or(Expect::Absent, Expect::At);
                    let keeps_managers = write.requires_managed_fields();
                    let put = self
                        .put_within_limit(location, &mut value, expect, keeps_managers)
                        .await;
                    if let Ok((stored, Outcome::Done(at))) = &put {
                        let at = *at;
                        self.after_store(&location.resource, at).await;
                        self.release_replaced(location, current.as_ref(), &value, at)
                            .await;
                        let response = self.write_response(location, stored, &value, at).await?;
                        return Ok(WriteOutcome::Stored(response));
                    }
                    let error = put.as_ref().err();
                    self.release_unstored(
                        location,
                        write.write_id(),
                        current.as_ref(),
                        &value,
                        error,
                    )
                    .await;
                    put?.1
                }
                Change::Delete(value) => {
                    let expect = at.ok_or_else(|| location.not_found())?;
                    let store = self.store(&location.resource);
                    let before = current.as_ref().map_or(&value, |before| &before.value);
                    let outcome = store.delete(&location.storage_key, expect).await?;
                    if let Outcome::Done(at) = outcome {
                        self.after_store(&location.resource, at).await;
                        self.release_deleted(location, [&value, before]).await;
                        let object = self.unstored_response(location, &value, at)?;
                        return Ok(WriteOutcome::Deleted(object));
                    }
                    self.release_unstored(
                        location,
                        write.write_id(),
                        current.as_ref(),
                        &value,
                        None,
                    )
                    .await;
                    outcome
                }
            };
            current = match outcome {
                Outcome::Refused(Some(stored)) => Some(current_of(location, &stored).await?),
                // A failed put that expects an absent key does not return the existing value.
                _ if at.is_none() => self.find_stored(location).await?,
                _ => None,
            };
        }
    }

    /// Deletes the object at `location` after a write removed its last finalizer; `value` is its last state. As
    /// upstream, a concurrent write causes neither a conflict nor a 404: if several clients remove the last finalizer
    /// concurrently, all of them succeed.
    async fn finish(
        &self,
        location: &ObjectLocation,
        decided_on: &Current,
        value: &Value,
    ) -> Result<WriteOutcome, ApiError> {
        let store = self.store(&location.resource);
        let uid = metadata::text(&decided_on.value, "uid");
        let mut expect = decided_on.at;
        loop {
            match store.delete(&location.storage_key, expect).await? {
                Outcome::Done(at) => {
                    self.after_store(&location.resource, at).await;
                    self.release_deleted(location, [value, &decided_on.value])
                        .await;
                    return Ok(WriteOutcome::Deleted(
                        self.unstored_response(location, value, at)?,
                    ));
                }
                Outcome::Refused(Some(now)) if stored_uid(&now).as_deref() == Some(uid) => {
                    expect = now.mod_revision;
                }
                Outcome::Refused(_) => {
                    let object = self.unstored_response(location, value, decided_on.at)?;
                    return Ok(WriteOutcome::Deleted(object));
                }
            }
        }
    }

    /// Returns the object from storage, in the version of its resource.
    ///
    /// # Errors
    /// 404 if it does not exist; storage's, and those of a conversion.
    pub async fn read_stored(&self, location: &ObjectLocation) -> Result<Current, ApiError> {
        let found = self.find_stored(location).await?;
        found.ok_or_else(|| location.not_found())
    }

    async fn find_stored(&self, location: &ObjectLocation) -> Result<Option<Current>, ApiError> {
        let (stored, _) = self
            .store(&location.resource)
            .get(&location.storage_key)
            .await?;
        match &stored {
            Some(stored) => Ok(Some(current_of(location, stored).await?)),
            None => Ok(None),
        }
    }

    /// Returns the object from a cache, in the version of its resource; `None` if it has to be read from storage.
    async fn suggested(&self, location: &ObjectLocation) -> Option<Current> {
        let object = self.peek(&location.resource, &location.key)?;
        // The webhook may convert an object differently today: a write does not begin with a cached conversion.
        if conversion::needs_webhook(&location.resource, object.body_slice()) {
            return None;
        }
        let converted = conversion::convert_cached_one(&location.resource, object)
            .await
            .ok()?;
        let mut current = Current::suggested(&converted)?;
        if let Some(converter) = conversion::renaming_converter(&location.resource) {
            current.value = converter.renamed(current.value, &location.resource.api_version());
        }
        Some(current)
    }

    /// Writes `value`, and returns it encoded. As upstream, it writes a value that is too large for storage once more
    /// without managed fields, which can be most of it, unless the write `keeps_managers`.
    ///
    /// # Errors
    /// 400 if the object nests too deeply to be read again: it could then not be changed or deleted.
    pub(crate) async fn put_within_limit(
        &self,
        location: &ObjectLocation,
        value: &mut Value,
        expect: Expect,
        keeps_managers: bool,
    ) -> Result<(Bytes, Outcome), ApiError> {
        metadata::check_depth(value, 0)?;
        let stored = encode(value);
        match self.put(location, stored.clone(), expect).await {
            Err(ApiError::Storage(StorageError::TooLarge { .. }))
                if !keeps_managers && value["metadata"]["managedFields"].is_array() =>
            {
                metadata::put_managed_fields(Value::Null, value);
                let stored = encode(value);
                let outcome = self.put(location, stored.clone(), expect).await?;
                Ok((stored, outcome))
            }
            outcome => Ok((stored, outcome?)),
        }
    }

    /// Writes `stored`, an object [encoded](encode) in stored form. The write of a custom resource continues when its
    /// request is cancelled, because a change of the definition waits for the writes that began before.
    ///
    /// # Errors
    /// [`ApiError::NotServed`] if the definition has changed since the write was decided.
    pub(crate) async fn put(
        &self,
        location: &ObjectLocation,
        stored: Bytes,
        expect: Expect,
    ) -> Result<Outcome, ApiError> {
        let put = Put {
            key: location.storage_key.clone(),
            value: stored,
            expect,
            ttl: location.resource.strategy.rules().ttl,
        };
        let store = self.store(&location.resource);
        let Some(in_progress) = location.resource.strategy.begin_write()? else {
            return Ok(store.put(put).await?);
        };
        let write = async move {
            let outcome = store.put(put).await;
            drop(in_progress);
            outcome
        };
        let write = watchet_telemetry::with_current_context(write);
        let writing = self.tasks.spawn("custom-resource-write", write);
        // The task panicked, which the group reports, or the runtime has shut down.
        Ok(writing.await.map_err(|_| ReadError::Stopped)??)
    }

    /// Returns the response with `value`, which is in the version of its resource and was not stored. The version of a
    /// dry run's object is zero.
    ///
    /// # Errors
    /// `value` is not an object with metadata.
    pub(crate) fn unstored_response(
        &self,
        location: &ObjectLocation,
        value: &Value,
        at: ResourceVersion,
    ) -> Result<Arc<Object>, ApiError> {
        let encoded = encode(value);
        let (event_type, columns) = (EventType::Modified, &location.resource.columns);
        let object = Object::decode(location.key.clone(), at, event_type, &encoded, columns)?;
        Ok(Arc::new(object))
    }

    /// Returns the response to a write of `value`, which is stored as `stored` at revision `at`. If a webhook cannot
    /// convert it back, the response is `value`, because the write has succeeded.
    ///
    /// # Errors
    /// `value` is not an object with metadata.
    pub(crate) async fn write_response(
        &self,
        location: &ObjectLocation,
        stored: &[u8],
        value: &Value,
        at: ResourceVersion,
    ) -> Result<Arc<Object>, ApiError> {
        match self.stored_response(location, stored, at).await {
            Err(error) => {
                let key = &location.storage_key;
                tracing::warn!(%key, %error, "cannot convert a stored object for the response");
                self.unstored_response(location, value, at)
            }
            response => response,
        }
    }

    /// Returns the object `stored` at revision `at`, in the version of its resource.
    async fn stored_response(
        &self,
        location: &ObjectLocation,
        stored: &[u8],
        at: ResourceVersion,
    ) -> Result<Arc<Object>, ApiError> {
        let read = conversion::completed(&location.resource, stored);
        let object = Object::decode(
            location.key.clone(),
            at,
            EventType::Modified,
            read.as_deref().unwrap_or(stored),
            &location.resource.columns,
        )?;
        conversion::convert_cached_one(&location.resource, Arc::new(object)).await
    }
}

/// Returns the uid of a stored object, which is the same in all versions.
fn stored_uid(stored: &KeyValue) -> Option<String> {
    let value = parse(&stored.value).ok()?;
    Some(metadata::text(&value, "uid").to_owned())
}

/// Decodes a stored object, in the version of its resource.
async fn current_of(location: &ObjectLocation, stored: &KeyValue) -> Result<Current, ApiError> {
    conversion::current(&location.resource, Current::stored(stored)?).await
}
