//! `ServerVerifier`: verifies server certificates, for clients.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::chain::Purpose;
use super::trusted::Trusted;

/// Verifies server certificates, including the name of the server.
#[derive(Debug)]
pub struct ServerVerifier {
    trusted: Arc<Trusted>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerVerifier {
    /// Returns a verifier that trusts only `trusted`.
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
        let webpki = |roots: Arc<RootCertStore>| {
            let algorithms = self.algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&leaf, &roots, intermediates, now, algorithms)
        };
        let purpose = Purpose::ServerAuth;
        self.trusted
            .verify(end_entity, intermediates, purpose, now, webpki)?;
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
