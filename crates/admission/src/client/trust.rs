//! The certificates that calls of webhooks trust: those of the configuration's `caBundle` and certificates that they
//! signed. Without a bundle, calls trust the root certificates of the operating system (`SSL_CERT_FILE`, `SSL_CERT_DIR`,
//! else its default locations), which are read once. The crate `x509` verifies certificates.

use std::sync::Arc;

use rustls::ClientConfig as TlsConfig;
use rustls::crypto::aws_lc_rs;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::sync::OnceCell;

use super::ClientConfig;
use watchet_tasks::Tasks;
use watchet_x509::{ServerVerifier, Trusted};

/// The system's certificates, read at the first use.
#[derive(Debug, Default)]
pub(super) struct SystemRoots(OnceCell<Arc<Trusted>>);

impl SystemRoots {
    async fn get(&self, tasks: &Tasks) -> Result<Arc<Trusted>, String> {
        let read = || async {
            let read = tasks.spawn_blocking("system-roots", system_roots).await;
            read.map_err(|error| format!("unable to load root certificates: {error}"))
        };
        self.0.get_or_try_init(read).await.cloned()
    }
}

/// Reads the usable certificates of the system. Damaged ones are skipped.
fn system_roots() -> Arc<Trusted> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some of the system's CA certificates cannot be read");
    }
    let trusted = Trusted::new(found.certs);
    if trusted.unusable > 0 {
        let unusable = trusted.unusable;
        tracing::debug!(unusable, "CA certificates of the system cannot be used");
    }
    Arc::new(trusted)
}

/// Returns the TLS settings of calls by `config`, in which this server presents `certificate`.
///
/// # Errors
/// The `caBundle` contains no certificate; with upstream's message.
pub(super) async fn client_config(
    config: &ClientConfig,
    certificate: Option<Arc<CertifiedKey>>,
    system: &SystemRoots,
    tasks: &Tasks,
) -> Result<Arc<TlsConfig>, String> {
    let trusted = match &config.ca_bundle {
        Some(pem) => Arc::new(bundle(pem)?),
        None => system.get(tasks).await?,
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(ServerVerifier::new(trusted, &provider));
    let tls = TlsConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    Ok(Arc::new(match certificate {
        Some(certificate) => {
            tls.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certificate)))
        }
        None => tls.with_no_client_auth(),
    }))
}

fn bundle(pem: &[u8]) -> Result<Trusted, String> {
    let unparsable =
        || "unable to load root certificates: unable to parse bytes as PEM block".to_owned();
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let trusted = Trusted::new(certificates.map_err(|_| unparsable())?);
    match trusted.is_empty() {
        true => Err(unparsable()),
        false => Ok(trusted),
    }
}
