//! Authentication of bearer tokens: those of a token file, service account tokens, and those that external
//! authenticators accept.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use jiff::Timestamp;

use super::external_authenticator::{ExternalAuthenticator, ExternalUser};
use super::service_account::{ServiceAccountToken, TokenIssuer};
use super::token_error::InvalidToken;
use super::token_file::{TokenDigest, TokenFile};
use watchet_api::{AuditAnnotations, UserInfo};
use watchet_metrics::ServiceAccountTokenMetrics;

/// Authenticates bearer tokens.
#[derive(Debug)]
pub struct TokenAuthenticator {
    token_file: ArcSwapOption<TokenFile>,
    issuer: ArcSwap<TokenIssuer>,
    /// Consulted in this order for tokens that the others reject.
    external: Vec<Arc<dyn ExternalAuthenticator>>,
    metrics: Arc<ServiceAccountTokenMetrics>,
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
            issuer: ArcSwap::from_pointee(issuer),
            external: Vec::new(),
            metrics: Arc::default(),
        }
    }

    /// Adds `authenticators`, which are consulted in order for tokens that the others reject.
    #[must_use]
    pub fn with_external(mut self, authenticators: Vec<Arc<dyn ExternalAuthenticator>>) -> Self {
        self.external = authenticators;
        self
    }

    /// Counts the uses of service account tokens in `metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<ServiceAccountTokenMetrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Records that the request with these audit annotations has used a valid `token`; see
    /// [`ServiceAccountToken::record_use`].
    pub fn record_use(&self, token: &ServiceAccountToken, annotations: &AuditAnnotations) {
        token.record_use(Timestamp::now().as_second(), &self.metrics, annotations);
    }

    /// Returns true if a rejected token may be accepted by [`Self::authenticate_external`].
    pub fn has_external(&self) -> bool {
        !self.external.is_empty()
    }

    /// Returns false if no external authenticator accepts tokens of `issuer` any more.
    pub(crate) fn accepts_issuer(&self, issuer: &str) -> bool {
        self.external.iter().any(|one| one.accepts_issuer(issuer))
    }

    /// Issues and verifies service account tokens with `issuer` from now on.
    pub fn replace_issuer(&self, issuer: TokenIssuer) {
        self.issuer.store(Arc::new(issuer));
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
    pub fn issuer(&self) -> Arc<TokenIssuer> {
        self.issuer.load_full()
    }

    /// Authenticates `token` for one of `audiences`; without audiences, for this server. External authenticators are not
    /// consulted.
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
            let issuer = self.issuer.load();
            let own = issuer.audiences();
            // Tokens of the file have no audiences: they are for this server.
            return match audiences.is_empty() || audiences.iter().any(|one| own.contains(one)) {
                true => Ok(AuthenticatedToken::Static { user, digest }),
                false => Err(InvalidToken::Unknown),
            };
        }
        let token = self.issuer.load().authenticate(token, audiences)?;
        Ok(AuthenticatedToken::ServiceAccount(Box::new(token)))
    }

    /// Authenticates a token with the external authenticators. `rejected` is the error of [`Self::authenticate`].
    /// Cancel safe.
    ///
    /// # Errors
    /// No authenticator accepts the token. The error has the reasons of all authenticators, as upstream.
    pub async fn authenticate_external(
        &self,
        token: &str,
        audiences: &[String],
        rejected: InvalidToken,
    ) -> Result<ExternalUser, InvalidToken> {
        let own = self.issuer();
        let audiences = match audiences {
            [] => own.audiences(),
            named => named,
        };
        let mut errors = Vec::new();
        // That a token is unknown is no reason to report.
        errors.extend(Some(rejected).filter(|error| *error != InvalidToken::Unknown));
        for authenticator in &self.external {
            match authenticator.authenticate(token, audiences).await {
                Ok(Some(user)) => return Ok(user),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        let is_unverified = |error: &InvalidToken| matches!(error, InvalidToken::Unverified(_));
        let unverified = errors.iter().any(is_unverified);
        match errors.len() {
            0 => Err(InvalidToken::Unknown),
            1 => Err(errors.remove(0)),
            _ => {
                let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
                let all = format!("[{}]", all.join(", "));
                Err(match unverified {
                    true => InvalidToken::Unverified(all),
                    false => InvalidToken::Rejected(all),
                })
            }
        }
    }
}
