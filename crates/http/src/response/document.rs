//! Responses with a complete document: JSON, or text.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;

use crate::error::HttpError;
use crate::request::accept::Media;
use crate::response::chunks::{SingleChunk, encode};
use crate::response::headers::mark_gzip;

/// Returns a response with this body and Content-Type.
pub(crate) fn response(code: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Returns a JSON document as a response.
pub(crate) fn json_response(code: StatusCode, document: &impl Serialize) -> Response {
    document_response(code, serde_json::to_vec(document))
}

/// Returns a JSON document as a response, indented.
pub(crate) fn pretty_response(code: StatusCode, document: &impl Serialize) -> Response {
    document_response(code, serde_json::to_vec_pretty(document))
}

fn document_response(code: StatusCode, json: Result<Vec<u8>, serde_json::Error>) -> Response {
    match json {
        Ok(mut json) => {
            json.push(b'\n');
            response(code, Media::Json.content_type(), Body::from(json))
        }
        Err(error) => {
            tracing::error!(%error, "cannot encode a document");
            let code = StatusCode::INTERNAL_SERVER_ERROR;
            response(code, "text/plain", Body::from(error.to_string()))
        }
    }
}

/// Returns a text as a response, compressed if it is large and the client accepts that.
pub(crate) fn text_response(
    content_type: &'static str,
    text: String,
    gzip: bool,
) -> Result<Response, HttpError> {
    let encoded = encode(Box::new(SingleChunk::new(text.into())), gzip)?;
    let mut response = response(StatusCode::OK, content_type, encoded.body);
    if encoded.gzip {
        mark_gzip(&mut response);
    }
    Ok(response)
}
