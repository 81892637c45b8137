//! Client certificates: verification with the accepted CAs, which can be replaced while connections are open, and the
//! user of a certificate.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use watchet_api::UserInfo;

/// The verifier of client certificates.
#[derive(Debug)]
pub struct ClientCertificates(ArcSwap<Current>);

#[derive(Debug)]
struct Current {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Counts the verifiers.
    generation: u64,
}

/// The verified client certificate of a connection.
#[derive(Debug, Clone)]
pub enum PeerCertificate {
    /// The client sent no certificate.
    Absent,
    /// The certificate is signed by an accepted CA.
    Valid(Arc<ClientCertificate>),
    /// The certificate is invalid, for this reason.
    Invalid(Arc<str>),
}

/// A certificate that an accepted CA has signed, with the key of the client. Two are equal if their chains are.
pub struct ClientCertificate {
    /// The client's own certificate first.
    chain: Vec<CertificateDer<'static>>,
    user: Arc<UserInfo>,
    /// The end of the validity in Unix seconds.
    expires: i64,
    accepted: Arc<ClientCertificates>,
    /// The generation of the verifier that verified it last.
    verified_by: AtomicU64,
}

impl ClientCertificates {
    /// Returns the certificates that `verifier` accepts.
    pub fn new(verifier: Arc<dyn ClientCertVerifier>) -> Self {
        Self(ArcSwap::from_pointee(Current {
            verifier,
            generation: 0,
        }))
    }

    /// Replaces the verifier. Certificates of open connections are verified again before their next request.
    pub fn replace(&self, verifier: Arc<dyn ClientCertVerifier>) {
        self.0.rcu(|current| Current {
            verifier: Arc::clone(&verifier),
            generation: current.generation + 1,
        });
    }

    /// Returns the current verifier.
    pub fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0.load().verifier)
    }

    /// Verifies the certificate of a client with its chain. The handshake has proved that the client has its key.
    pub fn peer_certificate(
        self: &Arc<Self>,
        chain: Option<&[CertificateDer<'_>]>,
        now: UnixTime,
    ) -> PeerCertificate {
        let Some((leaf, intermediates)) = chain.and_then(<[_]>::split_first) else {
            return PeerCertificate::Absent;
        };
        let current = self.0.load();
        let verified = current
            .verifier
            .verify_client_cert(leaf, intermediates, now);
        if let Err(error) = verified {
            return PeerCertificate::Invalid(error.to_string().into());
        }
        let Some((user, expires)) = user_of(leaf) else {
            let reason = "its subject has no common name, or one that is not text";
            return PeerCertificate::Invalid(reason.into());
        };
        let chain = std::iter::once(leaf).chain(intermediates);
        PeerCertificate::Valid(Arc::new(ClientCertificate {
            chain: chain.cloned().map(CertificateDer::into_owned).collect(),
            user: Arc::new(user),
            expires,
            accepted: Arc::clone(self),
            verified_by: AtomicU64::new(current.generation),
        }))
    }
}

impl ClientCertificate {
    /// Returns the user of the certificate.
    pub fn user(&self) -> &Arc<UserInfo> {
        &self.user
    }

    /// Checks that the certificate is valid at `now`, in Unix seconds, and signed by a CA that is accepted now.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn check(&self, now: i64) -> Result<(), String> {
        if now > self.expires {
            return Err("the client certificate has expired".to_owned());
        }
        let current = self.accepted.0.load();
        if current.generation == self.verified_by.load(Ordering::Relaxed) {
            return Ok(());
        }
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.unsigned_abs()));
        let Some((leaf, intermediates)) = self.chain.split_first() else {
            return Err("the chain of the client certificate is empty".to_owned());
        };
        current
            .verifier
            .verify_client_cert(leaf, intermediates, now)
            .map_err(|error| format!("client certificate: {error}"))?;
        self.verified_by
            .store(current.generation, Ordering::Relaxed);
        Ok(())
    }
}

impl PartialEq for ClientCertificate {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain
    }
}

impl Eq for ClientCertificate {}

impl Hash for ClientCertificate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.chain.first().map(|leaf| leaf.as_ref()).hash(state);
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate")
            .field("user", &self.user)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// Returns the user of a certificate and the end of its validity: the common name (the last of several, as in Go) is
/// the user name, the organizations are the groups.
fn user_of(leaf: &CertificateDer<'_>) -> Option<(UserInfo, i64)> {
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
    let user = UserInfo::authenticated(name, String::new(), groups);
    Some((user, certificate.validity().not_after.timestamp()))
}
