//! A request about objects: its resource, verb and target, and the parts of serving it that the verbs share.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderName;
use axum::http::header::{CONTENT_TYPE, USER_AGENT};
use axum::http::request::Parts;
use axum::response::Response;
use serde_json::Value;

use crate::audit;
use crate::error::HttpError;
use crate::in_flight::Flow;
use crate::request::accept::{Media, Negotiated, ResponseKind, accept_header, negotiate};
use crate::request::body;
use crate::request::expected_kind::ExpectedKind;
use crate::request::options::{FIELD_MANAGER_BYTES_MAX, WriteFor, delete_options, write_options};
use crate::request::query::{Query, flag};
use crate::request::received_request::ReceivedRequest;
use crate::request::request_body::RequestBody;
use crate::request::request_info::{ResourceRequest, Verb};
use crate::response::encoding::ResponseEncoding;
use crate::response::headers::accepts_gzip;
use crate::response::render::Renderer;
use crate::response::status::status_response;
use crate::state::HttpState;
use crate::verbs::verb_check::check_verb;
use watchet_api::{
    DeleteOptions, MemoryReservation, MemoryUse, SYSTEM_MASTERS, Status, UserInfo, Warnings,
    WriteOptions,
};
use watchet_flowcontrol::{Classification, Work};
use watchet_registry::{ObjectLocation, Registry, Resource, Subresource, Target};
use watchet_schema::memory_of_json;

/// A request about objects, with an existing resource and a supported verb.
pub(crate) struct Call {
    pub(super) state: Arc<HttpState>,
    pub(super) parts: Arc<Parts>,
    pub(super) query: Query,
    pub(super) resource: Arc<Resource>,
    /// The resource of the bodies: the resource itself, or the kind of its subresource.
    bodies: Arc<Resource>,
    verb: Verb,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
    warnings: Warnings,
}

impl Call {
    /// Checks that the resource exists and supports the verb on this path. Warnings for the client
    /// are added to `warnings`.
    pub(crate) fn new(
        state: &Arc<HttpState>,
        parts: &Arc<Parts>,
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
            state: Arc::clone(state),
            parts: Arc::clone(parts),
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

    pub(super) fn registry(&self) -> &Registry {
        &self.state.registry
    }

    pub(super) fn header(&self, name: HeaderName) -> Option<&str> {
        self.parts.headers.get(name).and_then(|v| v.to_str().ok())
    }

    pub(super) fn negotiate(
        &self,
        kind: ResponseKind,
    ) -> Result<(Negotiated, Renderer), HttpError> {
        let user_agent = self.header(USER_AGENT);
        let accept = self.accept()?;
        let schema = &self.state.protobuf;
        let known = || schema.has_kind(&self.bodies.api_version(), &self.bodies.kind);
        let negotiated = negotiate(accept.as_deref(), kind, &self.query, user_agent, known)?;
        let renderer = Renderer::new(&self.state.registry, self.bodies.clone(), negotiated.form);
        let renderer = match negotiated.media {
            Media::Protobuf => renderer.in_protobuf(schema).ok_or_else(|| {
                HttpError::Internal(format!("{} has no protobuf encoding", self.bodies.kind))
            })?,
            Media::Json | Media::Yaml => renderer,
        };
        Ok((negotiated, renderer))
    }

    /// Returns the Accept header; several are joined.
    pub(super) fn accept(&self) -> Result<Option<String>, HttpError> {
        accept_header(&self.parts)
    }

    pub(super) fn encoding(&self, negotiated: Negotiated) -> ResponseEncoding {
        ResponseEncoding {
            negotiated,
            gzip: accepts_gzip(&self.parts.headers),
        }
    }

    pub(super) fn target(&self) -> Target {
        Target {
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone().unwrap_or_default(),
            subresource: self.subresource.clone(),
        }
    }

    pub(super) fn delete_options(&self, body: Option<Value>) -> Result<DeleteOptions, HttpError> {
        let mut options = delete_options(&self.query, body)?;
        options.warnings = self.warnings.clone();
        options.audit_annotations = audit::annotations(&self.parts);
        if let Some(user) = self.parts.extensions.get::<Arc<UserInfo>>() {
            options.user = user.clone();
        }
        Ok(options)
    }

    pub(super) fn write_options(&self, purpose: WriteFor) -> Result<WriteOptions, HttpError> {
        let mut options = write_options(&self.query, purpose)?;
        options.warnings = self.warnings.clone();
        options.audit_annotations = audit::annotations(&self.parts);
        if let Some(user) = self.parts.extensions.get::<Arc<UserInfo>>() {
            options.user = user.clone();
        }
        if options.field_manager.is_empty() {
            let client = self.header(USER_AGENT).unwrap_or_default();
            options.field_manager = manager_of(client);
        }
        Ok(options)
    }

    pub(super) fn needs_kubelet(&self) -> bool {
        let named = self.subresource.as_deref();
        let part = named.and_then(|name| self.resource.subresource(name));
        part.is_some_and(Subresource::needs_kubelet)
    }

    /// Returns true if a create does not create an object of the resource.
    pub(super) fn creates_no_object(&self) -> bool {
        self.subresource.is_some() || !self.resource.is_stored()
    }

    /// Returns the body of this request. `limit` is the time limit of the request.
    pub(crate) fn body(&self, body: Body, limit: Duration) -> RequestBody {
        let user = self.parts.extensions.get::<Arc<UserInfo>>();
        let user = user.map_or("", |user| &user.name);
        let content_type = self.header(CONTENT_TYPE);
        let audited = self.parts.extensions.get::<ReceivedRequest>().cloned();
        RequestBody::new(
            body,
            content_type,
            user,
            self.present_bytes(),
            audited,
            self.flow(),
            limit,
        )
    }

    /// Returns the flow of the request and its work; `None` without flow control.
    pub(crate) fn flow(&self) -> Option<Flow> {
        let classification = self.parts.extensions.get::<Classification>()?.clone();
        Some(Flow {
            classification,
            work: self.work(),
        })
    }

    /// Returns true for a token request, which changes no object that is watched.
    fn requests_token(&self) -> bool {
        self.resource.is("", "serviceaccounts") && self.subresource.as_deref() == Some("token")
    }

    /// Estimates the work of the request.
    fn work(&self) -> Work {
        let lists = match self.verb {
            Verb::List => true,
            // Only watches that begin with the state list it.
            Verb::Watch => match self.query.get("sendInitialEvents") {
                Some(value) => flag(value),
                None => matches!(self.query.get("resourceVersion"), None | Some("" | "0")),
            },
            _ => false,
        };
        if !lists && !self.verb.is_write() || self.requests_token() {
            return Work::SINGLE;
        }
        let Some(cached) = self.registry().cache_size(&self.resource) else {
            return Work::SINGLE;
        };
        if self.verb.is_write() {
            return Work::of_write(cached.watchers);
        }
        let selector = |name| self.query.get(name).unwrap_or_default();
        let fields = selector("fieldSelector");
        let is_single = self.name.is_some() || fields.starts_with("metadata.name=");
        let examines_all = !fields.is_empty() || !selector("labelSelector").is_empty();
        let limit = self.query.get("limit").and_then(|limit| limit.parse().ok());
        Work::of_list(match limit {
            _ if is_single => 1,
            Some(limit @ 1..) if !examines_all && self.verb == Verb::List => {
                cached.objects.min(limit)
            }
            _ => cached.objects,
        })
    }

    /// Reserves the memory of a list or of the start of a watch; `None` for other requests. Those of administrators and of the
    /// exempt priority level always get it.
    ///
    /// # Errors
    /// 429 if the server has too little memory.
    pub(crate) fn reserve_memory(&self) -> Result<Option<MemoryReservation>, HttpError> {
        let request = match self.verb {
            Verb::List => MemoryUse::List,
            Verb::Watch => MemoryUse::Watch,
            _ => return Ok(None),
        };
        let extensions = &self.parts.extensions;
        let classification = extensions.get::<Classification>();
        let user = extensions.get::<Arc<UserInfo>>();
        let is_exempt = classification.is_some_and(Classification::is_exempt)
            || user.is_some_and(|user| user.groups.iter().any(|group| group == SYSTEM_MASTERS));
        let bytes = self.response_bytes(request);
        Ok(Some(
            self.state
                .config
                .memory
                .reserve(request, bytes, is_exempt)?,
        ))
    }

    /// Estimates the memory in bytes of a list or watch: its buffers, which the objects may not fill, and a reference to each object.
    fn response_bytes(&self, request: MemoryUse) -> usize {
        /// The pieces of a response that are in memory at the same time, and the buffers of the connection.
        const BUFFER_BYTES: usize = 512 << 10;
        const REFERENCE_BYTES: usize = 64;
        let Some(cached) = self.registry().cache_size(&self.resource) else {
            return BUFFER_BYTES;
        };
        let limit = self.query.get("limit").and_then(|limit| limit.parse().ok());
        let objects = match (request, limit) {
            _ if self.name.is_some() => 1,
            (MemoryUse::List, Some(limit @ 1..)) => cached.objects.min(limit),
            _ => cached.objects,
        };
        let mean = cached.objects_bytes / cached.objects.max(1);
        let buffers = match request {
            MemoryUse::List => BUFFER_BYTES.min(2 * mean * objects),
            // It is open for long and may have many events.
            MemoryUse::Watch | MemoryUse::Write | MemoryUse::Profile => BUFFER_BYTES,
        };
        buffers + objects * REFERENCE_BYTES
    }

    /// Returns the estimated memory in bytes of the object that a write changes, if it is large and in a cache.
    fn present_bytes(&self) -> usize {
        /// An object of fewer bytes cannot take much memory.
        const SMALL_BYTES_MAX: usize = 4 << 10;
        if !self.verb.is_write() || self.name.is_none() {
            return 0;
        }
        let present = ObjectLocation::of(&self.target()).ok();
        let present =
            present.and_then(|location| self.registry().peek(&self.resource, &location.key));
        match present {
            Some(present) if present.body_slice().len() > SMALL_BYTES_MAX => {
                memory_of_json(present.body_slice())
            }
            _ => 0,
        }
    }

    /// Decodes the complete object in a body, of the kind that this path requires.
    pub(super) fn object(&self, body: &[u8], options: &WriteOptions) -> Result<Value, HttpError> {
        let expected = ExpectedKind::new(self.registry(), &self.bodies);
        let decoded = body::object(
            expected.types(),
            &self.state.protobuf,
            self.header(CONTENT_TYPE),
            body,
        )?;
        expected.accept(decoded, options)
    }

    /// Returns a status as the response instead of an object, in the negotiated encoding.
    pub(super) fn status(&self, status: &Status, negotiated: Negotiated) -> Response {
        let schema = &self.state.protobuf;
        status_response(status, negotiated.media, negotiated.pretty, schema)
    }
}

/// Returns the field manager of a client without an explicit one: the user agent up to the first
/// `/`, without unprintable characters, truncated to the maximum length.
fn manager_of(user_agent: &str) -> String {
    let name = user_agent.split('/').next().unwrap_or_default();
    let printable = name.chars().filter(|c| !c.is_control());
    printable.take(FIELD_MANAGER_BYTES_MAX).collect()
}
