//! `AuditedRequest`: what is recorded of a request, and its encoding as events.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderValue, Uri};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::attributes::{
    ObjectMetadata, ObjectWithMetadata, attributes, reference, request_uri, text,
};
use crate::request::body;
use crate::request::received_request::ReceivedRequest;
use crate::request::request_info::{ResourceRequest, Verb};
use watchet_api::{AuditAnnotations, Status, UserInfo};
use watchet_audit::policy::{AuditConfig, Level, Stage};
use watchet_audit::{Auditor, Delivery, Event, ResponseStatus, TRUNCATED};
use watchet_protobuf::Schema;
use watchet_tasks::Tasks;

/// The maximum size of a recorded response in bytes; the event of a larger one has no object and the annotation
/// [`TRUNCATED`].
const RESPONSE_BYTES_MAX: usize = 10 << 20;

/// Bodies of this total size in bytes are decoded on threads for blocking work: that takes longer than an async worker may
/// be occupied.
const LARGE_BYTES_MIN: usize = 64 << 10;

/// The subresources whose requests are long-running, as upstream.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

/// A request and its response.
#[derive(Debug)]
pub(super) struct AuditedRequest {
    /// Run the encoding of large events.
    pub(super) tasks: Tasks,
    pub(super) processors: Arc<Semaphore>,
    pub(super) auditor: Arc<Auditor>,
    pub(super) config: AuditConfig,
    pub(super) protobuf: Arc<Schema>,
    pub(super) audit_id: String,
    pub(super) received: Timestamp,
    pub(super) uri: Uri,
    pub(super) method: String,
    pub(super) resource: Option<ResourceRequest>,
    pub(super) user: Arc<UserInfo>,
    pub(super) impersonated: Option<Arc<UserInfo>>,
    pub(super) source_ips: Vec<IpAddr>,
    pub(super) user_agent: Option<HeaderValue>,
    pub(super) annotations: AuditAnnotations,
    pub(super) request_type: Option<HeaderValue>,
    pub(super) request: ReceivedRequest,
    pub(super) response: Option<RecordedResponse>,
    pub(super) panic: Option<String>,
}

/// What is recorded of a response.
#[derive(Debug)]
pub(super) struct RecordedResponse {
    pub(super) code: u16,
    pub(super) status: Option<Arc<Status>>,
    pub(super) media_type: Option<HeaderValue>,
    /// `None` if the level does not require it, if it is too large, or if the response has the extension `SecretBody`.
    pub(super) body: Option<Vec<u8>>,
}

impl AuditedRequest {
    /// Returns true if the body of the response is recorded.
    pub(super) fn records_response(&self) -> bool {
        self.config.level == Level::RequestResponse && !self.is_watch()
    }

    fn is_watch(&self) -> bool {
        let resource = self.resource.as_ref();
        resource.is_some_and(|request| request.verb == Some(Verb::Watch))
    }

    pub(super) fn is_long_running(&self) -> bool {
        let subresource = self
            .resource
            .as_ref()
            .and_then(|r| r.subresource.as_deref());
        self.is_watch() || subresource.is_some_and(|name| LONG_RUNNING.contains(&name))
    }

    /// Adds a part of the body of the response.
    pub(super) fn capture(&mut self, data: &[u8]) {
        let Some(body) = self.response.as_mut().and_then(|r| r.body.as_mut()) else {
            return;
        };
        if body.len() + data.len() <= RESPONSE_BYTES_MAX {
            body.extend_from_slice(data);
        } else if let Some(response) = &mut self.response {
            response.body = None;
            self.annotations.add(TRUNCATED, "true");
        }
    }

    /// Records the last event, or returns the future that does, if the event is large or a backend blocks.
    pub(super) fn finish(self: Box<Self>) -> Option<BoxFuture<'static, ()>> {
        let stage = match self.panic {
            Some(_) => Stage::Panic,
            None => Stage::ResponseComplete,
        };
        if !self.is_large() {
            return Some(complete(self.record(stage)?).boxed());
        }
        let large = async move {
            let (tasks, processors) = (self.tasks.clone(), Arc::clone(&self.processors));
            let record = Box::pin(async move { self.record(stage) });
            let recorded = tasks.run_on_blocking_threads("audit-event", &processors, record);
            if let Some(delivery) = recorded.await {
                complete(delivery).await;
            }
        };
        Some(large.boxed())
    }

    fn is_large(&self) -> bool {
        let verb = self.resource.as_ref().and_then(|resource| resource.verb);
        let is_decoded = self.config.level >= Level::Request || has_metadata(verb);
        let request = self.request.get().filter(|_| is_decoded);
        let response = self.response.as_ref().and_then(|r| r.body.as_ref());
        request.map_or(0, Bytes::len) + response.map_or(0, Vec::len) >= LARGE_BYTES_MIN
    }

    /// Records the event of a stage; returns its delivery, if a backend blocks.
    pub(super) fn record(&self, stage: Stage) -> Option<Delivery> {
        if self.config.omit_stages.contains(stage) {
            return None;
        }
        let is_end = matches!(stage, Stage::ResponseComplete | Stage::Panic);
        let body = self.request.get().filter(|body| is_end && !body.is_empty());
        let attributes = attributes(&self.uri, &self.method, self.resource.as_ref(), None);
        let metadata = body.and_then(|body| self.metadata(body));
        let with_request = body.filter(|_| self.config.level >= Level::Request);
        let request_object = with_request.and_then(|body| self.decoded(&self.request_type, body));
        let response_body = self
            .response
            .as_ref()
            .and_then(|response| response.body.as_ref());
        let response_body = response_body.filter(|body| is_end && !body.is_empty());
        let media_type = self.response.as_ref().and_then(|r| r.media_type.clone());
        let response_object = response_body.and_then(|body| self.decoded(&media_type, body));
        let failure = self.failure(stage);
        let response = match (&failure, &self.response) {
            (Some(failure), _) => Some(ResponseStatus {
                code: failure.code,
                status: Some(failure),
            }),
            (None, Some(response)) => Some(ResponseStatus {
                code: response.code,
                status: response.status.as_deref(),
            }),
            (None, None) => None,
        };
        self.auditor.record(&Event {
            level: self.config.level,
            audit_id: &self.audit_id,
            stage,
            request_uri: request_uri(&self.uri),
            verb: attributes.verb,
            user: &self.user,
            impersonated_user: self.impersonated.as_deref(),
            source_ips: &self.source_ips,
            user_agent: text(self.user_agent.as_ref()),
            object: attributes.resource.map(|r| reference(&r, metadata)),
            response,
            request_object: request_object.as_ref(),
            response_object: response_object.as_ref(),
            received: self.received,
            reached: match stage {
                Stage::RequestReceived => self.received,
                _ => Timestamp::now(),
            },
            annotations: &self.annotations.lock(),
        })
    }

    /// Returns the status of a request that has no response of its own.
    fn failure(&self, stage: Stage) -> Option<Status> {
        match (stage, &self.panic, &self.response) {
            (Stage::Panic, Some(detail), _) => {
                let message = format!("the request panicked: {detail}");
                Some(Status::failure(500, "InternalError", message))
            }
            (Stage::ResponseComplete, _, None) => {
                let message = "the client closed the connection before the response";
                Some(Status::failure(499, "ClientClosedRequest", message))
            }
            _ => None,
        }
    }

    /// Returns the metadata of the object in the body of a create or an update.
    fn metadata(&self, body: &Bytes) -> Option<ObjectMetadata> {
        if !has_metadata(self.resource.as_ref()?.verb) {
            return None;
        }
        let content_type = self.request_type.as_ref().and_then(|t| t.to_str().ok());
        let object = match body::Encoding::of(content_type) {
            body::Encoding::Json => serde_json::from_slice::<ObjectWithMetadata>(body).ok(),
            body::Encoding::Yaml | body::Encoding::Protobuf => {
                let object = self.decoded(&self.request_type, body)?;
                ObjectWithMetadata::deserialize(object).ok()
            }
        };
        Some(object?.metadata)
    }

    /// Returns the object in a body of any supported encoding; a body that is none has been rejected.
    fn decoded(&self, media_type: &Option<HeaderValue>, body: &[u8]) -> Option<Value> {
        let media_type = media_type
            .as_ref()
            .and_then(|media_type| media_type.to_str().ok());
        let object = match media_type {
            Some(patch) if patch.contains("patch+json") => serde_json::from_slice(body).ok(),
            Some(patch) if patch.contains("apply-patch+yaml") => {
                body::configuration(body).ok().map(|(object, _)| object)
            }
            _ => body::object(None, &self.protobuf, media_type, body)
                .ok()
                .map(|decoded| decoded.value),
        };
        let mut object = object?;
        if self.config.omit_managed_fields {
            remove_managed_fields(&mut object);
        }
        Some(object)
    }
}

/// Returns true if the body of a request with this verb is an object, whose name and uid are recorded.
fn has_metadata(verb: Option<Verb>) -> bool {
    matches!(verb, Some(Verb::Create | Verb::Update))
}

/// Waits for a delivery whose result no longer matters: failures are logged and counted.
async fn complete(delivery: Delivery) {
    let _counted = delivery.complete().await;
}

/// Removes the managed fields of an object, of the items of a list and of the objects of a Table.
fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for (list, member) in [("items", None), ("rows", Some("object"))] {
        let items = object.get_mut(list).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten() {
            let item = match member {
                Some(member) => item.get_mut(member),
                None => Some(item),
            };
            let metadata = item.and_then(|item| item.get_mut("metadata"));
            if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
    }
}
