//! `Watching`: a watch over HTTP that checks the rules of every watch as it reads: versions never decrease, no version
//! of an object is sent twice, and no event is at or before a bookmark.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::timeout;

use super::site::version;
use crate::harness::{PATIENCE, Wire};

/// How long a test waits to conclude that a watch sends nothing.
const SILENCE: Duration = Duration::from_millis(300);

pub(crate) struct Watching {
    body: Incoming,
    buffer: Vec<u8>,
    position: u64,
    initial: bool,
    /// The last version of each object.
    objects: BTreeMap<String, u64>,
    _wire: Wire,
}

impl Watching {
    pub(crate) fn new(wire: Wire, body: Incoming) -> Self {
        Self {
            body,
            buffer: Vec::new(),
            position: 0,
            initial: true,
            objects: BTreeMap::new(),
            _wire: wire,
        }
    }

    /// Returns the next frame; `None` at the end of the body.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let next = timeout(PATIENCE, self.read()).await;
        next.expect("the watch has something to say")
    }

    /// As `next`, without a time limit. Cancel safe.
    pub(crate) async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let frame: Value = serde_json::from_slice(&line).expect("a line is a frame");
                self.check(&frame);
                return Some(frame);
            }
            match self.body.frame().await {
                Some(frame) => {
                    let data = frame.expect("the body goes on").into_data();
                    self.buffer.extend_from_slice(&data.expect("data"));
                }
                None => {
                    assert!(self.buffer.is_empty(), "a frame is cut: {:?}", self.buffer);
                    return None;
                }
            }
        }
    }

    /// The versions of initial events may be in any order; those of later events increase.
    fn check(&mut self, frame: &Value) {
        if frame["type"] == "ERROR" {
            return;
        }
        let object = &frame["object"];
        let at = version(object);
        if frame["type"] == "BOOKMARK" {
            assert!(at >= self.position, "{frame} after {}", self.position);
            self.position = at;
            return;
        }
        let key = format!(
            "{}/{}",
            object["metadata"]["namespace"], object["metadata"]["name"]
        );
        let last = self.objects.insert(key, at);
        assert!(last.is_none_or(|last| last < at), "{frame} after {last:?}");
        self.initial &= frame["type"] == "ADDED" && last.is_none();
        if !self.initial {
            assert!(at >= self.position, "{frame} after {}", self.position);
        }
        self.position = self.position.max(at);
    }

    /// Returns the next `count` frames that are not bookmarks.
    pub(crate) async fn events(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            let frame = self.next().await;
            let frame = frame.unwrap_or_else(|| panic!("ended after {events:?}"));
            if frame["type"] != "BOOKMARK" {
                events.push(frame);
            }
        }
        events
    }

    /// Returns `TYPE name` of the next `count` frames that are not bookmarks.
    pub(crate) async fn words(&mut self, count: usize) -> Vec<String> {
        self.events(count).await.iter().map(word).collect()
    }

    /// Asserts that the watch sends nothing for a moment.
    pub(crate) async fn is_silent(&mut self) {
        if let Ok(received) = timeout(SILENCE, self.read()).await {
            panic!("not silent: {received:?}");
        }
    }

    /// Asserts that the watch sends nothing but bookmarks for a moment.
    pub(crate) async fn has_no_event(&mut self) {
        let event = async {
            loop {
                match self.read().await {
                    Some(frame) if frame["type"] == "BOOKMARK" => {}
                    other => return other,
                }
            }
        };
        if let Ok(received) = timeout(SILENCE, event).await {
            panic!("an event or the end: {received:?}");
        }
    }

    /// Returns the frames up to the end of the body.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// Returns the version from which a client would resume.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }
}

/// Returns `TYPE name`, `BOOKMARK` or `BOOKMARK end`.
pub(crate) fn word(frame: &Value) -> String {
    let kind = frame["type"].as_str().expect("a type");
    let metadata = &frame["object"]["metadata"];
    match metadata["name"].as_str() {
        Some(name) => format!("{kind} {name}"),
        None if metadata["annotations"]["k8s.io/initial-events-end"] == "true" => {
            format!("{kind} end")
        }
        None => kind.to_owned(),
    }
}
