//! `Unauthorized`: the error of authentication.

use std::borrow::Cow;

use watchet_api::Status;

/// The maximum length of a reason in bytes: a client chooses parts of it, and each 401 is logged.
const REASON_BYTES_MAX: usize = 1024;

/// 401: a credential is missing or invalid. The reason is only logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unauthorized")]
pub struct Unauthorized(Cow<'static, str>);

impl Unauthorized {
    /// Creates an error with this reason, which is cut after 1 KiB.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        let reason = reason.into();
        let end = reason.floor_char_boundary(REASON_BYTES_MAX);
        match end < reason.len() {
            true => Self(format!("{}...", &reason[..end]).into()),
            false => Self(reason),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        for text in ["a", "\u{e9}", "\u{20ac}"] {
            let exact = text.repeat(REASON_BYTES_MAX / text.len());
            assert_eq!(Unauthorized::new(exact.clone()).reason(), exact);
            let longer = text.repeat(REASON_BYTES_MAX + 1);
            assert_eq!(Unauthorized::new(longer).reason(), format!("{exact}..."));
        }
    }
}
