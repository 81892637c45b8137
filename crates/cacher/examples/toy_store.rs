//! A watch cache over a store of your own: the store is a log of changes in memory, some 60 lines. The cache serves lists
//! and watches from memory, with bookmarks, pages and versions as a Kubernetes API server does.
//!
//! ```console
//! $ cargo run -p watchet-cacher --example toy_store
//! ```

#![allow(clippy::print_stdout, reason = "it prints what the watch delivers")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream;
use tokio::sync::watch::Sender;
use tokio_util::sync::CancellationToken;
use watchet_api::{ListOptions, ResourceVersion, SelectionPredicate, StorageKey};
use watchet_cacher::{CachedResource, Cacher, CacherConfig, WatchItem};
use watchet_metrics::Metrics;
use watchet_storage::{
    Expect, KeyValue, ListPage, ListRequest, Outcome, ProgressRequester, Put, Storage,
    StorageBatch, StorageError, StorageEvent, StorageWatch,
};
use watchet_tasks::Tasks;

/// All changes since the beginning. The change at index `i` has revision `i + 1`.
#[derive(Debug, Default)]
struct ToyStore(Sender<Vec<StorageEvent>>);

impl ToyStore {
    /// Returns the content at a revision.
    fn at(&self, revision: ResourceVersion) -> BTreeMap<StorageKey, KeyValue> {
        let mut content: BTreeMap<StorageKey, KeyValue> = BTreeMap::new();
        for event in self.0.borrow().iter().take(revision.get() as usize) {
            let created = content.get(&event.key).map(|old| old.create_revision);
            match event.value.clone() {
                None => drop(content.remove(&event.key)),
                Some(value) => {
                    let key = event.key.clone();
                    let create_revision = created.unwrap_or(event.revision);
                    let mod_revision = event.revision;
                    let entry = KeyValue {
                        key,
                        value,
                        create_revision,
                        mod_revision,
                        is_stale: false,
                    };
                    content.insert(event.key.clone(), entry);
                }
            }
        }
        content
    }

    fn revision(&self) -> ResourceVersion {
        ResourceVersion::new(self.0.borrow().len() as u64)
    }

    fn write(&self, key: &StorageKey, expect: Expect, value: Option<bytes::Bytes>) -> Outcome {
        let current = self.at(self.revision()).remove(key);
        let version = current.as_ref().map(|current| current.mod_revision);
        let expected = match expect {
            Expect::Absent => None,
            Expect::At(revision) => Some(revision),
        };
        if version != expected {
            return Outcome::Refused(current);
        }
        let previous = current.map(|current| current.value);
        let revision = ResourceVersion::new(self.revision().get() + 1);
        let event = StorageEvent {
            key: key.clone(),
            revision,
            value,
            previous,
        };
        self.0.send_modify(|log| log.push(event));
        Outcome::Done(revision)
    }
}

#[async_trait]
impl Storage for ToyStore {
    fn name(&self) -> &'static str {
        "toy"
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        let revision = self.revision();
        Ok((self.at(revision).remove(key), revision))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        let revision = request.at.unwrap_or(self.revision());
        let prefix = request.prefix.as_str();
        let start = format!("{prefix}{}", request.start);
        let content = self.at(revision).into_values();
        let mut items: Vec<_> = content
            .filter(|item| item.key.as_str().starts_with(prefix) && item.key.as_str() >= &*start)
            .collect();
        let rest = items.len().saturating_sub(if request.limit == 0 {
            items.len()
        } else {
            request.limit
        });
        items.truncate(items.len() - rest);
        let remaining = request.count.then_some(rest as u64);
        Ok(ListPage {
            items,
            revision,
            more: rest > 0,
            remaining,
        })
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        Ok(self.write(&put.key, put.expect, Some(put.value)))
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        Ok(self.write(key, Expect::At(expect), None))
    }

    async fn watch(
        &self,
        prefix: &StorageKey,
        after: ResourceVersion,
    ) -> Result<StorageWatch, StorageError> {
        let (prefix, progress) = (prefix.clone(), ProgressRequester::default());
        let start = (self.0.subscribe(), after.get() as usize, progress.clone());
        let batches = stream::unfold(start, move |(mut log, sent, progress)| {
            let prefix = prefix.clone();
            async move {
                tokio::select! {
                    changed = log.wait_for(|log| log.len() > sent) => drop(changed.ok()?),
                    () = progress.requested() => {}
                }
                let (events, end) = {
                    let log = log.borrow();
                    let new = log[sent..]
                        .iter()
                        .filter(|event| event.key.as_str().starts_with(prefix.as_str()));
                    (new.cloned().collect(), log.len())
                };
                let revision = ResourceVersion::new(end as u64);
                Some((Ok(StorageBatch { events, revision }), (log, end, progress)))
            }
        });
        Ok(StorageWatch {
            batches: Box::pin(batches),
            progress,
        })
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        Ok(self.revision())
    }

    /// The log is never compacted.
    async fn compact(&self, _at: ResourceVersion) -> Result<(), StorageError> {
        Ok(())
    }

    async fn compacted_revision(&self) -> Result<ResourceVersion, StorageError> {
        Ok(ResourceVersion::new(0))
    }

    fn progress_supported(&self) -> bool {
        true
    }

    async fn maintain(&self, cancel: CancellationToken) {
        cancel.cancelled().await;
    }
}

/// Returns a write of a colour, as an object of Kubernetes' form.
fn colour(name: &str, hex: &str, expect: Expect) -> Result<Put, Box<dyn Error>> {
    let object = format!(
        r#"{{"apiVersion":"v1","kind":"Colour","metadata":{{"name":"{name}"}},"hex":"{hex}"}}"#
    );
    let key = StorageKey::new(&format!("/colours/{name}"))?;
    Ok(Put {
        key,
        value: object.into(),
        expect,
        ttl: None,
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (store, tasks) = (Arc::new(ToyStore::default()), Tasks::new());
    store
        .put(colour("watchet", "#7cafc2", Expect::Absent)?)
        .await?;
    let resource = CachedResource {
        name: "colours".into(),
        namespaced: false,
        prefix: StorageKey::new("/colours/")?,
        columns: Default::default(),
        triggers: Vec::new(),
        metrics: Metrics::new().resource("", "colours"),
        transform: None,
    };
    let cacher = Cacher::start(resource, store.clone(), &tasks, CacherConfig::default());

    let all = SelectionPredicate::default();
    let list = cacher.list(&all, &ListOptions::default()).await?;
    println!(
        "{} colour at version {}",
        list.items.len(),
        list.resource_version
    );
    assert_eq!((list.items.len(), list.resource_version.get()), (1, 1));

    let options = ListOptions {
        resource_version: Some(list.resource_version),
        ..Default::default()
    };
    let mut watch = cacher.watch(all.clone(), &options).await?;
    store
        .put(colour("madder", "#a2281b", Expect::Absent)?)
        .await?;
    store
        .put(colour(
            "madder",
            "#9f2b20",
            Expect::At(ResourceVersion::new(2)),
        )?)
        .await?;
    let mut events = 0;
    while events < 2 {
        for item in watch.next().await.ok_or("the watch ended")? {
            if let WatchItem::Event(event) = item {
                println!(
                    "{:?} {:?} at version {}",
                    event.event_type(),
                    event.object().key(),
                    event.object().resource_version()
                );
                events += 1;
            }
        }
    }
    let list = cacher.list(&all, &ListOptions::default()).await?;
    assert_eq!((list.items.len(), list.resource_version.get()), (2, 3));
    tasks.drain(Duration::from_secs(5)).await?;
    Ok(())
}
