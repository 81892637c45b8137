//! The response to a call: reads its body up to a limit, and converts a status that is no success to an error with
//! the message of upstream's client.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use super::error::{self, WebhookError};
use watchet_api::Status;
use watchet_schema::memory_of_json;

/// The maximum size of a response in bytes.
pub const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// The maximum memory in bytes that a response may take when it is decoded, by the estimate of
/// [`memory_of_json`]. Responses of empty objects take 100 times their size.
pub const RESPONSE_MEMORY_MAX: usize = 64 << 20;

/// The maximum number of bytes of a body that is not a `Status` in the error.
const SHOWN_BYTES_MAX: usize = 2048;

/// Reads the complete body, which is not decoded yet.
///
/// # Errors
/// The body is too large or would take too much memory, or the connection failed.
pub(super) async fn read(mut body: Incoming) -> Result<Bytes, String> {
    let too_large = || format!("the response is larger than {RESPONSE_BYTES_MAX} bytes");
    let content_length = body.size_hint().lower();
    if content_length > RESPONSE_BYTES_MAX as u64 {
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
    let memory = memory_of_json(&read);
    if memory > RESPONSE_MEMORY_MAX {
        return Err(format!(
            "the response of {} bytes would take {memory} bytes of memory, more than {RESPONSE_MEMORY_MAX}",
            read.len()
        ));
    }
    Ok(read.freeze())
}

/// Returns `body` if `status` is a success.
pub(super) fn accepted(status: StatusCode, body: Bytes) -> Result<Bytes, WebhookError> {
    if status.is_success() {
        return Ok(body);
    }
    let error = serde_json::from_slice::<Status>(&body).ok();
    let error = error.filter(|error| error.kind == "Status" && !error.message.is_empty());
    let message = match error {
        Some(error) => error.message,
        None => default_message(status, &body),
    };
    Err(WebhookError::Status {
        code: status.as_u16(),
        message,
    })
}

/// Returns client-go's message for a response without a `Status`.
fn default_message(status: StatusCode, body: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
    let shown = shown.trim();
    let text = match status.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 if !shown.is_empty() => shown,
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
                "an error on the server ({shown:?}) has prevented the request from succeeding"
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
