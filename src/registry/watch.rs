//! A watch as a client sees it: what its cache tells, in the version that the client speaks. Where a webhook
//! converts, what is ready together is asked for together, and watchers of one event share the answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Resource, conversion};
use crate::api::{EventType, Object, SelectionPredicate, WatchEvent};
use crate::cacher::{CacheWatcher, WatchItem};

/// One client's watch.
pub struct Watch {
    watcher: CacheWatcher,
    converter: Option<Arc<Converter>>,
    /// What was received and is being converted; it comes to nothing when the watch ends meanwhile.
    converting: Option<Converting>,
    ends: Vec<CancellationToken>,
    failed: bool,
}

type Converting = Pin<Box<dyn Future<Output = Option<Vec<WatchItem>>> + Send>>;

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut told = f.debug_struct("Watch");
        told.field("watcher", &self.watcher).finish_non_exhaustive()
    }
}

impl Watch {
    /// What `watcher` tells about `resource`, and `selects` selects of that once it is converted. It ends when
    /// the definition of the resource says something else: then clients have to see the state in its new form.
    pub(crate) fn new(
        watcher: CacheWatcher,
        resource: &Arc<Resource>,
        selects: Option<SelectionPredicate>,
    ) -> Self {
        let mut watch = Self {
            watcher,
            converter: None,
            converting: None,
            ends: Vec::new(),
            failed: false,
        };
        if let Some(converter) = resource.strategy.converter() {
            watch.end_with(converter.outdated().clone());
            watch.converter = converter.uses_webhook().then(|| {
                let resource = resource.clone();
                Arc::new(Converter { resource, selects })
            });
        }
        watch
    }

    /// When it ends at the latest.
    pub fn deadline(&self) -> Instant {
        self.watcher.deadline()
    }

    /// Has it end, without a word, when `token` is cancelled.
    pub fn end_with(&mut self, token: CancellationToken) {
        self.ends.push(token.clone());
        self.watcher.end_with(token);
    }

    /// What happened, in order; `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<WatchItem>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`Self::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<WatchItem>>> {
        loop {
            if self.failed {
                return Poll::Ready(None);
            }
            let Some(converting) = &mut self.converting else {
                let items = ready!(self.watcher.poll_next(cx));
                match (&self.converter, items) {
                    (Some(converter), Some(items)) if !converter.leaves(&items) => {
                        self.converting = Some(self.convert(converter.clone(), items));
                        continue;
                    }
                    (_, items) => return Poll::Ready(items),
                }
            };
            let items = ready!(converting.as_mut().poll(cx));
            self.converting = None;
            let failed = |items: &Vec<WatchItem>| matches!(items.last(), Some(WatchItem::Error(_)));
            self.failed = items.as_ref().is_none_or(failed);
            // Perhaps none of them is selected.
            if items.as_ref().is_none_or(|items| !items.is_empty()) {
                return Poll::Ready(items);
            }
        }
    }

    fn convert(&self, converter: Arc<Converter>, items: Vec<WatchItem>) -> Converting {
        let (ends, deadline) = (self.ends.clone(), self.deadline());
        Box::pin(async move {
            let ended = ends.iter().map(|end| Box::pin(end.cancelled()));
            let converted = tokio::time::timeout_at(deadline, converter.convert(items));
            // The end comes first: nobody waits for what is converted then.
            tokio::select! {
                biased;
                _ = futures_util::future::select_all(ended) => None,
                converted = converted => converted.ok(),
            }
        })
    }
}

/// Shows what a cache tells as one version of a custom resource that a webhook converts.
#[derive(Debug)]
struct Converter {
    resource: Arc<Resource>,
    /// Which objects are told of, by what they are in that version.
    selects: Option<SelectionPredicate>,
}

impl Converter {
    /// `items`, up to what cannot be converted, of which the last tells.
    async fn convert(self: Arc<Self>, items: Vec<WatchItem>) -> Vec<WatchItem> {
        let Some(converter) = self.resource.strategy.converter() else {
            return items;
        };
        let objects = items
            .iter()
            .flat_map(|item| self.objects_of(item))
            .collect();
        let objects = match converter.present(&self.resource, objects).await {
            Ok(objects) => objects,
            Err(error) => {
                let is_plain = |item: &WatchItem| self.objects_of(item).is_empty();
                let told = items.into_iter().take_while(is_plain);
                return told.chain([WatchItem::Error(error.into())]).collect();
            }
        };
        let mut objects = objects.into_iter();
        let mut next = || {
            objects
                .next()
                .expect("an object for each that was asked for")
        };
        let mut told = Vec::with_capacity(items.len());
        for item in items {
            told.extend(match item {
                WatchItem::Initial(_) => Some(next())
                    .filter(|o| self.sees(o))
                    .map(WatchItem::Initial),
                WatchItem::Event(event) => {
                    let object = next();
                    let previous = self.previous_of(&event).is_some().then(&mut next);
                    self.event(event, object, previous).map(WatchItem::Event)
                }
                other => Some(other),
            });
        }
        told
    }

    /// Whether all of them are told as they are.
    fn leaves(&self, items: &[WatchItem]) -> bool {
        let is_in_version = |(_, object): &(EventType, Arc<Object>)| {
            conversion::is_in_version(&self.resource, object.body_slice())
        };
        self.selects.is_none()
            && items
                .iter()
                .flat_map(|item| self.objects_of(item))
                .all(|object| is_in_version(&object))
    }

    /// What has to be converted of an item.
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

    /// What decides whether an object was seen before it changed.
    fn previous_of<'e>(&self, event: &'e WatchEvent) -> Option<&'e Arc<Object>> {
        let changed = event.event_type() == EventType::Modified;
        event
            .previous()
            .filter(|_| changed && self.selects.is_some())
    }

    fn sees(&self, object: &Object) -> bool {
        self.selects
            .as_ref()
            .is_none_or(|selects| selects.matches(object))
    }

    /// What becomes of `event`, which is about `object`, and before it changed about `previous`.
    fn event(
        &self,
        event: Arc<WatchEvent>,
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
    ) -> Option<Arc<WatchEvent>> {
        let was_seen = match &previous {
            Some(previous) => self.sees(previous),
            None => event.event_type() == EventType::Modified,
        };
        let is_seen = self.sees(&object);
        let told = |event_type, object| Some(Arc::new(WatchEvent::new(event_type, object)));
        match (event.event_type(), was_seen, is_seen) {
            (EventType::Modified, true, false) => {
                // It leaves with its last state that was seen.
                let previous = previous.as_ref()?;
                told(
                    EventType::Deleted,
                    previous.deleted_at(object.resource_version()),
                )
            }
            (EventType::Modified, false, true) => told(EventType::Added, object),
            (_, _, false) => None,
            // In this version already: its frame is shared.
            (_, _, true) if Arc::ptr_eq(&object, event.object()) => Some(event),
            (event_type, _, true) => told(event_type, object),
        }
    }
}
