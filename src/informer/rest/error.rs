//! `RestError`: why a request got no answer that can be used, so that a caller can match on it. What is
//! to be done about it, waiting or asking anew, is the caller's to know.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header};
use hyper_util::client::legacy;

use crate::api::Status;

/// How much of an answer that explains nothing is told.
const TOLD_BYTES_MAX: usize = 512;

/// What a server may ask for at most: one that asks for days is mistaken, and would be followed no more.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// A request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RestError {
    /// The server answered with a failure.
    #[error("{}", status.message)]
    Status {
        /// What it said; if it was no `Status`, what its code means.
        status: Box<Status>,
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// There is no connection to the server.
    #[error("cannot connect to {server}: {detail}")]
    Connect {
        /// Its URL.
        server: String,
        /// Why.
        detail: String,
    },
    /// The connection was lost before the answer was complete. A write may have been done.
    #[error("the connection to {server} failed: {detail}")]
    Connection {
        /// Its URL.
        server: String,
        /// How.
        detail: String,
    },
    /// The answer took too long. A write may have been done.
    #[error("no answer from {server} within {timeout:?}")]
    Timeout {
        /// Its URL.
        server: String,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// The answer is a success, and not what was asked for.
    #[error("{server} sent what cannot be read: {detail}")]
    Answer {
        /// Its URL.
        server: String,
        /// What is wrong with it.
        detail: String,
    },
    /// There is nothing to send: an object without a name, a name that is none.
    #[error("cannot be asked for: {0}")]
    Request(String),
    /// The credentials cannot be read.
    #[error("no credentials: {0}")]
    Credentials(String),
}

impl RestError {
    /// What the server said, when it answered.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status { status, .. } => Some(status),
            _ => None,
        }
    }

    /// The HTTP status, when the server answered.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// The reason for programs: `NotFound`, `Conflict`; empty when the server did not answer.
    pub fn reason(&self) -> &str {
        self.status().map_or("", |status| &status.reason)
    }

    /// How long the server wants to be left alone, if it said.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// There is no such object, or no such resource.
    pub fn is_not_found(&self) -> bool {
        self.is("NotFound", 404)
    }

    /// An object of that name is there already.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// The object has changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.reason() != "AlreadyExists" && self.is("Conflict", 409)
    }

    /// The resource version, or the token of a page, is no longer in the server's history.
    pub fn is_expired(&self) -> bool {
        matches!(self.reason(), "Expired" | "Gone") || self.code() == Some(410)
    }

    /// The server has too much to do.
    pub fn is_too_many_requests(&self) -> bool {
        self.is("TooManyRequests", 429)
    }

    /// The server has not yet seen the resource version that was asked for.
    pub fn is_too_large_resource_version(&self) -> bool {
        let causes = self.status().and_then(|status| status.details.as_ref());
        // Servers before 1.17 do not name the cause.
        self.reason() == "Timeout"
            && (causes.is_some_and(|details| {
                let named =
                    |cause: &crate::api::StatusCause| cause.reason == "ResourceVersionTooLarge";
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
            told => told == reason,
        }
    }

    /// The failure that `status`, an ERROR event's object or an answer's body, tells.
    pub(in crate::informer) fn told(status: Status) -> Self {
        let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
        Self::Status {
            status: Box::new(status),
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
        }
    }

    /// The failure that an answer is.
    pub(super) fn answered(
        method: &Method,
        code: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Self {
        let told = serde_json::from_slice::<Status>(body).ok();
        let mut status = match told.filter(|told| told.kind == "Status") {
            Some(status) => status,
            None => meaning(method, code, body),
        };
        if status.code == 0 {
            status.code = code.as_u16();
        }
        let seconds = headers.get(header::RETRY_AFTER);
        let seconds = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
        let wish = seconds.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
        match (Self::told(status), wish) {
            (Self::Status { status, .. }, Some(wish)) => Self::Status {
                status,
                retry_after: Some(wish),
            },
            (told, _) => told,
        }
    }

    /// The failure of hyper's client.
    pub(super) fn sent(server: &str, error: &legacy::Error) -> Self {
        let (server, detail) = (server.to_owned(), causes(error));
        match error.is_connect() {
            true => Self::Connect { server, detail },
            false => Self::Connection { server, detail },
        }
    }

    /// The failure of a body that was being read.
    pub(super) fn cut(server: &str, error: &hyper::Error) -> Self {
        Self::Connection {
            server: server.to_owned(),
            detail: causes(error),
        }
    }
}

/// What lies below hyper's own words, which say only where it happened.
fn causes(error: &dyn std::error::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        // A peer that is gone; what rustls has to say about that is a page in its manual.
        let io = cause.downcast_ref::<std::io::Error>();
        let text = cause.to_string();
        // HTTP/2 passes on no more than the words.
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::UnexpectedEof)
            || text.starts_with("peer closed connection without sending TLS close_notify")
        {
            said.push("unexpected EOF".to_owned());
            break;
        }
        // Many of them repeat what they were caused by.
        if !said.iter().any(|before| before.contains(&text)) {
            said.push(text);
        }
        next = cause.source();
    }
    match said.is_empty() {
        true => error.to_string(),
        false => said.join(": "),
    }
}

/// What client-go makes of an answer that does not explain itself.
fn meaning(method: &Method, code: StatusCode, body: &[u8]) -> Status {
    let told = String::from_utf8_lossy(&body[..body.len().min(TOLD_BYTES_MAX)]);
    let told = told.trim();
    let (reason, message) = match code.as_u16() {
        400 => (
            "BadRequest",
            "the server rejected our request for an unknown reason",
        ),
        401 => (
            "Unauthorized",
            "the server has asked for the client to provide credentials",
        ),
        403 if !told.is_empty() => ("Forbidden", told),
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
        410 => ("Gone", "the server has forgotten what was asked for"),
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
                "an error on the server ({told:?}) has prevented the request from succeeding"
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
        RestError::answered(&Method::GET, code, &headers, body.as_bytes())
    }

    #[test]
    fn a_status_is_told_apart_by_reason_and_code() {
        let error = answered(
            404,
            None,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
                "message":"pods \"x\" not found","reason":"NotFound","code":404}"#,
        );
        assert!(error.is_not_found() && !error.is_conflict() && !error.is_expired());
        assert_eq!(error.to_string(), r#"pods "x" not found"#);
        assert_eq!((error.code(), error.reason()), (Some(404), "NotFound"));
        let status = |reason: &str, code| RestError::told(Status::failure(code, reason, ""));
        assert!(status("AlreadyExists", 409).is_already_exists());
        assert!(!status("AlreadyExists", 409).is_conflict());
        assert!(status("Conflict", 409).is_conflict());
        assert!(status("Expired", 410).is_expired() && status("Gone", 410).is_expired());
        assert!(status("TooManyRequests", 429).is_too_many_requests());
        assert!(!status("Timeout", 504).is_too_large_resource_version());
    }

    #[test]
    fn a_too_large_version_is_told_by_its_cause() {
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
    fn an_answer_without_a_status_has_the_meaning_of_its_code() {
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
