//! The errors of etcd with the codes and messages of its
//! [rpctypes](https://github.com/etcd-io/etcd/blob/v3.6.0/api/v3rpc/rpctypes/error.go).

use tonic::{Code, Status};

/// An error that a member returns to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EtcdError {
    EmptyKey,
    KeyNotFound,
    ValueProvided,
    LeaseProvided,
    TooManyOps,
    DuplicateKey,
    Compacted,
    FutureRevision,
    NoSpace,
    LeaseNotFound,
    LeaseExists,
    LeaseTtlTooLarge,
    RequestTooLarge,
    TooManyRequests,
    NoLeader,
    LeaderChanged,
    Timeout,
    TimeoutDueToLeaderFailure,
    Corrupt,
}

impl EtcdError {
    fn parts(self) -> (Code, &'static str) {
        match self {
            Self::EmptyKey => (Code::InvalidArgument, "key is not provided"),
            Self::KeyNotFound => (Code::InvalidArgument, "key not found"),
            Self::ValueProvided => (Code::InvalidArgument, "value is provided"),
            Self::LeaseProvided => (Code::InvalidArgument, "lease is provided"),
            Self::TooManyOps => (Code::InvalidArgument, "too many operations in txn request"),
            Self::DuplicateKey => (Code::InvalidArgument, "duplicate key given in txn request"),
            Self::Compacted => (
                Code::OutOfRange,
                "mvcc: required revision has been compacted",
            ),
            Self::FutureRevision => (
                Code::OutOfRange,
                "mvcc: required revision is a future revision",
            ),
            Self::NoSpace => (Code::ResourceExhausted, "mvcc: database space exceeded"),
            Self::LeaseNotFound => (Code::NotFound, "requested lease not found"),
            Self::LeaseExists => (Code::FailedPrecondition, "lease already exists"),
            Self::LeaseTtlTooLarge => (Code::OutOfRange, "too large lease TTL"),
            Self::RequestTooLarge => (Code::InvalidArgument, "request is too large"),
            Self::TooManyRequests => (Code::ResourceExhausted, "too many requests"),
            Self::NoLeader => (Code::Unavailable, "no leader"),
            Self::LeaderChanged => (Code::Unavailable, "leader changed"),
            Self::Timeout => (Code::Unavailable, "request timed out"),
            Self::TimeoutDueToLeaderFailure => (
                Code::Unavailable,
                "request timed out, possibly due to previous leader failure",
            ),
            Self::Corrupt => (Code::DataLoss, "corrupt cluster"),
        }
    }

    /// Returns the message that the client receives.
    pub(super) fn message(self) -> String {
        format!("etcdserver: {}", self.parts().1)
    }
}

impl From<EtcdError> for Status {
    fn from(error: EtcdError) -> Self {
        Self::new(error.parts().0, error.message())
    }
}
