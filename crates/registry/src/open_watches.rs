//! The open watches of all clients of a server: the request and the sent bytes of each watch, and a token that ends it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::resource::Resource;
use watchet_api::UserInfo;
use watchet_cacher::{ReadError, WatchMonitor, WatchStatus};

/// What the names of watches begin with.
const NAME_PREFIX: &str = "w-";

/// The open watches of a server.
#[derive(Debug)]
pub struct OpenWatches {
    watches: Mutex<BTreeMap<u64, Arc<WatchRecord>>>,
    next: AtomicU64,
    /// Makes the uids of the watches differ from those of other servers and of earlier processes.
    random: u64,
}

/// The request that opened a watch.
#[derive(Debug)]
pub struct WatchOrigin {
    /// The authenticated user.
    pub user: Arc<UserInfo>,
    /// The header User-Agent; empty if there is none.
    pub user_agent: Box<str>,
    /// The address of the client, or of the last proxy; `None` for a request without a connection.
    pub address: Option<SocketAddr>,
    /// The watched resource.
    pub resource: Arc<Resource>,
    /// The namespace; `None` for all.
    pub namespace: Option<Box<str>>,
    /// The label selector of the request.
    pub label_selector: Box<str>,
    /// The field selector of the request.
    pub field_selector: Box<str>,
    /// The encoding of the frames: `json` or `protobuf`.
    pub encoding: &'static str,
    /// What the frames contain: `Object`, `Metadata` or `Table`.
    pub form: &'static str,
}

/// One open watch.
#[derive(Debug)]
pub struct WatchRecord {
    number: u64,
    started: Timestamp,
    origin: WatchOrigin,
    monitor: WatchMonitor,
    sent: SentCounts,
    error: OnceLock<Box<ReadError>>,
    end: CancellationToken,
}

/// With the reference counts of its `Arc`, a record fits jemalloc's size class of 256 bytes. The next class is 320.
const _: () = assert!(size_of::<WatchRecord>() <= 240);

/// The number of frames and bytes that a watch has passed to its connection.
#[derive(Debug, Default)]
struct SentCounts {
    frames: AtomicU64,
    bytes: AtomicU64,
}

/// Removes a watch from its [`OpenWatches`] when it is dropped.
#[derive(Debug)]
pub struct OpenWatch {
    watches: Arc<OpenWatches>,
    record: Arc<WatchRecord>,
}

impl OpenWatches {
    /// Creates an empty list.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            watches: Mutex::default(),
            next: AtomicU64::new(1),
            random: Uuid::new_v4().as_u64_pair().0,
        })
    }

    /// Adds a watch, which must end when `end` is cancelled.
    pub fn add(
        self: &Arc<Self>,
        origin: WatchOrigin,
        monitor: WatchMonitor,
        end: CancellationToken,
    ) -> OpenWatch {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let record = Arc::new(WatchRecord {
            number,
            started: Timestamp::now(),
            origin,
            monitor,
            sent: SentCounts::default(),
            error: OnceLock::new(),
            end,
        });
        self.watches.lock().insert(number, Arc::clone(&record));
        OpenWatch {
            watches: Arc::clone(self),
            record,
        }
    }

    /// Returns the open watches in the order in which they were opened. A watch that [`Self::end`] has ended is not
    /// open, even if its connection has yet to notice.
    pub fn all(&self) -> Vec<Arc<WatchRecord>> {
        let watches = self.watches.lock();
        let open = watches.values().filter(|watch| !watch.was_ended());
        open.cloned().collect()
    }

    /// Returns the uid of a watch of this server.
    pub fn uid(&self, watch: &WatchRecord) -> Uuid {
        Uuid::from_u64_pair(self.random, watch.number)
    }

    /// Returns true if there is an open watch of `resource`.
    pub fn has_watch_of(&self, resource: &Resource) -> bool {
        let is_same = |watch: &Arc<WatchRecord>| {
            let watched = &watch.origin.resource;
            watched.is(&resource.group, &resource.plural)
        };
        self.watches.lock().values().any(is_same)
    }

    /// Ends the watch with this name. Its client sees the end of the response, as at a timeout of the watch.
    pub fn end(&self, name: &str) {
        let number = name.strip_prefix(NAME_PREFIX);
        let Some(number) = number.and_then(|number| number.parse().ok()) else {
            return;
        };
        if let Some(watch) = self.watches.lock().get(&number) {
            watch.end.cancel();
        }
    }
}

impl WatchRecord {
    /// Returns the name, unique in the server: `w-17`.
    pub fn name(&self) -> String {
        format!("{NAME_PREFIX}{}", self.number)
    }

    /// Returns the time at which the watch was opened.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Returns the request that opened it.
    pub fn origin(&self) -> &WatchOrigin {
        &self.origin
    }

    /// Returns what it does, and how far it is behind.
    pub fn status(&self) -> WatchStatus {
        self.monitor.status()
    }

    /// Records the error that the watch ends with.
    pub fn fail(&self, error: &ReadError) {
        self.error.get_or_init(|| Box::new(error.clone()));
    }

    /// Returns the error that the watch ended with.
    pub fn error(&self) -> Option<&ReadError> {
        self.error.get().map(|error| &**error)
    }

    /// Returns true if [`OpenWatches::end`] has ended it, or its client has lost access, or the server stops.
    pub fn was_ended(&self) -> bool {
        self.end.is_cancelled()
    }

    /// Sets the number of frames and bytes that were sent. Only the body of the watch, which counts them, calls this.
    pub fn set_sent(&self, frames: u64, bytes: u64) {
        self.sent.frames.store(frames, Ordering::Relaxed);
        self.sent.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the number of frames that were passed to the connection: events, bookmarks and the error at the end.
    pub fn sent_frames(&self) -> u64 {
        self.sent.frames.load(Ordering::Relaxed)
    }

    /// Returns the bytes of these frames, before compression and encryption.
    pub fn sent_bytes(&self) -> u64 {
        self.sent.bytes.load(Ordering::Relaxed)
    }
}

impl OpenWatch {
    /// Returns the watch.
    pub fn record(&self) -> &Arc<WatchRecord> {
        &self.record
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.watches.watches.lock().remove(&self.record.number);
    }
}
