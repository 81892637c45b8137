//! A cacher as the source of an informer: the client half connects to the server half without HTTP.

use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::sync::watch;
use watchet_client::DynamicObject;
use watchet_reflector::{Change, ChangeBatch, ChangeStream, ListerWatcher, Listing, SourceError};
use watchet_test_util::watch_script::InformerRequest;

use super::*;

/// Lists and watches the cacher that is served at the time.
pub(super) struct CacherSource {
    served: Arc<Mutex<Arc<Cacher>>>,
    request: InformerRequest,
    connection: watch::Receiver<Connection>,
    /// The watch that continues the last streaming list.
    initial_watch: Option<OnConnection<CacheWatcher>>,
}

/// A value, and the connection to which it belongs.
struct OnConnection<T> {
    value: T,
    /// [`Connection::losses`] when the connection was opened. The connection is lost once the present number is higher.
    losses: usize,
}

/// The state of the connection of an informer.
#[derive(Debug, Clone, Copy)]
struct Connection {
    is_connected: bool,
    /// How often it was lost.
    losses: usize,
}

/// Connects and disconnects an informer.
pub(super) struct Switch(watch::Sender<Connection>);

impl Switch {
    pub(super) fn set_connected(&self, connected: bool) {
        self.0.send_modify(|state| {
            state.losses += usize::from(state.is_connected && !connected);
            state.is_connected = connected;
        });
    }
}

fn unavailable(detail: impl ToString) -> SourceError {
    SourceError::Unavailable {
        detail: detail.to_string(),
        retry_after: None,
    }
}

fn source_error(error: ReadError) -> SourceError {
    match error {
        ReadError::Expired { .. } => SourceError::Expired {
            at: rv(0),
            detail: error.to_string(),
        },
        error => unavailable(error),
    }
}

fn dynamic(object: &watchet_api::Object) -> Arc<DynamicObject> {
    Arc::new(serde_json::from_slice(&object.body()).unwrap())
}

fn batch(
    items: Vec<WatchItem>,
    mut at: ResourceVersion,
) -> Result<ChangeBatch<DynamicObject>, SourceError> {
    let mut changes = Vec::new();
    for item in items {
        match item {
            WatchItem::Event(event) => {
                let object = dynamic(event.object());
                changes.push(match event.event_type() {
                    EventType::Added => Change::Added(object),
                    EventType::Modified => Change::Modified(object),
                    EventType::Deleted => Change::Deleted(object),
                });
                at = event.object().resource_version();
            }
            WatchItem::Bookmark {
                resource_version, ..
            } => at = resource_version,
            WatchItem::Initial(_) => panic!("an initial event after the initial events"),
            WatchItem::Error(error) => return Err(source_error(error)),
        }
    }
    Ok(ChangeBatch { changes, at })
}

impl CacherSource {
    /// Creates the source of an informer, connected to the cacher in `served`.
    pub(super) fn new(
        served: &Arc<Mutex<Arc<Cacher>>>,
        request: &InformerRequest,
    ) -> (Self, Switch) {
        let state = watch::Sender::new(Connection {
            is_connected: true,
            losses: 0,
        });
        let source = Self {
            served: served.clone(),
            request: request.clone(),
            connection: state.subscribe(),
            initial_watch: None,
        };
        (source, Switch(state))
    }

    fn current_cacher(&self) -> Result<OnConnection<Arc<Cacher>>, SourceError> {
        let Connection {
            is_connected,
            losses,
        } = *self.connection.borrow();
        match is_connected {
            true => Ok(OnConnection {
                value: self.served.lock().clone(),
                losses,
            }),
            false => Err(unavailable("disconnected")),
        }
    }

    fn selection(&self) -> SelectionPredicate {
        let InformerRequest {
            namespace,
            labels,
            fields,
            ..
        } = &self.request;
        predicate(namespace.as_deref(), labels, fields)
    }

    /// Opens a watch with bookmarks.
    async fn open(&self, options: ListOptions) -> Result<OnConnection<CacheWatcher>, SourceError> {
        let options = ListOptions {
            allow_watch_bookmarks: true,
            ..options
        };
        let OnConnection { value, losses } = self.current_cacher()?;
        let watch = value.watch(self.selection(), &options).await;
        Ok(OnConnection {
            value: watch.map_err(source_error)?,
            losses,
        })
    }

    async fn streaming_list(&mut self) -> Result<Listing<DynamicObject>, SourceError> {
        let options = ListOptions {
            resource_version_match: Some(ResourceVersionMatch::NotOlderThan),
            send_initial_events: Some(true),
            ..ListOptions::default()
        };
        let mut watch = self.open(options).await?;
        let mut objects = Vec::new();
        loop {
            let items = watch.value.next().await;
            let mut items = items.ok_or_else(|| unavailable("ended"))?.into_iter();
            while let Some(item) = items.next() {
                match item {
                    WatchItem::Initial(object) => objects.push(dynamic(&object)),
                    WatchItem::Bookmark {
                        resource_version: at,
                        initial_events_end: true,
                    } => {
                        assert_eq!(items.count(), 0, "the bookmark ends its batch");
                        self.initial_watch = Some(watch);
                        return Ok(Listing { objects, at });
                    }
                    WatchItem::Error(error) => return Err(source_error(error)),
                    other => panic!("{other:?} before the end of the initial events"),
                }
            }
        }
    }
}

impl ListerWatcher for CacherSource {
    type Object = DynamicObject;

    async fn list(&mut self) -> Result<Listing<DynamicObject>, SourceError> {
        if self.request.watch_list {
            return self.streaming_list().await;
        }
        let options = ListOptions::default();
        let cacher = self.current_cacher()?.value;
        let list = cacher.list(&self.selection(), &options).await;
        let list = list.map_err(source_error)?;
        Ok(Listing {
            objects: list.items.iter().map(|item| dynamic(item)).collect(),
            at: list.resource_version,
        })
    }

    async fn watch(
        &mut self,
        after: ResourceVersion,
    ) -> Result<ChangeStream<DynamicObject>, SourceError> {
        let options = ListOptions {
            resource_version: Some(after),
            ..ListOptions::default()
        };
        let OnConnection {
            value: watch,
            losses,
        } = match self.initial_watch.take() {
            Some(watch) => watch,
            None => self.open(options).await?,
        };
        let mut connection = self.connection.clone();
        let lost = async move { connection.wait_for(|now| now.losses > losses).await.is_ok() };
        let items = stream::unfold((watch, after), async |(mut watch, at)| {
            let batch = batch(watch.next().await?, at);
            let at = batch.as_ref().map_or(at, |batch| batch.at);
            Some((batch, (watch, at)))
        });
        let failure = stream::once(async { Err(unavailable("connection lost")) });
        Ok(Box::pin(items.take_until(lost).chain(failure)))
    }
}

/// A connection that is lost between a streaming list and `watch` ends the watch. Otherwise an informer would receive what happens
/// while it is disconnected.
#[tokio::test(start_paused = true)]
async fn watch_ends_if_its_connection_is_lost_after_the_streaming_list() {
    let tasks = Tasks::new();
    let storage = FakeStorage::new();
    let cacher = Cacher::start(resource(), storage, &tasks, CacherConfig::default());
    let request = InformerRequest {
        namespace: None,
        labels: String::new(),
        fields: String::new(),
        watch_list: true,
        resync: Duration::ZERO,
    };
    let (mut source, switch) = CacherSource::new(&Arc::new(Mutex::new(cacher)), &request);
    let list = source.list().await.unwrap();

    switch.set_connected(false);

    let mut changes = source.watch(list.at).await.unwrap();
    let change = changes.next().await;
    assert!(
        matches!(change, Some(Err(SourceError::Unavailable { .. }))),
        "{change:?}"
    );
    tasks.cancel();
}
