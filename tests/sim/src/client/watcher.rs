//! A client that watches: it begins with a list or with initial events, resumes when its watch ends, begins again after a 410,
//! and reads quickly, slowly, or for a while not at all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use super::Client;
use super::connection::Response;
use super::object::{APPS, Document, NAMES, PATH, PREFIX, TRANSACTION_NAMES, key};
use crate::check::{EventKind, ReadVersion, Selector, WatchEvent, WatchLog, WatchStart};

/// The annotation of the bookmark that ends initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The time before a client watches again.
const RETRY_MS: u64 = 300;

/// How long a connection may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(70);

/// The longest pause of a slow reader.
const SLOW_MS: u64 = 3_000;

/// How far a watch has come, for the end of a simulation.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchProgress {
    /// The revision of the last event since the start of the watcher or its last [`Watcher::begin_again`].
    reached: Arc<AtomicU64>,
    /// The identity of the present watch; 0 if there is none.
    open: Arc<AtomicU64>,
    /// The only name that it watches, if any.
    name: Arc<OnceLock<&'static str>>,
}

impl WatchProgress {
    /// Returns the identity of the present watch, if any.
    pub(crate) fn open(&self) -> Option<u64> {
        Some(self.open.load(Ordering::Relaxed)).filter(|id| *id > 0)
    }

    /// Returns the only name that it watches, if any.
    pub(crate) fn name(&self) -> Option<&'static str> {
        self.name.get().copied()
    }

    /// Returns the revision that the watch has reached.
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }
}

/// A line of a watch.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    object: Document,
}

/// What a client watches, and where it is.
struct Watcher {
    client: Client,
    random: fastrand::Rng,
    selector: Selector,
    parameters: String,
    position: Position,
    /// The position before the revision of the last event, if that is of a transaction, whose other events may not have arrived. A
    /// client that resumed after it would miss them; no Kubernetes server writes several objects in one revision.
    before_transaction: Option<Position>,
    /// The identity of the watch that the next one resumes.
    resumes: Option<u64>,
    is_slow: bool,
    watching: WatchProgress,
}

#[derive(Debug, Clone, Copy)]
enum Position {
    /// Nothing was received.
    Start,
    /// The last resourceVersion.
    At(u64),
}

/// Watches until the task ends.
pub(crate) async fn watch(client: Client, mut random: fastrand::Rng, watching: WatchProgress) {
    let mut selector = Selector::prefix(PREFIX);
    let mut parameters = String::new();
    match random.u8(..4) {
        0 => {
            let app = APPS[random.usize(..APPS.len())];
            selector.labels.insert("app".to_owned(), app.to_owned());
            parameters = format!("&labelSelector=app%3D{app}");
        }
        1 => {
            let name = NAMES[random.usize(..NAMES.len())];
            selector.prefix = key(name);
            let _set_once = watching.name.set(name);
            parameters = format!("&fieldSelector=metadata.name%3D{name}");
        }
        _ => {}
    }
    let is_slow = random.u8(..4) == 0;
    let mut watcher = Watcher {
        client,
        random,
        selector,
        parameters,
        position: Position::Start,
        before_transaction: None,
        resumes: None,
        is_slow,
        watching,
    };
    loop {
        watcher.watch_once().await;
        watcher.watching.open.store(0, Ordering::Relaxed);
        let pause = watcher.random.u64(..RETRY_MS);
        sleep(Duration::from_millis(pause)).await;
    }
}

impl Watcher {
    /// Chooses where the next watch begins, and its query parameters.
    fn choose_start(&mut self) -> (WatchStart, String) {
        let newest = self.client.recorder.newest();
        match (self.position, self.random.u8(..6)) {
            (Position::At(revision), _) => {
                let parameters = format!("&resourceVersion={revision}");
                (WatchStart::After(revision), parameters)
            }
            (Position::Start, 0) => (
                WatchStart::State(ReadVersion::Any),
                "&resourceVersion=0".to_owned(),
            ),
            (Position::Start, 1) => (WatchStart::State(ReadVersion::Consistent), String::new()),
            (Position::Start, 2) if newest > 0 => {
                self.position = Position::At(newest);
                let parameters = format!("&resourceVersion={newest}");
                (WatchStart::After(newest), parameters)
            }
            (Position::Start, _) => {
                let parameters = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
                (
                    WatchStart::State(ReadVersion::Consistent),
                    parameters.to_owned(),
                )
            }
        }
    }

    /// Opens a watch and reads it until it ends.
    async fn watch_once(&mut self) {
        let Ok(mut open) = self.client.connect(&mut self.random).await else {
            return;
        };
        let (start, versioned) = self.choose_start();
        let uri = format!(
            "{PATH}?watch=true&allowWatchBookmarks=true{}{versioned}",
            self.parameters
        );
        let (id, opened) = (self.client.recorder.id(), self.client.recorder.now());
        let Ok(response) = open.open(Method::GET, &uri, String::new()).await else {
            return;
        };
        let log = WatchLog {
            id,
            client: self.client.number,
            server: open.server,
            opened,
            selector: self.selector.clone(),
            start,
            resumes: self.resumes,
            events: Vec::new(),
            is_drained: false,
        };
        let recorder = self.client.recorder.clone();
        if response.status() != StatusCode::OK {
            self.is_refused(response).await;
            return;
        }
        recorder.change(|history| history.watches.push(log));
        self.watching.open.store(id, Ordering::Relaxed);
        self.resumes = Some(id);
        self.read_events(id, response.into_body()).await;
    }

    /// Handles a watch that the server does not open.
    async fn is_refused(&mut self, response: http::Response<Incoming>) {
        match Response::read(response).await {
            // It begins again, as an informer does.
            Ok(Response { code, .. }) if code == StatusCode::GONE => self.begin_again(),
            // The version is too large, or the server cannot serve now.
            Ok(Response { code, .. })
                if code.is_server_error() || code == StatusCode::TOO_MANY_REQUESTS => {}
            Ok(Response { code, document }) => panic!("a watch gets {code}: {document:?}"),
            Err(_) => {}
        }
    }

    fn begin_again(&mut self) {
        self.position = Position::Start;
        self.resumes = None;
        // The events of the former watch do not show how far the next watch has come.
        self.watching.reached.store(0, Ordering::Relaxed);
    }

    /// Reads the events of watch `id` until it ends.
    async fn read_events(&mut self, id: u64, mut body: Incoming) {
        let mut buffer = BytesMut::new();
        // Some clients end their watches. The others consider a connection dead that is silent for longer than the usual
        // period of bookmarks.
        let until = match self.random.u8(..4) {
            0 => Duration::from_millis(self.random.u64(1_000..20_000)),
            _ => SILENCE_MAX,
        };
        let mut is_complete = !matches!(self.position, Position::Start);
        loop {
            if self.is_slow && !self.client.recorder.is_ending() && self.random.u8(..4) == 0 {
                sleep(Duration::from_millis(self.random.u64(..SLOW_MS))).await;
            }
            let frame = match timeout(until, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                end => {
                    let is_broken = !matches!(end, Ok(None));
                    if let Some(before) = self.before_transaction.take().filter(|_| is_broken) {
                        self.position = before;
                    }
                    if !is_complete {
                        // Initial events without their end are no position.
                        self.begin_again();
                    }
                    return;
                }
            };
            if let Ok(data) = frame.into_data() {
                buffer.extend_from_slice(&data);
            }
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(end + 1);
                let line: Line = serde_json::from_slice(&line).expect("a line is an event");
                is_complete = self.receive(id, &line, is_complete);
            }
        }
    }

    /// Records an event. Returns whether initial events, if any, are complete.
    fn receive(&mut self, id: u64, line: &Line, is_complete: bool) -> bool {
        let object = || line.object.object();
        let mut is_bookmark = false;
        let kind = match line.kind.as_str() {
            "ADDED" => EventKind::Added(object()),
            "MODIFIED" => EventKind::Modified(object()),
            "DELETED" => EventKind::Deleted(object()),
            "BOOKMARK" => {
                is_bookmark = true;
                let annotations = &line.object.metadata.annotations;
                EventKind::Bookmark {
                    revision: line.object.revision(),
                    ends_initial_events: annotations.contains_key(INITIAL_EVENTS_END),
                }
            }
            "ERROR" => EventKind::Error {
                code: line.object.code,
                is_legal: true,
            },
            other => panic!("an event of type {other}: {line:?}"),
        };
        let recorder = &self.client.recorder;
        let revision = kind.revision();
        let is_of_transaction = kind
            .object()
            .is_some_and(|object| TRANSACTION_NAMES.iter().any(|name| object.key == key(name)));
        let time = recorder.now();
        recorder.change_watch(id, |log| log.events.push(WatchEvent { time, kind }));
        let Some(revision) = revision else {
            if line.object.code == 410 {
                self.begin_again();
            }
            return is_complete;
        };
        recorder.saw(revision);
        if line.kind == "DELETED" {
            recorder.saw_deletion(revision);
        }
        // A bookmark is the first version after initial events that can be resumed.
        let is_complete = is_complete || is_bookmark;
        if is_complete {
            let is_same = matches!(self.position, Position::At(at) if at == revision);
            if !is_same {
                self.before_transaction = Some(self.position).filter(|_| is_of_transaction);
            }
            self.position = Position::At(revision);
            self.watching.reached.store(revision, Ordering::Relaxed);
        }
        is_complete
    }
}
