//! Authentication: whose request is this? A client certificate or a bearer token says; only what anybody
//! may do can be asked without. What that is, `registry::authorization` says, here and to reviews.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, Response, header};
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
    /// It is not to be believed.
    Invalid,
}

/// A credential is missing or wrong: 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Unauthorized")]
pub(super) struct Unauthorized;

impl Unauthorized {
    /// The answer, which says no more than that (upstream's words too).
    pub(super) fn response(self, request: &HeaderMap) -> Response<Body> {
        let status = Status::failure(401, "Unauthorized", self.to_string());
        http_room::refusal(request, &status)
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
        if let Err(error) = verified {
            tracing::debug!(%error, "client certificate refused");
            return PeerCertificate::Invalid;
        }
        user_of(leaf).unwrap_or(PeerCertificate::Invalid)
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
        if let PeerCertificate::Valid { user, expires } = peer
            && now.as_secs() <= expires.unsigned_abs()
        {
            return Ok(Bearer::Known(Arc::clone(user)));
        }
        let authorization = headers.get(header::AUTHORIZATION);
        // What is not text is no token that anybody has.
        let authorization = authorization.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let token = authorization.as_deref().and_then(bearer_token);
        if let Some(told) = token.and_then(|token| self.credentials.bearer(token, &[]).ok()) {
            return Ok(told);
        }
        let silent = matches!(peer, PeerCertificate::Absent) && token.is_none();
        let anonymous = UserInfo::anonymous();
        match silent && authorize(&anonymous, Action::Path(path)).allowed {
            true => Ok(Bearer::Known(Arc::new(anonymous))),
            false => Err(Unauthorized),
        }
    }
}

/// Common name: user; organizations: groups.
fn user_of(leaf: &CertificateDer<'_>) -> Option<PeerCertificate> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
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
