//! The errors of calls, with the messages of Go's HTTP and TLS libraries, which users search for and tests of
//! operators match.

use std::error::Error as _;
use std::io;

use rustls::{CertificateError, Error as TlsError, InvalidMessage};

/// A call failed. The message is that of upstream's client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// The configuration is invalid.
    #[error("{0}")]
    Config(String),
    /// The exchange failed.
    #[error("Post {url:?}: {why}")]
    Post {
        /// With the parameter `timeout`.
        url: String,
        /// A message for users.
        why: String,
    },
    /// The response is no success.
    #[error("{message}")]
    Status {
        /// Its HTTP status.
        code: u16,
        /// The message of the `Status` in its body, or the default message of the code.
        message: String,
    },
}

/// Returns the message of an error on a connection.
pub(super) fn of_io(error: &io::Error) -> String {
    let inner = error.get_ref();
    match inner.and_then(|inner| inner.downcast_ref::<TlsError>()) {
        Some(tls) => of_tls(tls),
        None => words(error),
    }
}

/// Returns the message of an error of an exchange.
pub(super) fn of_hyper(error: &hyper::Error) -> String {
    let source = error.source();
    if let Some(error) = source.and_then(|source| source.downcast_ref::<io::Error>()) {
        return of_io(error);
    }
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return "EOF".to_owned();
    }
    match source {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        io::ErrorKind::BrokenPipe => "broken pipe".to_owned(),
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        _ => error.to_string(),
    }
}

fn of_tls(error: &TlsError) -> String {
    match error {
        TlsError::InvalidCertificate(reason) => {
            format!(
                "tls: failed to verify certificate: x509: {}",
                of_certificate(reason)
            )
        }
        TlsError::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        TlsError::AlertReceived(alert) => format!("remote error: tls: {alert:?}"),
        other => format!("tls: {other}"),
    }
}

fn of_certificate(reason: &CertificateError) -> String {
    match reason {
        // A CA with the right name and another key is reported as unknown, like an absent one.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } if presented.is_empty() => format!(
            "certificate is not valid for any names, but wanted to match {}",
            expected.to_str()
        ),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "certificate is valid for {}, not {}",
            names(presented),
            expected.to_str()
        ),
        other => other.to_string(),
    }
}

/// Returns the names that a certificate is valid for, without the words that rustls adds to each name.
fn names(presented: &[String]) -> String {
    let bare = |name: &String| match name.split_once('(') {
        Some((_, inside)) => inside.trim_end_matches(')').trim_matches('"').to_owned(),
        None => name.clone(),
    };
    presented.iter().map(bare).collect::<Vec<_>>().join(", ")
}
