//! `ExternalToken`: the bearer token of a request that the external authenticators have not reviewed yet.

use std::fmt;
use std::sync::Arc;

use crate::credential::Credential;
use crate::token_authenticator::TokenAuthenticator;
use crate::token_error::InvalidToken;
use crate::token_file::TokenDigest;
use crate::unauthorized::Unauthorized;
use watchet_api::UserInfo;

/// The bearer token of a request that only external authenticators may accept.
#[derive(Clone)]
pub struct ExternalToken {
    token: String,
    /// The error of the authenticators of this server.
    rejected: InvalidToken,
    tokens: Arc<TokenAuthenticator>,
}

impl ExternalToken {
    pub(crate) fn new(
        token: &str,
        rejected: InvalidToken,
        tokens: &Arc<TokenAuthenticator>,
    ) -> Self {
        Self {
            token: token.to_owned(),
            rejected,
            tokens: Arc::clone(tokens),
        }
    }

    /// Authenticates the token for this server. Cancel safe.
    ///
    /// # Errors
    /// The token is invalid, or it cannot be checked now.
    pub async fn authenticate(self) -> Result<(Arc<UserInfo>, Credential), Unauthorized> {
        let Self {
            token,
            rejected,
            tokens,
        } = self;
        let found = tokens.authenticate_external(&token, &[], rejected).await;
        let found = found.map_err(|error| Unauthorized::new(format!("bearer token: {error}")))?;
        let credential = Credential::ExternalToken {
            digest: TokenDigest::new(&token),
            expires: found.expires,
            issuer: found.issuer,
            tokens,
        };
        Ok((found.user, credential))
    }
}

impl fmt::Debug for ExternalToken {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalToken")
            .field("rejected", &self.rejected)
            .finish_non_exhaustive()
    }
}

impl PartialEq for ExternalToken {
    fn eq(&self, other: &Self) -> bool {
        self.token == other.token
    }
}

impl Eq for ExternalToken {}
