//! Request metrics: the labels of a request, and its count when the last byte of its response is sent.

use std::sync::Arc;

use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;
use tokio::time::Instant;

use crate::endpoints::route::is_first_segment;
use crate::request::query::Query;
use crate::request::request_info::{InvalidPath, RequestInfo, Verb};
use crate::response::guarded_body::hold_until_end;
use crate::state::HttpState;
use watchet_metrics::{GaugeGuard, RequestLabels, RequestMetrics, RequestScope};

/// Records the metrics of a request when dropped.
#[derive(Debug)]
pub(crate) struct RequestMonitor {
    metrics: Arc<RequestMetrics>,
    started: Instant,
    /// `None` until there is a response.
    code: Option<u16>,
    _long_running: Option<GaugeGuard>,
}

impl RequestMonitor {
    /// Starts monitoring a request that has just arrived.
    pub(crate) fn begin(
        state: &HttpState,
        parts: &Parts,
        info: &Result<RequestInfo, InvalidPath>,
    ) -> Self {
        let labels = labels(state, parts, info);
        let watch = labels.is_watch();
        let metrics = state.config.metrics.http().requests(labels);
        Self {
            _long_running: watch.then(|| metrics.long_running()),
            metrics,
            started: Instant::now(),
            code: None,
        }
    }

    /// Moves the monitor into `response`: it records when that has been sent or dropped.
    pub(crate) fn with_response(mut self, response: Response) -> Response {
        self.code = Some(response.status().as_u16());
        hold_until_end(response, self)
    }
}

impl Drop for RequestMonitor {
    fn drop(&mut self) {
        match self.code {
            Some(code) => self.metrics.count_response(code, self.started.elapsed()),
            None => self.metrics.aborted(),
        }
    }
}

/// Returns the labels of a request. Names in the path become labels only if they are served,
/// otherwise clients could create an unlimited number of series.
fn labels(
    state: &HttpState,
    parts: &Parts,
    info: &Result<RequestInfo, InvalidPath>,
) -> RequestLabels {
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
                state
                    .registry
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
            if is_first_segment(first) {
                labels.subresource = format!("/{first}");
            }
        }
        Err(_) => {}
    }
    labels
}

/// Returns the scope of a request as upstream defines it.
pub(crate) fn scope_of(named: bool, namespaced: bool) -> RequestScope {
    match (named, namespaced) {
        (true, _) => RequestScope::Resource,
        (false, true) => RequestScope::Namespace,
        (false, false) => RequestScope::Cluster,
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

/// Returns the label of `dryRun`; any value other than `All` will be rejected.
fn dry_run_label(query: Option<&str>) -> &'static str {
    let query = Query::parse(query.unwrap_or_default()).unwrap_or_default();
    match query.get("dryRun") {
        None | Some("") => "",
        Some("All") => "All",
        Some(_) => "invalid",
    }
}
