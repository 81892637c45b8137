//! Applies changes of the TLS files while the server runs: serving certificate and accepted CAs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;

use crate::auth::Authenticator;
use crate::server::config::file_setting::{CertificateFiles, FileSetting};
use crate::server::config::tls::TlsParameters;
use crate::server::process::files::{self, PRIVATE};
use crate::server::process::kubeconfig::{self, ServerTrust};
use crate::server::process::pki::CertificateAndKey;
use crate::server::process::reload::{ApplyError, Reload};
use crate::server::transport::tls::{self, TlsSettings};

/// What depends on the TLS files.
pub(super) struct TlsFiles {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) parameters: TlsParameters,
    /// The configured certificate; `None` if the server has its own.
    pub(super) serving: Option<CertificateFiles>,
    /// The certificate that is served now.
    pub(super) certificate: CertifiedKey,
    pub(super) client_ca_file: Option<FileSetting>,
    /// The CAs of front proxies.
    pub(super) proxy_ca_file: Option<FileSetting>,
    /// The server's own CA, which is always accepted.
    pub(super) own_ca: CertificateDer<'static>,
    pub(super) settings: TlsSettings,
    pub(super) authenticator: Arc<Authenticator>,
    pub(super) client_cas: watch::Sender<Vec<CertificateDer<'static>>>,
    pub(super) proxy_cas: watch::Sender<Vec<CertificateDer<'static>>>,
    pub(super) kubeconfig: Kubeconfig,
}

/// The kubeconfig, which has the CA of a configured certificate.
pub(super) struct Kubeconfig {
    pub(super) path: PathBuf,
    pub(super) url: SocketAddr,
    pub(super) admin: CertificateAndKey,
}

impl Kubeconfig {
    fn write(&self, trust: &ServerTrust) -> Result<(), files::FileError> {
        let text = kubeconfig::render(self.url, trust, &self.admin);
        files::write(&self.path, text.as_bytes(), PRIVATE)
    }
}

impl TlsFiles {
    /// Returns the reload of the files; `None` if none is configured.
    pub(super) fn into_reload(self) -> Option<Reload> {
        let mut files = Vec::new();
        if let Some(CertificateFiles { certificate, key }) = &self.serving {
            files.extend([certificate.path.clone(), key.path.clone()]);
        }
        let cas = self.client_ca_file.iter().chain(&self.proxy_ca_file);
        files.extend(cas.map(|file| file.path.clone()));
        (!files.is_empty()).then(|| Reload::new(files, move || self.apply()))
    }

    fn apply(&self) -> Result<(), ApplyError> {
        let mut cas = match &self.client_ca_file {
            Some(file) => tls::client_cas(&self.provider, file)?,
            None => Vec::new(),
        };
        cas.push(self.own_ca.clone());
        let proxy_cas = match &self.proxy_ca_file {
            Some(file) => tls::client_cas(&self.provider, file)?,
            None => Vec::new(),
        };
        let verifier = tls::client_verifier(&self.provider, cas.clone())?;
        let proxy_verifier = match self.proxy_ca_file {
            Some(_) => Some(tls::client_verifier(&self.provider, proxy_cas.clone())?),
            None => None,
        };
        let all_cas = cas.iter().chain(&proxy_cas).cloned();
        let handshakes = tls::client_verifier(&self.provider, all_cas)?;
        let certificate = match &self.serving {
            Some(files) => tls::given_certificate(&self.provider, files)?,
            None => self.certificate.clone(),
        };
        if self.serving.is_some() {
            let trust = ServerTrust::given(&certificate.cert, self.kubeconfig.url.ip());
            self.kubeconfig.write(&trust)?;
        }
        let settings = tls::server_config(&self.parameters, certificate, handshakes)?;
        self.settings.store(Arc::new(settings));
        self.authenticator.client_certificates().replace(verifier);
        if let Some((proxy, verifier)) = self.authenticator.front_proxy().zip(proxy_verifier) {
            proxy.certificates().replace(verifier);
        }
        publish(&self.client_cas, cas);
        publish(&self.proxy_cas, proxy_cas);
        Ok(())
    }
}

fn publish(
    sender: &watch::Sender<Vec<CertificateDer<'static>>>,
    cas: Vec<CertificateDer<'static>>,
) {
    sender.send_if_modified(|current| {
        let is_changed = *current != cas;
        *current = cas;
        is_changed
    });
}
