//! The verbs: serves one request about objects. Decodes the options and the body, calls the
//! registry, encodes the response.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode};
use axum::response::Response;
use serde_json::Value;
use tokio::time::Instant;

use crate::api::{DeleteOptions, Object, Status, StatusDetails, UserInfo, Warnings, WriteOptions};
use crate::registry::{Deleted, Patch, Posted, Registry, Resource, Subresource, Target, judge};

use crate::http::request::accept::{Media, Negotiated, ResponseKind, negotiate};
use crate::http::audit;
use crate::http::error::HttpError;
use crate::http::request::expected_kind::ExpectedKind;
use crate::http::request_monitor::{WatchMeter, scope_of};
use crate::http::request::options::{
    FIELD_MANAGER_BYTES_MAX, ListFor, WriteFor, delete_options, get_options, list_options,
    write_options,
};
use crate::http::request::query::Query;
use crate::http::response::render::Renderer;
use crate::http::request::body::{self as body_of, RequestBody};
use crate::http::request::request_info::{ResourceRequest, Verb};
use crate::http::response::encoding::{ResponseEncoding, accepts_gzip, mark_gzip, response, status_response_in};
use crate::http::verbs::verb_check::check_verb;
use crate::http::response::watch_body::{FrameEncoder, WatchFrames, watch_body};
use crate::http::response::websocket::{self, WatchUpgrade};
use crate::http::serve::{HttpState, SendDeadline};

/// How long after its end a watch waits for the client to receive the rest.
const WATCH_END_SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// A request about objects, with an existing resource and a supported verb.
pub(crate) struct Call<'a> {
    state: &'a HttpState,
    parts: &'a Parts,
    query: Query,
    resource: Arc<Resource>,
    /// The resource of the bodies: the resource itself, or the kind of its subresource.
    bodies: Arc<Resource>,
    verb: Verb,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
    warnings: Warnings,
}

impl<'a> Call<'a> {
    /// Checks that the resource exists and supports the verb on this path. Warnings for the client
    /// are added to `warnings`.
    pub(crate) fn new(
        state: &'a HttpState,
        parts: &'a Parts,
        request: ResourceRequest,
        warnings: Warnings,
    ) -> Result<Self, HttpError> {
        let ResourceRequest {
            group,
            version,
            namespace,
            name,
            subresource,
            ..
        } = request;
        let resource = state
            .registry
            .resource(&group, &version, &request.resource)
            .ok_or(HttpError::NoSuchPath)?;
        if let Some(deprecation) = resource.deprecation_warning() {
            warnings.add(deprecation.to_owned());
        }
        let verb = request.verb;
        check_verb(
            &resource,
            verb,
            namespace.is_some(),
            name.is_some(),
            subresource.as_deref(),
        )?;
        Ok(Self {
            state,
            parts,
            query: Query::parse(parts.uri.query().unwrap_or_default())?,
            bodies: resource.of_bodies(subresource.as_deref()),
            resource,
            verb: verb.ok_or(HttpError::MethodNotAllowed)?,
            namespace,
            name,
            subresource,
            warnings,
        })
    }

    /// Returns the resource, as defined when the request started.
    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Returns the verb.
    pub(crate) fn verb(&self) -> Verb {
        self.verb
    }

    /// Returns the time limit of the request: the server's, or the client's `timeout` if that is
    /// lower.
    pub(crate) fn time_limit(&self) -> Result<Duration, HttpError> {
        let limit = match self.verb.is_write() {
            true => self.state.config.write_timeout,
            false => self.state.config.request_timeout,
        };
        Ok(self
            .query
            .duration("timeout")?
            .map_or(limit, |requested| requested.min(limit)))
    }

    /// Serves the request.
    pub(crate) async fn run(&self, body: &RequestBody) -> Result<Response, HttpError> {
        // Boxed: futures are copied several times on their way through the layers, and the largest
        // has some thousand bytes.
        let answer = match self.verb {
            _ if self.needs_kubelet() => Err(self.registry().connect(&self.target()).await.into()),
            Verb::Create if self.is_post() => Box::pin(self.post(body)).await,
            Verb::Get => Box::pin(self.get()).await,
            Verb::List => Box::pin(self.list()).await,
            Verb::Watch => Box::pin(self.watch()).await,
            Verb::Create => Box::pin(self.create(body)).await,
            Verb::Update => Box::pin(self.update(body)).await,
            Verb::Patch if body_of::is_apply(self.header(CONTENT_TYPE)) => {
                Box::pin(self.apply(body)).await
            }
            Verb::Patch => Box::pin(self.patch(body)).await,
            Verb::Delete => Box::pin(self.delete(body)).await,
            Verb::DeleteCollection => Box::pin(self.delete_collection(body)).await,
        };
        answer.map_err(|error| error.about(self.verb, &self.resource))
    }

    fn registry(&self) -> &Registry {
        &self.state.registry
    }

    fn header(&self, name: HeaderName) -> Option<&str> {
        self.parts.headers.get(name).and_then(|v| v.to_str().ok())
    }

    fn negotiate(&self, kind: ResponseKind) -> Result<(Negotiated, Renderer), HttpError> {
        let user_agent = self.header(USER_AGENT);
        let accept = self.accept()?;
        let schema = &self.state.protobuf;
        let known = || schema.knows(&self.bodies.api_version(), &self.bodies.kind);
        let negotiated = negotiate(accept.as_deref(), kind, &self.query, user_agent, known)?;
        let renderer = Renderer::new(&self.state.registry, self.bodies.clone(), negotiated.form);
        let renderer = match negotiated.media {
            Media::Protobuf => renderer.in_protobuf(schema.clone()),
            Media::Json | Media::Yaml => renderer,
        };
        Ok((negotiated, renderer))
    }

    /// Returns the Accept header; several are joined.
    fn accept(&self) -> Result<Option<String>, HttpError> {
        accept_of(self.parts)
    }

    fn encoding(&self, negotiated: Negotiated) -> ResponseEncoding {
        ResponseEncoding {
            negotiated,
            gzip: accepts_gzip(&self.parts.headers),
        }
    }

    fn target(&self) -> Target {
        Target {
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone().unwrap_or_default(),
            subresource: self.subresource.clone(),
        }
    }

    fn delete_options(&self, body: Option<Value>) -> Result<DeleteOptions, HttpError> {
        let mut options = delete_options(&self.query, body)?;
        options.warnings = self.warnings.clone();
        options.audit_annotations = audit::annotations(self.parts);
        if let Some(user) = self.parts.extensions.get::<Arc<UserInfo>>() {
            options.user = user.clone();
        }
        Ok(options)
    }

    fn write_options(&self, purpose: WriteFor) -> Result<WriteOptions, HttpError> {
        let mut options = write_options(&self.query, purpose)?;
        options.warnings = self.warnings.clone();
        options.audit_annotations = audit::annotations(self.parts);
        if let Some(user) = self.parts.extensions.get::<Arc<UserInfo>>() {
            options.user = user.clone();
        }
        if options.field_manager.is_empty() {
            let client = self.header(USER_AGENT).unwrap_or_default();
            options.field_manager = manager_of(client);
        }
        Ok(options)
    }

    async fn get(&self) -> Result<Response, HttpError> {
        let (negotiated, renderer) = self.negotiate(ResponseKind::Object)?;
        let options = get_options(&self.query)?;
        let object = self.registry().get(&self.target(), options).await?;
        self.encoding(negotiated)
            .object(StatusCode::OK, &renderer, &object)
    }

    async fn list(&self) -> Result<Response, HttpError> {
        let (negotiated, renderer) = self.negotiate(ResponseKind::List)?;
        let options = list_options(&self.query, ListFor::List, None)?;
        let list = self
            .registry()
            .list(&self.resource, self.namespace.as_deref(), &options)
            .await?;
        self.encoding(negotiated)
            .list(renderer, list, options.shard.as_ref())
            .await
    }

    async fn watch(&self) -> Result<Response, HttpError> {
        let meter = self.watch_meter();
        let (negotiated, renderer) = self.negotiate(ResponseKind::Watch)?;
        let options = list_options(&self.query, ListFor::Watch, self.name.as_deref())?;
        // A compressed watch cannot share frames with others, so only streamed lists are
        // compressed.
        let socket = match websocket::is_upgrade(&self.parts.headers) {
            true => Some(WatchUpgrade::from_parts(self.parts).await?),
            false => None,
        };
        let streamed_list =
            options.send_initial_events == Some(true) && options.allow_watch_bookmarks;
        let gzip = streamed_list && accepts_gzip(&self.parts.headers);
        let mut watcher = self
            .registry()
            .watch(&self.resource, self.namespace.as_deref(), &options)
            .await?;
        let tasks = &self.state.config.connections;
        // client-go lists again after a watch that end within a second without an event, but not
        // after a 429.
        if tasks.token().is_cancelled() {
            return Err(HttpError::ShuttingDown);
        }
        watcher.end_with(tasks.token());
        let deadline = watcher.deadline() + WATCH_END_SEND_TIMEOUT;
        let frames = WatchFrames::new(watcher, FrameEncoder::new(renderer, meter));
        if let Some(socket) = socket {
            return Ok(socket.open(frames, negotiated.media, tasks, deadline));
        }
        let content_type = negotiated.media.watch_content_type();
        let mut response = response(StatusCode::OK, content_type, watch_body(frames, gzip));
        response.extensions_mut().insert(SendDeadline {
            deadline,
            end: Some(tasks.token()),
        });
        if gzip {
            mark_gzip(&mut response);
        }
        Ok(response)
    }

    fn watch_meter(&self) -> WatchMeter {
        let resource = &self.resource;
        let http = self.state.config.metrics.http();
        WatchMeter {
            metrics: http.watches(&resource.group, &resource.version, &resource.plural),
            scope: scope_of(self.name.is_some(), self.namespace.is_some()),
            started: Instant::now(),
        }
    }

    fn needs_kubelet(&self) -> bool {
        let named = self.subresource.as_deref();
        let part = named.and_then(|name| self.resource.subresource(name));
        part.is_some_and(Subresource::needs_kubelet)
    }

    /// Returns true if a create does not create an object of the resource.
    fn is_post(&self) -> bool {
        self.subresource.is_some() || !self.resource.is_stored()
    }

    async fn post(&self, body: &RequestBody) -> Result<Response, HttpError> {
        let target = self.target();
        let (negotiated, renderer) = self.negotiate(ResponseKind::Unstored)?;
        let options = self.write_options(WriteFor::Create)?;
        let body = body.read().await?;
        let object = self.object(&body, &options)?;
        let tokens = &self.state.config.tokens;
        let posted = self.registry().post(&target, object, &options, tokens);
        match posted.await? {
            Posted::Answer(answer) => {
                let encoding = self.encoding(negotiated);
                encoding.object(StatusCode::CREATED, &renderer, &answer)
            }
            Posted::Done(status) => Ok(self.status(&status, negotiated)),
        }
    }

    async fn create(&self, body: &RequestBody) -> Result<Response, HttpError> {
        let (negotiated, renderer) = self.negotiate(ResponseKind::Object)?;
        let options = self.write_options(WriteFor::Create)?;
        let body = body.read().await?;
        let object = self.object(&body, &options)?;
        let created = self
            .registry()
            .create(&self.resource, self.namespace.as_deref(), object, &options)
            .await?;
        self.encoding(negotiated)
            .object(StatusCode::CREATED, &renderer, &created)
    }

    /// Decodes the complete object in a body, of the kind that this path requires.
    fn object(&self, body: &[u8], options: &WriteOptions) -> Result<Value, HttpError> {
        let expected = ExpectedKind::new(self.registry(), &self.bodies);
        let decoded = body_of::object(
            expected.types(),
            &self.state.protobuf,
            self.header(CONTENT_TYPE),
            body,
        )?;
        expected.accept(decoded, options)
    }

    async fn update(&self, body: &RequestBody) -> Result<Response, HttpError> {
        let (negotiated, renderer) = self.negotiate(ResponseKind::Object)?;
        let options = self.write_options(WriteFor::Update)?;
        let body = body.read().await?;
        let object = self.object(&body, &options)?;
        let (object, created) = self
            .registry()
            .update(&self.target(), object, &options)
            .await?;
        let code = match created {
            true => StatusCode::CREATED,
            false => StatusCode::OK,
        };
        self.encoding(negotiated).object(code, &renderer, &object)
    }

    async fn patch(&self, body: &RequestBody) -> Result<Response, HttpError> {
        let (negotiated, renderer) = self.negotiate(ResponseKind::Object)?;
        let body = body.read().await?;
        let (patch, mistakes) = body_of::patch(self.header(CONTENT_TYPE), &body)?;
        if matches!(patch, Patch::Strategic(_)) && !self.resource.is_builtin() {
            // Custom resources have no merge keys (WC-214).
            return Err(body_of::unsupported_for_custom());
        }
        let mut options = self.write_options(WriteFor::Patch)?;
        options.body_mistakes = mistakes;
        let object = self
            .registry()
            .patch(&self.target(), &patch, &options)
            .await?;
        self.encoding(negotiated)
            .object(StatusCode::OK, &renderer, &object)
    }

    /// Serves a server-side apply.
    async fn apply(&self, body: &RequestBody) -> Result<Response, HttpError> {
        let (negotiated, renderer) = self.negotiate(ResponseKind::Object)?;
        let body = body.read().await?;
        let (config, mistakes) = body_of::configuration(&body)?;
        let options = self.write_options(WriteFor::Apply)?;
        judge(&options, mistakes)
            .map_err(|e| HttpError::BadRequest(format!("error strict decoding YAML: {e}")))?;
        let (object, created) = self
            .registry()
            .apply(&self.target(), &config, &options)
            .await?;
        let code = match created {
            true => StatusCode::CREATED,
            false => StatusCode::OK,
        };
        self.encoding(negotiated).object(code, &renderer, &object)
    }

    async fn delete(&self, body: &RequestBody) -> Result<Response, HttpError> {
        let (negotiated, renderer) = self.negotiate(ResponseKind::Object)?;
        let body = body.read().await?;
        let body = body_of::options(&self.state.protobuf, self.header(CONTENT_TYPE), &body)?;
        let options = self.delete_options(body)?;
        let deleted = self.registry().delete(&self.target(), &options).await?;
        let (code, object) = match deleted {
            Deleted::Gone(object) => {
                return Ok(self.status(&self.deleted_status(&object), negotiated));
            }
            Deleted::Unread => return Ok(self.status(&self.unreadable_status(), negotiated)),
            Deleted::Last(object) => (StatusCode::OK, object),
            // Only the deprecated orphanDependents=false gets a 202 for a deletion in progress, as
            // upstream.
            Deleted::Pending(object) if options.orphan_dependents == Some(false) => {
                (StatusCode::ACCEPTED, object)
            }
            Deleted::Pending(object) => (StatusCode::OK, object),
        };
        self.encoding(negotiated).object(code, &renderer, &object)
    }

    /// Returns a status in verb_check of an object, in the negotiated encoding.
    fn status(&self, status: &Status, negotiated: Negotiated) -> Response {
        let schema = &self.state.protobuf;
        status_response_in(status, negotiated.media, negotiated.pretty, schema)
    }

    /// Returns the success status of a deletion that does not return the object.
    fn deleted_status(&self, object: &Object) -> Status {
        Status::success(StatusDetails {
            name: object.key().name().to_owned(),
            group: self.resource.group.clone(),
            kind: self.resource.plural.clone(),
            uid: object.uid().to_owned(),
            ..StatusDetails::default()
        })
    }

    /// Returns the success status of deleting an object that cannot be decoded; upstream puts the
    /// kind here, not the plural.
    fn unreadable_status(&self) -> Status {
        Status::success(StatusDetails {
            name: self.name.clone().unwrap_or_default(),
            group: self.resource.group.clone(),
            kind: self.resource.kind.clone(),
            ..StatusDetails::default()
        })
    }

    async fn delete_collection(&self, body: &RequestBody) -> Result<Response, HttpError> {
        let (negotiated, renderer) = self.negotiate(ResponseKind::List)?;
        let selection = list_options(&self.query, ListFor::List, None)?;
        let body = body.read().await?;
        let body = body_of::options(&self.state.protobuf, self.header(CONTENT_TYPE), &body)?;
        let options = self.delete_options(body)?;
        let list = self
            .registry()
            .delete_collection(
                &self.resource,
                self.namespace.as_deref(),
                &selection,
                &options,
            )
            .await?;
        self.encoding(negotiated)
            .list(renderer, list, selection.shard.as_ref())
            .await
    }
}

/// Returns the field manager of a client without an explicit one: the user agent up to the first
/// `/`, without unprintable characters, truncated to the maximum length.
fn manager_of(user_agent: &str) -> String {
    let name = user_agent.split('/').next().unwrap_or_default();
    let printable = name.chars().filter(|c| !c.is_control());
    printable.take(FIELD_MANAGER_BYTES_MAX).collect()
}

/// Returns the Accept header of a request; several are joined.
pub(crate) fn accept_of(parts: &Parts) -> Result<Option<String>, HttpError> {
    let mut all: Option<String> = None;
    for value in parts.headers.get_all(ACCEPT) {
        let text = value.to_str().map_err(|_| {
            HttpError::BadRequest("the Accept header is not visible ASCII".to_owned())
        })?;
        match &mut all {
            Some(all) => {
                all.push(',');
                all.push_str(text);
            }
            None => all = Some(text.to_owned()),
        }
    }
    Ok(all)
}
