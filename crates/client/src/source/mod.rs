//! `HttpListerWatcher`: the Reflector's source over HTTP. It uses streaming lists where the server
//! supports them, else lists in pages, and watches.

mod event;
mod frames;
mod metrics;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::KubeObject;
use super::rest::{Call, ListParams, ObjectList, Path, ResourceClient, RestError};
use watchet_api::ResourceVersion;
use watchet_reflector::{ChangeStream, ListerWatcher, Listing, SourceError};

pub use metrics::ReflectorMetrics;

use event::Verb;
use stream::{DecodedEvent, Events, end_of_watch, source_error};

/// The default page size, as in client-go.
const PAGE_SIZE: u32 = 500;

/// The minimum timeout of a watch, and half the maximum; random, so that watches do not end
/// simultaneously (as in client-go).
const WATCH_MIN: Duration = Duration::from_secs(300);

/// Which objects to watch, and how to list them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListWatchOptions {
    /// `app=web,tier notin (x)`
    pub labels: Option<String>,
    /// `spec.nodeName=n1`
    pub fields: Option<String>,
    /// The page size of lists. `None`: no pages, except for lists of the most recent state, which
    /// the server may read from storage.
    pub page_size: Option<u32>,
    /// Whether to use streaming lists (KEP-3157) if the server supports them: neither side then
    /// holds the list in memory. On by default.
    pub watch_list: bool,
}

impl Default for ListWatchOptions {
    fn default() -> Self {
        Self {
            labels: None,
            fields: None,
            page_size: None,
            watch_list: true,
        }
    }
}

/// Lists and watches the objects of a resource.
///
/// ```no_run
/// use futures_util::StreamExt as _;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchet_client::{ApiResource, HttpListerWatcher, Kubeconfig, ListWatchOptions};
/// use watchet_client::{RestClient, RestConfig};
/// use watchet_reflector::{Change, ListerWatcher as _};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let kubeconfig = Kubeconfig::load(&["kubeconfig"])?;
/// let client = RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None)?)?;
/// let maps = client.resource::<ConfigMap>(ApiResource::of::<ConfigMap>()).namespace("default");
/// let options = ListWatchOptions { labels: Some("app=web".into()), ..Default::default() };
/// let mut source = HttpListerWatcher::new(maps.clone(), options);
/// let listing = source.list().await?;
/// assert!(listing.objects.is_empty());
///
/// let mut map = ConfigMap::default();
/// map.metadata.name = Some("a".into());
/// map.metadata.labels = Some([("app".into(), "web".into())].into());
/// maps.create(&map).await?;
/// let mut changes = source.watch(listing.at).await?;
/// let batch = changes.next().await.unwrap()?;
/// assert!(matches!(&batch.changes[..], [Change::Added(map)] if map.metadata.name.as_deref() == Some("a")));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct HttpListerWatcher<T> {
    objects: ResourceClient<T>,
    options: ListWatchOptions,
    metrics: Arc<ReflectorMetrics>,
    random: fastrand::Rng,
    /// Whether the server is known not to support streaming lists.
    lists_only: bool,
    /// Whether the last version has expired: the next list requests the most recent state.
    has_expired: bool,
    /// The watch that continues the last list, and its version.
    open: Option<(ResourceVersion, Opened<T>)>,
}

/// A stream with a `Debug` implementation.
struct Opened<T>(ChangeStream<T>);

impl<T> std::fmt::Debug for Opened<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opened(..)")
    }
}

/// Why a streaming list failed.
enum NotStreamed {
    /// The server does not support it.
    Refused(RestError),
    /// It failed this time; a list may succeed.
    Failed(RestError),
    /// The server is unavailable.
    Unavailable(SourceError),
}

impl<T: KubeObject + DeserializeOwned> HttpListerWatcher<T> {
    /// Creates a source of `objects`, selected by `options`.
    pub fn new(objects: ResourceClient<T>, options: ListWatchOptions) -> Self {
        Self {
            lists_only: !options.watch_list,
            objects,
            options,
            metrics: Arc::default(),
            random: fastrand::Rng::new(),
            has_expired: false,
            open: None,
        }
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> Arc<ReflectorMetrics> {
        self.metrics.clone()
    }

    /// Returns the minimum version of the next list, if known.
    fn known(&self) -> Option<ResourceVersion> {
        let last = self.metrics.last_sync_resource_version();
        Some(last).filter(|last| !last.is_zero() && !self.has_expired)
    }

    fn selected(&self) -> Path {
        self.objects
            .path()
            .query_some("labelSelector", self.options.labels.as_deref())
            .query_some("fieldSelector", self.options.fields.as_deref())
    }

    async fn open_watch(&mut self, path: Path) -> Result<Events<T>, RestError> {
        let lasting = WATCH_MIN.mul_f64(1.0 + self.random.f64()).as_secs();
        let path = path
            .query("watch", "true")
            .query("allowWatchBookmarks", "true")
            .query("timeoutSeconds", lasting);
        let call = Call {
            accept: T::ACCEPT,
            ..Call::get(&path)
        };
        let body = self.objects.client().open(call).await?;
        let (resource, lasting) = (self.objects.resource(), Duration::from_secs(lasting));
        Ok(Events::new(body, resource, lasting, &self.metrics))
    }

    /// Requests a streaming list; its watch is stored for [`ListerWatcher::watch`].
    async fn stream_list(&mut self) -> Result<Listing<T>, NotStreamed> {
        let error = match self.streamed_from(self.known()).await {
            Ok(listing) => return Ok(listing),
            Err(error) => error,
        };
        let again = error.is_expired() || error.is_too_large_resource_version();
        let error = match again && self.known().is_some() {
            false => error,
            true => {
                self.has_expired = true;
                match self.streamed_from(None).await {
                    Ok(listing) => return Ok(listing),
                    Err(error) => error,
                }
            }
        };
        Err(match error.code() {
            _ if error.is_too_many_requests() => NotStreamed::Unavailable(self.unavailable(error)),
            None => NotStreamed::Unavailable(self.unavailable(error)),
            Some(400 | 405 | 406 | 422 | 501) => NotStreamed::Refused(error),
            Some(_) => NotStreamed::Failed(error),
        })
    }

    async fn streamed_from(
        &mut self,
        at_least: Option<ResourceVersion>,
    ) -> Result<Listing<T>, RestError> {
        let at_least = at_least.map(|version| version.to_string());
        let path = self
            .selected()
            .query("sendInitialEvents", "true")
            .query("resourceVersionMatch", "NotOlderThan")
            .query_some("resourceVersion", at_least.as_deref());
        let mut events = self.open_watch(path).await?;
        let mut objects = BTreeMap::new();
        loop {
            self.metrics.received(objects.len());
            match events.next().await? {
                // A list may succeed: some servers do not report that they do not support streaming
                // lists.
                None => {
                    return Err(RestError::from_status(watchet_api::Status::failure(
                        504,
                        "Timeout",
                        "the watch ended before the initial events were complete",
                    )));
                }
                Some(DecodedEvent::Change(Verb::Deleted, object, _)) => {
                    drop(objects.remove(&key(&*object)))
                }
                Some(DecodedEvent::Change(_, object, _)) => {
                    drop(objects.insert(key(&*object), object))
                }
                Some(DecodedEvent::Bookmark(at, true)) => {
                    self.open = Some((at, Opened(events.into_changes(at))));
                    let objects = objects.into_values().collect();
                    return Ok(Listing { objects, at });
                }
                // An ordinary bookmark first: the server does not support streaming lists.
                Some(DecodedEvent::Bookmark(_, false)) => {
                    return Err(RestError::from_status(watchet_api::Status::failure(
                        501,
                        "NotImplemented",
                        "the server does not support streaming lists",
                    )));
                }
            }
        }
    }

    /// Requests a list, possibly in pages.
    async fn full_list(&mut self) -> Result<Listing<T>, RestError> {
        let version = match self.known() {
            Some(known) => known.to_string(),
            None if self.has_expired => String::new(),
            None => "0".to_owned(),
        };
        let list = match self.pages(version.clone()).await {
            Err(error)
                if !version.is_empty()
                    && (error.is_expired() || error.is_too_large_resource_version()) =>
            {
                self.has_expired = true;
                self.pages(String::new()).await
            }
            other => other,
        }?;
        let at = list.metadata.resource_version.unwrap_or_default();
        // A response without a version is not a list, and must not pass for an empty one.
        if at.is_empty() {
            let problem = "the list has no resourceVersion";
            return Err(self.objects.client().unreadable(&problem));
        }
        let at = at
            .parse()
            .map_err(|error| self.objects.client().unreadable(&error))?;
        Ok(Listing {
            objects: list.items.into_iter().map(Arc::new).collect(),
            at,
        })
    }

    // `&mut self`, because the stored stream is not `Sync`.
    async fn pages(&mut self, version: String) -> Result<ObjectList<T>, RestError> {
        let whole = ListParams {
            labels: self.options.labels.clone(),
            fields: self.options.fields.clone(),
            // With a limit older servers read from storage, unless there is no version.
            limit: self
                .options
                .page_size
                .or(version.is_empty().then_some(PAGE_SIZE)),
            resource_version: Some(version),
            ..ListParams::default()
        };
        let mut list = self.objects.list(&whole).await?;
        self.metrics.received(list.items.len());
        while let Some(token) = list
            .metadata
            .continue_
            .take()
            .filter(|token| !token.is_empty())
        {
            let next = ListParams {
                continue_token: Some(token),
                resource_version: None,
                ..whole.clone()
            };
            match self.objects.list(&next).await {
                Ok(page) => {
                    list.items.extend(page.items);
                    self.metrics.received(list.items.len());
                    list.metadata = page.metadata;
                }
                // The snapshot of the pages has expired: list again without pages.
                Err(error) if error.is_expired() => {
                    let limit = None;
                    return self.objects.list(&ListParams { limit, ..whole }).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(list)
    }

    fn unavailable(&self, error: RestError) -> SourceError {
        source_error(error, self.metrics.last_sync_resource_version())
    }
}

/// Returns the namespace, if any, and the name of an object.
fn key<T: KubeObject>(object: &T) -> (Option<String>, Option<String>) {
    let metadata = object.metadata();
    (metadata.namespace.clone(), metadata.name.clone())
}

impl<T: KubeObject + DeserializeOwned> ListerWatcher for HttpListerWatcher<T> {
    type Object = T;

    async fn list(&mut self) -> Result<Listing<T>, SourceError> {
        self.open = None;
        let started = Instant::now();
        if !self.lists_only {
            match self.stream_list().await {
                Ok(listing) => return Ok(self.synced(listing, started)),
                Err(NotStreamed::Unavailable(error)) => return Err(error),
                Err(NotStreamed::Failed(error)) => {
                    tracing::debug!(%error, "streaming list failed, listing");
                }
                Err(NotStreamed::Refused(error)) => {
                    tracing::debug!(%error, "streaming lists not supported, listing from now on");
                    self.lists_only = true;
                }
            }
        }
        match self.full_list().await {
            Ok(listing) => Ok(self.synced(listing, started)),
            Err(error) => Err(self.unavailable(error)),
        }
    }

    async fn watch(&mut self, after: ResourceVersion) -> Result<ChangeStream<T>, SourceError> {
        if let Some((at, Opened(changes))) = self.open.take()
            && at == after
        {
            return Ok(changes);
        }
        let after_text = (!after.is_zero()).then(|| after.to_string());
        let path = self
            .selected()
            .query_some("resourceVersion", after_text.as_deref());
        match self.open_watch(path).await {
            Ok(events) => Ok(events.into_changes(after)),
            Err(error) => Err(match source_error(error.clone(), after) {
                // A retry at this version would fail again; a list may succeed, as in client-go.
                SourceError::Unavailable { .. } if matches!(error.code(), Some(400..=499)) => {
                    end_of_watch(error, after)
                }
                other => other,
            }),
        }
    }
}

impl<T: KubeObject + DeserializeOwned> HttpListerWatcher<T> {
    fn synced(&mut self, listing: Listing<T>, started: Instant) -> Listing<T> {
        self.metrics.listed(listing.objects.len(), started);
        self.metrics.reached(listing.at);
        self.has_expired = false;
        listing
    }
}

#[cfg(test)]
mod tests;
