//! Serves `delete` and `deletecollection`.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;

use crate::error::HttpError;
use crate::request::accept::ResponseKind;
use crate::request::body as request_body;
use crate::request::options::{ListFor, list_options};
use crate::request::request_body::RequestBody;
use crate::verbs::call::Call;
use watchet_api::{Object, Status, StatusDetails};
use watchet_registry::Deleted;

pub(super) async fn delete(call: &Call, body: &RequestBody) -> Result<Response, HttpError> {
    let (negotiated, renderer) = call.negotiate(ResponseKind::Object)?;
    let body = body.read(&call.state).await?;
    let body = request_body::options(&call.state.protobuf, call.header(CONTENT_TYPE), &body)?;
    let options = call.delete_options(body)?;
    let deleted = call.registry().delete(&call.target(), &options).await?;
    let (code, object) = match deleted {
        Deleted::Immediately(object) => {
            return Ok(call.status(&deleted_status(call, &object), negotiated));
        }
        Deleted::Corrupt => return Ok(call.status(&unreadable_status(call), negotiated)),
        Deleted::LastState(object) => (StatusCode::OK, object),
        // Only the deprecated orphanDependents=false gets a 202 for a deletion in progress, as
        // upstream.
        Deleted::Pending(object) if options.orphan_dependents == Some(false) => {
            (StatusCode::ACCEPTED, object)
        }
        Deleted::Pending(object) => (StatusCode::OK, object),
    };
    call.encoding(negotiated).object(code, &renderer, &object)
}

/// Returns the success status of a deletion that does not return the object.
fn deleted_status(call: &Call, object: &Object) -> Status {
    Status::success(StatusDetails {
        name: object.key().name().to_owned(),
        group: call.resource.group.clone(),
        kind: call.resource.plural.clone(),
        uid: object.uid().to_owned(),
        ..StatusDetails::default()
    })
}

/// Returns the success status of deleting an object that cannot be decoded; upstream puts the
/// kind here, not the plural.
fn unreadable_status(call: &Call) -> Status {
    Status::success(StatusDetails {
        name: call.name.clone().unwrap_or_default(),
        group: call.resource.group.clone(),
        kind: call.resource.kind.clone(),
        ..StatusDetails::default()
    })
}

pub(super) async fn delete_collection(
    call: &Call,
    body: &RequestBody,
) -> Result<Response, HttpError> {
    let (negotiated, renderer) = call.negotiate(ResponseKind::List)?;
    let selection = list_options(&call.query, ListFor::List, None)?;
    let body = body.read(&call.state).await?;
    let body = request_body::options(&call.state.protobuf, call.header(CONTENT_TYPE), &body)?;
    let options = call.delete_options(body)?;
    let list = call
        .registry()
        .delete_collection(
            &call.resource,
            call.namespace.as_deref(),
            &selection,
            &options,
        )
        .await?;
    call.encoding(negotiated)
        .list(renderer, list, selection.shard.as_ref())
        .await
}
