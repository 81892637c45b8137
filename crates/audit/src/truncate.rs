//! `Truncate`: the maximum sizes of events and batches. Events that are too large lose their objects.

use bytes::Bytes;

use crate::event::Event;

/// The annotation of an event without its objects, as upstream.
pub const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The maximum sizes in bytes, as in upstream's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncate {
    /// The maximum size of an event. A larger event is recorded without its objects; if it is still too large, not at
    /// all.
    pub event_bytes_max: usize,
    /// The maximum size of a batch.
    pub batch_bytes_max: usize,
}

impl Truncate {
    /// Returns the line to record for an event whose encoding is `line`; `None` if it is too large even without its
    /// objects.
    pub(crate) fn apply(&self, event: &Event<'_>, line: &Bytes) -> Option<Bytes> {
        if line.len() <= self.event_bytes_max {
            return Some(line.clone());
        }
        if event.request_object.is_none() && event.response_object.is_none() {
            return None;
        }
        let mut annotations = event.annotations.clone();
        annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
        let truncated = Event {
            request_object: None,
            response_object: None,
            annotations: &annotations,
            ..event.clone()
        };
        let line = truncated.line().ok()?;
        (line.len() <= self.event_bytes_max).then_some(line)
    }
}
