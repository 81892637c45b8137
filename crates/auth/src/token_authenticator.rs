//! Authentication of bearer tokens: those of a token file, and service account tokens.

use std::sync::Arc;

use super::service_account::{ServiceAccountToken, TokenIssuer};
use super::token_error::InvalidToken;
use super::token_file::TokenFile;
use watchet_api::UserInfo;

/// Authenticates bearer tokens.
#[derive(Debug)]
pub struct TokenAuthenticator {
    token_file: Option<TokenFile>,
    issuer: TokenIssuer,
}

/// The result of authenticating a bearer token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthenticatedToken {
    /// The token of this user.
    User(Arc<UserInfo>),
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
        Self { token_file, issuer }
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
        if let Some(user) = self.token_file.as_ref().and_then(|file| file.user(token)) {
            let own = self.issuer.audiences();
            // Tokens of the file have no audiences: they are for this server.
            return match audiences.is_empty() || audiences.iter().any(|one| own.contains(one)) {
                true => Ok(AuthenticatedToken::User(user)),
                false => Err(InvalidToken::Unknown),
            };
        }
        let token = self.issuer.authenticate(token, audiences)?;
        Ok(AuthenticatedToken::ServiceAccount(Box::new(token)))
    }
}
