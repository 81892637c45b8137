//! The verbs: one request about objects, from its checked path to its answer. Each reads its options
//! and body, calls the registry, and says how the answer goes out; the registry does the deed.

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

use super::accept::{AnswerKind, Media, Negotiated, negotiate};
use super::error::WireError;
use super::monitor::{WatchMeter, scope_of};
use super::options::{
    FIELD_MANAGER_BYTES_MAX, ListFor, WriteFor, delete_options, get_options, list_options,
    write_options,
};
use super::place::check_place;
use super::query::Query;
use super::render::Renderer;
use super::request_body::{self as body_of, Sent};
use super::request_info::{ResourceRequest, Verb};
use super::response::{Outgoing, accepts_gzip, mark_gzip, response, status_response_in};
use super::wanted_kind::WantedKind;
use super::watch_body::{FrameEncoder, WatchFrames, watch_body};
use super::websocket::{self, Opening};
use super::{TakenBy, Wire};

/// How long after its end a watch waits for a client that has not read up to there.
const WATCH_END_TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// A request about objects of a resource that exists, in a shape that fits it.
pub(crate) struct Call<'a> {
    wire: &'a Wire,
    parts: &'a Parts,
    query: Query,
    resource: Arc<Resource>,
    /// What is in the bodies: objects of the resource, or of its subresource.
    bodies: Arc<Resource>,
    verb: Verb,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
    warnings: Warnings,
}

impl<'a> Call<'a> {
    /// Checks that the resource exists and that it has the verb in this place. What the client should
    /// be told besides the answer goes to `warnings`.
    pub(crate) fn new(
        wire: &'a Wire,
        parts: &'a Parts,
        request: ResourceRequest,
        warnings: Warnings,
    ) -> Result<Self, WireError> {
        let ResourceRequest {
            group,
            version,
            namespace,
            name,
            subresource,
            ..
        } = request;
        let resource = wire
            .registry
            .resource(&group, &version, &request.resource)
            .ok_or(WireError::NoSuchPath)?;
        if let Some(deprecation) = resource.deprecation() {
            warnings.add(deprecation.to_owned());
        }
        let verb = request.verb;
        check_place(
            &resource,
            verb,
            namespace.is_some(),
            name.is_some(),
            subresource.as_deref(),
        )?;
        Ok(Self {
            wire,
            parts,
            query: Query::parse(parts.uri.query().unwrap_or_default())?,
            bodies: resource.of_bodies(subresource.as_deref()),
            resource,
            verb: verb.ok_or(WireError::MethodNotAllowed)?,
            namespace,
            name,
            subresource,
            warnings,
        })
    }

    /// What it is about, as that is defined.
    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// What is to be done.
    pub(crate) fn verb(&self) -> Verb {
        self.verb
    }

    /// The longest that the answer may take: the server's limit, or less if the client says so.
    pub(crate) fn time_limit(&self) -> Result<Duration, WireError> {
        let limit = match self.verb.is_write() {
            true => self.wire.config.write_timeout,
            false => self.wire.config.request_timeout,
        };
        Ok(self
            .query
            .duration("timeout")?
            .map_or(limit, |asked| asked.min(limit)))
    }

    /// Does it.
    pub(crate) async fn run(&self, body: &Sent) -> Result<Response, WireError> {
        // Boxed: what is awaited here is copied several times, by each layer around it, on its way to
        // where it runs, and the largest of them is some thousand bytes.
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
        &self.wire.registry
    }

    fn header(&self, name: HeaderName) -> Option<&str> {
        self.parts.headers.get(name).and_then(|v| v.to_str().ok())
    }

    fn negotiate(&self, kind: AnswerKind) -> Result<(Negotiated, Renderer), WireError> {
        let user_agent = self.header(USER_AGENT);
        let accept = self.accept()?;
        let schema = &self.wire.protobuf;
        let known = || schema.knows(&self.bodies.api_version(), &self.bodies.kind);
        let negotiated = negotiate(accept.as_deref(), kind, &self.query, user_agent, known)?;
        let renderer = Renderer::new(&self.wire.registry, self.bodies.clone(), negotiated.form);
        let renderer = match negotiated.media {
            Media::Protobuf => renderer.in_protobuf(schema.clone()),
            Media::Json | Media::Yaml => renderer,
        };
        Ok((negotiated, renderer))
    }

    /// The Accept header; several count as one.
    fn accept(&self) -> Result<Option<String>, WireError> {
        accept_of(self.parts)
    }

    fn outgoing(&self, negotiated: Negotiated) -> Outgoing {
        Outgoing {
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

    fn delete_options(&self, body: Option<Value>) -> Result<DeleteOptions, WireError> {
        let mut options = delete_options(&self.query, body)?;
        options.warnings = self.warnings.clone();
        if let Some(user) = self.parts.extensions.get::<Arc<UserInfo>>() {
            options.user = user.clone();
        }
        Ok(options)
    }

    fn write_options(&self, purpose: WriteFor) -> Result<WriteOptions, WireError> {
        let mut options = write_options(&self.query, purpose)?;
        options.warnings = self.warnings.clone();
        if let Some(user) = self.parts.extensions.get::<Arc<UserInfo>>() {
            options.user = user.clone();
        }
        if options.field_manager.is_empty() {
            let client = self.header(USER_AGENT).unwrap_or_default();
            options.field_manager = manager_of(client);
        }
        Ok(options)
    }

    async fn get(&self) -> Result<Response, WireError> {
        let (negotiated, renderer) = self.negotiate(AnswerKind::Object)?;
        let options = get_options(&self.query)?;
        let object = self.registry().get(&self.target(), options).await?;
        self.outgoing(negotiated)
            .object(StatusCode::OK, &renderer, &object)
    }

    async fn list(&self) -> Result<Response, WireError> {
        let (negotiated, renderer) = self.negotiate(AnswerKind::List)?;
        let options = list_options(&self.query, ListFor::List, None)?;
        let list = self
            .registry()
            .list(&self.resource, self.namespace.as_deref(), &options)
            .await?;
        self.outgoing(negotiated)
            .list(renderer, list, options.shard.as_ref())
            .await
    }

    async fn watch(&self) -> Result<Response, WireError> {
        let meter = self.watch_meter();
        let (negotiated, renderer) = self.negotiate(AnswerKind::Watch)?;
        let options = list_options(&self.query, ListFor::Watch, self.name.as_deref())?;
        // Compression costs the sharing of frames: only a streamed list is worth that (§8.2).
        let socket = match websocket::is_asked_for(&self.parts.headers) {
            true => Some(Opening::of(self.parts).await?),
            false => None,
        };
        let streamed_list =
            options.send_initial_events == Some(true) && options.allow_watch_bookmarks;
        let gzip = streamed_list && accepts_gzip(&self.parts.headers);
        let mut watcher = self
            .registry()
            .watch(&self.resource, self.namespace.as_deref(), &options)
            .await?;
        let tasks = &self.wire.config.connections;
        // client-go lists again after a watch that ends within a second without an event, but not after a 429.
        if tasks.token().is_cancelled() {
            return Err(WireError::ShuttingDown);
        }
        watcher.end_with(tasks.token());
        let until = watcher.deadline() + WATCH_END_TAKEN_WITHIN;
        let frames = WatchFrames::new(watcher, FrameEncoder::new(renderer, meter));
        if let Some(socket) = socket {
            return Ok(socket.open(frames, negotiated.media, tasks, until));
        }
        let content_type = negotiated.media.watch_content_type();
        let mut response = response(StatusCode::OK, content_type, watch_body(frames, gzip));
        response.extensions_mut().insert(TakenBy {
            until,
            ends: Some(tasks.token()),
        });
        if gzip {
            mark_gzip(&mut response);
        }
        Ok(response)
    }

    fn watch_meter(&self) -> WatchMeter {
        let resource = &self.resource;
        let http = self.wire.config.metrics.http();
        WatchMeter {
            metrics: http.watches(&resource.group, &resource.version, &resource.plural),
            scope: scope_of(self.name.is_some(), self.namespace.is_some()),
            began: Instant::now(),
        }
    }

    fn needs_kubelet(&self) -> bool {
        let named = self.subresource.as_deref();
        let part = named.and_then(|name| self.resource.subresource(name));
        part.is_some_and(Subresource::needs_kubelet)
    }

    /// Whether what is created is no object of the resource.
    fn is_post(&self) -> bool {
        self.subresource.is_some() || !self.resource.is_stored()
    }

    async fn post(&self, body: &Sent) -> Result<Response, WireError> {
        let target = self.target();
        let (negotiated, renderer) = self.negotiate(AnswerKind::Unstored)?;
        let options = self.write_options(WriteFor::Create)?;
        let body = body.read().await?;
        let object = self.object(&body, &options)?;
        let credentials = &self.wire.config.credentials;
        let posted = self.registry().post(&target, object, &options, credentials);
        match posted.await? {
            Posted::Answer(answer) => {
                let outgoing = self.outgoing(negotiated);
                outgoing.object(StatusCode::CREATED, &renderer, &answer)
            }
            Posted::Done(status) => Ok(self.status(&status, negotiated)),
        }
    }

    async fn create(&self, body: &Sent) -> Result<Response, WireError> {
        let (negotiated, renderer) = self.negotiate(AnswerKind::Object)?;
        let options = self.write_options(WriteFor::Create)?;
        let body = body.read().await?;
        let object = self.object(&body, &options)?;
        let created = self
            .registry()
            .create(&self.resource, self.namespace.as_deref(), object, &options)
            .await?;
        self.outgoing(negotiated)
            .object(StatusCode::CREATED, &renderer, &created)
    }

    /// The whole object in a body, of the kind that this place takes.
    fn object(&self, body: &[u8], options: &WriteOptions) -> Result<Value, WireError> {
        let wanted = WantedKind::new(self.registry(), &self.bodies);
        let decoded = body_of::object(
            wanted.types(),
            &self.wire.protobuf,
            self.header(CONTENT_TYPE),
            body,
        )?;
        wanted.accept(decoded, options)
    }

    async fn update(&self, body: &Sent) -> Result<Response, WireError> {
        let (negotiated, renderer) = self.negotiate(AnswerKind::Object)?;
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
        self.outgoing(negotiated).object(code, &renderer, &object)
    }

    async fn patch(&self, body: &Sent) -> Result<Response, WireError> {
        let (negotiated, renderer) = self.negotiate(AnswerKind::Object)?;
        let body = body.read().await?;
        let (patch, mistakes) = body_of::patch(self.header(CONTENT_TYPE), &body)?;
        if matches!(patch, Patch::Strategic(_)) && self.resource.custom.is_some() {
            // Nothing says how its lists are merged (WC-214).
            return Err(body_of::unsupported_for_custom());
        }
        let mut options = self.write_options(WriteFor::Patch)?;
        options.body_mistakes = mistakes;
        let object = self
            .registry()
            .patch(&self.target(), &patch, &options)
            .await?;
        self.outgoing(negotiated)
            .object(StatusCode::OK, &renderer, &object)
    }

    /// A PATCH that applies a configuration.
    async fn apply(&self, body: &Sent) -> Result<Response, WireError> {
        let (negotiated, renderer) = self.negotiate(AnswerKind::Object)?;
        let body = body.read().await?;
        let (config, mistakes) = body_of::configuration(&body)?;
        let options = self.write_options(WriteFor::Apply)?;
        judge(&options, mistakes)
            .map_err(|e| WireError::BadRequest(format!("error strict decoding YAML: {e}")))?;
        let (object, created) = self
            .registry()
            .apply(&self.target(), &config, &options)
            .await?;
        let code = match created {
            true => StatusCode::CREATED,
            false => StatusCode::OK,
        };
        self.outgoing(negotiated).object(code, &renderer, &object)
    }

    async fn delete(&self, body: &Sent) -> Result<Response, WireError> {
        let (negotiated, renderer) = self.negotiate(AnswerKind::Object)?;
        let body = body.read().await?;
        let body = body_of::options(&self.wire.protobuf, self.header(CONTENT_TYPE), &body)?;
        let options = self.delete_options(body)?;
        let deleted = self.registry().delete(&self.target(), &options).await?;
        let (code, object) = match deleted {
            Deleted::Gone(object) => {
                return Ok(self.status(&self.gone(&object), negotiated));
            }
            Deleted::Unread => return Ok(self.status(&self.unread(), negotiated)),
            Deleted::Last(object) => (StatusCode::OK, object),
            // Only a client that asked for the old orphaning by name is told that it goes on.
            Deleted::Pending(object) if options.orphan_dependents == Some(false) => {
                (StatusCode::ACCEPTED, object)
            }
            Deleted::Pending(object) => (StatusCode::OK, object),
        };
        self.outgoing(negotiated).object(code, &renderer, &object)
    }

    /// A status in place of an object; it has no other form than its own.
    fn status(&self, status: &Status, negotiated: Negotiated) -> Response {
        let schema = &self.wire.protobuf;
        status_response_in(status, negotiated.media, negotiated.pretty, schema)
    }

    /// The success that tells of an object that is no more (§1.5).
    fn gone(&self, object: &Object) -> Status {
        Status::success(StatusDetails {
            name: object.key().name().to_owned(),
            group: self.resource.group.clone(),
            kind: self.resource.plural.clone(),
            uid: object.uid().to_owned(),
            ..StatusDetails::default()
        })
    }

    /// The success that tells of an object that nobody could read; upstream says its kind here.
    fn unread(&self) -> Status {
        Status::success(StatusDetails {
            name: self.name.clone().unwrap_or_default(),
            group: self.resource.group.clone(),
            kind: self.resource.kind.clone(),
            ..StatusDetails::default()
        })
    }

    async fn delete_collection(&self, body: &Sent) -> Result<Response, WireError> {
        let (negotiated, renderer) = self.negotiate(AnswerKind::List)?;
        let selection = list_options(&self.query, ListFor::List, None)?;
        let body = body.read().await?;
        let body = body_of::options(&self.wire.protobuf, self.header(CONTENT_TYPE), &body)?;
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
        self.outgoing(negotiated)
            .list(renderer, list, selection.shard.as_ref())
            .await
    }
}

/// Under which name the fields are kept that a client of this user agent sets (§1.4): what is before
/// its first `/`, as far as it can be printed and is not too long.
fn manager_of(user_agent: &str) -> String {
    let name = user_agent.split('/').next().unwrap_or_default();
    let printable = name.chars().filter(|c| !c.is_control());
    printable.take(FIELD_MANAGER_BYTES_MAX).collect()
}

/// The Accept header of a request; several count as one.
pub(crate) fn accept_of(parts: &Parts) -> Result<Option<String>, WireError> {
    let mut all: Option<String> = None;
    for value in parts.headers.get_all(ACCEPT) {
        let text = value.to_str().map_err(|_| {
            WireError::BadRequest("the Accept header is not visible ASCII".to_owned())
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
