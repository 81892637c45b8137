//! Which events are written, and how: the same one counts up, many of a kind become one, and a source
//! that says too much of one object is not heard. client-go's rules; it writes nothing itself.
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
use crate::api::names::{SUBDOMAIN_LENGTH_MAX, is_dns_subdomain};

/// How many kinds of events are remembered.
const REMEMBERED_MAX: usize = 4096;

/// So many messages of a kind (same source, object, type and reason) ...
const SIMILAR_MAX: usize = 10;

/// ... each within this time of the one before become one event.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);

/// How many events of one source about one object are written at once, and how often one more.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);

/// How an event is written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Write {
    /// It is new.
    Create(Event),
    /// It has happened again: this patch makes the one that is there into this.
    Patch(Event, Value),
}

/// What makes two events the same, but for their message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind {
    source: Source,
    field_path: Option<String>,
    event_type: Option<String>,
    reason: Option<String>,
}

/// Who says something about whom.
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

impl Kind {
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

/// The messages of a kind.
struct Similar {
    messages: BTreeSet<String>,
    last: Instant,
}

/// What was last written of an event.
#[derive(Default)]
struct Counted {
    name: String,
    first: Option<Time>,
    count: i32,
}

/// How much a source may still say.
struct Bucket {
    left: f64,
    at: Instant,
}

/// An event's kind and message; no message for many of the kind in one.
type Same = (Kind, Option<String>);

/// Remembers what was told.
pub(super) struct Correlator {
    similar: Recent<Kind, Similar>,
    counted: Recent<Same, Counted>,
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
    /// How `event`, which was told at `now`, is written, if it is.
    pub(super) fn correlate(&mut self, event: Event, now: Instant) -> Option<Write> {
        let source = Kind::of(&event).source;
        let (event, same) = self.aggregate(event, now);
        let write = self.count(event, same);
        self.heard(source, now).then_some(write)
    }

    /// The server took `write` and made `written` of it.
    pub(super) fn written(&mut self, write: &Write, written: &Event) {
        let (Write::Create(event) | Write::Patch(event, _)) = write;
        // One that was gone has a new name.
        if event.metadata.name != written.metadata.name {
            let counted = self.counted.entry(same(event), Counted::default);
            counted.name = written.metadata.name.clone().unwrap_or_default();
        }
    }

    fn aggregate(&mut self, event: Event, now: Instant) -> (Event, Same) {
        let kind = Kind::of(&event);
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

    fn count(&mut self, mut event: Event, same: Same) -> Write {
        let counted = self.counted.entry(same, Counted::default);
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

    fn heard(&mut self, source: Source, now: Instant) -> bool {
        let bucket = self.buckets.entry(source, || Bucket {
            left: BURST,
            at: now,
        });
        let refilled = (now - bucket.at).as_secs_f64() / REFILL.as_secs_f64();
        bucket.left = (bucket.left + refilled).min(BURST);
        bucket.at = now;
        let heard = bucket.left >= 1.0;
        if heard {
            bucket.left -= 1.0;
        }
        heard
    }
}

/// What the message of many in one begins with, as people know it.
const COMBINED: &str = "(combined from similar events): ";

fn same(event: &Event) -> Same {
    let message = event.message.clone().unwrap_or_default();
    let message = (!message.starts_with(COMBINED)).then_some(message);
    (Kind::of(event), message)
}

/// The name of an event about `object`, which no other has. Some objects are called what no event can be,
/// such as the role `system:node` or what has too long a name: theirs are told apart by chance alone, as by
/// client-go.
pub(super) fn event_name(object: &str, now: Timestamp) -> String {
    let name = format!("{object}.{:x}", now.as_nanosecond());
    match name.len() <= SUBDOMAIN_LENGTH_MAX && is_dns_subdomain(&name) {
        true => name,
        false => uuid::Uuid::new_v4().to_string(),
    }
}

/// `event` under a name of its own, which its first writing gave it unless that is long ago.
pub(super) fn anew(event: &Event) -> Event {
    let mut event = event.clone();
    if event.count.is_some_and(|count| count > 1) {
        let object = event.involved_object.name.as_deref().unwrap_or_default();
        event.metadata.name = Some(event_name(object, Timestamp::now()));
    }
    event
}
