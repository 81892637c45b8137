//! Applies changes of the TLS files while the server runs: serving certificates and accepted CAs. Renews the server's own
//! certificates before they expire.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::crypto::CryptoProvider;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::auth::Authenticator;
use crate::server::config::file_setting::{CertificateFiles, FileSetting};
use crate::server::config::sni::SniCertificate;
use crate::server::config::tls::TlsParameters;
use crate::server::process::files::{self, PRIVATE};
use crate::server::process::kubeconfig::{self, ServerTrust};
use crate::server::process::pki::{self, CertificateAndKey, Pki, ServingNames};
use crate::server::process::reload::{ApplyError, Reload};
use crate::server::transport::serving_certificates::ServingCertificates;
use crate::server::transport::tls::{self, TlsSettings};

/// How often the server's own certificates are checked: they are renewed a month before they expire.
const RENEWAL_CHECK_INTERVAL: Duration = Duration::from_secs(3600);

/// What depends on the TLS files.
pub(super) struct TlsFiles {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) parameters: TlsParameters,
    /// The configured certificate; `None` if the server has its own.
    pub(super) serving: Option<CertificateFiles>,
    /// The configured certificates for names.
    pub(super) sni: Vec<SniCertificate>,
    /// The directory of the server's own CA and certificates.
    pub(super) pki_dir: PathBuf,
    /// The names of its own serving certificate.
    pub(super) names: ServingNames,
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
}

impl Kubeconfig {
    fn write(
        &self,
        trust: &ServerTrust,
        admin: &CertificateAndKey,
    ) -> Result<(), files::FileError> {
        let text = kubeconfig::render(self.url, trust, admin);
        files::write(&self.path, text.as_bytes(), PRIVATE)
    }
}

impl TlsFiles {
    /// Returns the reload of the files. The server's own certificates are checked each hour.
    pub(super) fn into_reload(self) -> Reload {
        let pairs = self
            .serving
            .iter()
            .chain(self.sni.iter().map(|one| &one.files));
        let pairs = pairs.flat_map(|pair| [&pair.certificate, &pair.key]);
        let given = pairs.chain(&self.client_ca_file).chain(&self.proxy_ca_file);
        let given = given.map(|file| file.path.clone());
        let own = pki::LEAF_FILES.map(|name| self.pki_dir.join(name));
        let files = given.chain(own).collect();
        let mut checked = Instant::now();
        let is_due = move || {
            let is_due = checked.elapsed() >= RENEWAL_CHECK_INTERVAL;
            if is_due {
                checked = Instant::now();
            }
            is_due
        };
        Reload::new(files, move || self.apply()).also_when(is_due)
    }

    /// Renews the server's own certificates that expire soon, are damaged or missing, and returns all.
    ///
    /// # Errors
    /// The CA is not that of the start: its change needs a restart, because clients trust it.
    fn renew(&self) -> Result<Pki, ApplyError> {
        let path = self.pki_dir.join("ca.crt");
        let ca = files::read_if_exists(&path)?.unwrap_or_default();
        if CertificateDer::from_pem_slice(ca.as_bytes()).ok().as_ref() != Some(&self.own_ca) {
            return Err(ApplyError::invalid(format!(
                "{path:?} is no longer the CA of this server: restore it, or restart the server"
            )));
        }
        let own = pki::load_or_create(&self.pki_dir, &self.names, Timestamp::now());
        own.map_err(ApplyError::invalid)
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
        let own = self.renew()?;
        let (certificate, trust) = match &self.serving {
            Some(files) => {
                let given = tls::given_certificate(&self.provider, files)?;
                let trust = ServerTrust::of_configured_chain(&given.cert, self.kubeconfig.url.ip());
                (given, trust)
            }
            None => (
                tls::own_certificate(&self.provider, &own.serving.certificate, &own.serving.key)?,
                ServerTrust::of_own_ca(&own.ca),
            ),
        };
        let named = tls::sni_certificates(&self.provider, &self.sni)?;
        if self.serving.is_some() || !own.created.is_empty() {
            self.kubeconfig.write(&trust, &own.admin)?;
        }
        let certificates = ServingCertificates::new(certificate, named);
        let settings = tls::server_config(&self.parameters, certificates, handshakes)?;
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
