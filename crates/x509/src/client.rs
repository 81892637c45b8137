//! `ClientVerifier`: verifies client certificates, for servers.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use x509_parser::asn1_rs::{Any, FromDer as _};
use x509_parser::prelude::X509Version;

use super::chain::Purpose;
use super::der::parse;
use super::trusted::Trusted;

/// Verifies client certificates. A client may send none.
#[derive(Debug)]
pub struct ClientVerifier {
    /// webpki's verifier with all certificates of `trusted`.
    webpki: Arc<dyn ClientCertVerifier>,
    trusted: Trusted,
    provider: Arc<CryptoProvider>,
}

/// The error of a verifier that cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientVerifierError {
    /// A CA certificate is invalid.
    #[error(transparent)]
    Ca(#[from] Error),
    /// There is no CA certificate.
    #[error(transparent)]
    Webpki(#[from] VerifierBuilderError),
}

impl ClientVerifier {
    /// Returns a verifier of certificates signed, directly or indirectly, by one of `cas`.
    ///
    /// # Errors
    /// Returns an error if one of `cas` is invalid, or if there is none.
    pub fn new(
        provider: &Arc<CryptoProvider>,
        cas: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Result<Self, ClientVerifierError> {
        let trusted = Trusted::all(cas)?;
        Ok(Self {
            webpki: webpki_verifier(trusted.roots(), provider)?,
            trusted,
            provider: Arc::clone(provider),
        })
    }

    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }

    /// Verifies the signature of a TLS 1.2 handshake with the key of a certificate that webpki
    /// cannot parse. The signature scheme does not contain the curve, so the key selects the algorithm.
    fn verify_before_version_3(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let bad = || Error::from(CertificateError::BadSignature);
        let parsed = parse(certificate)?;
        let key = parsed.public_key();
        let algorithm = key_algorithm(key.raw).ok_or(CertificateError::BadEncoding)?;
        let mut schemes = self.algorithms().mapping.iter();
        let (_, known) = schemes
            .find(|(scheme, _)| *scheme == dss.scheme)
            .ok_or_else(bad)?;
        let matching = known
            .iter()
            .find(|known| known.public_key_alg_id().as_ref() == algorithm)
            .ok_or_else(bad)?;
        matching
            .verify_signature(&key.subject_public_key.data, message, dss.signature())
            .map_err(|_| bad())?;
        Ok(HandshakeSignatureValid::assertion())
    }
}

fn webpki_verifier(
    roots: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
    WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider))
        .allow_unauthenticated()
        .build()
}

/// Returns true if the certificate has version 1 or 2, which webpki cannot parse.
fn is_before_version_3(certificate: &CertificateDer<'_>) -> bool {
    parse(certificate).is_ok_and(|parsed| parsed.version() != X509Version::V3)
}

/// Returns the algorithm of a SubjectPublicKeyInfo in the form of
/// `SignatureVerificationAlgorithm`.
fn key_algorithm(key: &[u8]) -> Option<&[u8]> {
    let (_, key) = Any::from_der(key).ok()?;
    let (_, algorithm) = Any::from_der(key.data).ok()?;
    Some(algorithm.data)
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.webpki.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let webpki = |roots: Arc<RootCertStore>| {
            let verifier = match Arc::ptr_eq(&roots, self.trusted.roots()) {
                true => Arc::clone(&self.webpki),
                // webpki cannot build a verifier without roots.
                false => webpki_verifier(&roots, &self.provider)
                    .map_err(|_| CertificateError::UnknownIssuer)?,
            };
            let verified = verifier.verify_client_cert(end_entity, intermediates, now);
            verified.map(|_| ())
        };
        let purpose = Purpose::ClientAuth;
        self.trusted
            .verify(end_entity, intermediates, purpose, now, webpki)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match is_before_version_3(cert) {
            true => self.verify_before_version_3(message, cert, dss),
            false => self.webpki.verify_tls12_signature(message, cert, dss),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !is_before_version_3(cert) {
            return self.webpki.verify_tls13_signature(message, cert, dss);
        }
        let parsed = parse(cert)?;
        let key = SubjectPublicKeyInfoDer::from(parsed.public_key().raw);
        verify_tls13_signature_with_raw_key(message, &key, dss, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}
