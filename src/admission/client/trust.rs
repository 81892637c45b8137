//! Whom a webhook's certificate may be signed by: the configuration's `caBundle`, and nothing else;
//! without one, what the operating system trusts (`SSL_CERT_FILE`, `SSL_CERT_DIR`, else its usual
//! places), read once. The name in the certificate is always checked.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig as TlsConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::sync::OnceCell;

use super::ClientConfig;
use crate::tasks::Tasks;

/// The system's certificates, once somebody needs them.
#[derive(Debug, Default)]
pub(super) struct SystemRoots(OnceCell<Arc<RootCertStore>>);

impl SystemRoots {
    async fn get(&self, tasks: &Tasks) -> Result<Arc<RootCertStore>, String> {
        let read = || async {
            let read = tasks.spawn_blocking("system-roots", system_roots).await;
            read.map_err(|error| format!("unable to load root certificates: {error}"))
        };
        self.0.get_or_try_init(read).await.cloned()
    }
}

/// What of the system's certificates can be used; a damaged one is no reason to trust none.
fn system_roots() -> Arc<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some of the system's CA certificates cannot be read");
    }
    let mut roots = RootCertStore::empty();
    let (_, unusable) = roots.add_parsable_certificates(found.certs);
    if unusable > 0 {
        tracing::debug!(unusable, "CA certificates of the system cannot be used");
    }
    Arc::new(roots)
}

/// The handshake's settings for calls by `config`.
///
/// # Errors
/// Its bundle holds no certificate, as upstream says it.
pub(super) async fn client_config(
    config: &ClientConfig,
    system: &SystemRoots,
    tasks: &Tasks,
) -> Result<Arc<TlsConfig>, String> {
    let roots = match &config.ca_bundle {
        Some(pem) => Arc::new(bundle(pem)?),
        None => system.get(tasks).await?,
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let tls = TlsConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(tls))
}

fn bundle(pem: &[u8]) -> Result<RootCertStore, String> {
    let unparsable =
        || "unable to load root certificates: unable to parse bytes as PEM block".to_owned();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| unparsable())?;
        roots.add(certificate).map_err(|_| unparsable())?;
    }
    if roots.is_empty() {
        return Err(unparsable());
    }
    Ok(roots)
}
