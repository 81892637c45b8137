//! `/debug/storage/revisions`: which revision was current at a time, and when revisions were created. By default only
//! administrators may read it.
//!
//! The document has the kind of the storage, the newest revision, and the oldest one whose state can be read, each with its
//! time. The parameter `time` adds the revision at that time, and each parameter `revision` its time, or null if it is unknown.

use axum::http::request::Parts;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::error::HttpError;
use crate::request::query::Query;
use crate::state::HttpState;
use watchet_api::ResourceVersion;
use watchet_registry::{ApiError, RevisionSample, RevisionTimes};

/// Returns the document.
///
/// # Errors
/// 404 if the storage records no times; 400 for an invalid parameter; those of storage.
pub(crate) async fn document(state: &HttpState, parts: &Parts) -> Result<Value, HttpError> {
    let times = state.registry.revision_times();
    let times = times.ok_or(HttpError::NoSuchPath)?;
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    let failed = |error| HttpError::Api(ApiError::Storage(error));
    let revisions = state.registry.storage_revisions().await;
    let (oldest, newest) = revisions.map_err(failed)?;
    times.compacted(oldest);
    let now = Timestamp::now();
    let mut document = json!({
        "storage": state.registry.storage_name(),
        "newest": {"revision": newest.to_string(), "time": now.to_string()},
        "oldest": {
            "revision": oldest.to_string(),
            "time": times.oldest().map(|sample| time_of(sample).to_string()),
        },
    });
    if let Some(text) = query.text("time") {
        let at: Timestamp = text.parse().map_err(|error| {
            HttpError::BadRequest(format!(
                "time {text:?} is not a time such as 2026-11-27T10:00:00Z: {error}"
            ))
        })?;
        document["at"] = at_time(&times, at, now, newest);
    }
    let mut of = serde_json::Map::new();
    for text in query.all("revision") {
        let revision: ResourceVersion = text
            .parse()
            .map_err(|error| HttpError::BadRequest(format!("revision {text:?}: {error}")))?;
        let time = creation_time(&times, revision, now, newest);
        of.insert(text.to_owned(), json!(time.map(|time| time.to_string())));
    }
    if !of.is_empty() {
        document["times"] = Value::Object(of);
    }
    Ok(document)
}

/// Returns the revision at the time `at`; null if it is before the oldest state.
fn at_time(times: &RevisionTimes, at: Timestamp, now: Timestamp, newest: ResourceVersion) -> Value {
    // The last sample may be older than the last change.
    if at >= now {
        return json!({"revision": newest.to_string(), "time": now.to_string()});
    }
    let at_ms = u64::try_from(at.as_millisecond()).unwrap_or_default();
    match times.at(at_ms) {
        Some(sample) => json!({
            "revision": sample.revision.to_string(),
            "time": time_of(sample).to_string(),
        }),
        None => Value::Null,
    }
}

/// Returns the time at which `revision` was created; `None` if it is unknown. The time is late by at most one sample interval.
fn creation_time(
    times: &RevisionTimes,
    revision: ResourceVersion,
    now: Timestamp,
    newest: ResourceVersion,
) -> Option<Timestamp> {
    // The revision exists, and no sample includes it yet.
    let is_after_samples = times.newest().is_some_and(|last| last.revision < revision);
    if is_after_samples && revision <= newest {
        return Some(now);
    }
    times.of(revision).map(time_of)
}

fn time_of(sample: RevisionSample) -> Timestamp {
    let ms = i64::try_from(sample.time_ms).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `watchet history` showed no time for a change of the last second.
    #[test]
    fn a_revision_after_the_last_sample_was_created_now() {
        let times = RevisionTimes::default();
        let (version, now) = (ResourceVersion::new, Timestamp::now());
        let time = |times: &_, number| creation_time(times, version(number), now, version(9));
        assert_eq!(time(&times, 5), None, "without samples");
        times.record(RevisionSample {
            time_ms: 1000,
            revision: version(5),
            written_bytes: 0,
        });
        assert_eq!(time(&times, 4), None, "before the first sample");
        assert_eq!(time(&times, 5), Timestamp::from_second(1).ok());
        assert_eq!(time(&times, 9), Some(now));
        assert_eq!(time(&times, 10), None, "the future");
    }
}
