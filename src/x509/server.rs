//! The certificates of servers that this process calls.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::chain::{self, Anchors, Purpose};

/// Trusted certificates.
#[derive(Debug)]
pub struct Trusted {
    roots: RootCertStore,
    anchors: Anchors,
    /// How many of the given certificates cannot be parsed.
    pub unusable: usize,
}

impl Trusted {
    /// Trusts those of `certificates` that can be parsed, as Go's certificate pools do.
    pub fn new(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Self {
        let (mut roots, mut anchors) = (RootCertStore::empty(), Anchors::default());
        let mut unusable = 0;
        for certificate in certificates {
            let known = roots.add(certificate.clone()).is_ok();
            unusable += usize::from(anchors.add(certificate).is_err() && !known);
        }
        Self {
            roots,
            anchors,
            unusable,
        }
    }

    /// Returns true if no certificate is trusted.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty() && self.anchors.is_empty()
    }
}

/// Verifies the certificates of servers, and always the name.
#[derive(Debug)]
pub struct ServerVerifier {
    trusted: Arc<Trusted>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerVerifier {
    /// A verifier that trusts `trusted` and nothing else.
    pub fn new(trusted: Arc<Trusted>, provider: &CryptoProvider) -> Self {
        Self {
            trusted,
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let leaf = ParsedCertificate::try_from(end_entity)?;
        let refused = verify_server_cert_signed_by_trust_anchor(
            &leaf,
            &self.trusted.roots,
            intermediates,
            now,
            self.algorithms.all,
        );
        if let Err(refused) = refused {
            let anchors = &self.trusted.anchors;
            let purpose = Purpose::ServerAuth;
            chain::verify(end_entity, intermediates, anchors, purpose, now)
                .map_err(|error| better(refused, error))?;
        }
        verify_server_name(&leaf, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Of the two reasons why a certificate is refused the one to report: webpki's, which has more detail,
/// unless it is one that Go's rules do not have.
pub(super) fn better(webpki: Error, go: CertificateError) -> Error {
    match webpki {
        Error::InvalidCertificate(CertificateError::Other(_)) => go.into(),
        webpki => webpki,
    }
}
