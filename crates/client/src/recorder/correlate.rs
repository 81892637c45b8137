//! The event correlator with client-go's rules: repeated events become a count, many similar events
//! become one, and events of a source about an object are rate-limited.
//!
//! ```text
//! event ─▶ aggregate: 10 messages of a kind in 10 minutes? ─▶ count: seen before? ─▶ bucket ─▶ write
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::recent::Recent;
use watchet_api::names::{SUBDOMAIN_LENGTH_MAX, is_dns_subdomain};

/// The size of each LRU cache.
const REMEMBERED_MAX: usize = 4096;

/// How many messages of similar events (event_key source, object, type and reason) ...
const SIMILAR_MAX: usize = 10;

/// ... each within this time after the previous one are aggregated into one event.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);

/// The token bucket of a source and object: its size and the refill interval of one token.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);

/// A write of an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Write {
    /// A new event.
    Create(Event),
    /// A repeated event, and the patch that updates the existing one.
    Patch(Event, Value),
}

/// The key of similar events: all fields but the message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SimilarKey {
    source: Source,
    field_path: Option<String>,
    event_type: Option<String>,
    reason: Option<String>,
}

/// The key of rate limiting: a source and the object of its events.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Source {
    component: Option<String>,
    host: Option<String>,
    api_version: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

impl SimilarKey {
    fn of(event: &Event) -> Self {
        let EventSource { component, host } = event.source.clone().unwrap_or_default();
        let ObjectReference {
            api_version,
            kind,
            namespace,
            name,
            uid,
            field_path,
            ..
        } = event.involved_object.clone();
        Self {
            source: Source {
                component,
                host,
                api_version,
                kind,
                namespace,
                name,
                uid,
            },
            field_path,
            event_type: event.type_.clone(),
            reason: event.reason.clone(),
        }
    }
}

/// The messages of similar events.
struct Similar {
    messages: BTreeSet<String>,
    last: Instant,
}

/// The last written state of an event.
#[derive(Default)]
struct EventRecord {
    name: String,
    first: Option<Time>,
    count: i32,
}

/// The token bucket of a source.
struct Bucket {
    left: f64,
    at: Instant,
}

/// The key of an event; without a message for an aggregated one.
type EventKey = (SimilarKey, Option<String>);

/// Correlates events with previous ones.
pub(super) struct Correlator {
    similar: Recent<SimilarKey, Similar>,
    counted: Recent<EventKey, EventRecord>,
    buckets: Recent<Source, Bucket>,
}

impl Default for Correlator {
    fn default() -> Self {
        Self {
            similar: Recent::new(REMEMBERED_MAX),
            counted: Recent::new(REMEMBERED_MAX),
            buckets: Recent::new(REMEMBERED_MAX),
        }
    }
}

impl Correlator {
    /// Returns the write of `event`, recorded at `now`; `None` if it is rate-limited.
    pub(super) fn correlate(&mut self, event: Event, now: Instant) -> Option<Write> {
        let source = SimilarKey::of(&event).source;
        let (event, event_key) = self.aggregate(event, now);
        let write = self.count(event, event_key);
        self.is_allowed(source, now).then_some(write)
    }

    /// Records that the server stored `written` for `write`.
    pub(super) fn written(&mut self, write: &Write, written: &Event) {
        let (Write::Create(event) | Write::Patch(event, _)) = write;
        // An event that had expired has a new name.
        if event.metadata.name != written.metadata.name {
            let counted = self.counted.entry(event_key(event), EventRecord::default);
            counted.name = written.metadata.name.clone().unwrap_or_default();
        }
    }

    fn aggregate(&mut self, event: Event, now: Instant) -> (Event, EventKey) {
        let kind = SimilarKey::of(&event);
        let message = event.message.clone().unwrap_or_default();
        let similar = self.similar.entry(kind.clone(), || Similar {
            messages: BTreeSet::new(),
            last: now,
        });
        if now - similar.last > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(message.clone());
        if similar.messages.len() < SIMILAR_MAX {
            return (event, (kind, Some(message)));
        }
        similar.messages.pop_first();
        let event = Event {
            message: Some(format!("{COMBINED}{message}")),
            ..event
        };
        (event, (kind, None))
    }

    fn count(&mut self, mut event: Event, event_key: EventKey) -> Write {
        let counted = self.counted.entry(event_key, EventRecord::default);
        counted.count += 1;
        if counted.count == 1 {
            counted.name = event.metadata.name.clone().unwrap_or_default();
            counted.first = event.first_timestamp.clone();
            return Write::Create(event);
        }
        event.metadata.name = Some(counted.name.clone());
        event.first_timestamp = counted.first.clone();
        event.count = Some(counted.count);
        let patch = json!({
            "count": event.count,
            "lastTimestamp": event.last_timestamp,
            "message": event.message,
        });
        Write::Patch(event, patch)
    }

    fn is_allowed(&mut self, source: Source, now: Instant) -> bool {
        let bucket = self.buckets.entry(source, || Bucket {
            left: BURST,
            at: now,
        });
        let refilled = (now - bucket.at).as_secs_f64() / REFILL.as_secs_f64();
        bucket.left = (bucket.left + refilled).min(BURST);
        bucket.at = now;
        let is_allowed = bucket.left >= 1.0;
        if is_allowed {
            bucket.left -= 1.0;
        }
        is_allowed
    }
}

/// The message prefix of aggregated events, as in client-go.
const COMBINED: &str = "(combined from similar events): ";

fn event_key(event: &Event) -> EventKey {
    let message = event.message.clone().unwrap_or_default();
    let message = (!message.starts_with(COMBINED)).then_some(message);
    (SimilarKey::of(event), message)
}

/// Returns a unique name for an event about `object`. For objects whose name is not a valid prefix,
/// such as the role `system:node`, it is random, as in client-go.
pub(super) fn event_name(object: &str, now: Timestamp) -> String {
    let name = format!("{object}.{:x}", now.as_nanosecond());
    match name.len() <= SUBDOMAIN_LENGTH_MAX && is_dns_subdomain(&name) {
        true => name,
        false => uuid::Uuid::new_v4().to_string(),
    }
}

/// Returns `event` with a new name.
pub(super) fn renamed(event: &Event) -> Event {
    let mut event = event.clone();
    if event.count.is_some_and(|count| count > 1) {
        let object = event.involved_object.name.as_deref().unwrap_or_default();
        event.metadata.name = Some(event_name(object, Timestamp::now()));
    }
    event
}
