//! A watch whose events a test reads one by one.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use super::wire::{Wire, full, request};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A time limit far longer than an event takes.
const EVENT_PATIENCE: Duration = Duration::from_secs(60);

/// A watch of the config maps in `default`.
pub(crate) struct OpenWatch {
    body: Incoming,
    /// Received and not returned yet.
    buffer: Vec<u8>,
    _wire: Wire,
}

impl OpenWatch {
    pub(crate) async fn start(mut wire: Wire, headers: &[(&str, &str)]) -> Self {
        let path = format!(
            "{CONFIG_MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        );
        let opened = wire
            .open(request(Method::GET, &path, headers, full("")))
            .await
            .unwrap();
        assert_eq!(opened.status(), 200);
        let mut watch = Self {
            body: opened.into_body(),
            buffer: Vec::new(),
            _wire: wire,
        };
        loop {
            let event = watch.next().await.expect("the end of the initial state");
            if event["type"] == "BOOKMARK" {
                return watch;
            }
        }
    }

    /// Returns the next event; `None` at the end of the body.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(EVENT_PATIENCE, self.body.frame()).await;
            match frame.expect("an event or the end in time") {
                Some(frame) => self.buffer.extend(frame.unwrap().into_data().unwrap()),
                None => return None,
            }
        }
    }

    /// Waits for the next event that is neither a bookmark nor about a config map that a controller writes, which must
    /// be an error and the last. Returns its status.
    pub(crate) async fn error(&mut self) -> Value {
        loop {
            let event = self.next().await.expect("an error before the end");
            if event["type"] == "ERROR" {
                assert_eq!(self.next().await, None, "nothing follows");
                return event["object"].clone();
            }
        }
    }
}
