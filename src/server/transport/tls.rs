//! TLS: the serving certificate, verification of client certificates, settings of the handshake.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use crate::server::config::file_setting::{CertificateFiles, FileSetting};
use crate::server::config::setting_value::ConfigError;
use crate::server::config::sni::SniCertificate;
use crate::server::config::tls::TlsParameters;
use crate::server::transport::serving_certificates::ServingCertificates;
use crate::x509::{ClientVerifier, ClientVerifierError};

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub(in crate::server) enum TlsError {
    /// A configured file is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// rustls rejects a certificate of `pki`.
    #[error("cannot set up TLS: {0}")]
    Rustls(#[from] rustls::Error),
    /// A certificate of `pki` is not PEM.
    #[error("cannot set up TLS: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// No accepted CA is usable.
    #[error("cannot set up TLS: {0}")]
    Verifier(#[from] ClientVerifierError),
}

/// The settings of new connections. They change with the serving certificate and the accepted CAs.
pub(in crate::server) type TlsSettings = Arc<ArcSwap<ServerConfig>>;

/// Returns the server's own serving certificate, from PEM.
pub(in crate::server) fn own_certificate(
    provider: &CryptoProvider,
    certificate: &str,
    key: &str,
) -> Result<CertifiedKey, TlsError> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let chain = chain.collect::<Result<Vec<_>, _>>()?;
    Ok(CertifiedKey::from_der(chain, key, provider)?)
}

/// Loads a configured serving certificate.
///
/// # Errors
/// A file cannot be read or has no certificate or key, or the key belongs to another certificate.
pub(in crate::server) fn given_certificate(
    provider: &CryptoProvider,
    files: &CertificateFiles,
) -> Result<CertifiedKey, ConfigError> {
    let chain = certificates(&files.certificate)?;
    let text = files.key.read()?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| {
        files
            .key
            .error(format_args!("has no private key in PEM ({error})"))
    })?;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| files.key.error(format_args!("has no usable key ({error})")))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(certified)
        }
        Err(rustls::Error::InconsistentKeys(_)) => Err(files.key.error(format_args!(
            "is not the key of the certificate in {:?}: give a matching pair",
            files.certificate.path
        ))),
        Err(error) => Err(files
            .certificate
            .error(format_args!("has no usable certificate ({error})"))),
    }
}

/// Loads the certificates for the names that clients request.
///
/// # Errors
/// As [`given_certificate`].
pub(in crate::server) fn sni_certificates(
    provider: &CryptoProvider,
    given: &[SniCertificate],
) -> Result<Vec<(CertifiedKey, Vec<String>)>, ConfigError> {
    let loaded = given.iter().map(|one| {
        let certificate = given_certificate(provider, &one.files)?;
        Ok((certificate, one.names.clone()))
    });
    loaded.collect()
}

/// Reads the certificates in a file, at least one.
///
/// # Errors
/// The file cannot be read or has none.
pub(in crate::server) fn certificates(
    file: &FileSetting,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let text = file.read()?;
    let certificates = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| file.error(format_args!("is not valid PEM ({error})")))?;
    if certificates.is_empty() {
        return Err(file.error("has no certificate in PEM"));
    }
    Ok(certificates)
}

/// Reads the CAs of client certificates in a file.
///
/// # Errors
/// The file cannot be read, or has no usable CA.
pub(in crate::server) fn client_cas(
    provider: &Arc<CryptoProvider>,
    file: &FileSetting,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let cas = certificates(file)?;
    // Checked separately from other CAs, so that the error names this file.
    client_verifier(provider, cas.clone())
        .map_err(|error| file.error(format_args!("has no usable CA ({error})")))?;
    Ok(cas)
}

/// Returns a verifier of client certificates signed by one of `cas`.
///
/// # Errors
/// A CA is unusable.
pub(in crate::server) fn client_verifier(
    provider: &Arc<CryptoProvider>,
    cas: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    Ok(Arc::new(ClientVerifier::new(provider, cas)?))
}

/// Returns the settings of the handshake: HTTP/2 preferred, client certificates optional.
///
/// # Errors
/// The provider supports no TLS version that the server allows.
pub(in crate::server) fn server_config(
    parameters: &TlsParameters,
    certificates: ServingCertificates,
    verifier: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_provider(parameters.provider())
        .with_protocol_versions(&parameters.versions())?
        .with_client_cert_verifier(Arc::new(ProofOfKey(verifier)))
        .with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Accepts any client certificate whose key the client has; `auth` verifies the certificate later.
/// So an invalid one gets a 401 with a reason, as upstream, instead of a failed handshake, and a
/// client with a valid token is accepted.
#[derive(Debug)]
struct ProofOfKey(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ProofOfKey {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
