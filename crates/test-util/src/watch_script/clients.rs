//! The clients of a run, which are its open watches and the handlers of its informers, and what they have received.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

use super::driver::{Notifications, Received, WatchStream};
use super::item::{Item, ItemKind, Notification, ObjectItem};
use super::object::ReceivedObject;
use super::script::Step;
use super::versions::Versions;

/// Where a client receives from.
pub(super) enum Stream<W> {
    /// A watch.
    Watch(W),
    /// The calls of a handler.
    Handler(Notifications),
}

/// A watch or handler, and the items that it has received and the script has not yet expected.
pub(super) struct Client<W> {
    pub(super) stream: Option<Stream<W>>,
    pub(super) is_paused: bool,
    /// True for a handler, whose items have no order between different objects.
    pub(super) is_handler: bool,
    /// What it received; `None` is the end of the watch, or of the handler.
    pub(super) received: VecDeque<Option<Received>>,
    /// The last step that refers to this client.
    pub(super) step: Step,
}

impl<W: WatchStream> Client<W> {
    pub(super) fn new(stream: Option<Stream<W>>, step: &Step) -> Self {
        Self {
            is_handler: matches!(stream, Some(Stream::Handler(_))),
            stream,
            is_paused: false,
            received: VecDeque::new(),
            step: step.clone(),
        }
    }

    /// Reads all available items. Returns true if there were any.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.is_paused) else {
            return false;
        };
        let items = match stream {
            Stream::Watch(watch) => watch.poll_next(cx),
            Stream::Handler(notifications) => notifications
                .poll_recv(cx)
                .map(|notification| notification.map(|notification| vec![notification])),
        };
        match items {
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
            Item::Object(object_item(ItemKind::Event(kind), object, versions))
        }
        Received::Notification(notification, object) => {
            let notification = match notification {
                Notification::Added { is_in_initial_list } => {
                    Notification::Added { is_in_initial_list }
                }
                Notification::Updated { old } => Notification::Updated {
                    old: versions.of_object(old),
                },
                Notification::Deleted {
                    is_final_state_unknown,
                } => Notification::Deleted {
                    is_final_state_unknown,
                },
            };
            let kind = ItemKind::Notification(notification);
            Item::Object(object_item(kind, object, versions))
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

pub(super) fn object_item(
    kind: ItemKind,
    object: ReceivedObject,
    versions: &Versions,
) -> ObjectItem {
    let name = match object.namespace.as_str() {
        "default" | "" => object.name,
        namespace => format!("{namespace}/{}", object.name),
    };
    let version = versions.of_object(object.version);
    ObjectItem {
        kind,
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
