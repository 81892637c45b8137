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
    /// The server's own CA, which is always accepted.
    pub(super) own_ca: CertificateDer<'static>,
    pub(super) settings: TlsSettings,
    pub(super) authenticator: Arc<Authenticator>,
    pub(super) client_cas: watch::Sender<Vec<CertificateDer<'static>>>,
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
        files.extend(self.client_ca_file.as_ref().map(|file| file.path.clone()));
        (!files.is_empty()).then(|| Reload::new(files, move || self.apply()))
    }

    fn apply(&self) -> Result<(), ApplyError> {
        let mut cas = match &self.client_ca_file {
            Some(file) => tls::client_cas(&self.provider, file)?,
            None => Vec::new(),
        };
        cas.push(self.own_ca.clone());
        let verifier = tls::client_verifier(&self.provider, cas.clone())?;
        let certificate = match &self.serving {
            Some(files) => tls::given_certificate(&self.provider, files)?,
            None => self.certificate.clone(),
        };
        if self.serving.is_some() {
            let trust = ServerTrust::given(&certificate.cert, self.kubeconfig.url.ip());
            self.kubeconfig.write(&trust)?;
        }
        let settings = tls::server_config(&self.parameters, certificate, Arc::clone(&verifier))?;
        self.settings.store(Arc::new(settings));
        self.authenticator.client_certificates().replace(verifier);
        self.client_cas.send_if_modified(|current| {
            let is_changed = *current != cas;
            *current = cas;
            is_changed
        });
        Ok(())
    }
}
