//! Errors of decoding and encoding protobuf.

use crate::protobuf::schema::DEPTH_MAX;
use watchet_schema::MemoryExceeded;

/// Why a body cannot be decoded; the client gets a 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidProtobuf {
    #[error("it does not begin with the envelope of Kubernetes")]
    NoEnvelope,
    #[error("it is truncated or not protobuf")]
    Malformed,
    #[error("it is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("kind {kind:?} of {api_version:?} is not known as protobuf: send JSON")]
    UnknownKind { api_version: String, kind: String },
    #[error("field {field} of {message} has an unexpected wire type")]
    WireType { message: String, field: u32 },
    #[error("field {name:?} has an invalid value: {problem}")]
    Value { name: String, problem: String },
    #[error(transparent)]
    Memory(#[from] MemoryExceeded),
}

/// Why an object cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EncodeError {
    /// The object is not JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A value does not fit its field.
    #[error(transparent)]
    Value(#[from] Unencodable),
}

/// An object has a value that does not fit its field: it was written to storage by another program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {problem}")]
pub(crate) struct Unencodable {
    /// `namespace/name`, as far as known.
    object: String,
    problem: String,
}

impl Unencodable {
    /// Creates the error for a frame whose length does not fit in four bytes.
    pub(super) fn too_large() -> Self {
        Self::new(String::new(), "the object is larger than 4 GiB".to_owned())
    }

    /// Creates the error of an object, given as `namespace/name`.
    pub(super) fn new(object: String, problem: String) -> Self {
        Self { object, problem }
    }
}
