//! The clients of the open watches of a run, and what they have received.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

use super::driver::{Received, WatchStream};
use super::item::{Item, ObjectItem};
use super::object::ReceivedObject;
use super::script::Step;
use super::versions::Versions;

/// A watch, and the items that its client has received and the script has not yet expected.
pub(super) struct Client<W> {
    pub(super) stream: Option<W>,
    pub(super) is_paused: bool,
    /// What it received; `None` is the end of the watch.
    pub(super) received: VecDeque<Option<Received>>,
    /// The last step that refers to this watch.
    pub(super) step: Step,
}

impl<W: WatchStream> Client<W> {
    /// Reads all available items. Returns true if there were any.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.is_paused) else {
            return false;
        };
        match stream.poll_next(cx) {
            Poll::Pending => false,
            Poll::Ready(Some(items)) => {
                self.received.extend(items.into_iter().map(Some));
                true
            }
            Poll::Ready(None) => {
                self.stream = None;
                self.received.push_back(None);
                true
            }
        }
    }
}

pub(super) type Clients<W> = BTreeMap<String, Client<W>>;

/// Reads the available items of all clients. Returns true if there were any.
pub(super) fn poll_read<W: WatchStream>(clients: &mut Clients<W>, cx: &mut Context<'_>) -> bool {
    let reads = clients.values_mut().map(|client| client.poll_read(cx));
    reads.filter(|has_read| *has_read).count() > 0
}

/// Replaces versions by their names.
pub(super) fn normalized(received: Option<Received>, versions: &Versions) -> Item {
    let Some(received) = received else {
        return Item::Closed;
    };
    match received {
        Received::Event(kind, object) => {
            let item = object_item(object, versions);
            Item::Object(ObjectItem {
                kind: Some(kind),
                ..item
            })
        }
        Received::Bookmark {
            version,
            is_initial_events_end,
        } => Item::Bookmark {
            version: versions.of_state(version),
            is_initial_events_end,
        },
        Received::Error(error) => Item::Error(error.code, error.reason),
    }
}

pub(super) fn object_item(object: ReceivedObject, versions: &Versions) -> ObjectItem {
    let name = match object.namespace.as_str() {
        "default" | "" => object.name,
        namespace => format!("{namespace}/{}", object.name),
    };
    let version = versions.of_object(object.version);
    ObjectItem {
        kind: None,
        name,
        version,
        content: Some(object.content),
        count: 1,
    }
}

/// Awaits `step` while the clients read.
pub(super) async fn reading<W: WatchStream, T>(
    clients: &mut Clients<W>,
    step: impl Future<Output = T>,
) -> T {
    let mut step = pin!(step);
    poll_fn(|cx| {
        // One batch per poll, so that the step advances even if there is always something to read.
        let progress = poll_read(clients, cx);
        let result = step.as_mut().poll(cx);
        if result.is_pending() && progress {
            cx.waker().wake_by_ref();
        }
        result
    })
    .await
}
