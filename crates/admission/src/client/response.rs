//! The answer to a call: read within bounds, and told apart by its status, with the messages that
//! upstream's client makes of an answer that is no success.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use super::{RESPONSE_BYTES_MAX, WebhookError, error};
use watchet_api::Status;

/// How much of a body that is no `Status` is told.
const TOLD_BYTES_MAX: usize = 2048;

/// The whole body.
///
/// # Errors
/// It is too large, or the connection failed.
pub(super) async fn read(mut body: Incoming) -> Result<Bytes, String> {
    let too_large = || format!("the response is larger than {RESPONSE_BYTES_MAX} bytes");
    let announced = body.size_hint().lower();
    if announced > RESPONSE_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error::of_hyper(&error))?;
        if let Ok(data) = frame.into_data() {
            if read.len() + data.len() > RESPONSE_BYTES_MAX {
                return Err(too_large());
            }
            read.extend_from_slice(&data);
        }
    }
    Ok(read.freeze())
}

/// `body`, if `status` says that it is the answer.
pub(super) fn accepted(status: StatusCode, body: Bytes) -> Result<Bytes, WebhookError> {
    if status.is_success() {
        return Ok(body);
    }
    let told = serde_json::from_slice::<Status>(&body).ok();
    let message = match told.filter(|told| told.kind == "Status" && !told.message.is_empty()) {
        Some(told) => told.message,
        None => meaning(status, &body),
    };
    Err(WebhookError::Status {
        code: status.as_u16(),
        message,
    })
}

/// What client-go says of an answer that does not explain itself.
fn meaning(status: StatusCode, body: &[u8]) -> String {
    let told = String::from_utf8_lossy(&body[..body.len().min(TOLD_BYTES_MAX)]);
    let told = told.trim();
    let text = match status.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 if !told.is_empty() => told,
        403 => "the server does not allow access to the requested resource",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 | 415 => {
            "the server was unable to respond with a content type that the client supports"
        }
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be \
             processing the request"
        }
        500.. => {
            return format!(
                "an error on the server ({told:?}) has prevented the request from succeeding"
            );
        }
        code => {
            return format!(
                "the server responded with the status code {code} but did not return more \
                 information"
            );
        }
    };
    text.to_owned()
}
