//! A simulated collection, and a source of it with injected failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use tokio::sync::watch;

use watchet_api::ResourceVersion;
use watchet_reflector::{Change, ChangeBatch, ChangeStream, ListerWatcher, Listing, SourceError};

/// A collection of config maps. Clones share it and are sources of it.
#[derive(Clone)]
pub(crate) struct Collection {
    state: Arc<Mutex<State>>,
    moved: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Arc<ConfigMap>>,
    version: u64,
    history: Vec<(u64, Change<ConfigMap>)>,
    /// The oldest version from which a watch can start.
    compacted: u64,
    /// How often all watches were cut.
    cuts: u64,
    /// How many of the next lists and watches fail.
    failures: usize,
    /// The maximum number of changes in a batch; unlimited if zero.
    batch_max: usize,
    lists: usize,
}

/// Returns the object `name` at a version.
pub(crate) fn object(name: &str, uid: u64, version: u64) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.metadata.namespace = Some("ns".to_owned());
    map.metadata.uid = Some(uid.to_string());
    map.metadata.resource_version = Some(version.to_string());
    map
}

pub(crate) fn name_of(map: &ConfigMap) -> &str {
    map.metadata.name.as_deref().unwrap()
}

pub(crate) fn uid_of(map: &ConfigMap) -> u64 {
    map.metadata.uid.as_ref().unwrap().parse().unwrap()
}

pub(crate) fn version_of(map: &ConfigMap) -> u64 {
    let version = map.metadata.resource_version.as_ref();
    version.unwrap().parse().unwrap()
}

impl Collection {
    pub(crate) fn new(names: &[&str]) -> Self {
        let collection = Self {
            state: Arc::default(),
            moved: watch::Sender::default(),
        };
        names.iter().for_each(|name| collection.put(name));
        collection
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.moved.send_replace(());
    }

    /// Creates or updates an object.
    pub(crate) fn put(&self, name: &str) {
        self.change(|state| {
            state.version += 1;
            let version = state.version;
            let old = state.objects.get(name);
            let map = Arc::new(object(
                name,
                old.map_or(version, |old| uid_of(old)),
                version,
            ));
            let change = match old {
                Some(_) => Change::Modified(map.clone()),
                None => Change::Added(map.clone()),
            };
            state.objects.insert(name.to_owned(), map);
            state.history.push((version, change));
        });
    }

    /// Deletes an object, if it exists.
    pub(crate) fn delete(&self, name: &str) {
        self.change(|state| {
            if let Some(old) = state.objects.remove(name) {
                state.version += 1;
                let last = Arc::new(object(name, uid_of(&old), state.version));
                state.history.push((state.version, Change::Deleted(last)));
            }
        });
    }

    /// Interrupts all watches, which can be resumed.
    pub(crate) fn cut(&self) {
        self.change(|state| state.cuts += 1);
    }

    /// Interrupts all watches and calls `meanwhile`; no watch can be resumed.
    pub(crate) fn lose(&self, meanwhile: impl FnOnce(&Self)) {
        self.state.lock().cuts += 1;
        meanwhile(self);
        self.change(|state| {
            // A change that no watch has received.
            state.version += 1;
            state.compacted = state.version;
            state.history.clear();
        });
    }

    /// Makes the next lists and watches fail.
    pub(crate) fn fail(&self, times: usize) {
        self.change(|state| state.failures = times);
    }

    pub(crate) fn batch_max(&self, changes: usize) {
        self.change(|state| state.batch_max = changes);
    }

    pub(crate) fn lists(&self) -> usize {
        self.state.lock().lists
    }

    pub(crate) fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// Returns the versions by name.
    pub(crate) fn versions(&self) -> BTreeMap<String, u64> {
        let state = self.state.lock();
        let objects = state.objects.iter();
        objects
            .map(|(name, map)| (name.clone(), version_of(map)))
            .collect()
    }
}

impl State {
    fn fail_if_injected(&mut self) -> Result<(), SourceError> {
        if self.failures == 0 {
            return Ok(());
        }
        self.failures -= 1;
        Err(unavailable())
    }
}

fn unavailable() -> SourceError {
    SourceError::Unavailable {
        detail: "connection refused".to_owned(),
        retry_after: None,
    }
}

impl ListerWatcher for Collection {
    type Object = ConfigMap;

    async fn list(&mut self) -> Result<Listing<ConfigMap>, SourceError> {
        // A list takes some time.
        tokio::task::yield_now().await;
        let mut state = self.state.lock();
        state.fail_if_injected()?;
        state.lists += 1;
        Ok(Listing {
            objects: state.objects.values().cloned().collect(),
            at: ResourceVersion::new(state.version),
        })
    }

    async fn watch(
        &mut self,
        after: ResourceVersion,
    ) -> Result<ChangeStream<ConfigMap>, SourceError> {
        let cuts = {
            let mut state = self.state.lock();
            state.fail_if_injected()?;
            if after.get() < state.compacted {
                return Err(SourceError::Expired {
                    at: after,
                    detail: "too old resource version".to_owned(),
                });
            }
            state.cuts
        };
        let follow = Follow {
            collection: self.clone(),
            moved: self.moved.subscribe(),
            after: after.get(),
            cuts,
        };
        Ok(Box::pin(stream::unfold(Some(follow), async |follow| {
            let mut follow = follow?;
            match follow.next().await {
                Ok(batch) => Some((Ok(batch), Some(follow))),
                Err(error) => Some((Err(error), None)),
            }
        })))
    }
}

struct Follow {
    collection: Collection,
    moved: watch::Receiver<()>,
    after: u64,
    cuts: u64,
}

impl Follow {
    async fn next(&mut self) -> Result<ChangeBatch<ConfigMap>, SourceError> {
        loop {
            {
                let state = self.collection.state.lock();
                if state.cuts != self.cuts {
                    return Err(unavailable());
                }
                let begin = state.history.partition_point(|(at, _)| *at <= self.after);
                let news = &state.history[begin..];
                let count = match state.batch_max {
                    0 => news.len(),
                    max => news.len().min(max),
                };
                if let Some((at, _)) = news[..count].last() {
                    self.after = *at;
                    return Ok(ChangeBatch {
                        changes: news[..count]
                            .iter()
                            .map(|(_, change)| change.clone())
                            .collect(),
                        at: ResourceVersion::new(*at),
                    });
                }
            }
            if self.moved.changed().await.is_err() {
                return Err(unavailable());
            }
        }
    }
}
