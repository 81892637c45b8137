//! Authentication of requests by client certificate or bearer token. Anonymous requests are limited to
//! public paths.

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, header};
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::allow_authenticated::PUBLIC_PATHS;
use super::credential::Credential;
use super::service_account::ServiceAccountToken;
use super::token_authenticator::{AuthenticatedToken, TokenAuthenticator};
use watchet_api::{Status, UserInfo};

/// Authenticates requests.
#[derive(Debug)]
pub struct Authenticator {
    client_certificates: Arc<dyn ClientCertVerifier>,
    tokens: Arc<TokenAuthenticator>,
}

/// The verified client certificate of a connection.
#[derive(Debug, Clone)]
pub enum PeerCertificate {
    /// The client sent no certificate.
    Absent,
    /// The certificate is signed by an accepted CA.
    Valid {
        /// The user of the certificate.
        user: Arc<UserInfo>,
        /// The end of its validity in Unix seconds.
        expires: i64,
    },
    /// The certificate is invalid, for this reason.
    Invalid(Arc<str>),
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
}

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

impl Authenticator {
    /// Creates an authenticator of certificates that `client_certificates` verifies, and of the bearer
    /// tokens that `tokens` accepts.
    pub fn new(
        client_certificates: Arc<dyn ClientCertVerifier>,
        tokens: Arc<TokenAuthenticator>,
    ) -> Self {
        Self {
            client_certificates,
            tokens,
        }
    }

    /// Returns the verifier of client certificates.
    pub fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.client_certificates)
    }

    /// Verifies a client certificate with its chain. The handshake has proved that the peer has its
    /// key.
    pub fn peer_certificate(
        &self,
        chain: Option<&[CertificateDer<'_>]>,
        now: UnixTime,
    ) -> PeerCertificate {
        let Some((leaf, intermediates)) = chain.and_then(<[_]>::split_first) else {
            return PeerCertificate::Absent;
        };
        let verified = self
            .client_certificates
            .verify_client_cert(leaf, intermediates, now);
        match verified {
            Ok(_) => user_of(leaf).unwrap_or_else(|| {
                let reason = "its subject has no common name, or one that is not text";
                PeerCertificate::Invalid(reason.into())
            }),
            Err(error) => PeerCertificate::Invalid(error.to_string().into()),
        }
    }

    /// Authenticates a request by the connection's certificate and the request's headers. The objects
    /// that a service account token refers to are not checked.
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
        now: UnixTime,
    ) -> Result<AuthenticatedRequest, Unauthorized> {
        let rejected = match peer {
            PeerCertificate::Valid { user, expires } if now.as_secs() <= expires.unsigned_abs() => {
                return Ok(AuthenticatedRequest::User {
                    user: Arc::clone(user),
                    credential: Some(Credential::ClientCertificate { expires: *expires }),
                });
            }
            PeerCertificate::Valid { .. } => Some("the client certificate has expired".into()),
            PeerCertificate::Invalid(reason) => Some(format!("client certificate: {reason}")),
            PeerCertificate::Absent => None,
        };
        let authorization = headers.get(header::AUTHORIZATION);
        // A header that is not text cannot be a valid token.
        let authorization = authorization.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let token = authorization.as_deref().and_then(bearer_token);
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
            Some(Err(error)) => Some(format!("bearer token: {error}")),
            None => rejected,
        };
        if let Some(reason) = rejected {
            return Err(Unauthorized::new(reason));
        }
        match PUBLIC_PATHS.contains(&path) {
            true => Ok(AuthenticatedRequest::User {
                user: Arc::new(UserInfo::anonymous()),
                credential: None,
            }),
            false => Err(Unauthorized::new("no credentials")),
        }
    }
}

/// Returns the user of a certificate: the common name (the last of several, as in Go) is the user
/// name, the organizations are the groups.
fn user_of(leaf: &CertificateDer<'_>) -> Option<PeerCertificate> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().last()?.as_str().ok()?.to_owned();
    if name.is_empty() {
        return None;
    }
    let groups = subject
        .iter_organization()
        .map(|group| group.as_str().map(str::to_owned))
        .collect::<Result<Vec<_>, _>>()
        .ok()?;
    Some(PeerCertificate::Valid {
        user: Arc::new(UserInfo::authenticated(name, String::new(), groups)),
        expires: certificate.validity().not_after.timestamp(),
    })
}

fn bearer_token(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests;
