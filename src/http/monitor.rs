//! Counting requests: under which labels one counts, from its head to the last byte of its answer,
//! and the scrape that tells of them. What is answered is not known here.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;
use tokio::time::Instant;

use crate::metrics::{Format, Held, RequestLabels, RequestMetrics, RequestScope, WatchMetrics};
use crate::registry::{StorageError, WatchItem};

use super::accept::clauses;
use super::error::WireError;
use super::held_body::HeldBody;
use super::query::Query;
use super::request_info::{InvalidPath, RequestInfo, Verb};
use super::response::{accepts_gzip, text};
use super::serve::{TakenBy, Wire};
use super::verbs::accept_of;

/// How long storage may take to say how large it is; a scrape does not wait for one that is away.
const STORAGE_SIZE_TIMEOUT: Duration = Duration::from_secs(1);

/// The documents that count each for itself; other paths that are no resources count as one.
const DOCUMENTS: [&str; 9] = [
    "api", "apis", "healthz", "livez", "metrics", "openapi", "readyz", "version", "",
];

/// A request while it is counted. It counts when it is dropped.
#[derive(Debug)]
pub(crate) struct Monitored {
    metrics: Arc<RequestMetrics>,
    began: Instant,
    /// `None` as long as there is no answer.
    code: Option<u16>,
    _long_running: Option<Held>,
}

impl Monitored {
    /// A request that has just come.
    pub(crate) fn begin(
        wire: &Wire,
        parts: &Parts,
        info: &Result<RequestInfo, InvalidPath>,
    ) -> Self {
        let labels = labels(wire, parts, info);
        let watch = labels.is_watch();
        let metrics = wire.config.metrics.http().requests(labels);
        Self {
            _long_running: watch.then(|| metrics.long_running()),
            metrics,
            began: Instant::now(),
            code: None,
        }
    }

    /// Its answer, with which it counts when that is sent or given up.
    pub(crate) fn answered(mut self, response: Response) -> Response {
        self.code = Some(response.status().as_u16());
        response.map(|body| HeldBody::around(body, self))
    }
}

impl Drop for Monitored {
    fn drop(&mut self) {
        match self.code {
            Some(code) => self.metrics.answered(code, self.began.elapsed()),
            None => self.metrics.aborted(),
        }
    }
}

/// The labels of a request. What it names counts only if it is served, else anyone could make labels
/// without end.
fn labels(wire: &Wire, parts: &Parts, info: &Result<RequestInfo, InvalidPath>) -> RequestLabels {
    let mut labels = RequestLabels {
        verb: method_label(&parts.method),
        dry_run: "",
        group: String::new(),
        version: String::new(),
        resource: String::new(),
        subresource: String::new(),
        scope: RequestScope::None,
        component: "",
    };
    match info {
        Ok(RequestInfo::Resource(request)) => {
            let served =
                wire.registry
                    .resource(&request.group, &request.version, &request.resource);
            if let Some(resource) = served {
                labels.verb = request.verb.map_or("OTHER", verb_label);
                labels.dry_run = dry_run_label(parts.uri.query());
                labels.group.clone_from(&resource.group);
                labels.version.clone_from(&resource.version);
                labels.resource.clone_from(&resource.plural);
                let named = request.name.is_some() || request.verb == Some(Verb::Create);
                labels.scope = scope_of(named, request.namespace.is_some());
                labels.component = "apiserver";
                if let Some(named) = &request.subresource {
                    let mut known = resource.subresources.iter();
                    if known.any(|known| known.name == named) {
                        labels.subresource.clone_from(named);
                    }
                }
            }
        }
        Ok(RequestInfo::NonResource(segments)) => {
            let first = segments.first().map_or("", String::as_str);
            if DOCUMENTS.contains(&first) {
                labels.subresource = format!("/{first}");
            }
        }
        Err(_) => {}
    }
    labels
}

/// Which part of a resource a request is about, as upstream sees it.
pub(crate) fn scope_of(named: bool, namespaced: bool) -> RequestScope {
    match (named, namespaced) {
        (true, _) => RequestScope::Resource,
        (false, true) => RequestScope::Namespace,
        (false, false) => RequestScope::Cluster,
    }
}

/// Counts what a watch is sent.
#[derive(Debug)]
pub(crate) struct WatchMeter {
    pub(crate) metrics: Arc<WatchMetrics>,
    pub(crate) scope: RequestScope,
    /// When it was asked for.
    pub(crate) began: Instant,
}

impl WatchMeter {
    /// A frame of so many bytes, which tells of `item`.
    pub(crate) fn sent(&self, item: &WatchItem, bytes: usize) {
        self.metrics.sent(bytes);
        let initial_events_end = matches!(
            item,
            WatchItem::Bookmark {
                initial_events_end: true,
                ..
            }
        );
        if initial_events_end {
            let elapsed = self.began.elapsed();
            self.metrics.initial_state_sent(self.scope, elapsed);
        }
    }
}

fn verb_label(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
    }
}

fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "OTHER",
    }
}

/// Anything but the one value that there is will be refused.
fn dry_run_label(query: Option<&str>) -> &'static str {
    let query = Query::parse(query.unwrap_or_default()).unwrap_or_default();
    match query.get("dryRun") {
        None | Some("") => "",
        Some("All") => "All",
        Some(_) => "invalid",
    }
}

/// Answers `/metrics`.
pub(crate) async fn scrape(wire: &Wire, parts: &Parts) -> Result<Response, WireError> {
    let http = wire.config.metrics.http();
    http.reads_in_flight.set(wire.reads_in_flight() as i64);
    http.writes_in_flight.set(wire.writes_in_flight() as i64);
    let size = tokio::time::timeout(STORAGE_SIZE_TIMEOUT, wire.registry.storage_bytes()).await;
    let size = size.unwrap_or_else(|_| Err(StorageError::Unavailable("no answer".to_owned())));
    let size = size.unwrap_or_else(|error| {
        tracing::debug!(%error, "a scrape goes without the storage's size");
        None
    });
    wire.config.metrics.storage_size(size);
    let format = format(accept_of(parts)?.as_deref());
    let told = wire.config.metrics.render(format);
    let mut response = text(format.content_type(), told, accepts_gzip(&parts.headers))?;
    let until = Instant::now() + wire.config.request_timeout;
    response.extensions_mut().insert(TakenBy::from(until));
    Ok(response)
}

/// The first acceptable clause wins; a scraper that accepts neither is answered all the same.
fn format(accept: Option<&str>) -> Format {
    clauses(accept)
        .into_iter()
        .find_map(|clause| match clause.media {
            "application/openmetrics-text" => Some(Format::OpenMetrics),
            _ if clause.covers("text/plain") => Some(Format::Prometheus),
            _ => None,
        })
        .unwrap_or(Format::Prometheus)
}
