//! `RestError`: why a request failed. Callers match on it to decide whether to retry.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header};
use hyper_util::client::legacy;

use super::tls_error;
use watchet_api::Status;

/// How much of an unexpected body an error message contains.
const MESSAGE_BYTES_MAX: usize = 512;

/// The upper limit of a server's Retry-After: a longer time is probably a mistake.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// A request failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RestError {
    /// The server responded with a failure.
    #[error("{}", status.message)]
    Status {
        /// The `Status` of the response; if the body was none, the meaning of its code.
        status: Box<Status>,
        /// The delay before a retry, if the server requests one.
        retry_after: Option<Duration>,
    },
    /// The connection cannot be opened.
    #[error("cannot connect to {server}: {detail}")]
    Connect {
        /// The URL of the server.
        server: String,
        /// The cause.
        detail: String,
    },
    /// The connection failed before the response was complete. A write may have been executed.
    #[error("the connection to {server} failed: {detail}")]
    Connection {
        /// The URL of the server.
        server: String,
        /// The cause.
        detail: String,
    },
    /// The response took too long. A write may have been executed.
    #[error("no response from {server} within {timeout:?}")]
    Timeout {
        /// The URL of the server.
        server: String,
        /// The timeout.
        timeout: Duration,
    },
    /// The response is successful but cannot be decoded.
    #[error("{server} sent an invalid response: {detail}")]
    InvalidResponse {
        /// The URL of the server.
        server: String,
        /// The problem.
        detail: String,
    },
    /// The request is invalid: an object without a name, or an invalid name.
    #[error("invalid request: {0}")]
    Request(String),
    /// The credentials are not available.
    #[error("no credentials: {0}")]
    Credentials(String),
}

impl RestError {
    /// Returns the status, if the server responded.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Returns the HTTP status code, if the server responded.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// Returns the reason: `NotFound`, `Conflict`; empty if the server did not respond.
    pub fn reason(&self) -> &str {
        self.status().map_or("", |status| &status.reason)
    }

    /// Returns the delay before a retry, if the server requests one.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns true if the object or the resource does not exist.
    pub fn is_not_found(&self) -> bool {
        self.is("NotFound", 404)
    }

    /// Returns true if an object with that name exists.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// Returns true if the object has changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.reason() != "AlreadyExists" && self.is("Conflict", 409)
    }

    /// Returns true if the resource version or the continue token has expired.
    pub fn is_expired(&self) -> bool {
        matches!(self.reason(), "Expired" | "Gone") || self.code() == Some(410)
    }

    /// Returns true if the server is overloaded.
    pub fn is_too_many_requests(&self) -> bool {
        self.is("TooManyRequests", 429)
    }

    /// Returns true if the server has not reached the requested resource version yet.
    pub fn is_too_large_resource_version(&self) -> bool {
        let causes = self.status().and_then(|status| status.details.as_ref());
        // Servers before 1.17 have no cause.
        self.reason() == "Timeout"
            && (causes.is_some_and(|details| {
                let named =
                    |cause: &watchet_api::StatusCause| cause.reason == "ResourceVersionTooLarge";
                details.causes.iter().any(named)
            }) || self
                .status()
                .is_some_and(|status| status.message.contains("Too large resource version")))
    }

    fn is(&self, reason: &str, code: u16) -> bool {
        let Some(status) = self.status() else {
            return false;
        };
        match status.reason.as_str() {
            "" => status.code == code,
            reported => reported == reason,
        }
    }

    /// Creates the error of `status`, from an ERROR event or a response.
    pub(crate) fn from_status(status: Status) -> Self {
        let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
        Self::Status {
            status: Box::new(status),
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
        }
    }

    /// Creates the error of a response.
    pub(super) fn from_response(
        method: &Method,
        code: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Self {
        let message = serde_json::from_slice::<Status>(body).ok();
        let mut status = match message.filter(|message| message.kind == "Status") {
            Some(status) => status,
            None => meaning(method, code, body),
        };
        if status.code == 0 {
            status.code = code.as_u16();
        }
        let seconds = headers.get(header::RETRY_AFTER);
        let seconds = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
        let retry_after = seconds.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
        match (Self::from_status(status), retry_after) {
            (Self::Status { status, .. }, Some(retry_after)) => Self::Status {
                status,
                retry_after: Some(retry_after),
            },
            (error, _) => error,
        }
    }

    /// Creates the error of hyper's client.
    pub(super) fn from_client(server: &str, error: &legacy::Error) -> Self {
        let (server, detail) = (server.to_owned(), causes(server, error));
        match error.is_connect() {
            true => Self::Connect { server, detail },
            false => Self::Connection { server, detail },
        }
    }

    /// Creates the error of a body that failed while it was read.
    pub(super) fn from_body(server: &str, error: &hyper::Error) -> Self {
        Self::Connection {
            server: server.to_owned(),
            detail: causes(server, error),
        }
    }
}

/// Returns the causes below hyper's own message, which only says where the error occurred.
fn causes(server: &str, error: &dyn std::error::Error) -> String {
    let mut messages: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(text) = tls_error::tls_error_message(cause) {
            messages.push(text);
            break;
        }
        let is_not_http = cause.downcast_ref().is_some_and(hyper::Error::is_parse);
        if is_not_http && server.starts_with("http://") {
            messages.push(
                "the response is not HTTP: check the port, or use a URL with https://".to_owned(),
            );
            break;
        }
        // The peer has closed the connection; rustls' message would be a page of its manual.
        let io = cause.downcast_ref::<std::io::Error>();
        let text = cause.to_string();
        // HTTP/2 passes on only the message.
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::UnexpectedEof)
            || text.starts_with("peer closed connection without sending TLS close_notify")
        {
            messages.push("unexpected EOF".to_owned());
            break;
        }
        // Many messages repeat their cause.
        if !messages.iter().any(|before| before.contains(&text)) {
            messages.push(text);
        }
        next = cause.source();
    }
    match messages.is_empty() {
        true => error.to_string(),
        false => messages.join(": "),
    }
}

/// Returns the status for a response without one, as client-go.
fn meaning(method: &Method, code: StatusCode, body: &[u8]) -> Status {
    let message = String::from_utf8_lossy(&body[..body.len().min(MESSAGE_BYTES_MAX)]);
    let message = message.trim();
    let (reason, message) = match code.as_u16() {
        400 => (
            "BadRequest",
            "the server rejected our request for an unknown reason",
        ),
        401 => (
            "Unauthorized",
            "the server has asked for the client to provide credentials",
        ),
        403 if !message.is_empty() => ("Forbidden", message),
        403 => (
            "Forbidden",
            "the server does not allow access to the requested resource",
        ),
        404 => (
            "NotFound",
            "the server could not find the requested resource",
        ),
        405 => (
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ),
        406 | 415 => (
            match code.as_u16() {
                406 => "NotAcceptable",
                _ => "UnsupportedMediaType",
            },
            "the server was unable to respond with a content type that the client supports",
        ),
        409 if *method == Method::POST => ("AlreadyExists", "the server reported a conflict"),
        409 => ("Conflict", "the server reported a conflict"),
        410 => ("Gone", "the requested state is no longer available"),
        413 => (
            "RequestEntityTooLarge",
            "the request is too large for the server",
        ),
        422 => (
            "Invalid",
            "the server rejected our request due to an error in our request",
        ),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be \
             processing the request",
        ),
        500.. => {
            let message = format!(
                "an error on the server ({message:?}) has prevented the request from succeeding"
            );
            return Status::failure(code.as_u16(), "InternalError", message);
        }
        other => {
            let message = format!(
                "the server responded with the status code {other} but did not return more \
                 information"
            );
            return Status::failure(other, "", message);
        }
    };
    Status::failure(code.as_u16(), reason, message)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn answered(code: u16, retry_after: Option<&'static str>, body: &str) -> RestError {
        let mut headers = HeaderMap::new();
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        let code = StatusCode::from_u16(code).unwrap();
        RestError::from_response(&Method::GET, code, &headers, body.as_bytes())
    }

    #[test]
    fn statuses_are_distinguished_by_reason_and_code() {
        let error = answered(
            404,
            None,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
                "message":"pods \"x\" not found","reason":"NotFound","code":404}"#,
        );
        assert!(error.is_not_found() && !error.is_conflict() && !error.is_expired());
        assert_eq!(error.to_string(), r#"pods "x" not found"#);
        assert_eq!((error.code(), error.reason()), (Some(404), "NotFound"));
        let status = |reason: &str, code| RestError::from_status(Status::failure(code, reason, ""));
        assert!(status("AlreadyExists", 409).is_already_exists());
        assert!(!status("AlreadyExists", 409).is_conflict());
        assert!(status("Conflict", 409).is_conflict());
        assert!(status("Expired", 410).is_expired() && status("Gone", 410).is_expired());
        assert!(status("TooManyRequests", 429).is_too_many_requests());
        assert!(!status("Timeout", 504).is_too_large_resource_version());
    }

    #[test]
    fn a_too_large_version_is_detected_by_its_cause() {
        let error = answered(
            504,
            None,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":
                "Timeout: Too large resource version: 9, current: 3","reason":"Timeout","details":
                {"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],
                "retryAfterSeconds":1},"code":504}"#,
        );
        assert!(error.is_too_large_resource_version());
        assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_response_without_a_status_has_the_meaning_of_its_code() {
        for (code, reason) in [
            (401, "Unauthorized"),
            (404, "NotFound"),
            (409, "Conflict"),
            (410, "Gone"),
            (429, "TooManyRequests"),
            (502, "InternalError"),
            (503, "ServiceUnavailable"),
        ] {
            let error = answered(code, Some("7"), "<html>no</html>");
            assert_eq!((error.code(), error.reason()), (Some(code), reason));
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        }
        assert!(answered(502, None, "<html>").to_string().contains("<html>"));
    }
}
