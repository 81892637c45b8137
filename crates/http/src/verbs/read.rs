//! Serves `get` and `list`.

use axum::http::StatusCode;
use axum::response::Response;

use crate::error::HttpError;
use crate::request::accept::ResponseKind;
use crate::request::options::{ListFor, get_options, list_options};
use crate::verbs::call::Call;

pub(super) async fn get(call: &Call) -> Result<Response, HttpError> {
    let (negotiated, renderer) = call.negotiate(ResponseKind::Object)?;
    let options = get_options(&call.query)?;
    let object = call.registry().get(&call.target(), options).await?;
    call.encoding(negotiated)
        .object(StatusCode::OK, &renderer, &object)
}

pub(super) async fn list(call: &Call) -> Result<Response, HttpError> {
    let (negotiated, renderer) = call.negotiate(ResponseKind::List)?;
    let options = list_options(&call.query, ListFor::List, None)?;
    let list = call
        .registry()
        .list(&call.resource, call.namespace.as_deref(), &options)
        .await?;
    call.encoding(negotiated)
        .list(renderer, list, options.shard.as_ref())
        .await
}
