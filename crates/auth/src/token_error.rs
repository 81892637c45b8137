//! `InvalidToken`: the reason why a bearer token is invalid.

use std::fmt;

/// The reason why a token is invalid. A TokenReview returns it; the client of a request gets a 401 without it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// No accepted key has signed it, or its issuer is not accepted.
    #[error("invalid bearer token")]
    Unknown,
    /// It has expired.
    #[error("service account token has expired")]
    Expired,
    /// Its validity has not begun.
    #[error("service account token is not valid yet")]
    NotYetValid,
    /// It is for other audiences.
    #[error(
        "token audiences {} is invalid for the target audiences {}",
        QuotedList(token),
        QuotedList(requested)
    )]
    Audiences {
        /// The audiences of the token.
        token: Vec<String>,
        /// The requested audiences.
        requested: Vec<String>,
    },
    /// The service account or an object that the token is bound to was deleted or replaced.
    #[error("{0}")]
    Invalidated(String),
    /// An external authenticator rejects it, for this reason.
    #[error("{0}")]
    Rejected(String),
    /// The token was not checked: the service account or an object that it is bound to cannot be read, or an external
    /// authenticator failed.
    #[error("{0}")]
    Unverified(String),
}

impl InvalidToken {
    /// Returns the error of a token whose account or bound object no longer exists, with upstream's message.
    pub(crate) fn invalidated() -> Self {
        Self::Invalidated("service account token has been invalidated".to_owned())
    }
}

/// Formats a list of strings as Go's `%q`.
struct QuotedList<'a>(&'a [String]);

impl fmt::Display for QuotedList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted: Vec<String> = self.0.iter().map(|text| format!("{text:?}")).collect();
        write!(f, "[{}]", quoted.join(" "))
    }
}
