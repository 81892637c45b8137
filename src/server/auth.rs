//! Authentication: whose request is this? A client certificate or a bearer token says; only what anybody
//! may do can be asked without. What that is, `registry::authorization` says, here and to reviews.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, Request, Response, header};
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::api::{Status, UserInfo};
use crate::http as http_room;
use crate::registry::authorization::{Action, authorize};
use crate::registry::{Bearer, Credentials};

/// Tells whose a request is.
#[derive(Debug)]
pub(super) struct Authenticator {
    client_certificates: Arc<dyn ClientCertVerifier>,
    credentials: Arc<Credentials>,
}

/// What a connection's client certificate is worth.
#[derive(Debug, Clone)]
pub(super) enum PeerCertificate {
    /// There is none.
    Absent,
    /// It is signed by an accepted CA.
    Valid {
        /// Whose it is.
        user: Arc<UserInfo>,
        /// After that second of Unix time it is nobody's.
        expires: i64,
    },
    /// It is not to be believed, for this reason.
    Invalid(Arc<str>),
}

/// A credential is missing or wrong: 401. The reason is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unauthorized")]
pub(super) struct Unauthorized(Cow<'static, str>);

impl Unauthorized {
    /// A refusal for this reason.
    pub(super) fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(reason.into())
    }

    /// Logs the reason, and returns the response, which says no more than that (upstream's words too).
    pub(super) fn response<B>(self, request: &Request<B>) -> Response<Body> {
        let (method, path) = (request.method(), request.uri().path());
        tracing::info!(%method, path, reason = %self.0, "request not authenticated");
        let status = Status::failure(401, "Unauthorized", self.to_string());
        http_room::error_response(request.headers(), &status)
    }
}

impl Authenticator {
    /// One that believes certificates which `client_certificates` verifies, and `credentials`.
    pub(super) fn new(
        client_certificates: Arc<dyn ClientCertVerifier>,
        credentials: Arc<Credentials>,
    ) -> Self {
        Self {
            client_certificates,
            credentials,
        }
    }

    /// What verifies client certificates.
    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.client_certificates)
    }

    /// What a client certificate with its chain is worth. That the peer has its key, the handshake
    /// has shown.
    pub(super) fn peer_certificate(
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

    /// Whose a request is, by the connection's certificate and the request's headers; of a service
    /// account's token whose it claims to be.
    ///
    /// # Errors
    /// No credential on a path that needs one, or none that is valid: a wrong credential is refused
    /// even where none is needed. What is no bearer token is none, as upstream.
    pub(super) fn authenticate(
        &self,
        peer: &PeerCertificate,
        path: &str,
        headers: &HeaderMap,
        now: UnixTime,
    ) -> Result<Bearer, Unauthorized> {
        let refused = match peer {
            PeerCertificate::Valid { user, expires } if now.as_secs() <= expires.unsigned_abs() => {
                return Ok(Bearer::Known(Arc::clone(user)));
            }
            PeerCertificate::Valid { .. } => Some("the client certificate has expired".into()),
            PeerCertificate::Invalid(reason) => Some(format!("client certificate: {reason}")),
            PeerCertificate::Absent => None,
        };
        let authorization = headers.get(header::AUTHORIZATION);
        // What is not text is no token that anybody has.
        let authorization = authorization.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let token = authorization.as_deref().and_then(bearer_token);
        let refused = match token.map(|token| self.credentials.bearer(token, &[])) {
            Some(Ok(told)) => return Ok(told),
            Some(Err(error)) => Some(format!("bearer token: {error}")),
            None => refused,
        };
        if let Some(reason) = refused {
            return Err(Unauthorized::new(reason));
        }
        let anonymous = UserInfo::anonymous();
        match authorize(&anonymous, Action::Path(path)).allowed {
            true => Ok(Bearer::Known(Arc::new(anonymous))),
            false => Err(Unauthorized::new("no credentials")),
        }
    }
}

/// Common name: user; organizations: groups. Of several common names the last counts, as in Go.
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
