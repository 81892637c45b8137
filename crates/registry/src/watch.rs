//! A watch in the version of the client. If a webhook converts, one call converts all events that are ready, and the
//! watchers of one event share the conversion.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::conversion;
use super::resource::Resource;
use watchet_api::{EventType, Object, SelectionPredicate, WatchEvent};
use watchet_cacher::{CacheWatcher, ReceivedEvents, WatchItem, WatchMonitor};

/// The watch of one client.
pub struct Watch {
    watcher: CacheWatcher,
    /// `None` if no webhook converts.
    conversion: Option<Box<WebhookConversion>>,
}

/// A boxed watch fits jemalloc's size class of 256 bytes. The next class is 320.
const _: () = assert!(size_of::<Watch>() <= 256);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Watch");
        debug
            .field("watcher", &self.watcher)
            .finish_non_exhaustive()
    }
}

impl Watch {
    /// Returns a watch of the events of `watcher`, whose objects are of `resource`, that `predicate` selects after
    /// conversion. It ends when the definition of the resource changes, because the objects then have a new form.
    pub(crate) fn new(
        watcher: CacheWatcher,
        resource: &Arc<Resource>,
        predicate: Option<SelectionPredicate>,
    ) -> Self {
        let mut watch = Self {
            watcher,
            conversion: None,
        };
        if let Some(converter) = resource.strategy.converter() {
            let outdated = converter.outdated();
            watch.watcher.end_with(outdated.clone());
            watch.conversion = converter.uses_webhook().then(|| {
                let (resource, end) = (Arc::clone(resource), outdated.clone());
                Box::new(WebhookConversion::new(resource, predicate, end))
            });
        }
        watch
    }

    /// Returns the time at which the watch ends at the latest.
    pub fn deadline(&self) -> Instant {
        self.watcher.deadline()
    }

    /// Returns a monitor that shows the state of the watch.
    pub fn monitor(&self) -> WatchMonitor {
        self.watcher.monitor()
    }

    /// Returns the live events that [`Self::poll_next`] has returned since the last call; `None` if there are none.
    pub fn take_received(&mut self) -> Option<ReceivedEvents> {
        self.watcher.take_received()
    }

    /// Ends the watch when `token` is cancelled, without an event.
    pub fn end_with(&mut self, token: CancellationToken) {
        if let Some(conversion) = &mut self.conversion {
            conversion.ends.push(token.clone());
        }
        self.watcher.end_with(token);
    }

    /// Returns the next events in order; `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<WatchItem>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for the next events, as [`Self::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<WatchItem>>> {
        match &mut self.conversion {
            Some(conversion) => conversion.poll_next(&mut self.watcher, cx),
            None => self.watcher.poll_next(cx),
        }
    }
}

/// The conversion of the events of one watch by a webhook.
struct WebhookConversion {
    converter: Arc<Converter>,
    /// The conversion of received events, which is dropped when the watch ends.
    converting: Option<Converting>,
    /// The tokens that end the watch, at least one.
    ends: Vec<CancellationToken>,
    failed: bool,
}

type Converting = Pin<Box<dyn Future<Output = Option<Vec<WatchItem>>> + Send>>;

impl WebhookConversion {
    fn new(
        resource: Arc<Resource>,
        predicate: Option<SelectionPredicate>,
        end: CancellationToken,
    ) -> Self {
        Self {
            converter: Arc::new(Converter {
                resource,
                predicate,
            }),
            converting: None,
            ends: vec![end],
            failed: false,
        }
    }

    /// Polls for the next events of `watcher`, converted.
    fn poll_next(
        &mut self,
        watcher: &mut CacheWatcher,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Vec<WatchItem>>> {
        loop {
            if self.failed {
                return Poll::Ready(None);
            }
            let Some(converting) = &mut self.converting else {
                match ready!(watcher.poll_next(cx)) {
                    Some(items) if !self.converter.is_noop(&items) => {
                        self.converting = Some(self.convert(items, watcher.deadline()));
                        continue;
                    }
                    items => return Poll::Ready(items),
                }
            };
            let items = ready!(converting.as_mut().poll(cx));
            self.converting = None;
            let failed = |items: &Vec<WatchItem>| matches!(items.last(), Some(WatchItem::Error(_)));
            self.failed = items.as_ref().is_none_or(failed);
            // The predicate may select none of them.
            if items.as_ref().is_none_or(|items| !items.is_empty()) {
                return Poll::Ready(items);
            }
        }
    }

    fn convert(&self, items: Vec<WatchItem>, deadline: Instant) -> Converting {
        let (converter, ends) = (Arc::clone(&self.converter), self.ends.clone());
        Box::pin(async move {
            let ended = ends.iter().map(|end| Box::pin(end.cancelled()));
            let converted = tokio::time::timeout_at(deadline, converter.convert(items));
            // The end comes first: the client does not receive what is converted after it.
            tokio::select! {
                biased;
                _ = futures_util::future::select_all(ended) => None,
                converted = converted => converted.ok(),
            }
        })
    }
}

/// Converts the events of a cache to one version of a custom resource by a webhook.
#[derive(Debug)]
struct Converter {
    resource: Arc<Resource>,
    /// Selects events by their objects in that version.
    predicate: Option<SelectionPredicate>,
}

impl Converter {
    /// Returns the converted items. After an item that cannot be converted there is only an error.
    async fn convert(self: Arc<Self>, items: Vec<WatchItem>) -> Vec<WatchItem> {
        let Some(converter) = self.resource.strategy.converter() else {
            return items;
        };
        let objects = items
            .iter()
            .flat_map(|item| self.objects_of(item))
            .collect();
        let objects = match converter
            .convert_cached(&self.resource.columns, objects)
            .await
        {
            Ok(objects) => objects,
            Err(error) => {
                let is_plain = |item: &WatchItem| self.objects_of(item).is_empty();
                let items = items.into_iter().take_while(is_plain);
                return items.chain([WatchItem::Error(error.into())]).collect();
            }
        };
        let mut objects = objects.into_iter();
        let mut next = || {
            objects
                .next()
                .expect("a conversion returns as many objects as it gets")
        };
        let mut converted = Vec::with_capacity(items.len());
        for item in items {
            converted.extend(match item {
                WatchItem::Initial(_) => Some(next())
                    .filter(|object| self.selects(object))
                    .map(WatchItem::Initial),
                WatchItem::Event(event) => {
                    let object = next();
                    let previous = self.previous_of(&event).is_some().then(&mut next);
                    self.converted_event(event, object, previous)
                        .map(WatchItem::Event)
                }
                other => Some(other),
            });
        }
        converted
    }

    /// Returns true if no item has to be converted or filtered.
    fn is_noop(&self, items: &[WatchItem]) -> bool {
        let is_in_version = |(_, object): &(EventType, Arc<Object>)| {
            conversion::is_in_version(&self.resource, object.body_slice())
        };
        self.predicate.is_none()
            && items
                .iter()
                .flat_map(|item| self.objects_of(item))
                .all(|object| is_in_version(&object))
    }

    /// Returns the objects of an item that have to be converted.
    fn objects_of(&self, item: &WatchItem) -> Vec<(EventType, Arc<Object>)> {
        match item {
            WatchItem::Initial(object) => vec![(EventType::Added, object.clone())],
            WatchItem::Event(event) => {
                let object = (event.event_type(), event.object().clone());
                let previous = self.previous_of(event);
                let previous = previous.map(|object| (EventType::Modified, object.clone()));
                std::iter::once(object).chain(previous).collect()
            }
            WatchItem::Bookmark { .. } | WatchItem::Error(_) => Vec::new(),
        }
    }

    /// Returns the object before the change, if the predicate has to be evaluated for it.
    fn previous_of<'e>(&self, event: &'e WatchEvent) -> Option<&'e Arc<Object>> {
        let changed = event.event_type() == EventType::Modified;
        event
            .previous()
            .filter(|_| changed && self.predicate.is_some())
    }

    fn selects(&self, object: &Object) -> bool {
        self.predicate
            .as_ref()
            .is_none_or(|predicate| predicate.matches(object))
    }

    /// Returns the event for clients of this version: `object` is the converted object of `event`, and `previous` the
    /// converted object before the change.
    fn converted_event(
        &self,
        event: Arc<WatchEvent>,
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
    ) -> Option<Arc<WatchEvent>> {
        let was_selected = match &previous {
            Some(previous) => self.selects(previous),
            None => event.event_type() == EventType::Modified,
        };
        let is_selected = self.selects(&object);
        let event_of = |event_type, object| Some(Arc::new(WatchEvent::new(event_type, object)));
        match (event.event_type(), was_selected, is_selected) {
            (EventType::Modified, true, false) => {
                // The DELETED event has the last state that the predicate selected.
                let previous = previous.as_ref()?;
                event_of(
                    EventType::Deleted,
                    previous.deleted_at(object.resource_version()),
                )
            }
            (EventType::Modified, false, true) => event_of(EventType::Added, object),
            (_, _, false) => None,
            // The object is in this version already, so that watchers share the frame of the event.
            (_, _, true) if Arc::ptr_eq(&object, event.object()) => Some(event),
            (event_type, _, true) => event_of(event_type, object),
        }
    }
}
