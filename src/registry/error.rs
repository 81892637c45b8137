//! Why a request was not done, and the few shapes of it that are made in many places. Which HTTP
//! status each one is, is decided once, in `http`.

use super::Resource;
use crate::admission::AdmissionError;
use crate::admission::cluster::{ClusterError, Unavailable};
use crate::api::{DecodeError, StatusCause};
use crate::cacher::ReadError;
use crate::storage::StorageError;

/// Why a request was not done. Matched once to a Status, in `http`.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// 404
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// Plural, with group: `deployments.apps`.
        resource: String,
        /// Which.
        name: String,
    },
    /// 409 AlreadyExists
    #[error("{resource} {name:?} already exists")]
    AlreadyExists {
        /// Plural, with group.
        resource: String,
        /// Which.
        name: String,
        /// The one that exists is terminating.
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
        /// Which.
        name: String,
        /// Why.
        detail: String,
    },
    /// 409 Conflict: others manage what an apply would change
    #[error("{message}")]
    ApplyConflict {
        /// With each field of each manager.
        message: String,
        /// One entry a field and manager.
        causes: Vec<StatusCause>,
    },
    /// 422 Invalid
    #[error("{kind} {name:?} is invalid: {causes:?}")]
    Invalid {
        /// The kind's group.
        group: String,
        /// The kind.
        kind: String,
        /// Which.
        name: String,
        /// One entry a problem.
        causes: Vec<StatusCause>,
    },
    /// 403
    #[error("{resource} {name:?} is forbidden: {detail}")]
    Forbidden {
        /// Plural, with group.
        resource: String,
        /// Which.
        name: String,
        /// Why.
        detail: String,
        /// With cause reason, field and message, e.g. `NamespaceTerminating`.
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
    /// 504: the write kept losing against others until its time was up. Nothing was written.
    #[error("{0}")]
    Timeout(String),
    /// 405
    #[error("{0}")]
    MethodNotAllowed(String),
    /// 429: not now.
    #[error("{detail}")]
    TooManyRequests {
        /// What is not done.
        detail: String,
        /// Why.
        causes: Vec<StatusCause>,
        /// When to try again, in seconds; zero says nothing of that.
        retry_after_seconds: u16,
    },
    /// 500: what was found is more than is supported.
    #[error("{0}")]
    Unsupported(String),
    /// 500 without a reason: an error that upstream does not map to a status.
    #[error("{0}")]
    Internal(String),
    /// 501
    #[error("{0}")]
    NotImplemented(String),
    /// 404: the custom resource's definition went, or changed, while the request was under way.
    #[error("the server could not find the requested resource")]
    NotServed,
    /// A webhook or a policy refused.
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
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        Self::NotFound {
            resource: resource.qualified(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, detail: impl Into<String>) -> Self {
        Self::Conflict {
            resource: resource.qualified(),
            name: name.to_owned(),
            detail: detail.into(),
        }
    }

    pub(crate) fn invalid(resource: &Resource, name: &str, causes: Vec<StatusCause>) -> Self {
        Self::Invalid {
            group: resource.group.clone(),
            kind: resource.kind.clone(),
            name: name.to_owned(),
            causes,
        }
    }

    /// Whether the object (or its namespace) was not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

impl From<AdmissionError> for ApiError {
    /// A refusal that the registry has a word for too becomes that, so that callers see one kind of error.
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
            AdmissionError::NoNamespace { namespace } => Self::NotFound {
                resource: "namespaces".to_owned(),
                name: namespace,
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

impl From<ApiError> for ClusterError {
    /// What a plugin's read failed with.
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
    /// Only what is stored is decoded, so this is damage there and not the client's mistake.
    fn from(error: DecodeError) -> Self {
        Self::Read(ReadError::Undecodable(error.to_string()))
    }
}

/// What is wrong with an object. A body can hold hundreds of thousands of faults, and each is told at
/// length: beyond what helps anybody only that there are more is kept.
#[derive(Debug, Default)]
pub(crate) struct Causes(Vec<StatusCause>);

impl From<Vec<StatusCause>> for Causes {
    fn from(causes: Vec<StatusCause>) -> Self {
        Self(causes)
    }
}

impl Causes {
    /// How many are told.
    pub(crate) const MAX: usize = 100;

    /// One more.
    pub(crate) fn push(&mut self, cause: StatusCause) {
        match self.0.len() {
            len if len < Self::MAX => self.0.push(cause),
            Self::MAX => self.0.push(StatusCause::too_many()),
            _ => {}
        }
    }

    /// Whether nothing is wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether looking for more is idle.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() > Self::MAX
    }

    /// All of them, for an answer; empty when nothing is wrong.
    pub(crate) fn into_vec(self) -> Vec<StatusCause> {
        self.0
    }
}
