//! The errors of admission and their `Status`, with upstream's messages.

use std::time::Duration;

use watchet_api::{Status, StatusCause, StatusDetails};

/// The cluster cannot be read or written now. The client can retry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// Storage does not respond.
    #[error("storage is unavailable: {0}")]
    Storage(String),
    /// The cache of the resource has no state yet.
    #[error("storage is (re)initializing: {detail}")]
    Initializing {
        /// The last error.
        detail: String,
        /// When the client can retry.
        retry_after: Duration,
    },
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Stopped,
}

/// A write was not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// A webhook or a policy denied the write.
    #[error("{}", .0.message)]
    Denied(Box<Status>),
    /// 400: a webhook with side effects cannot be called for a dry run.
    #[error("admission webhook {webhook:?} does not support dry run")]
    DryRun {
        /// The name of the webhook.
        webhook: String,
    },
    /// 403: a plugin refused the write, or a webhook's match conditions could not be evaluated.
    #[error("{}", forbidden(.resource, .name, .why))]
    Forbidden {
        /// Plural, with group.
        resource: String,
        /// Empty if the server has not generated the name yet.
        name: String,
        /// The reason.
        why: String,
        /// Machine-readable reasons, e.g. `NamespaceTerminating`.
        causes: Vec<StatusCause>,
    },
    /// 403: the server has just started, and cannot read the configurations from storage.
    #[error("not yet ready to handle request")]
    NotReady,
    /// 404: an object that the write needs does not exist.
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// Plural.
        resource: &'static str,
        /// The name of the object.
        name: String,
    },
    /// 422: a plugin found the object invalid.
    #[error("{}", Status::invalid(.group, .kind, .name, .causes).message)]
    Invalid {
        /// The kind's group.
        group: String,
        /// The kind.
        kind: String,
        /// The name of the object.
        name: String,
        /// One cause per problem.
        causes: Vec<StatusCause>,
    },
    /// The cluster cannot be read now; the client can retry. The status is that of a failed read.
    #[error(transparent)]
    Unavailable(Unavailable),
    /// 500 without a reason: an error that upstream does not map to a status.
    #[error("{0}")]
    Failed(String),
    /// 500: a webhook could not be called, or its response is invalid.
    #[error("Internal error occurred: {0}")]
    Internal(String),
}

fn forbidden(resource: &str, name: &str, why: &str) -> String {
    match name.is_empty() {
        true => format!("{resource} is forbidden: {why}"),
        false => format!("{resource} {name:?} is forbidden: {why}"),
    }
}

impl AdmissionError {
    /// Adds a machine-readable reason to a rejection.
    pub(super) fn with_cause(mut self, cause: StatusCause) -> Self {
        if let Self::Forbidden { causes, .. } = &mut self {
            causes.push(cause);
        }
        self
    }

    /// Returns the response to the client.
    pub fn status(&self) -> Status {
        let text = self.to_string();
        match self {
            Self::Denied(status) => (**status).clone(),
            Self::DryRun { .. } => Status::failure(400, "BadRequest", text),
            Self::Forbidden {
                resource,
                name,
                causes,
                ..
            } => Status::failure(403, "Forbidden", text).with_details(StatusDetails {
                causes: causes.clone(),
                ..about(resource, name)
            }),
            Self::Invalid {
                group,
                kind,
                name,
                causes,
            } => Status::invalid(group, kind, name, causes),
            Self::Unavailable(_) => Status::failure(500, "ServerTimeout", text),
            Self::NotReady => Status::failure(403, "Forbidden", text),
            Self::Failed(_) => Status::failure(500, "", text),
            Self::NotFound { resource, name } => {
                Status::failure(404, "NotFound", text).with_details(about(resource, name))
            }
            Self::Internal(why) => {
                Status::failure(500, "InternalError", text).with_details(StatusDetails {
                    causes: vec![StatusCause {
                        message: why.clone(),
                        ..StatusCause::default()
                    }],
                    ..StatusDetails::default()
                })
            }
        }
    }
}

/// Returns the details of a status about `name` of `resource`, a plural with its group.
pub(super) fn about(resource: &str, name: &str) -> StatusDetails {
    let (kind, group) = resource.split_once('.').unwrap_or((resource, ""));
    StatusDetails {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        ..StatusDetails::default()
    }
}
