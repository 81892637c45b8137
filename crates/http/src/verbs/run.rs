//! Serves a call by its verb.

use axum::http::header::CONTENT_TYPE;
use axum::response::Response;

use crate::error::HttpError;
use crate::request::body::is_apply;
use crate::request::request_body::RequestBody;
use crate::request::request_info::Verb;
use crate::verbs::call::Call;
use crate::verbs::{delete, read, watch, write};

/// Serves `call`, whose body is `body`.
pub(crate) async fn run(call: &Call, body: &RequestBody) -> Result<Response, HttpError> {
    // Boxed: futures are copied several times on their way through the layers, and the largest
    // has some thousand bytes.
    let response = match call.verb() {
        _ if call.needs_kubelet() => Err(call.registry().connect(&call.target()).await.into()),
        Verb::Create if call.creates_no_object() => Box::pin(write::post(call, body)).await,
        Verb::Get => Box::pin(read::get(call)).await,
        Verb::List => Box::pin(read::list(call)).await,
        Verb::Watch => Box::pin(watch::watch(call)).await,
        Verb::Create => Box::pin(write::create(call, body)).await,
        Verb::Update => Box::pin(write::update(call, body)).await,
        Verb::Patch if is_apply(call.header(CONTENT_TYPE)) => {
            Box::pin(write::apply(call, body)).await
        }
        Verb::Patch => Box::pin(write::patch(call, body)).await,
        Verb::Delete => Box::pin(delete::delete(call, body)).await,
        Verb::DeleteCollection => Box::pin(delete::delete_collection(call, body)).await,
    };
    response.map_err(|error| error.about(call.verb(), call.resource()))
}
