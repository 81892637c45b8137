//! Classifies errors of etcd calls by gRPC status. The message decides where the code is ambiguous:
//! `OutOfRange` is a compacted revision, a future one, or a message over the client's limit.

use std::error::Error as _;

use etcd_client::Error;
use tonic::{Code, Status};

use crate::StorageError;
use watchet_api::ResourceVersion;

/// The error of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The requested revision is compacted.
    Compacted,
    /// The requested revision is in the future.
    Future,
    /// The response exceeds this client's limit; `bytes` is its size, if known.
    AnswerTooLarge { bytes: Option<usize> },
    /// The request exceeds the server's limit.
    RequestTooLarge(String),
    /// The lease of a put does not exist; the put was not executed.
    LeaseNotFound,
    /// No connection was established, so the server has not received the request.
    NotSent(String),
    /// The connection was lost or rejected; the request may have been executed.
    Unavailable(String),
    /// A write may have been executed, or may be executed later, and must not be repeated.
    OutcomeUnknown(String),
    /// The member responds, but the cluster probably lost the request; it may have been executed.
    Lost(String),
    /// The server reports that its data is damaged.
    Corrupt(String),
    /// Any other error: no permission, no space, an alarm.
    Refused(String),
}

impl Failure {
    /// Returns true if a retry, at this or another member, may succeed.
    pub(super) fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::NotSent(_) | Self::Unavailable(_) | Self::Lost(_)
        )
    }

    /// Returns the reason, for people.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::NotSent(text)
            | Self::Unavailable(text)
            | Self::OutcomeUnknown(text)
            | Self::Lost(text)
            | Self::Corrupt(text)
            | Self::Refused(text)
            | Self::RequestTooLarge(text) => text.clone(),
            other => format!("{other:?}"),
        }
    }

    /// Converts the failure into the storage error of operations that do not handle it
    /// specifically.
    pub(super) fn into_storage_error(self) -> StorageError {
        match self {
            Self::NotSent(text) | Self::Unavailable(text) | Self::Lost(text) => {
                StorageError::Unavailable(text)
            }
            Self::OutcomeUnknown(text) => StorageError::OutcomeUnknown(text),
            Self::Corrupt(text) => StorageError::Corrupt(text),
            Self::Refused(text) | Self::RequestTooLarge(text) => StorageError::Failed(text),
            Self::Compacted => StorageError::Failed("etcd: revision compacted".into()),
            Self::Future => StorageError::Failed("etcd: future revision".into()),
            Self::LeaseNotFound => StorageError::Failed("etcd: lease not found".into()),
            Self::AnswerTooLarge { bytes } => StorageError::Failed(format!(
                "etcd's response of {} bytes exceeds the limit of {} bytes",
                bytes.map_or("unknown".into(), |bytes| bytes.to_string()),
                super::watch_pool::RESPONSE_BYTES_MAX,
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
    if let Some(failure) = from_message(message) {
        return failure;
    }
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal | Code::Aborted
            if was_not_sent(status) =>
        {
            Failure::NotSent(with_causes(status))
        }
        // tonic reports a connection that broke during a request as Unknown.
        Code::Unavailable
        | Code::Unknown
        | Code::Cancelled
        | Code::Internal
        | Code::Aborted
        | Code::DeadlineExceeded => Failure::Unavailable(with_causes(status)),
        Code::DataLoss => Failure::Corrupt(message.to_owned()),
        code => Failure::Refused(format!("{message} ({code:?})")),
    }
}

/// Classifies errors that etcd or gRPC distinguish only by message.
fn from_message(message: &str) -> Option<Failure> {
    if message.contains("required revision has been compacted") {
        return Some(Failure::Compacted);
    }
    if message.contains("required revision is a future revision") {
        return Some(Failure::Future);
    }
    if message.contains("requested lease not found") {
        return Some(Failure::LeaseNotFound);
    }
    // A member rejects these before it proposes them to its leader.
    if message.contains("raft proposal dropped")
        || message.contains("etcdserver: no leader")
        || message.contains("etcdserver: too many requests")
    {
        return Some(Failure::NotSent(message.to_owned()));
    }
    if message.contains("decoded message length too large") {
        let bytes = message
            .split_once("found ")
            .and_then(|(_, rest)| rest.split(' ').next())
            .and_then(|number| number.parse().ok());
        return Some(Failure::AnswerTooLarge { bytes });
    }
    // The limits of etcd and of its gRPC server.
    if message.contains("request is too large")
        || message.contains("received message larger than max")
    {
        return Some(Failure::RequestTooLarge(message.to_owned()));
    }
    None
}

/// Returns true if the connection was not established.
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

/// Formats the error with its sources, without duplicates.
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

/// Why a restored etcd was not advanced past its lost revisions.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdvanceError {
    /// The revision of etcd cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A write, or the compaction, failed. The next call continues.
    #[error(
        "etcd was restored from a backup, and its revision cannot be advanced from {restored} to {target} by writes of the key \
         {ADVANCE_KEY:?}: {error}"
    )]
    Failed {
        /// The revision of the restored etcd.
        restored: ResourceVersion,
        /// The revision to reach.
        target: ResourceVersion,
        /// The error of the request.
        error: StorageError,
    },
    /// The backup is too old to advance the revision by writes.
    #[error(
        "etcd is at revision {restored}, but clients have received revisions up to about {target}: it was restored from a backup, \
         and clients that resume watches would miss changes; restore it again with `etcdutl snapshot restore --bump-revision \
         {} --mark-compacted`",
        rounded_up(target.get() - restored.get())
    )]
    TooOld {
        /// The revision of the restored etcd.
        restored: ResourceVersion,
        /// The revision to reach, which is later.
        target: ResourceVersion,
    },
}

/// The key that is written to advance the revision of a restored etcd, with the revision to reach as its value. It is outside
/// of the prefix, like that of the compactor.
pub(super) const ADVANCE_KEY: &str = "watchet_advance_key";

/// Returns the next multiple of a million.
fn rounded_up(revisions: u64) -> u64 {
    (revisions / 1_000_000 + 1) * 1_000_000
}

impl From<AdvanceError> for StorageError {
    fn from(error: AdvanceError) -> Self {
        match error {
            AdvanceError::Storage(error) => error,
            // The operation that waits for it was not executed.
            other => Self::Unavailable(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: Code, message: &str) -> Failure {
        Error::GRpcStatus(Status::new(code, message)).into()
    }

    #[test]
    fn out_of_range_is_classified_by_message() {
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
    fn only_connect_errors_are_not_sent() {
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
    fn rejections_are_not_retried() {
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
