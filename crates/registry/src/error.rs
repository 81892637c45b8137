//! The errors of the verbs. `http` maps each of them to a Status.

use watchet_admission::AdmissionError;
use watchet_admission::cluster::{ClusterError, Unavailable};
use watchet_api::{DecodeError, StatusCause};
use watchet_cacher::ReadError;
use watchet_storage::StorageError;

/// The error of a verb. `http` maps it to a Status.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// 404
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// Plural, with group: `deployments.apps`.
        resource: String,
        /// The name of the object.
        name: String,
    },
    /// 409 AlreadyExists
    #[error("{resource} {name:?} already exists")]
    AlreadyExists {
        /// Plural, with group.
        resource: String,
        /// The name of the object.
        name: String,
        /// True if the existing object is being deleted.
        being_deleted: bool,
    },
    /// 409 AlreadyExists after all tries of generateName
    #[error("no free name for generateName {base:?}")]
    NamesExhausted {
        /// Plural, with group.
        resource: String,
        /// The last name tried.
        base: String,
    },
    /// 409 Conflict
    #[error("Operation cannot be fulfilled on {resource} {name:?}: {detail}")]
    Conflict {
        /// Plural, with group.
        resource: String,
        /// The name of the object.
        name: String,
        /// The reason.
        detail: String,
    },
    /// 409 Conflict: other managers own fields that an apply would change
    #[error("{message}")]
    ApplyConflict {
        /// Names each field of each manager.
        message: String,
        /// One for each field and manager.
        causes: Vec<StatusCause>,
    },
    /// 422 Invalid
    #[error("{kind} {name:?} is invalid: {causes:?}")]
    Invalid {
        /// The kind's group.
        group: String,
        /// The kind.
        kind: String,
        /// The name of the object.
        name: String,
        /// One for each problem.
        causes: Vec<StatusCause>,
    },
    /// 403
    #[error("{resource} {name:?} is forbidden: {detail}")]
    Forbidden {
        /// Plural, with group.
        resource: String,
        /// The name of the object.
        name: String,
        /// The reason.
        detail: String,
        /// Each with a reason, a field and a message, e.g. `NamespaceTerminating`.
        causes: Vec<StatusCause>,
    },
    /// 400
    #[error("{0}")]
    BadRequest(String),
    /// 422 without causes: a patch that cannot be applied
    #[error("{0}")]
    Unprocessable(String),
    /// 413
    #[error("{0}")]
    TooLarge(String),
    /// 504: other writes conflicted with this one until its deadline. Nothing was stored.
    #[error("{0}")]
    Timeout(String),
    /// 405
    #[error("{0}")]
    MethodNotAllowed(String),
    /// 429
    #[error("{detail}")]
    TooManyRequests {
        /// What the server cannot do now.
        detail: String,
        /// The reason.
        causes: Vec<StatusCause>,
        /// Seconds until the client may retry; with zero the response has no such time.
        retry_after_seconds: u16,
    },
    /// 500: the objects are in a state that the server does not support.
    #[error("{0}")]
    Unsupported(String),
    /// 500 without a reason: an error that upstream does not map to a status.
    #[error("{0}")]
    Internal(String),
    /// 501
    #[error("{0}")]
    NotImplemented(String),
    /// 404: the definition of the custom resource was deleted or changed during the request.
    #[error("the server could not find the requested resource")]
    NotServed,
    /// An admission plugin, a policy or a webhook rejected the request, or failed.
    #[error(transparent)]
    Admission(AdmissionError),
    /// A read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl ApiError {
    /// Returns true if the object or its namespace does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

impl From<AdmissionError> for ApiError {
    /// Converts rejections for which the registry has a variant to that variant, so that callers match one variant only.
    fn from(error: AdmissionError) -> Self {
        match error {
            AdmissionError::Forbidden {
                resource,
                name,
                why,
                causes,
            } => Self::Forbidden {
                resource,
                name,
                detail: why,
                causes,
            },
            AdmissionError::NotFound { resource, name } => Self::NotFound {
                resource: resource.to_owned(),
                name,
            },
            AdmissionError::Unavailable(unavailable) => match unavailable {
                Unavailable::Storage(detail) => Self::Storage(StorageError::Unavailable(detail)),
                Unavailable::Initializing {
                    detail,
                    retry_after,
                } => Self::Read(ReadError::NotReady {
                    detail,
                    retry_after,
                }),
                Unavailable::Stopped => Self::Read(ReadError::Stopped),
            },
            other => Self::Admission(other),
        }
    }
}

impl ApiError {
    /// Returns true if storage is unavailable, or a cache waits for it: the log of the outage has the reason, and a
    /// caller that reads the current state and then decides what to write may succeed later.
    pub fn is_outage(&self) -> bool {
        matches!(
            self,
            Self::Storage(StorageError::Unavailable(_) | StorageError::OutcomeUnknown(_))
                | Self::Read(
                    ReadError::Storage(StorageError::Unavailable(_)) | ReadError::NotReady { .. }
                )
        )
    }
}

impl From<ApiError> for ClusterError {
    /// Converts the error of a plugin's read.
    fn from(error: ApiError) -> Self {
        let unavailable = match error {
            ApiError::Storage(StorageError::Unavailable(detail))
            | ApiError::Read(ReadError::Storage(StorageError::Unavailable(detail))) => {
                Unavailable::Storage(detail)
            }
            ApiError::Read(ReadError::NotReady {
                detail,
                retry_after,
            }) => Unavailable::Initializing {
                detail,
                retry_after,
            },
            ApiError::Read(ReadError::Stopped) => Unavailable::Stopped,
            error => return Self::Failed(error.to_string()),
        };
        Self::Unavailable(unavailable)
    }
}

impl From<DecodeError> for ApiError {
    /// Only stored objects are decoded here, so storage is corrupt; the client did not cause the error.
    fn from(error: DecodeError) -> Self {
        Self::Read(ReadError::Undecodable(error.to_string()))
    }
}
