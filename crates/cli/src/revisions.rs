//! The revisions of the server's storage at past times, from `/debug/storage/revisions`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Deserialize;

use super::error::CliError;
use super::moment::Moment;
use watchet_client::{RestClient, RestError};

const PATH: &str = "/debug/storage/revisions";

/// The maximum number of revisions in a request.
const REVISIONS_MAX: usize = 100;

/// A revision and its time.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TimedRevision {
    pub revision: String,
    /// `None` if it is unknown.
    pub time: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Document {
    /// The kind of the storage: `embedded`.
    pub storage: String,
    pub newest: TimedRevision,
    pub oldest: TimedRevision,
    at: Option<TimedRevision>,
    #[serde(default)]
    times: BTreeMap<String, Option<Timestamp>>,
}

/// Returns the document without parameters.
///
/// # Errors
/// The server does not have it, or the user may not read it.
pub(crate) async fn document(client: &RestClient) -> Result<Document, RestError> {
    client.get_json(PATH, &[]).await
}

/// Returns the revision of a moment; `None` for the latest state.
///
/// # Errors
/// The state is not available, and what to do.
pub(crate) async fn resolve(
    client: &RestClient,
    moment: &Moment,
) -> Result<Option<TimedRevision>, CliError> {
    match moment {
        Moment::Now => Ok(None),
        Moment::Revision(revision) => {
            let times = times(client, std::slice::from_ref(revision)).await;
            let time = times.get(revision).copied();
            let revision = revision.clone();
            Ok(Some(TimedRevision { revision, time }))
        }
        Moment::Time(time) => {
            let text = time.to_string();
            let document: Result<Document, _> = client.get_json(PATH, &[("time", &text)]).await;
            let document = document.map_err(|error| no_times(error, client.server()))?;
            match &document.at {
                Some(at) => Ok(Some(TimedRevision {
                    time: Some(*time),
                    ..at.clone()
                })),
                None => Err(CliError::Missing(format!(
                    "the state of {} is not available: {}",
                    local(*time),
                    oldest_text(&document)
                ))),
            }
        }
    }
}

fn oldest_text(document: &Document) -> String {
    let oldest = &document.oldest;
    let flag = match document.storage.as_str() {
        "etcd" => "--etcd-compaction-interval",
        _ => "--history-retention",
    };
    let time = match oldest.time {
        Some(time) => format!(", of {}", local(time)),
        None => String::new(),
    };
    format!(
        "the oldest available state is resourceVersion {}{time}; `watchet serve {flag} 24h` retains more",
        oldest.revision
    )
}

fn no_times(error: RestError, server: &str) -> CliError {
    match error.code() {
        Some(404) => CliError::Missing(format!(
            "{server} does not report the times of its revisions: give a resourceVersion instead of a time"
        )),
        Some(403) => CliError::Missing(format!(
            "{error}; a role with the verb get on the nonResourceURL {PATH} allows it, or give a resourceVersion instead of a time"
        )),
        _ => error.into(),
    }
}

/// Completes the error of a list at a revision that is not available with the oldest one that is.
pub(crate) async fn explain(client: &RestClient, revision: &str, error: RestError) -> CliError {
    if !error.is_expired() {
        return error.into();
    }
    let why = match document(client).await {
        Ok(document) => oldest_text(&document),
        Err(_) => error.to_string(),
    };
    CliError::Missing(format!(
        "the state at resourceVersion {revision} is not available: {why}"
    ))
}

/// Returns the times of revisions; those that are known. None are known of a server that does not report them.
pub(crate) async fn times(
    client: &RestClient,
    revisions: &[String],
) -> BTreeMap<String, Timestamp> {
    let mut times = BTreeMap::new();
    for part in revisions.chunks(REVISIONS_MAX) {
        let query: Vec<(&str, &str)> = part.iter().map(|r| ("revision", r.as_str())).collect();
        let document: Result<Document, _> = client.get_json(PATH, &query).await;
        let Ok(document) = document else { break };
        let known = document.times.into_iter();
        times.extend(known.filter_map(|(revision, time)| Some((revision, time?))));
    }
    times
}

/// Returns a time as text in the time zone of the system, in whole seconds.
pub(crate) fn local(time: Timestamp) -> String {
    let zoned = time.to_zoned(TimeZone::system());
    zoned.strftime("%Y-%m-%d %H:%M:%S").to_string()
}
