//! What went wrong in a call to etcd, read from a gRPC status. Codes do not suffice: `OutOfRange` is
//! a compacted revision, a future one, or a message over the client's own limit, so the text
//! decides. It knows no retry policy; `cluster` asks it whether a request can have been made.

use std::error::Error as _;

use etcd_client::Error;
use tonic::{Code, Status};

use crate::storage::StorageError;

/// Why a call failed, as far as anybody acts on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The revision asked for is compacted.
    Compacted,
    /// The revision asked for does not exist yet.
    Future,
    /// The answer is larger than what this client accepts; `bytes` is its size, if it was told.
    AnswerTooLarge { bytes: Option<usize> },
    /// The request is larger than what the server accepts.
    RequestTooLarge(String),
    /// The lease of a put is gone; the put was not made.
    LeaseNotFound,
    /// No connection came about, so the server has not seen the request.
    NotSent(String),
    /// Contact was lost or refused; the request may have been carried out.
    Unavailable(String),
    /// The server reports that its data is damaged.
    Corrupt(String),
    /// Any other refusal: no permission, no space, an alarm.
    Refused(String),
}

impl Failure {
    /// Whether another member, or the same one later, may do better.
    pub(super) fn is_unavailable(&self) -> bool {
        matches!(self, Self::NotSent(_) | Self::Unavailable(_))
    }

    /// The contract's error where no operation gives the failure a meaning of its own.
    pub(super) fn into_storage_error(self) -> StorageError {
        match self {
            Self::NotSent(text) | Self::Unavailable(text) => StorageError::Unavailable(text),
            Self::Corrupt(text) => StorageError::Corrupt(text),
            Self::Refused(text) | Self::RequestTooLarge(text) => StorageError::Failed(text),
            Self::Compacted => StorageError::Failed("etcd: revision compacted".into()),
            Self::Future => StorageError::Failed("etcd: future revision".into()),
            Self::LeaseNotFound => StorageError::Failed("etcd: lease not found".into()),
            Self::AnswerTooLarge { bytes } => StorageError::Failed(format!(
                "etcd's answer of {} bytes is over the limit of {} bytes",
                bytes.map_or("unknown".into(), |bytes| bytes.to_string()),
                super::cluster::ANSWER_BYTES_MAX,
            )),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::GRpcStatus(status) => from_status(&status),
            Error::TransportError(error) => Self::NotSent(with_causes(&error)),
            Error::IoError(error) => Self::Unavailable(error.to_string()),
            Error::WatchError(text) => Self::Unavailable(text),
            other => Self::Refused(other.to_string()),
        }
    }
}

fn from_status(status: &Status) -> Failure {
    let message = status.message();
    if let Some(failure) = from_words(message) {
        return failure;
    }
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal | Code::Aborted
            if was_not_sent(status) =>
        {
            Failure::NotSent(with_causes(status))
        }
        // Unknown is what tonic makes of a connection that broke under a request.
        Code::Unavailable
        | Code::Unknown
        | Code::Cancelled
        | Code::Internal
        | Code::Aborted
        | Code::DeadlineExceeded => Failure::Unavailable(with_causes(status)),
        Code::ResourceExhausted if message.contains("too many requests") => {
            Failure::Unavailable(message.to_owned())
        }
        Code::DataLoss => Failure::Corrupt(message.to_owned()),
        code => Failure::Refused(format!("{message} ({code:?})")),
    }
}

/// Failures that etcd, or gRPC under it, tells apart only in words.
fn from_words(message: &str) -> Option<Failure> {
    if message.contains("required revision has been compacted") {
        return Some(Failure::Compacted);
    }
    if message.contains("required revision is a future revision") {
        return Some(Failure::Future);
    }
    if message.contains("requested lease not found") {
        return Some(Failure::LeaseNotFound);
    }
    if message.contains("decoded message length too large") {
        let bytes = message
            .split_once("found ")
            .and_then(|(_, rest)| rest.split(' ').next())
            .and_then(|number| number.parse().ok());
        return Some(Failure::AnswerTooLarge { bytes });
    }
    // etcd's own limit, and that of the gRPC server in front of it.
    if message.contains("request is too large")
        || message.contains("received message larger than max")
    {
        return Some(Failure::RequestTooLarge(message.to_owned()));
    }
    None
}

/// Whether the connection itself failed to come about.
fn was_not_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The error and what is below it, without saying the same twice.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: Code, message: &str) -> Failure {
        Error::GRpcStatus(Status::new(code, message)).into()
    }

    #[test]
    fn one_code_is_three_things() {
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert_eq!(failure(Code::OutOfRange, compacted), Failure::Compacted);
        let future = "etcdserver: mvcc: required revision is a future revision";
        assert_eq!(failure(Code::OutOfRange, future), Failure::Future);
        let large = "Error, decoded message length too large: found 8229779 bytes, the limit is: 9";
        let bytes = Some(8_229_779);
        assert_eq!(
            failure(Code::OutOfRange, large),
            Failure::AnswerTooLarge { bytes }
        );
    }

    #[test]
    fn only_a_failed_connection_was_surely_not_sent() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let status = Status::from_error(Box::new(tonic::ConnectError(refused.into())));
        let failure = Failure::from(Error::GRpcStatus(status));
        assert!(matches!(failure, Failure::NotSent(_)), "{failure:?}");

        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let status = Status::from_error(Box::new(broken));
        let failure = Failure::from(Error::GRpcStatus(status));
        assert!(matches!(failure, Failure::Unavailable(_)), "{failure:?}");
    }

    #[test]
    fn a_refusal_is_not_retried() {
        let failure = failure(
            Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded",
        );
        assert!(!failure.is_unavailable(), "{failure:?}");
        let failure = super::from_status(&Status::new(
            Code::ResourceExhausted,
            "etcdserver: too many requests",
        ));
        assert!(failure.is_unavailable(), "{failure:?}");
    }
}
