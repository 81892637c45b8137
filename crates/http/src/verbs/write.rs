//! Serves `create`, `update`, `patch` and server-side apply.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;

use crate::error::HttpError;
use crate::request::accept::ResponseKind;
use crate::request::body as request_body;
use crate::request::options::WriteFor;
use crate::request::request_body::RequestBody;
use crate::verbs::call::Call;
use watchet_registry::{Patch, Posted, judge};

/// Serves a POST that does not create an object of the resource: to a subresource, or of an object that is never stored.
pub(super) async fn post(call: &Call, body: &RequestBody) -> Result<Response, HttpError> {
    let target = call.target();
    let (negotiated, renderer) = call.negotiate(ResponseKind::Unstored)?;
    let options = call.write_options(WriteFor::Create)?;
    let body = body.read(&call.state).await?;
    let object = call.object(&body, &options)?;
    let tokens = &call.state.config.tokens;
    let posted = call.registry().post(&target, object, &options, tokens);
    match posted.await? {
        Posted::Object(object) => {
            let encoding = call.encoding(negotiated);
            encoding.object(StatusCode::CREATED, &renderer, &object)
        }
        Posted::Status(status) => Ok(call.status(&status, negotiated)),
    }
}

pub(super) async fn create(call: &Call, body: &RequestBody) -> Result<Response, HttpError> {
    let (negotiated, renderer) = call.negotiate(ResponseKind::Object)?;
    let options = call.write_options(WriteFor::Create)?;
    let body = body.read(&call.state).await?;
    let object = call.object(&body, &options)?;
    let created = call
        .registry()
        .create(&call.resource, call.namespace.as_deref(), object, &options)
        .await?;
    call.encoding(negotiated)
        .object(StatusCode::CREATED, &renderer, &created)
}

pub(super) async fn update(call: &Call, body: &RequestBody) -> Result<Response, HttpError> {
    let (negotiated, renderer) = call.negotiate(ResponseKind::Object)?;
    let options = call.write_options(WriteFor::Update)?;
    let body = body.read(&call.state).await?;
    let object = call.object(&body, &options)?;
    let (object, is_created) = call
        .registry()
        .update(&call.target(), object, &options)
        .await?;
    call.encoding(negotiated)
        .object(code(is_created), &renderer, &object)
}

pub(super) async fn patch(call: &Call, body: &RequestBody) -> Result<Response, HttpError> {
    let (negotiated, renderer) = call.negotiate(ResponseKind::Object)?;
    let body = body.read(&call.state).await?;
    let (patch, mistakes) = request_body::patch(call.header(CONTENT_TYPE), &body)?;
    if matches!(patch, Patch::Strategic(_)) && !call.resource.is_builtin() {
        // Custom resources have no merge keys.
        return Err(request_body::unsupported_for_custom());
    }
    let mut options = call.write_options(WriteFor::Patch)?;
    options.body_mistakes = mistakes;
    let object = call
        .registry()
        .patch(&call.target(), &patch, &options)
        .await?;
    call.encoding(negotiated)
        .object(StatusCode::OK, &renderer, &object)
}

/// Serves a server-side apply.
pub(super) async fn apply(call: &Call, body: &RequestBody) -> Result<Response, HttpError> {
    let (negotiated, renderer) = call.negotiate(ResponseKind::Object)?;
    let body = body.read(&call.state).await?;
    let (config, mistakes) = request_body::configuration(&body)?;
    let options = call.write_options(WriteFor::Apply)?;
    judge(&options, mistakes)
        .map_err(|e| HttpError::BadRequest(format!("error strict decoding YAML: {e}")))?;
    let (object, is_created) = call
        .registry()
        .apply(&call.target(), &config, &options)
        .await?;
    call.encoding(negotiated)
        .object(code(is_created), &renderer, &object)
}

/// Returns the code of the response to a write that creates the object if it is absent.
fn code(is_created: bool) -> StatusCode {
    match is_created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    }
}
