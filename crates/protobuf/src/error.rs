//! Errors of decoding and encoding protobuf.

use crate::schema::DEPTH_MAX;

/// The error of a body or a stored value that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProtobuf {
    /// The first bytes are others.
    #[error("it does not begin with the envelope of Kubernetes")]
    NoEnvelope,
    /// It ends too early, or is no protobuf.
    #[error("it is truncated or not protobuf")]
    Malformed,
    /// Its messages are nested too deeply.
    #[error("it is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// The kind is that of a custom resource, of a version that is not known, or unknown.
    #[error("kind {kind:?} of {api_version:?} is not known as protobuf: send JSON")]
    UnknownKind {
        /// The group and version.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// A field has another type than in its message.
    #[error("field {field} of {message} has an unexpected wire type")]
    WireType {
        /// The message.
        message: String,
        /// The number of the field.
        field: u32,
    },
    /// A field has a value that its type does not have.
    #[error("field {name:?} has an invalid value: {problem}")]
    Value {
        /// The JSON name of the field.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A raw JSON value in it, such as `fieldsV1`, is valid, but cannot be converted: it is nested too deeply, or has a
    /// number or text that no value can represent.
    #[error("the JSON in it cannot be read: {0}")]
    Json(String),
    /// What the object is deserialized to refuses it, for instance because it takes too much memory.
    #[error("{0}")]
    Refused(String),
    /// The object is too long as JSON.
    #[error(
        "the object is too large: as JSON it has more than {json_bytes_max} bytes: use fewer values, or several objects"
    )]
    TooLarge {
        /// The limit in bytes.
        json_bytes_max: usize,
    },
}

/// The error of an object that cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
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
pub struct Unencodable {
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
