//! Serves a call by its verb.

use std::pin::Pin;

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
    let response = match call.verb() {
        _ if call.needs_kubelet() => Err(call.registry().connect(&call.target()).await.into()),
        Verb::Create if call.creates_no_object() => box_verb_future(write::post(call, body)).await,
        Verb::Get => box_verb_future(read::get(call)).await,
        Verb::List => box_verb_future(read::list(call)).await,
        Verb::Watch => box_verb_future(watch::watch(call)).await,
        Verb::Create => box_verb_future(write::create(call, body)).await,
        Verb::Update => box_verb_future(write::update(call, body)).await,
        Verb::Patch if is_apply(call.header(CONTENT_TYPE)) => {
            box_verb_future(write::apply(call, body)).await
        }
        Verb::Patch => box_verb_future(write::patch(call, body)).await,
        Verb::Delete => box_verb_future(delete::delete(call, body)).await,
        Verb::DeleteCollection => box_verb_future(delete::delete_collection(call, body)).await,
    };
    response.map_err(|error| error.about(call.verb(), call.resource()))
}

/// The maximum size of the future of a verb in bytes, in builds with debug assertions. The largest is that of an update, 4.6 KB.
const FUTURE_BYTES_MAX: usize = 6 << 10;

/// Boxes the future of a verb, because each enclosing future would move it by value.
fn box_verb_future<F: Future>(future: F) -> Pin<Box<F>> {
    const {
        assert!(
            !cfg!(debug_assertions) || size_of::<F>() <= FUTURE_BYTES_MAX,
            "the future of a verb is too large: box its rare phases"
        );
    }
    Box::pin(future)
}
