//! `Unauthorized`: the error of authentication.

use std::borrow::Cow;

use watchet_api::Status;

/// 401: a credential is missing or invalid. The reason is only logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unauthorized")]
pub struct Unauthorized(Cow<'static, str>);

impl Unauthorized {
    /// Creates an error with this reason.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(reason.into())
    }

    /// Returns the reason, for the log.
    pub fn reason(&self) -> &str {
        &self.0
    }

    /// Returns the body of the response, with upstream's message.
    pub fn status(&self) -> Status {
        Status::failure(401, "Unauthorized", self.to_string())
    }
}
