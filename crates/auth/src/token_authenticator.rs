//! Authentication of bearer tokens: those of a token file, and service account tokens.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::service_account::{ServiceAccountToken, TokenIssuer};
use super::token_error::InvalidToken;
use super::token_file::{TokenDigest, TokenFile};
use watchet_api::UserInfo;

/// Authenticates bearer tokens.
#[derive(Debug)]
pub struct TokenAuthenticator {
    token_file: ArcSwapOption<TokenFile>,
    issuer: TokenIssuer,
}

/// The result of authenticating a bearer token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthenticatedToken {
    /// A token of the token file.
    Static {
        /// The user of the token.
        user: Arc<UserInfo>,
        /// The digest of the token.
        digest: TokenDigest,
    },
    /// A service account token with a valid signature. [`ServiceAccountToken::validate`] checks the
    /// objects that it refers to.
    ServiceAccount(Box<ServiceAccountToken>),
}

impl Default for TokenAuthenticator {
    /// Creates an authenticator that accepts only tokens of its own new key.
    fn default() -> Self {
        Self::new(None, TokenIssuer::ephemeral())
    }
}

impl TokenAuthenticator {
    /// Creates an authenticator of the tokens in `token_file`, and of those that `issuer` verifies.
    pub fn new(token_file: Option<TokenFile>, issuer: TokenIssuer) -> Self {
        Self {
            token_file: ArcSwapOption::from(token_file.map(Arc::new)),
            issuer,
        }
    }

    /// Accepts the tokens of `token_file` from now on, and no longer those of the previous file.
    pub fn replace_token_file(&self, token_file: TokenFile) {
        self.token_file.store(Some(Arc::new(token_file)));
    }

    /// Returns the user of the token in the token file that has this digest.
    pub fn static_user(&self, digest: TokenDigest) -> Option<Arc<UserInfo>> {
        self.token_file.load().as_ref()?.user(digest)
    }

    /// Returns the issuer of service account tokens.
    pub fn issuer(&self) -> &TokenIssuer {
        &self.issuer
    }

    /// Authenticates `token` for one of `audiences`; without audiences, for this server.
    ///
    /// # Errors
    /// The token is invalid.
    pub fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<AuthenticatedToken, InvalidToken> {
        let digest = TokenDigest::new(token);
        if let Some(user) = self.static_user(digest) {
            let own = self.issuer.audiences();
            // Tokens of the file have no audiences: they are for this server.
            return match audiences.is_empty() || audiences.iter().any(|one| own.contains(one)) {
                true => Ok(AuthenticatedToken::Static { user, digest }),
                false => Err(InvalidToken::Unknown),
            };
        }
        let token = self.issuer.authenticate(token, audiences)?;
        Ok(AuthenticatedToken::ServiceAccount(Box::new(token)))
    }
}
