//! `HttpListerWatcher`: the Reflector's source over HTTP. It streams lists where the server does that,
//! asks for them where not, and watches; it waits for nothing but answers, and keeps no objects.

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
use crate::api::ResourceVersion;
use crate::reflector::{ChangeStream, ListerWatcher, Listing, SourceError};

pub use metrics::ReflectorMetrics;

use event::Verb;
use stream::{Events, Told, end_of_watch, source_error};

/// How many objects a page has when nobody said: client-go's.
const PAGE_SIZE: u32 = 500;

/// How long a watch lasts at least; at most twice that, so that those which began together do not end
/// together (client-go's).
const WATCH_MIN: Duration = Duration::from_secs(300);

/// Which objects are followed, and how they are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListWatchOptions {
    /// `app=web,tier notin (x)`
    pub labels: Option<String>,
    /// `spec.nodeName=n1`
    pub fields: Option<String>,
    /// List in pages of so many objects. `None`: in one piece, but for lists of the very latest state,
    /// which may come from the server's storage.
    pub page_size: Option<u32>,
    /// Have the collection streamed at the beginning of a watch (KEP-3157), if the server does that:
    /// neither side then ever holds it as one piece. On by default.
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
/// ```
/// use futures_util::StreamExt as _;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchet::informer::{ApiResource, HttpListerWatcher, Kubeconfig, ListWatchOptions};
/// use watchet::informer::{RestClient, RestConfig};
/// use watchet::reflector::{Change, ListerWatcher as _};
/// use watchet::testing::Server;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = Server::start().await?;
/// # let kubeconfig: Kubeconfig = server.kubeconfig().parse()?;
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
    /// The server does not stream lists: it said so once.
    lists_only: bool,
    /// The last version cannot be listed at: the next list is of the latest state.
    last_is_gone: bool,
    /// The watch that began with the last list, and where it was then.
    open: Option<(ResourceVersion, Opened<T>)>,
}

/// A stream in a struct that can be shown.
struct Opened<T>(ChangeStream<T>);

impl<T> std::fmt::Debug for Opened<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opened(..)")
    }
}

/// Why a collection was not streamed.
enum NotStreamed {
    /// It will not be the next time either.
    Refused(RestError),
    /// The server cannot do it now; a list it may.
    Failed(RestError),
    /// It cannot be had now in any way.
    Away(SourceError),
}

impl<T: KubeObject + DeserializeOwned> HttpListerWatcher<T> {
    /// A source of `objects` that `options` tell.
    pub fn new(objects: ResourceClient<T>, options: ListWatchOptions) -> Self {
        Self {
            lists_only: !options.watch_list,
            objects,
            options,
            metrics: Arc::default(),
            random: fastrand::Rng::new(),
            last_is_gone: false,
            open: None,
        }
    }

    /// What it counts, and how far it came.
    pub fn metrics(&self) -> Arc<ReflectorMetrics> {
        self.metrics.clone()
    }

    /// Where the next list is to be at least, as far as is known.
    fn known(&self) -> Option<ResourceVersion> {
        let last = self.metrics.last_sync_resource_version();
        Some(last).filter(|last| !last.is_zero() && !self.last_is_gone)
    }

    fn selected(&self) -> Path {
        self.objects
            .path()
            .query_some("labelSelector", self.options.labels.as_deref())
            .query_some("fieldSelector", self.options.fields.as_deref())
    }

    async fn opened(&mut self, path: Path) -> Result<Events<T>, RestError> {
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

    /// The collection as the beginning of a watch, which is kept for [`ListerWatcher::watch`].
    async fn streamed(&mut self) -> Result<Listing<T>, NotStreamed> {
        let error = match self.streamed_from(self.known()).await {
            Ok(listing) => return Ok(listing),
            Err(error) => error,
        };
        let again = error.is_expired() || error.is_too_large_resource_version();
        let error = match again && self.known().is_some() {
            false => error,
            true => {
                self.last_is_gone = true;
                match self.streamed_from(None).await {
                    Ok(listing) => return Ok(listing),
                    Err(error) => error,
                }
            }
        };
        Err(match error.code() {
            _ if error.is_too_many_requests() => NotStreamed::Away(self.away(error)),
            None => NotStreamed::Away(self.away(error)),
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
        let mut events = self.opened(path).await?;
        let mut objects = BTreeMap::new();
        loop {
            self.metrics.received(objects.len());
            match events.next().await? {
                // A list may do better: some servers know streams no more than they say so.
                None => {
                    return Err(RestError::told(crate::api::Status::failure(
                        504,
                        "Timeout",
                        "the watch ended before it had told everything",
                    )));
                }
                Some(Told::Change(Verb::Deleted, object, _)) => {
                    drop(objects.remove(&key(&*object)))
                }
                Some(Told::Change(_, object, _)) => drop(objects.insert(key(&*object), object)),
                Some(Told::Bookmark(at, true)) => {
                    self.open = Some((at, Opened(events.into_changes(at))));
                    let objects = objects.into_values().collect();
                    return Ok(Listing { objects, at });
                }
                // The first bookmark is the one that ends it: this server has never heard of it.
                Some(Told::Bookmark(_, false)) => {
                    return Err(RestError::told(crate::api::Status::failure(
                        501,
                        "NotImplemented",
                        "the server does not stream lists",
                    )));
                }
            }
        }
    }

    /// The collection as a list, or as the sum of its pages.
    async fn listed(&mut self) -> Result<Listing<T>, RestError> {
        let version = match self.known() {
            Some(known) => known.to_string(),
            None if self.last_is_gone => String::new(),
            None => "0".to_owned(),
        };
        let list = match self.pages(version.clone()).await {
            Err(error)
                if !version.is_empty()
                    && (error.is_expired() || error.is_too_large_resource_version()) =>
            {
                self.last_is_gone = true;
                self.pages(String::new()).await
            }
            other => other,
        }?;
        let at = list.metadata.resource_version.unwrap_or_default();
        // What names no version is no list, and must not pass for an empty one.
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

    // By `&mut`: the kept stream cannot be shared between threads, nor a reference to what has it.
    async fn pages(&mut self, version: String) -> Result<ObjectList<T>, RestError> {
        let whole = ListParams {
            labels: self.options.labels.clone(),
            fields: self.options.fields.clone(),
            // A limit makes servers leave their cache, unless the version is none.
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
                // The state that the pages were of is forgotten: another one, at once.
                Err(error) if error.is_expired() => {
                    let limit = None;
                    return self.objects.list(&ListParams { limit, ..whole }).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(list)
    }

    fn away(&self, error: RestError) -> SourceError {
        source_error(error, self.metrics.last_sync_resource_version())
    }
}

/// What an object is known by: its namespace, if it has one, and its name.
fn key<T: KubeObject>(object: &T) -> (Option<String>, Option<String>) {
    let metadata = object.metadata();
    (metadata.namespace.clone(), metadata.name.clone())
}

impl<T: KubeObject + DeserializeOwned> ListerWatcher for HttpListerWatcher<T> {
    type Object = T;

    async fn list(&mut self) -> Result<Listing<T>, SourceError> {
        self.open = None;
        let begun = Instant::now();
        if !self.lists_only {
            match self.streamed().await {
                Ok(listing) => return Ok(self.synced(listing, begun)),
                Err(NotStreamed::Away(error)) => return Err(error),
                Err(NotStreamed::Failed(error)) => {
                    tracing::debug!(%error, "the collection was not streamed: it is listed");
                }
                Err(NotStreamed::Refused(error)) => {
                    tracing::debug!(%error, "the server does not stream: it is asked for lists");
                    self.lists_only = true;
                }
            }
        }
        match self.listed().await {
            Ok(listing) => Ok(self.synced(listing, begun)),
            Err(error) => Err(self.away(error)),
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
        match self.opened(path).await {
            Ok(events) => Ok(events.into_changes(after)),
            Err(error) => Err(match source_error(error.clone(), after) {
                // What it says of this version it will say again; a list may mend it, as in client-go.
                SourceError::Unavailable { .. } if matches!(error.code(), Some(400..=499)) => {
                    end_of_watch(error, after)
                }
                other => other,
            }),
        }
    }
}

impl<T: KubeObject + DeserializeOwned> HttpListerWatcher<T> {
    fn synced(&mut self, listing: Listing<T>, begun: Instant) -> Listing<T> {
        self.metrics.listed(listing.objects.len(), begun);
        self.metrics.reached(listing.at);
        self.last_is_gone = false;
        listing
    }
}

#[cfg(test)]
mod tests;
