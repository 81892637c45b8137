//! Serves `watch`, as a streamed body or a WebSocket.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::USER_AGENT;
use axum::response::Response;
use tokio::time::Instant;

use crate::error::HttpError;
use crate::request::accept::{Negotiated, ResponseKind};
use crate::request::options::{ListFor, list_options};
use crate::request_audit::ClientAddress;
use crate::request_monitor::scope_of;
use crate::response::document::response;
use crate::response::headers::{accepts_gzip, mark_gzip};
use crate::response::send_deadline::SendDeadline;
use crate::response::watch_body::{FrameEncoder, WatchFrames, watch_body};
use crate::response::watch_meter::WatchMeter;
use crate::response::websocket::{self, WatchUpgrade};
use crate::verbs::authorized_watch::AuthorizedWatch;
use crate::verbs::call::Call;
use crate::verbs::watch_events::{Events, PastEvents};
use crate::watch_access::Requirements;
use watchet_api::{ListOptions, UserInfo};
use watchet_registry::{OpenWatch, WatchOrigin, WatchRecord};

/// The query parameter with which a watch returns the history of storage: the events after its resourceVersion, or all
/// events that storage has, and a bookmark. Then the watch ends.
const HISTORY: &str = "historyFromStorage";

/// The maximum duration of a watch with [`HISTORY`].
const HISTORY_TIME_MAX: Duration = Duration::from_secs(10 * 60);

/// How long the server waits after the end of a watch for the client to receive the rest.
const WATCH_END_SEND_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn watch(call: &Call) -> Result<Response, HttpError> {
    let (negotiated, renderer) = call.negotiate(ResponseKind::Watch)?;
    let options = list_options(&call.query, ListFor::Watch, call.name.as_deref())?;
    let socket = match websocket::is_upgrade(&call.parts.headers) {
        true => Some(WatchUpgrade::from_parts(&call.parts).await?),
        false => None,
    };
    // A compressed watch cannot share encoded frames with other watches, so only streaming lists are
    // compressed.
    let streamed_list = options.send_initial_events == Some(true) && options.allow_watch_bookmarks;
    let gzip = streamed_list && accepts_gzip(&call.parts.headers);
    let user = call.parts.extensions.get::<Arc<UserInfo>>();
    let user = user.map_or("", |user| &user.name);
    let counted = call.state.watch_counts.open(user)?;
    let (registry, namespace) = (call.registry(), call.namespace.as_deref());
    let mut events = match call.query.flag(HISTORY) {
        true => Events::Past(Box::new(PastEvents {
            events: registry
                .history(&call.resource, namespace, &options)
                .await?,
            deadline: Instant::now() + HISTORY_TIME_MAX,
        })),
        false => {
            let watch = registry.watch(&call.resource, namespace, &options);
            Events::Live(Box::new(watch.await?))
        }
    };
    let tasks = &call.state.config.connections;
    // client-go lists again after a watch that ends within a second without an event, but not
    // after a 429.
    if tasks.token().is_cancelled() {
        return Err(HttpError::ShuttingDown);
    }
    let requirements = call.parts.extensions.get::<Requirements>().cloned();
    let requirements = requirements.ok_or_else(|| {
        HttpError::Internal("a watch was not authorized, which is a bug".to_owned())
    })?;
    let access = call.state.watch_access.open(requirements).await?;
    // Cancelled when the client loses access, and when its object of the resource `watchers` is deleted.
    let ended = access.ended().child_token();
    let open = match &events {
        Events::Live(watch) => {
            let origin = watch_origin(call, &options, &negotiated);
            let open_watches = call.registry().open_watches();
            Some(open_watches.add(origin, watch.monitor(), ended.clone()))
        }
        // A watch of history ends by itself, so the resource `watchers` does not list it.
        Events::Past(_) => None,
    };
    let meter = watch_meter(call, open.as_ref().map(OpenWatch::record));
    let deadline = events.deadline() + WATCH_END_SEND_TIMEOUT;
    events = events.end_with(ended.clone());
    let config = &call.state.config;
    let tracked = config.responses.add(&config.memory);
    let watch = AuthorizedWatch {
        events,
        access,
        open,
        abort: tracked.abort_handle(),
        stop: tasks.token(),
        metrics: Arc::clone(&meter.metrics),
        _counted: counted,
    };
    let frames = WatchFrames::new(watch, FrameEncoder::new(renderer, meter));
    let deadline = SendDeadline {
        deadline,
        end: Some(ended),
        abort: Some(tracked.abort_handle()),
    };
    if let Some(socket) = socket {
        return Ok(socket.open(frames, negotiated.media, tasks, deadline, tracked));
    }
    let content_type = negotiated.media.watch_content_type();
    let body = tracked.track(watch_body(frames, gzip));
    let mut response = response(StatusCode::OK, content_type, body);
    response.extensions_mut().insert(deadline);
    if gzip {
        mark_gzip(&mut response);
    }
    Ok(response)
}

/// Returns the origin of a watch, for the resource `watchers`.
fn watch_origin(call: &Call, options: &ListOptions, negotiated: &Negotiated) -> WatchOrigin {
    let extensions = &call.parts.extensions;
    let user = extensions.get::<Arc<UserInfo>>();
    WatchOrigin {
        user: user.cloned().unwrap_or_default(),
        user_agent: call.header(USER_AGENT).unwrap_or_default().into(),
        address: extensions.get::<ClientAddress>().map(|client| client.0),
        resource: Arc::clone(&call.resource),
        namespace: call.namespace.as_deref().map(Into::into),
        label_selector: options.labels.to_string().into(),
        field_selector: options.fields.to_string().into(),
        encoding: negotiated.media.name(),
        form: negotiated.form.name(),
    }
}

fn watch_meter(call: &Call, record: Option<&Arc<WatchRecord>>) -> WatchMeter {
    let resource = &call.resource;
    let http = call.state.config.metrics.http();
    WatchMeter {
        metrics: http.watches(&resource.group, &resource.version, &resource.plural),
        scope: scope_of(call.name.is_some(), call.namespace.is_some()),
        started: Instant::now(),
        unsent_events: call.parts.extensions.get().cloned(),
        record: record.cloned(),
        sent: (0, 0),
    }
}
