//! Helpers of the storage tests to write, list and watch. Each asserts the rules that always hold.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use tokio::time::timeout;
use watchet::api::{ResourceVersion, StorageKey};
use watchet::storage::{
    Expect, ListPage, ListRequest, Outcome, Put, Storage, StorageBatch, StorageError, StorageEvent,
    StorageWatch,
};
use watchet::tasks::Tasks;

/// A time limit longer than any working store takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn key(text: &str) -> StorageKey {
    StorageKey::new(text).expect("a valid key")
}

pub(crate) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Puts a value under a condition, without a TTL.
pub(crate) async fn put(
    store: &Arc<dyn Storage>,
    at: &str,
    value: &str,
    expect: Expect,
) -> Result<Outcome, StorageError> {
    let put = Put {
        key: key(at),
        value: bytes(value),
        expect,
        ttl: None,
    };
    store.put(put).await
}

fn done(outcome: Result<Outcome, StorageError>) -> ResourceVersion {
    match outcome.expect("the store answers") {
        Outcome::Done(revision) => revision,
        Outcome::Refused(current) => panic!("refused; the key is {current:?}"),
    }
}

/// Creates a key that must be absent.
pub(crate) async fn create(store: &Arc<dyn Storage>, at: &str, value: &str) -> ResourceVersion {
    done(put(store, at, value, Expect::Absent).await)
}

/// Updates a key that must be at `revision`.
pub(crate) async fn update(
    store: &Arc<dyn Storage>,
    at: &str,
    revision: ResourceVersion,
    value: &str,
) -> ResourceVersion {
    done(put(store, at, value, Expect::At(revision)).await)
}

/// Deletes a key that must be at `revision`.
pub(crate) async fn delete(
    store: &Arc<dyn Storage>,
    at: &str,
    revision: ResourceVersion,
) -> ResourceVersion {
    done(store.delete(&key(at), revision).await)
}

/// Lists everything under `prefix`.
pub(crate) async fn list(
    store: &Arc<dyn Storage>,
    prefix: &str,
    at: Option<ResourceVersion>,
) -> Result<ListPage, StorageError> {
    page(store, prefix, "", at, 0).await
}

/// Lists a page and checks the rules of every page.
pub(crate) async fn page(
    store: &Arc<dyn Storage>,
    prefix: &str,
    start: &str,
    at: Option<ResourceVersion>,
    limit: usize,
) -> Result<ListPage, StorageError> {
    let request = ListRequest {
        prefix: key(prefix),
        start: start.to_owned(),
        at,
        limit,
        count: true,
    };
    let page = timeout(PATIENCE, store.list(request))
        .await
        .expect("the list answers")?;
    assert!(at.is_none_or(|at| at == page.revision), "{page:?}");
    assert!(limit == 0 || page.items.len() <= limit, "{page:?}");
    assert_eq!(page.remaining.map(|count| count > 0), Some(page.more));
    assert!(limit != 0 || !page.more, "{page:?}");
    assert!(page.items.is_sorted_by(|a, b| a.key < b.key), "{page:?}");
    for item in &page.items {
        assert!(key(prefix).covers(item.key.as_str()), "{item:?}");
        assert!(item.create_revision <= item.mod_revision, "{item:?}");
        assert!(item.mod_revision <= page.revision, "{item:?}");
    }
    Ok(page)
}

/// Returns `key=value` of each item.
pub(crate) fn pairs(page: &ListPage) -> Vec<String> {
    let pair = |item: &watchet::storage::KeyValue| {
        format!("{}={}", item.key, String::from_utf8_lossy(&item.value))
    };
    page.items.iter().map(pair).collect()
}

/// A watch that checks the order as it reads.
pub(crate) struct Follow {
    pub(crate) watch: StorageWatch,
    prefix: StorageKey,
    position: ResourceVersion,
}

impl Follow {
    pub(crate) async fn open(
        store: &Arc<dyn Storage>,
        prefix: &str,
        after: ResourceVersion,
    ) -> Self {
        let prefix = key(prefix);
        let watch = store.watch(&prefix, after).await.expect("the watch opens");
        Self {
            watch,
            prefix,
            position: after,
        }
    }

    /// Returns the next batch.
    pub(crate) async fn batch(&mut self) -> Result<StorageBatch, StorageError> {
        let batch = timeout(PATIENCE, self.watch.batches.next())
            .await
            .expect("the watch delivers")
            .expect("the watch has not ended")?;
        for event in &batch.events {
            assert!(
                event.revision > self.position,
                "{event:?} at {:?}",
                self.position
            );
            assert!(self.prefix.covers(event.key.as_str()), "{event:?}");
            self.position = event.revision;
        }
        assert!(
            batch.revision >= self.position,
            "{batch:?} at {:?}",
            self.position
        );
        self.position = batch.revision;
        Ok(batch)
    }

    /// Returns the next `count` events; a batch with more events is a failure.
    pub(crate) async fn events(&mut self, count: usize) -> Vec<StorageEvent> {
        let mut events = Vec::new();
        while events.len() < count {
            events.extend(self.batch().await.expect("the watch is healthy").events);
        }
        assert_eq!(events.len(), count, "{events:?}");
        events
    }

    /// Requests progress and reads until a batch reaches `revision`; returns the events.
    pub(crate) async fn until(&mut self, revision: ResourceVersion) -> Vec<StorageEvent> {
        self.watch.progress.request();
        let mut events = Vec::new();
        while self.position < revision {
            events.extend(self.batch().await.expect("the watch is healthy").events);
        }
        events
    }
}

/// Returns `key=value (was previous)` of each event, without the revision.
pub(crate) fn describe(events: &[StorageEvent]) -> Vec<String> {
    let text = |value: &Option<Bytes>| match value {
        Some(value) => String::from_utf8_lossy(value).into_owned(),
        None => "-".to_owned(),
    };
    let describe_one = |event: &StorageEvent| {
        format!(
            "{}={} was {}",
            event.key,
            text(&event.value),
            text(&event.previous)
        )
    };
    events.iter().map(describe_one).collect()
}

/// Runs the store's background tasks until dropped.
pub(crate) struct Maintained(Tasks);

impl Maintained {
    pub(crate) fn start(store: &Arc<dyn Storage>) -> Self {
        let tasks = Tasks::new();
        let (store, token) = (store.clone(), tasks.token());
        tasks.spawn("maintain", async move { store.maintain(token).await });
        Self(tasks)
    }
}

impl Drop for Maintained {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
