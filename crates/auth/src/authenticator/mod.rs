//! Authentication of requests by client certificate or bearer token. By default, anonymous requests are limited
//! to public paths.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, header};
use rustls::server::danger::ClientCertVerifier;

use super::allow_authenticated::PUBLIC_PATHS;
use super::client_certificate::{ClientCertificates, PeerCertificate};
use super::console_session::{ConsoleSession, ConsoleSessions};
use super::credential::Credential;
use super::external_token::ExternalToken;
use super::front_proxy::FrontProxy;
use super::service_account::ServiceAccountToken;
use super::token_authenticator::{AuthenticatedToken, TokenAuthenticator};
use super::unauthorized::Unauthorized;
use watchet_api::UserInfo;

/// Authenticates requests.
#[derive(Debug)]
pub struct Authenticator {
    client_certificates: Arc<ClientCertificates>,
    tokens: Arc<TokenAuthenticator>,
    anonymous: ArcSwap<AnonymousAccess>,
    front_proxy: Option<FrontProxy>,
    sessions: Arc<ConsoleSessions>,
}

/// The requests without credentials that are authenticated as the anonymous user; all others are rejected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AnonymousAccess {
    /// No request.
    None,
    /// Requests of the paths that the default policy allows to every user.
    #[default]
    PublicPaths,
    /// Requests of exactly these paths.
    Paths(Vec<String>),
    /// Every request. The authorizer decides what the anonymous user may do.
    All,
}

impl AnonymousAccess {
    fn includes(&self, path: &str) -> bool {
        match self {
            Self::None => false,
            Self::PublicPaths => PUBLIC_PATHS.contains(&path),
            Self::Paths(paths) => paths.iter().any(|one| one == path),
            Self::All => true,
        }
    }
}

/// An authenticated request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthenticatedRequest {
    /// The request of this user.
    User {
        /// The user.
        user: Arc<UserInfo>,
        /// The credential; `None` if the user is anonymous.
        credential: Option<Credential>,
    },
    /// A request with a service account token that has a valid signature. [`ServiceAccountToken::validate`] checks the
    /// objects that it refers to, and returns its user.
    ServiceAccount(Box<ServiceAccountToken>),
    /// A request with a token that only an external authenticator may accept: see [`ExternalToken::authenticate`].
    External(Box<ExternalToken>),
    /// A request with the token of a session of the console: see [`ConsoleSession::authenticate`].
    Session(Box<ConsoleSession>),
}

impl Authenticator {
    /// Creates an authenticator of certificates that `verifier` accepts, and of the bearer tokens that `tokens`
    /// accepts.
    pub fn new(verifier: Arc<dyn ClientCertVerifier>, tokens: Arc<TokenAuthenticator>) -> Self {
        Self {
            client_certificates: Arc::new(ClientCertificates::new(verifier)),
            tokens,
            anonymous: ArcSwap::default(),
            front_proxy: None,
            sessions: Arc::default(),
        }
    }

    /// Also authenticates the requests of these proxies.
    #[must_use]
    pub fn with_front_proxy(mut self, front_proxy: Option<FrontProxy>) -> Self {
        self.front_proxy = front_proxy;
        self
    }

    /// Returns the sessions of the console, whose tokens are accepted.
    pub fn sessions(&self) -> &Arc<ConsoleSessions> {
        &self.sessions
    }

    /// Returns the authenticator of proxies' requests, which precedes [`Self::authenticate`].
    pub fn front_proxy(&self) -> Option<&FrontProxy> {
        self.front_proxy.as_ref()
    }

    /// Replaces the requests that may be anonymous; the default is [`AnonymousAccess::PublicPaths`].
    pub fn replace_anonymous(&self, anonymous: AnonymousAccess) {
        self.anonymous.store(Arc::new(anonymous));
    }

    /// Returns the accepted client certificates.
    pub fn client_certificates(&self) -> &Arc<ClientCertificates> {
        &self.client_certificates
    }

    /// Authenticates a request at `now`, in Unix seconds, by the connection's certificate and the request's headers.
    /// The objects that a service account token refers to are not checked.
    ///
    /// # Errors
    /// There is no credential and the path requires one, or no credential is valid: an invalid
    /// credential is an error even where none is required. An Authorization that is not a bearer
    /// token is ignored, as upstream.
    pub fn authenticate(
        &self,
        peer: &PeerCertificate,
        path: &str,
        headers: &HeaderMap,
        now: i64,
    ) -> Result<AuthenticatedRequest, Unauthorized> {
        let rejected = match peer {
            PeerCertificate::Valid(certificate) => match certificate.check(now) {
                Ok(()) => {
                    return Ok(AuthenticatedRequest::User {
                        user: Arc::clone(certificate.user()),
                        credential: Some(Credential::ClientCertificate(Arc::clone(certificate))),
                    });
                }
                Err(reason) => Some(reason),
            },
            PeerCertificate::Invalid(reason) => Some(format!("client certificate: {reason}")),
            PeerCertificate::Absent => None,
        };
        let authorization = headers.get(header::AUTHORIZATION);
        // A header that is not text cannot be a valid token.
        let authorization = authorization.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let token = authorization.as_deref().and_then(bearer_token);
        if let Some(session) = token.and_then(|token| self.sessions.session(token, now)) {
            return Ok(AuthenticatedRequest::Session(Box::new(session)));
        }
        let rejected = match token.map(|token| self.tokens.authenticate(token, &[])) {
            Some(Ok(AuthenticatedToken::Static { user, digest })) => {
                let tokens = Arc::clone(&self.tokens);
                return Ok(AuthenticatedRequest::User {
                    user,
                    credential: Some(Credential::StaticToken { digest, tokens }),
                });
            }
            Some(Ok(AuthenticatedToken::ServiceAccount(token))) => {
                return Ok(AuthenticatedRequest::ServiceAccount(token));
            }
            Some(Err(error)) if self.tokens.has_external() => {
                let token = token.unwrap_or_default();
                let external = ExternalToken::new(token, error, &self.tokens);
                return Ok(AuthenticatedRequest::External(Box::new(external)));
            }
            Some(Err(error)) => Some(format!("bearer token: {error}")),
            None => rejected,
        };
        if let Some(reason) = rejected {
            return Err(Unauthorized::new(reason));
        }
        match self.anonymous.load().includes(path) {
            true => Ok(AuthenticatedRequest::User {
                user: Arc::new(UserInfo::anonymous()),
                credential: None,
            }),
            false => Err(Unauthorized::new("no credentials")),
        }
    }
}

fn bearer_token(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests;
