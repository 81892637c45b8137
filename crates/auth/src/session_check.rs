//! The `SessionCheck` trait: whether a session of the console is still valid.

use async_trait::async_trait;

use crate::token_file::TokenDigest;
use crate::unauthorized::Unauthorized;

/// Checks sessions.
#[async_trait]
pub trait SessionCheck: Send + Sync {
    /// Checks that the session whose token has this digest is still valid at `now`, in Unix seconds.
    ///
    /// # Errors
    /// It has ended, or the credential that requested it is no longer valid.
    async fn check_session(&self, digest: TokenDigest, now: i64) -> Result<(), Unauthorized>;
}
