//! `MeteredStorage`: counts, times and traces the storage requests of one resource, over any back end, and remembers its
//! last create.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{
    Expect, KeyValue, ListPage, ListRequest, ListVisitor, Outcome, Put, Storage, StorageError,
    StorageLayer,
};
use watchet_api::{ResourceVersion, StorageKey};
use watchet_metrics::{Operation, ResourceMetrics};
use watchet_telemetry::{ChildSpan, text_attribute};

/// A storage that records metrics and spans of the requests of one resource. It does not count the events of watches: the
/// cache of the resource counts those that it receives.
#[derive(Debug)]
pub struct MeteredStorage {
    storage: Arc<dyn Storage>,
    metrics: Arc<ResourceMetrics>,
    /// See [`Self::last_create`].
    last_create: AtomicU64,
}

impl MeteredStorage {
    /// Wraps `storage`. Records its requests in `metrics`.
    pub fn new(storage: Arc<dyn Storage>, metrics: Arc<ResourceMetrics>) -> Arc<Self> {
        Arc::new(Self {
            storage,
            metrics,
            last_create: AtomicU64::default(),
        })
    }

    /// Returns the greatest version of an object that was created through this storage; zero if there is none. A cache
    /// at an earlier version may not have that object yet.
    pub fn last_create(&self) -> ResourceVersion {
        ResourceVersion::new(self.last_create.load(Ordering::Acquire))
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Arc<ResourceMetrics> {
        &self.metrics
    }

    /// Awaits a request in `span`; counts and times it. If the returned future is dropped, does not count the request.
    async fn measure<T>(
        &self,
        operation: Operation,
        span: ChildSpan,
        request: impl Future<Output = Result<T, StorageError>>,
    ) -> Result<T, StorageError> {
        let began = Instant::now();
        let result = span.run_fallible(request).await;
        self.metrics
            .requested(operation, began.elapsed(), result.is_err());
        result
    }

    /// Starts the span of a request. Its name is upstream's, followed by the name of the back end: `Create embedded`.
    fn span(&self, operation: Operation, key: Option<&StorageKey>) -> ChildSpan {
        ChildSpan::start(|| {
            let operation = match operation {
                Operation::Get => "Get",
                Operation::List => "List(recursive=true)",
                Operation::Create => "Create",
                Operation::Update => "GuaranteedUpdate",
                Operation::Delete => "Delete",
                Operation::CurrentRevision => "GetCurrentResourceVersion",
            };
            let back_end = match self.storage.name() {
                "etcd" => "etcd3",
                other => other,
            };
            let mut attributes = vec![text_attribute("resource", self.metrics.qualified())];
            attributes.extend(key.map(|key| text_attribute("key", key.as_str())));
            (format!("{operation} {back_end}").into(), attributes)
        })
    }
}

#[async_trait]
impl StorageLayer for MeteredStorage {
    fn inner(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    async fn get(
        &self,
        key: &StorageKey,
    ) -> Result<(Option<KeyValue>, ResourceVersion), StorageError> {
        let span = self.span(Operation::Get, Some(key));
        self.measure(Operation::Get, span, self.storage.get(key))
            .await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StorageError> {
        let span = self.span(Operation::List, Some(&request.prefix));
        self.measure(Operation::List, span, self.storage.list(request))
            .await
    }

    /// The latency includes the decoding of the values, because the visitor decodes them while the
    /// storage reads the next ones. The latency of `list` does not include decoding.
    async fn visit(
        &self,
        prefix: &StorageKey,
        visitor: Arc<dyn ListVisitor>,
    ) -> Option<Result<ResourceVersion, StorageError>> {
        let began = Instant::now();
        let result = self.storage.visit(prefix, visitor).await?;
        self.metrics
            .requested(Operation::List, began.elapsed(), result.is_err());
        Some(result)
    }

    async fn put(&self, put: Put) -> Result<Outcome, StorageError> {
        let operation = match put.expect {
            Expect::Absent => Operation::Create,
            Expect::At(_) => Operation::Update,
        };
        let span = self.span(operation, Some(&put.key));
        let result = self.measure(operation, span, self.storage.put(put)).await;
        if let (Operation::Create, Ok(Outcome::Done(at))) = (operation, &result) {
            self.last_create.fetch_max(at.get(), Ordering::AcqRel);
        }
        result
    }

    async fn delete(
        &self,
        key: &StorageKey,
        expect: ResourceVersion,
    ) -> Result<Outcome, StorageError> {
        let span = self.span(Operation::Delete, Some(key));
        self.measure(Operation::Delete, span, self.storage.delete(key, expect))
            .await
    }

    async fn current_revision(&self) -> Result<ResourceVersion, StorageError> {
        let span = self.span(Operation::CurrentRevision, None);
        let request = self.storage.current_revision();
        self.measure(Operation::CurrentRevision, span, request)
            .await
    }

    fn known_revision(&self) -> Option<Result<ResourceVersion, StorageError>> {
        let began = Instant::now();
        let revision = self.storage.known_revision()?;
        self.metrics.requested(
            Operation::CurrentRevision,
            began.elapsed(),
            revision.is_err(),
        );
        Some(revision)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::memory::Memory;
    use watchet_metrics::{Format, Metrics};
    use watchet_test_util::scrape::Scrape;

    fn check(metrics: &Metrics, series: &str, labels: &str, expect: f64) {
        let scrape = Scrape::parse(&metrics.render(Format::Prometheus));
        let series = format!("{series}{{group=\"apps\",resource=\"deployments\"{labels}}}");
        assert_eq!(scrape.get(&series).unwrap_or(0.0), expect, "{series}");
    }

    #[tokio::test]
    async fn requests_are_counted_and_forwarded() {
        let metrics = Metrics::new();
        let memory = Memory::new(Duration::from_secs(300)).unwrap();
        let of_deployments = metrics.resource("apps", "deployments");
        let storage: Arc<dyn Storage> = MeteredStorage::new(memory.clone(), of_deployments);
        let requests = |operation: &str, failed: bool, expect: u64| {
            let labels = format!(",operation=\"{operation}\"");
            let expect = expect as f64;
            match failed {
                true => check(&metrics, "etcd_request_errors_total", &labels, expect),
                false => {
                    check(&metrics, "etcd_requests_total", &labels, expect);
                    let durations = "etcd_request_duration_seconds_count";
                    check(&metrics, durations, &labels, expect);
                }
            }
        };
        let prefix = StorageKey::new("/deployments/").unwrap();
        let key = StorageKey::new("/deployments/a/b").unwrap();
        let put = |expect| Put {
            key: key.clone(),
            value: Bytes::from_static(b"{}"),
            expect,
            ttl: None,
        };
        let Outcome::Done(made) = storage.put(put(Expect::Absent)).await.unwrap() else {
            panic!("the key does not exist");
        };
        let refused = storage.put(put(Expect::Absent)).await.unwrap();
        assert!(matches!(refused, Outcome::Refused(_)));
        requests("create", false, 2);
        requests("create", true, 0);
        let Outcome::Done(changed) = storage.put(put(Expect::At(made))).await.unwrap() else {
            panic!("there is no other writer");
        };
        requests("update", false, 1);
        storage.get(&key).await.unwrap();
        requests("get", false, 1);
        storage.current_revision().await.unwrap();
        requests("currentRevision", false, 1);
        assert_eq!(storage.known_revision().unwrap().unwrap(), changed);
        requests("currentRevision", false, 2);
        let mut list = ListRequest {
            prefix,
            start: String::new(),
            at: None,
            limit: 0,
            count: false,
        };
        assert_eq!(storage.list(list.clone()).await.unwrap().items.len(), 1);
        list.at = Some(ResourceVersion::new(changed.get() + 100));
        storage.list(list).await.unwrap_err();
        requests("list", false, 2);
        requests("list", true, 1);
        storage.delete(&key, changed).await.unwrap();
        requests("delete", false, 1);
    }

    #[tokio::test]
    async fn the_last_successful_create_is_remembered() {
        let memory = Memory::new(Duration::from_secs(300)).unwrap();
        let metrics = Metrics::new();
        let storage = MeteredStorage::new(memory, metrics.resource("apps", "deployments"));
        assert!(storage.last_create().is_zero());
        let put = async |name: &str, expect| {
            let key = StorageKey::new(&format!("/deployments/a/{name}")).unwrap();
            let value = Bytes::from_static(b"{}");
            let ttl = None;
            let put = Put {
                key,
                value,
                expect,
                ttl,
            };
            Storage::put(&*storage, put).await.unwrap()
        };
        let Outcome::Done(first) = put("b", Expect::Absent).await else {
            panic!("the key does not exist");
        };
        assert_eq!(storage.last_create(), first);
        assert!(matches!(
            put("b", Expect::Absent).await,
            Outcome::Refused(_)
        ));
        assert!(matches!(
            put("b", Expect::At(first)).await,
            Outcome::Done(_)
        ));
        assert_eq!(storage.last_create(), first, "creates only");
        let Outcome::Done(second) = put("c", Expect::Absent).await else {
            panic!("the key does not exist");
        };
        assert_eq!(storage.last_create(), second);
    }
}
