//! Errors of the HTTP layer and their mapping to a `Status`: codes, reasons, details.

use std::time::Duration;

use watchet_api::{MemoryRefusal, Status, StatusCause, StatusDetails, StorageKey};
use watchet_profiling::ProfileError;
use watchet_registry::{ApiError, CorruptObjects, ReadError, Resource, StorageError};

use crate::request::query::InvalidQuery;
use crate::request::request_info::{InvalidPath, Verb};

/// `retryAfterSeconds` of a response to a request for which storage was unavailable.
const STORAGE_RETRY_SECONDS: u16 = 2;

/// `retryAfterSeconds` of a response to a request that was refused because of memory pressure: some samples of the memory later,
/// and the time that it takes to abort responses that their clients do not read.
const MEMORY_RETRY_SECONDS: u16 = 5;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum HttpError {
    /// A registry call failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// 404: no such path, resource or health check.
    #[error("the server could not find the requested resource")]
    NoSuchPath,
    /// 405
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    /// 406
    #[error("only the following media types are accepted: {accepted}")]
    NotAcceptable {
        /// The accepted media types.
        accepted: String,
    },
    /// 415
    #[error("the body of the request was in an unknown format - accepted media types include: {0}")]
    UnsupportedMediaType(String),
    /// 400
    #[error("{0}")]
    BadRequest(String),
    /// 403, or 400: the request is not allowed, or its impersonation is invalid.
    #[error("{}", .0.message)]
    Denied(Box<Status>),
    /// 422: invalid options.
    #[error("{kind} is invalid")]
    InvalidOptions {
        /// `ListOptions`, `CreateOptions`, …
        kind: &'static str,
        /// One entry per problem.
        causes: Vec<StatusCause>,
    },
    /// 413
    #[error("{0}")]
    TooLarge(String),
    /// 429
    #[error("too many requests are in progress, please try again later")]
    TooManyRequests,
    /// 429: the priority level of the request has no free seat, with upstream's text.
    #[error("Too many requests, please try again later.")]
    Rejected {
        /// When the client should try again.
        retry_after_seconds: u16,
    },
    /// 429: the user has too many open watches.
    #[error(
        "user {user:?} has {max} open watches, the maximum of --max-watches-per-user: end one of them, or raise the limit"
    )]
    TooManyWatches {
        /// The name of the user.
        user: String,
        /// The limit.
        max: usize,
    },
    /// 429: the client sends too many bodies at the same time.
    #[error("too many request bodies of this user are incomplete or large, please try again later")]
    TooManyBodies,
    /// 429: the server has too little memory.
    #[error(transparent)]
    MemoryPressure(#[from] MemoryRefusal),
    /// 409, 500 or 501: the recording of a profile failed.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// 408
    #[error("the body of the request stopped: no data arrived within {0:?}")]
    BodyStopped(Duration),
    /// 429: the watch would end immediately because the server is draining.
    #[error("the server is shutting down, please try again later")]
    ShuttingDown,
    /// 504
    #[error("the request was not completed within {0:?}")]
    Timeout(Duration),
    /// 500: storage was unavailable.
    #[error("the {operation} of {resource} could not be completed: {detail}")]
    Unavailable {
        /// `get`, `list`, …
        operation: &'static str,
        /// Plural, with its group.
        resource: String,
        /// For the log.
        detail: String,
    },
    /// 500: some objects of a list cannot be read.
    #[error("failed to read one or more {resource} from the storage")]
    CorruptList {
        /// Plural, with its group.
        resource: String,
        /// The corrupt objects.
        corrupt: CorruptObjects,
    },
    /// 500
    #[error("{0}")]
    Internal(String),
}

impl From<InvalidQuery> for HttpError {
    fn from(error: InvalidQuery) -> Self {
        Self::BadRequest(error.to_string())
    }
}

impl From<InvalidPath> for HttpError {
    fn from(error: InvalidPath) -> Self {
        match error {
            InvalidPath::NoSuchPath => Self::NoSuchPath,
            InvalidPath::Encoding(_) | InvalidPath::Segment { .. } => {
                Self::BadRequest(error.to_string())
            }
        }
    }
}

impl From<ReadError> for HttpError {
    fn from(error: ReadError) -> Self {
        Self::Api(error.into())
    }
}

impl HttpError {
    /// Adds the verb and resource where the message or the details contain them.
    pub(crate) fn about(self, verb: Verb, resource: &Resource) -> Self {
        let resource = resource.qualified();
        match self {
            Self::Api(
                ApiError::Storage(StorageError::Unavailable(detail))
                | ApiError::Read(ReadError::Storage(StorageError::Unavailable(detail))),
            ) => Self::Unavailable {
                operation: verb.as_str(),
                resource,
                detail,
            },
            Self::Api(ApiError::Read(ReadError::Corrupt(corrupt))) => {
                Self::CorruptList { resource, corrupt }
            }
            other => other,
        }
    }

    /// Returns the `Status` that the client receives.
    pub(crate) fn status(&self) -> Status {
        let text = self.to_string();
        let empty = StatusDetails::default();
        match self {
            Self::Api(error) => api_status(error),
            Self::NoSuchPath => Status::failure(404, "NotFound", text).with_details(empty),
            Self::MethodNotAllowed => {
                Status::failure(405, "MethodNotAllowed", text).with_details(empty)
            }
            Self::NotAcceptable { .. } => Status::failure(406, "NotAcceptable", text),
            Self::UnsupportedMediaType(_) => Status::failure(415, "UnsupportedMediaType", text),
            Self::Denied(status) => Status::clone(status),
            Self::BadRequest(_) => Status::failure(400, "BadRequest", text),
            Self::InvalidOptions { kind, causes } => {
                Status::invalid("meta.k8s.io", kind, "", causes)
            }
            Self::TooLarge(_) => Status::failure(413, "RequestEntityTooLarge", text),
            Self::BodyStopped(_) => Status::failure(408, "Timeout", text),
            Self::TooManyRequests | Self::TooManyBodies | Self::ShuttingDown => {
                Status::failure(429, "TooManyRequests", text).with_details(retry_after(1))
            }
            Self::TooManyWatches { .. } => {
                Status::failure(429, "TooManyRequests", text).with_details(retry_after(1))
            }
            Self::MemoryPressure(_) => Status::failure(429, "TooManyRequests", text)
                .with_details(retry_after(MEMORY_RETRY_SECONDS)),
            Self::Rejected {
                retry_after_seconds,
            } => Status::failure(429, "TooManyRequests", text)
                .with_details(retry_after(*retry_after_seconds)),
            Self::Timeout(_) => {
                Status::failure(504, "Timeout", format!("Timeout: {text}")).with_details(empty)
            }
            Self::Unavailable {
                operation,
                resource,
                ..
            } => {
                let text = format!(
                    "the {operation} operation against {resource} could not be completed at this \
                     time, please try again"
                );
                Status::failure(500, "ServerTimeout", text).with_details(StatusDetails {
                    retry_after_seconds: STORAGE_RETRY_SECONDS,
                    ..about(resource, operation)
                })
            }
            Self::CorruptList { resource, corrupt } => corrupt_list(text, resource, corrupt),
            Self::Profile(error) => profile_status(error),
            Self::Internal(detail) => internal(detail),
        }
    }
}

fn profile_status(error: &ProfileError) -> Status {
    let text = error.to_string();
    match error {
        // Upstream returns 500.
        ProfileError::InProgress(_) => Status::failure(409, "Conflict", text),
        ProfileError::NoCpuProfiles | ProfileError::NoHeapProfiles => {
            Status::failure(501, "NotImplemented", text)
        }
        ProfileError::Failed { .. } => internal(&text),
    }
}

fn corrupt_list(text: String, resource: &str, corrupt: &CorruptObjects) -> Status {
    let cause = |(key, message): &(StorageKey, String)| StatusCause {
        reason: "UnexpectedServerResponse".to_owned(),
        message: message.clone(),
        field: key.to_string(),
    };
    let mut causes: Vec<StatusCause> = corrupt.objects.iter().map(cause).collect();
    causes.extend(corrupt.truncated.then(StatusCause::too_many));
    Status::failure(500, "StorageReadError", text).with_details(StatusDetails {
        causes,
        ..about(resource, "list")
    })
}

/// Returns the status of a failed registry call.
fn api_status(error: &ApiError) -> Status {
    let text = error.to_string();
    match error {
        ApiError::NotFound { resource, name } => {
            Status::failure(404, "NotFound", text).with_details(about(resource, name))
        }
        ApiError::AlreadyExists {
            resource,
            name,
            being_deleted,
        } => {
            let prefix = if *being_deleted {
                "object is being deleted: "
            } else {
                ""
            };
            Status::failure(409, "AlreadyExists", format!("{prefix}{text}"))
                .with_details(about(resource, name))
        }
        ApiError::NamesExhausted { resource, base } => {
            let text = format!(
                "{resource} {base:?} already exists, the server was not able to generate a \
                 unique name for the object"
            );
            Status::failure(409, "AlreadyExists", text).with_details(StatusDetails {
                retry_after_seconds: 1,
                ..about(resource, base)
            })
        }
        ApiError::Conflict { resource, name, .. } => {
            Status::failure(409, "Conflict", text).with_details(about(resource, name))
        }
        ApiError::ApplyConflict { causes, .. } => Status::failure(409, "Conflict", text)
            .with_details(StatusDetails {
                causes: causes.clone(),
                ..StatusDetails::default()
            }),
        ApiError::Invalid {
            group,
            kind,
            name,
            causes,
        } => Status::invalid(group, kind, name, causes),
        ApiError::Forbidden {
            resource,
            name,
            detail,
            causes,
        } => {
            let text = match name.is_empty() {
                true => format!("{resource} is forbidden: {detail}"),
                false => text,
            };
            Status::failure(403, "Forbidden", text).with_details(StatusDetails {
                causes: causes.clone(),
                ..about(resource, name)
            })
        }
        ApiError::BadRequest(_) => Status::failure(400, "BadRequest", text),
        ApiError::Unprocessable(_) => Status::failure(422, "Invalid", text),
        ApiError::TooLarge(_) => Status::failure(413, "RequestEntityTooLarge", text),
        ApiError::TooManyRequests {
            causes,
            retry_after_seconds,
            ..
        } => Status::failure(429, "TooManyRequests", text).with_details(StatusDetails {
            causes: causes.clone(),
            ..retry_after(*retry_after_seconds)
        }),
        ApiError::Unsupported(_) | ApiError::Internal(_) => Status::failure(500, "", text),
        ApiError::NotImplemented(_) => Status::failure(501, "NotImplemented", text),
        ApiError::MethodNotAllowed(_) => Status::failure(405, "MethodNotAllowed", text),
        ApiError::NotServed => {
            Status::failure(404, "NotFound", text).with_details(StatusDetails::default())
        }
        ApiError::Timeout(_) => Status::failure(504, "Timeout", format!("Timeout: {text}"))
            .with_details(StatusDetails::default()),
        ApiError::Admission(error) => error.status(),
        ApiError::Read(error) => read_status(error),
        ApiError::Storage(error) => storage_status(error),
    }
}

/// Returns the status of a failed watch, as sent in its ERROR event. It differs from that of other
/// reads for expired versions and for objects that cannot be decoded.
pub(crate) fn watch_status(error: &ReadError) -> Status {
    let text = error.to_string();
    match error {
        ReadError::Expired { .. } => Status::failure(410, "Expired", text),
        // The reason on the wire; Go's constant has another name.
        ReadError::Undecodable(_) => Status::failure(500, "StorageReadError", text),
        ReadError::Unconvertible(_) => Status::failure(500, "InternalError", text),
        other => read_status(other),
    }
}

/// Returns the status of a failed get or list.
fn read_status(error: &ReadError) -> Status {
    let text = error.to_string();
    match error {
        ReadError::Expired {
            requested,
            oldest,
            fresh_token,
        } => {
            let Some(token) = fresh_token else {
                let text = format!(
                    "the resource version {requested} of the list is too old: the oldest that can \
                     be listed is {oldest}"
                );
                return Status::failure(410, "Expired", text);
            };
            let text = "the continue token is too old to go on with the same list; list again \
                        without it, or use the token of this answer to get the rest as it is now, \
                        which may not fit the pages before";
            let mut status = Status::failure(410, "Expired", text);
            status
                .metadata
                .insert("continue".to_owned(), token.clone().into());
            status
        }
        ReadError::TooLargeResourceVersion { retry_after, .. } => {
            too_large_resource_version(&text, seconds(*retry_after))
        }
        ReadError::NotReady {
            retry_after: wait, ..
        } => Status::failure(429, "TooManyRequests", text)
            .with_details(retry_after(seconds(*wait).max(1))),
        ReadError::InvalidContinue(_)
        | ReadError::VersionWithContinue
        | ReadError::InvalidKey(_) => Status::failure(400, "BadRequest", text),
        ReadError::Undecodable(_) => internal(&text),
        // Upstream's status of this error has no reason.
        ReadError::Unconvertible(_) => Status::failure(500, "", text),
        ReadError::Corrupt(corrupt) => corrupt_list(text, "", corrupt),
        ReadError::Stopped => {
            Status::failure(503, "ServiceUnavailable", text).with_details(retry_after(1))
        }
        ReadError::Storage(error) => storage_status(error),
    }
}

fn storage_status(error: &StorageError) -> Status {
    let text = error.to_string();
    match error {
        StorageError::Compacted { .. } => Status::failure(410, "Expired", text),
        StorageError::Future { requested, current } => {
            let text = format!("Too large resource version: {requested}, current: {current}");
            too_large_resource_version(&text, 0)
        }
        StorageError::TooLarge { .. } => Status::failure(413, "RequestEntityTooLarge", text),
        StorageError::Unavailable(_) => Status::failure(500, "ServerTimeout", text)
            .with_details(retry_after(STORAGE_RETRY_SECONDS)),
        // As kube-apiserver answers a timeout of etcd: without a reason, and without a time to retry, after
        // which client-go would repeat the request by itself. It may have been executed: a repetition could
        // create a second object with generateName, or apply a JSON patch twice.
        StorageError::OutcomeUnknown(_) => {
            let advice = "check whether the request was executed before you repeat it";
            Status::failure(500, "", format!("{text}; {advice}"))
        }
        StorageError::Corrupt(_) | StorageError::Failed(_) => internal(&text),
    }
}

fn too_large_resource_version(text: &str, retry_after_seconds: u16) -> Status {
    Status::failure(504, "Timeout", format!("Timeout: {text}")).with_details(StatusDetails {
        causes: vec![StatusCause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        }],
        retry_after_seconds,
        ..StatusDetails::default()
    })
}

fn internal(detail: &str) -> Status {
    let text = format!("Internal error occurred: {detail}");
    Status::failure(500, "InternalError", text).with_details(StatusDetails {
        causes: vec![StatusCause {
            message: detail.to_owned(),
            ..StatusCause::default()
        }],
        ..StatusDetails::default()
    })
}

/// Returns details about `name` of `resource`, a plural with its group: `deployments.apps`.
fn about(resource: &str, name: &str) -> StatusDetails {
    let (kind, group) = resource.split_once('.').unwrap_or((resource, ""));
    StatusDetails {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        ..StatusDetails::default()
    }
}

fn retry_after(seconds: u16) -> StatusDetails {
    StatusDetails {
        retry_after_seconds: seconds,
        ..StatusDetails::default()
    }
}

/// Returns whole seconds, rounded up, so that a client does not retry too early.
fn seconds(duration: Duration) -> u16 {
    let whole = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    u16::try_from(whole).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
