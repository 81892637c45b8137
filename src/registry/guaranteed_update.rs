//! GuaranteedUpdate: reads an object, changes it as a verb decides, and writes it by compare-and-swap, again after each
//! conflict. Also the place of an object in storage, and its stored form.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

use super::allocator::WriteId;
use super::conversion;
use super::{ApiError, Registry, Resource, Target, metadata, names};
use crate::api::{EventType, Object, ObjectKey, ResourceVersion, StorageKey};
use crate::cacher::ReadError;
use crate::storage::{Expect, KeyValue, Outcome, Put, Storage as _, StorageError};

/// The time limit of one write, including its retries after conflicts: kube-apiserver's limit of a mutating request.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(34);

/// Most objects are not larger, so that their buffer need not grow while they are encoded.
const ENCODED_BYTES_USUAL: usize = 2048;

/// Where one object is.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) resource: Arc<Resource>,
    pub(crate) name: String,
    pub(crate) key: ObjectKey,
    pub(crate) storage_key: StorageKey,
}

impl Place {
    /// The place of `target`.
    ///
    /// # Errors
    /// 400 when a name or a namespace is missing or cannot be part of a path.
    pub(crate) fn of(target: &Target) -> Result<Self, ApiError> {
        Self::new(&target.resource, target.namespace.as_deref(), &target.name)
    }

    pub(crate) fn new(
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Self, ApiError> {
        let key = Self::key_of(resource, namespace, name)?;
        Ok(Self {
            resource: resource.clone(),
            name: name.to_owned(),
            storage_key: resource.storage_key(&key)?,
            key,
        })
    }

    /// The key of such an object, as [`Self::new`] checks it; where it is stored is the cache's to know.
    pub(crate) fn key_of(
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<ObjectKey, ApiError> {
        let namespace = match (resource.namespaced, namespace) {
            (true, None | Some("")) => {
                return Err(ApiError::BadRequest(
                    "an empty namespace may not be set when a resource name is provided".to_owned(),
                ));
            }
            (true, namespace) => namespace,
            (false, _) => None,
        };
        for (what, text) in [("name", Some(name)), ("namespace", namespace)] {
            let problems = text.map(names::path_segment_problems).unwrap_or_default();
            if text == Some("") || !problems.is_empty() {
                return Err(ApiError::BadRequest(format!(
                    "invalid {what} {:?} of {}: {}",
                    text.unwrap_or_default(),
                    resource.qualified(),
                    if problems.is_empty() {
                        "must not be empty".to_owned()
                    } else {
                        problems.join(", ")
                    },
                )));
            }
        }
        Ok(ObjectKey::new(namespace, name))
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.resource, &self.name)
    }
}

/// The object that a write starts from.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    /// In stored form.
    pub(crate) value: Value,
    /// When it was written.
    pub(crate) at: ResourceVersion,
    /// Read from storage by this write, and not suggested by a cache.
    pub(crate) fresh: bool,
    /// What storage has, where that is not how it is seen: a write that changes nothing is one if that would
    /// be stored otherwise today. Only known of what is fresh.
    pub(crate) raw: Option<Value>,
}

impl Current {
    pub(crate) fn stored(stored: &KeyValue) -> Result<Self, ApiError> {
        let undecodable = |why: &dyn std::fmt::Display| {
            ReadError::Undecodable(format!("undecodable object {}: {why}", stored.key))
        };
        let value = parse(&stored.value).map_err(|error| undecodable(&error))?;
        if !value["metadata"].is_object() {
            return Err(undecodable(&"it is no object with metadata").into());
        }
        Ok(Self {
            value,
            at: stored.mod_revision,
            fresh: true,
            raw: None,
        })
    }

    fn suggested(object: &Object) -> Option<Self> {
        Some(Self {
            value: parse(object.body_slice()).ok()?,
            at: object.resource_version(),
            fresh: false,
            raw: None,
        })
    }

    /// Whether storage is as it should be when `value` is wanted; it may be besides.
    fn is_surely(&self, value: &Value) -> bool {
        self.raw.is_none() && self.value == *value
    }
}

/// The stored form of `json`.
pub(crate) fn parse(json: &[u8]) -> Result<Value, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(json)?;
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    Ok(value)
}

/// What a write decided about the object as it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// To write this, in stored form.
    Put(Value),
    /// To delete it; with it the last state to answer with.
    Delete(Value),
    /// To delete it because this write removed the last finalizer; with it the last state to answer with.
    Finish(Value),
}

/// What a write came to.
#[derive(Debug, Clone)]
pub(crate) enum Written {
    /// The object is stored so.
    Stored(Arc<Object>),
    /// The object is gone; this was its last state.
    Deleted(Arc<Object>),
}

impl Written {
    pub(crate) fn into_object(self) -> Arc<Object> {
        match self {
            Self::Stored(object) | Self::Deleted(object) => object,
        }
    }
}

/// What a write makes of the object as it is; asked again for every state that the object turns out to
/// be in.
pub(crate) trait Decide: Send {
    /// What is to be done about `current`; `None` when there is no object, as storage says.
    fn decide(
        &mut self,
        current: Option<&Current>,
    ) -> impl Future<Output = Result<Change, ApiError>> + Send;

    /// Whether who manages which fields is what it is about, and must not be left out.
    fn is_about_managers(&self) -> bool {
        false
    }

    /// Identifies the write in the reservations of an allocator, if it makes any.
    fn write_id(&self) -> Option<WriteId> {
        None
    }
}

impl Registry {
    /// Changes the object at `place` as `write` decides.
    ///
    /// # Errors
    /// Those of `write` on what storage has; 504 when others win until the deadline.
    pub(crate) async fn guaranteed_write(
        &self,
        place: &Place,
        dry_run: bool,
        write: &mut impl Decide,
    ) -> Result<Written, ApiError> {
        let deadline = Instant::now() + WRITE_DEADLINE;
        let mut current = match self.suggested(place).await {
            Some(current) => Some(current),
            None => self.find_stored(place).await?,
        };
        loop {
            if Instant::now() >= deadline {
                return Err(ApiError::Timeout(format!(
                    "the write of {} {:?} met a newer version each time for {WRITE_DEADLINE:?}",
                    place.resource.qualified(),
                    place.name
                )));
            }
            let decided = write.decide(current.as_ref()).await;
            // A suggestion may be out of date: it neither refuses nor ends a write by itself.
            let settles = match &decided {
                Ok(Change::Put(value)) => current.as_ref().is_some_and(|c| !c.is_surely(value)),
                Ok(Change::Delete(_)) => true,
                // What it is decided on is the last state that is checked.
                Ok(Change::Finish(_)) | Err(_) => false,
            };
            let fresh = current.as_ref().is_none_or(|current| current.fresh);
            if !fresh && (!settles || dry_run) {
                let stored = self.find_stored(place).await?;
                let at = |current: &Option<Current>| current.as_ref().map(|current| current.at);
                let was_right = at(&stored) == at(&current);
                current = stored;
                if !was_right {
                    continue;
                }
                // So was what was decided on it: webhooks are not asked twice.
            }
            let at = current.as_ref().map(|current| current.at);
            let change = decided?;
            if matches!(change, Change::Put(_)) {
                // Also of a write that changes nothing: it might, by what the definition says today.
                place.resource.strategy.begin_write()?;
            }
            let outcome = match change {
                Change::Put(value)
                    if dry_run || current.as_ref().is_some_and(|c| c.is_surely(&value)) =>
                {
                    let object = self.unwritten(place, &value, at.unwrap_or_default())?;
                    return Ok(Written::Stored(object));
                }
                Change::Delete(value) | Change::Finish(value) if dry_run => {
                    let object = self.unwritten(place, &value, at.unwrap_or_default())?;
                    return Ok(Written::Deleted(object));
                }
                Change::Finish(value) => {
                    let current = current.ok_or_else(|| place.not_found())?;
                    return self.finish(place, &current, &value).await;
                }
                Change::Put(value) => {
                    let converted = conversion::stored_form(&place.resource, &value).await?;
                    let raw = current.as_ref().and_then(|current| current.raw.as_ref());
                    if raw.is_some_and(|raw| raw == converted.as_ref().unwrap_or(&value)) {
                        let object = self.unwritten(place, &value, at.unwrap_or_default())?;
                        return Ok(Written::Stored(object));
                    }
                    let mut value = converted.unwrap_or(value);
                    let expect = at.map_or(Expect::Absent, Expect::At);
                    let keeps = write.is_about_managers();
                    let fitted = self.fit(place, &mut value, expect, keeps).await;
                    if let Ok((stored, Outcome::Done(at))) = &fitted {
                        let at = *at;
                        self.after_store(&place.resource, at).await;
                        self.release_replaced(place, current.as_ref(), &value, at)
                            .await;
                        return Ok(Written::Stored(self.told(place, stored, &value, at).await?));
                    }
                    let why = fitted.as_ref().err();
                    self.withdraw(place, write.write_id(), current.as_ref(), &value, why)
                        .await;
                    fitted?.1
                }
                Change::Delete(value) => {
                    let expect = at.ok_or_else(|| place.not_found())?;
                    let store = self.store(&place.resource);
                    let before = current.as_ref().map_or(&value, |before| &before.value);
                    let outcome = store.delete(&place.storage_key, expect).await?;
                    if let Outcome::Done(at) = outcome {
                        self.after_store(&place.resource, at).await;
                        self.release_deleted(place, [&value, before]).await;
                        let object = self.unwritten(place, &value, at)?;
                        return Ok(Written::Deleted(object));
                    }
                    self.withdraw(place, write.write_id(), current.as_ref(), &value, None)
                        .await;
                    outcome
                }
            };
            current = match outcome {
                Outcome::Refused(Some(stored)) => Some(current_of(place, &stored).await?),
                // A put that found the key taken does not say by what.
                _ if at.is_none() => self.find_stored(place).await?,
                _ => None,
            };
        }
    }

    /// Deletes the object at `place` of which a write has left nothing that holds it: `value` is its last state.
    /// As upstream, other writes in between neither make that a conflict nor a 404: of several clients that
    /// remove the last finalizer concurrently each has removed it.
    async fn finish(
        &self,
        place: &Place,
        decided_on: &Current,
        value: &Value,
    ) -> Result<Written, ApiError> {
        let store = self.store(&place.resource);
        let uid = metadata::text(&decided_on.value, "uid");
        let mut expect = decided_on.at;
        loop {
            match store.delete(&place.storage_key, expect).await? {
                Outcome::Done(at) => {
                    self.after_store(&place.resource, at).await;
                    self.release_deleted(place, [value, &decided_on.value])
                        .await;
                    return Ok(Written::Deleted(self.unwritten(place, value, at)?));
                }
                Outcome::Refused(Some(now)) if stored_uid(&now).as_deref() == Some(uid) => {
                    expect = now.mod_revision;
                }
                Outcome::Refused(_) => {
                    let object = self.unwritten(place, value, decided_on.at)?;
                    return Ok(Written::Deleted(object));
                }
            }
        }
    }

    /// The object as storage has it.
    pub(crate) async fn read_stored(&self, place: &Place) -> Result<Current, ApiError> {
        let found = self.find_stored(place).await?;
        found.ok_or_else(|| place.not_found())
    }

    async fn find_stored(&self, place: &Place) -> Result<Option<Current>, ApiError> {
        let (stored, _) = self.store(&place.resource).get(&place.storage_key).await?;
        match &stored {
            Some(stored) => Ok(Some(current_of(place, stored).await?)),
            None => Ok(None),
        }
    }

    /// The object as a cache has it, as the resource at `place` sees it. What cannot be seen so is read from
    /// storage, which says why.
    async fn suggested(&self, place: &Place) -> Option<Current> {
        let object = self.suggestion(&place.resource, &place.key)?;
        // A form that is kept may be one that its webhook would not make again: a write begins with none.
        if conversion::needs_webhook(&place.resource, object.body_slice()) {
            return None;
        }
        let presented = conversion::presented_one(&place.resource, object)
            .await
            .ok()?;
        let mut current = Current::suggested(&presented)?;
        if let Some(converter) = conversion::renaming_converter(&place.resource) {
            current.value = converter.renamed(current.value, &place.resource.api_version());
        }
        Some(current)
    }

    /// Writes `value`, and returns it encoded. What storage finds too large is tried once more without who
    /// manages its fields, which can be most of it, unless the write `keeps` that; as upstream.
    ///
    /// # Errors
    /// 400 when it nests too deeply to be read again: whoever made it so, it could not be changed or deleted.
    pub(crate) async fn fit(
        &self,
        place: &Place,
        value: &mut Value,
        expect: Expect,
        keeps: bool,
    ) -> Result<(Bytes, Outcome), ApiError> {
        metadata::check_depth(value, 0)?;
        let stored = encode(value);
        match self.put(place, stored.clone(), expect).await {
            Err(ApiError::Storage(StorageError::TooLarge { .. }))
                if !keeps && value["metadata"]["managedFields"].is_array() =>
            {
                metadata::put_managed_fields(Value::Null, value);
                let stored = encode(value);
                let outcome = self.put(place, stored.clone(), expect).await?;
                Ok((stored, outcome))
            }
            outcome => Ok((stored, outcome?)),
        }
    }

    /// Writes `stored`, an object [encoded](encode) in stored form. Of a custom resource it goes on when nobody
    /// waits for it any more: what is begun by a definition has to be known to end before that is over.
    ///
    /// # Errors
    /// [`ApiError::NotServed`] when the definition that this was decided by is no longer in force.
    pub(crate) async fn put(
        &self,
        place: &Place,
        stored: Bytes,
        expect: Expect,
    ) -> Result<Outcome, ApiError> {
        let put = Put {
            key: place.storage_key.clone(),
            value: stored,
            expect,
            ttl: place.resource.strategy.rules().ttl,
        };
        let store = self.store(&place.resource);
        let Some(under_way) = place.resource.strategy.begin_write()? else {
            return Ok(store.put(put).await?);
        };
        let writing = self.tasks.spawn("custom-resource-write", async move {
            let outcome = store.put(put).await;
            drop(under_way);
            outcome
        });
        // It panics, which the group is told, or the runtime ends.
        Ok(writing.await.map_err(|_| ReadError::Stopped)??)
    }

    /// The answer with `value`, which is in the form of the resource at `place` and was not stored; at zero,
    /// which no object has, it is a dry run's.
    pub(crate) fn unwritten(
        &self,
        place: &Place,
        value: &Value,
        at: ResourceVersion,
    ) -> Result<Arc<Object>, ApiError> {
        let encoded = encode(value);
        let (event_type, columns) = (EventType::Modified, &place.resource.columns);
        let object = Object::decode(place.key.clone(), at, event_type, &encoded, columns)?;
        Ok(Arc::new(object))
    }

    /// What is answered to a write of `value`, which is stored as `stored` at revision `at`: it is done, so
    /// that a webhook which cannot say how it reads does not fail it.
    pub(crate) async fn told(
        &self,
        place: &Place,
        stored: &[u8],
        value: &Value,
        at: ResourceVersion,
    ) -> Result<Arc<Object>, ApiError> {
        match self.answer(place, stored, at).await {
            Err(error) => {
                let key = &place.storage_key;
                tracing::warn!(%key, %error, "a write is answered with what was sent");
                self.unwritten(place, value, at)
            }
            told => told,
        }
    }

    /// The object that `stored` is once it is at revision `at`, as the resource at `place` sees it.
    pub(crate) async fn answer(
        &self,
        place: &Place,
        stored: &[u8],
        at: ResourceVersion,
    ) -> Result<Arc<Object>, ApiError> {
        let read = conversion::completed(&place.resource, stored);
        let object = Object::decode(
            place.key.clone(),
            at,
            EventType::Modified,
            read.as_deref().unwrap_or(stored),
            &place.resource.columns,
        )?;
        conversion::presented_one(&place.resource, Arc::new(object)).await
    }
}

/// Returns the uid of a stored object, which is the same in all versions.
fn stored_uid(stored: &KeyValue) -> Option<String> {
    let value = parse(&stored.value).ok()?;
    Some(metadata::text(&value, "uid").to_owned())
}

/// What a write at `place` finds there.
async fn current_of(place: &Place, stored: &KeyValue) -> Result<Current, ApiError> {
    conversion::current(&place.resource, Current::stored(stored)?).await
}

/// The bytes of `value`, without slack: some of them stay in memory for long.
pub(crate) fn encode(value: &Value) -> Bytes {
    let mut json = Vec::with_capacity(ENCODED_BYTES_USUAL);
    // A `Value` has string keys and finite numbers only, so it always encodes.
    serde_json::to_writer(&mut json, value).expect("a JSON value encodes");
    Bytes::from(json.into_boxed_slice())
}
