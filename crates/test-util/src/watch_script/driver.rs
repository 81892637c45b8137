//! The interface that executes the steps of a script: a cache, a server, or anything else that supports list and watch.

use std::collections::BTreeSet;
use std::task::{Context, Poll};
use std::time::Duration;

use super::item::{EventKind, Notification};
use super::object::{ObjectName, ReceivedObject, Resource, StoredObject};
use super::script::{InformerOptions, Match, Read};

/// A change of one object.
#[derive(Debug, Clone)]
pub struct WriteRequest {
    /// The object.
    pub object: ObjectName,
    /// The content that is stored before the change.
    pub previous: Option<StoredObject>,
    /// The content to store; `None` deletes the object.
    pub next: Option<StoredObject>,
}

/// The parameters of a list or watch, with resolved versions.
#[derive(Debug, Clone, Default)]
pub struct ReadRequest {
    /// `resourceVersion`
    pub resource_version: Option<u64>,
    /// `resourceVersionMatch` of a list.
    pub version_match: Option<Match>,
    /// The namespace; all if absent.
    pub namespace: Option<String>,
    /// `labelSelector`
    pub labels: String,
    /// `fieldSelector`
    pub fields: String,
    /// `limit`
    pub limit: usize,
    /// `continue`
    pub continue_token: Option<String>,
    /// `sendInitialEvents`
    pub send_initial_events: Option<bool>,
    /// `allowWatchBookmarks`
    pub allow_watch_bookmarks: bool,
    /// `timeoutSeconds`
    pub timeout: Option<Duration>,
}

impl ReadRequest {
    /// Returns the path and query of the request.
    pub fn path(&self, is_watch: bool) -> String {
        let plural = Resource::Pods.plural();
        let mut path = match &self.namespace {
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/{plural}?"),
            None => format!("/api/v1/{plural}?"),
        };
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                path += &format!("{name}={}&", percent_encoded(&value));
            }
        };
        let selector = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        add("watch", is_watch.then(|| "1".to_owned()));
        add(
            "resourceVersion",
            self.resource_version.map(|version| version.to_string()),
        );
        let streams = self.send_initial_events.map(|_| Match::NotOlderThan);
        let version_match = self.version_match.or(streams);
        add(
            "resourceVersionMatch",
            version_match.map(|m| m.name().to_owned()),
        );
        add("labelSelector", selector(&self.labels));
        add("fieldSelector", selector(&self.fields));
        add("limit", (self.limit > 0).then(|| self.limit.to_string()));
        add("continue", self.continue_token.clone());
        add(
            "sendInitialEvents",
            self.send_initial_events.map(|value| value.to_string()),
        );
        add(
            "allowWatchBookmarks",
            self.allow_watch_bookmarks.then(|| "true".to_owned()),
        );
        add(
            "timeoutSeconds",
            self.timeout.map(|timeout| timeout.as_secs().to_string()),
        );
        path.pop();
        path
    }

    pub(super) fn new(
        read: &Read,
        resource_version: Option<u64>,
        continue_token: Option<String>,
    ) -> Self {
        Self {
            resource_version,
            version_match: read.version_match,
            namespace: read.namespace.clone(),
            labels: read.labels.clone(),
            fields: read.fields.clone(),
            limit: read.limit.unwrap_or(0),
            continue_token,
            send_initial_events: read.initial_events,
            allow_watch_bookmarks: read.bookmarks,
            timeout: read.timeout_seconds.map(Duration::from_secs),
        }
    }
}

fn percent_encoded(text: &str) -> String {
    let bytes = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    });
    bytes.collect()
}

/// The Status of a failed request, or of an ERROR event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// `code`
    pub code: u16,
    /// `reason`
    pub reason: String,
    /// `metadata.continue`: the new token in the error about an expired one.
    pub continue_token: Option<String>,
}

/// The result of a list.
#[derive(Debug, Clone)]
pub struct ListResponse {
    /// `metadata.resourceVersion`
    pub version: u64,
    /// `items`
    pub items: Vec<ReceivedObject>,
    /// `metadata.continue`
    pub continue_token: Option<String>,
    /// `metadata.remainingItemCount`
    pub remaining: Option<u64>,
}

/// An item that a watch sends.
#[derive(Debug, Clone)]
pub enum Received {
    /// An event.
    Event(EventKind, ReceivedObject),
    /// A bookmark.
    Bookmark {
        /// The version.
        version: u64,
        /// True if it has the annotation `k8s.io/initial-events-end`.
        is_initial_events_end: bool,
    },
    /// An ERROR event.
    Error(ApiError),
    /// A call of a handler, with the new object, or the last known one.
    Notification(Notification<u64>, ReceivedObject),
}

/// The calls of a handler of an informer, which sends a [`Received::Notification`] for each and returns once it is received. The
/// channel has the capacity 1, so that a client that does not read blocks its handler. It is closed when the handler ends.
pub type Notifications = tokio::sync::mpsc::Receiver<Received>;

/// An open watch.
pub trait WatchStream {
    /// Returns the next available item, or `None` at the end of the watch.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<Received>>>;
}

/// The parameters of an informer.
#[derive(Debug, Clone)]
pub struct InformerRequest {
    /// The namespace; all if absent.
    pub namespace: Option<String>,
    /// `labelSelector`
    pub labels: String,
    /// `fieldSelector`
    pub fields: String,
    /// True if the informer may use streaming lists.
    pub watch_list: bool,
    /// The resync period of its handlers; zero for none.
    pub resync: Duration,
}

impl InformerRequest {
    pub(super) fn new(read: &Read, options: &InformerOptions) -> Self {
        Self {
            namespace: read.namespace.clone(),
            labels: read.labels.clone(),
            fields: read.fields.clone(),
            watch_list: options.watch_list,
            resync: Duration::from_secs(options.resync_seconds),
        }
    }
}

/// A running informer of pods.
pub trait Informer {
    /// Adds a handler with this name.
    fn add_handler(&mut self, name: &str) -> Notifications;

    /// Removes the handler with this name.
    fn remove_handler(&mut self, name: &str);

    /// Returns the objects of its indexer, in the order of their keys.
    fn objects(&self) -> Vec<ReceivedObject>;

    /// Returns the last version that it has received; `None` before the first list.
    fn version(&self) -> Option<u64>;

    /// With false, ends the connections to the server and rejects new ones; with true, accepts connections again.
    fn set_connected(&mut self, connected: bool);
}

/// How long the runner waits. If the clock is paused, this takes no real time.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// The maximum wait for an expected item.
    pub patience: Duration,
    /// The wait before the runner concludes that nothing more arrives.
    pub silence: Duration,
}

/// Executes the steps of a script over a store of its own, without other writers of pods.
///
/// The methods of a [`Need`](super::Need) that the driver does not support need not be implemented.
#[expect(async_fn_in_trait, reason = "tests await the futures in place")]
pub trait Driver {
    /// The type of its watches.
    type Watch: WatchStream;

    /// The type of its informers.
    type Informer: Informer;

    /// Returns its name, for reports.
    fn name(&self) -> String;

    /// Returns how long to wait.
    fn timing(&self) -> Timing;

    /// Prepares a run whose objects are in these namespaces, and returns the revision of storage.
    async fn start(&mut self, namespaces: &BTreeSet<String>) -> u64;

    /// Performs all writes in one revision and returns it.
    async fn write(&mut self, writes: &[WriteRequest]) -> u64;

    /// Lists pods.
    async fn list(&mut self, request: &ReadRequest) -> Result<ListResponse, ApiError>;

    /// Watches pods.
    async fn watch(&mut self, request: &ReadRequest) -> Result<Self::Watch, ApiError>;

    /// Starts an informer of pods.
    async fn informer(&mut self, _request: &InformerRequest) -> Self::Informer {
        unimplemented!("the driver does not support `informer`")
    }

    /// Compacts storage up to a revision.
    async fn compact(&mut self, _at: u64) {
        unimplemented!("the driver does not support `compact`")
    }

    /// Replaces the server by a new one over the same storage. The informers find it.
    async fn restart(&mut self);

    /// Ends the cache's watch of storage.
    async fn cut(&mut self) {
        unimplemented!("the driver does not support `cut`")
    }

    /// Disconnects the cache from storage, or connects it again.
    async fn set_connected(&mut self, _connected: bool) {
        unimplemented!("the driver does not support `disconnect`")
    }
}
