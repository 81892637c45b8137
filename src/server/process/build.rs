//! Builds a server: everything that can fail before the first connection is accepted, ordered so
//! that configuration errors are found first. The result holds the bound ports; `run` starts its
//! tasks.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::admission::PluginConfigurations;
use crate::audit::Auditor;
use crate::auth::node::NodeAuthorizer;
use crate::auth::rbac::RbacAuthorizer;
use crate::auth::{Authenticator, Authorizer, FrontProxy, TokenAuthenticator, TokenFile};
use crate::builtin::RegistryConfig;
use crate::controllers::{FrontProxyInfo, Selection};
use crate::encryption::{Encryption, EncryptionConfiguration};
use crate::metrics::Metrics;
use crate::registry::CacherConfig;
use crate::server::config::file_setting::FileSetting;
use crate::server::config::requests::RequestLimits;
use crate::server::config::server_config::{Config, Listen};
use crate::server::config::setting_value::ConfigError;
use crate::server::config::token_config::TokenKeys;
use crate::server::process::audit_files::AuditFiles;
use crate::server::process::authentication::LoadedAuthentication;
use crate::server::process::authorization::{self, LoadedAuthorization};
use crate::server::process::encryption;
use crate::server::process::file_limit;
use crate::server::process::files::{self, DataDir, DataDirError, FileError, PRIVATE};
use crate::server::process::kubeconfig::{self, ServerTrust};
use crate::server::process::memory::Memory;
use crate::server::process::open_error::OpenError;
use crate::server::process::open_storage::{self, History, StoreParent};
use crate::server::process::pki::{self, PkiError, ServingNames};
use crate::server::process::reload::Reload;
use crate::server::process::tls_files::{Kubeconfig, TlsFiles};
use crate::server::process::token_issuer::{
    TokenKeysError, keys_reload, token_issuer, warn_of_extension,
};
use crate::server::process::traces;
use crate::server::transport::connections::Connections;
use crate::server::transport::listen::{self, BindError};
use crate::server::transport::serving_certificates::ServingCertificates;
use crate::server::transport::tls::{self, TlsError, TlsSettings};
use crate::storage::Storage;
use crate::tasks::Tasks;
use crate::telemetry::TracingConfiguration;
use crate::x509::CertificateAuthority;

/// A server that is ready to be started.
#[derive(Debug)]
pub(in crate::server) struct Server {
    pub(in crate::server) secure: SecurePort,
    pub(in crate::server) insecure: Option<TcpListener>,
    /// The connections of both ports.
    pub(in crate::server) connections: Arc<Connections>,
    pub(in crate::server) storage: Arc<dyn Storage>,
    /// Encrypts stored values, if it is configured.
    pub(in crate::server) encryption: Option<Arc<Encryption>>,
    pub(in crate::server) tokens: Arc<TokenAuthenticator>,
    /// The tasks of authenticators, which the build starts.
    pub(in crate::server) authentication: Tasks,
    /// Decides which requests are allowed.
    pub(in crate::server) authorizer: Arc<dyn Authorizer>,
    /// The authorizer by roles, if that is a part of `authorizer`: it needs the stored roles.
    pub(in crate::server) rbac: Option<Arc<RbacAuthorizer>>,
    /// The authorizer of nodes, if that is a part of `authorizer`: it needs the stored pods.
    pub(in crate::server) nodes: Option<Arc<NodeAuthorizer>>,
    pub(in crate::server) metrics: Arc<Metrics>,
    /// Records requests in the audit log, if one is configured.
    pub(in crate::server) auditor: Option<Arc<Auditor>>,
    pub(in crate::server) tracing: Option<TracingConfiguration>,
    pub(in crate::server) registry: RegistryConfig,
    pub(in crate::server) controllers: Selection,
    /// The PEM certificate with which clients verify the serving certificate.
    pub(in crate::server) root_ca: String,
    /// The CA that signs certificate signing requests.
    pub(in crate::server) signer: Arc<CertificateAuthority>,
    /// The CAs of the client certificates that are accepted.
    pub(in crate::server) client_cas: watch::Receiver<Vec<CertificateDer<'static>>>,
    /// The front proxies that are accepted.
    pub(in crate::server) front_proxy: Option<FrontProxyInfo>,
    /// The files whose changes are applied.
    pub(in crate::server) reloads: Vec<Reload>,
    /// Whether to serve the console.
    pub(in crate::server) console: bool,
    /// Whether to serve profiles.
    pub(in crate::server) profiling: bool,
    pub(in crate::server) requests: RequestLimits,
    pub(in crate::server) memory: Memory,
    pub(in crate::server) shutdown_grace: Duration,
    pub(in crate::server) done: Done,
    /// Locked until the process ends.
    pub(in crate::server) data_dir: DataDir,
}

/// The HTTPS port with its TLS settings.
#[derive(Debug)]
pub(in crate::server) struct SecurePort {
    pub(in crate::server) listener: TcpListener,
    pub(in crate::server) tls: TlsSettings,
    pub(in crate::server) authenticator: Arc<Authenticator>,
}

/// The results of the build, for the announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct Done {
    /// The directory of a newly created CA.
    pub new_ca: Option<PathBuf>,
    /// A description of the storage.
    pub storage: String,
    /// The absolute path of the kubeconfig.
    pub kubeconfig: PathBuf,
    /// The address of HTTPS.
    pub secure: SocketAddr,
    /// The address of plain HTTP.
    pub insecure: Option<SocketAddr>,
}

/// Why the server could not be built.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "documented by their sources")]
pub(in crate::server) enum BuildError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    TokenKeys(#[from] TokenKeysError),
    #[error(transparent)]
    Storage(#[from] OpenError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot read a bound port: {0}")]
    Port(std::io::Error),
}

impl BuildError {
    /// Returns true if the configuration is wrong.
    pub(in crate::server) fn is_config(&self) -> bool {
        matches!(
            self,
            Self::Config(_)
                | Self::Tls(TlsError::Config(_))
                | Self::TokenKeys(TokenKeysError::Config(_))
                | Self::Storage(OpenError::Config(_))
        )
    }
}

/// The content of the configured files.
struct Material {
    serving: Option<rustls::sign::CertifiedKey>,
    sni: Vec<(rustls::sign::CertifiedKey, Vec<String>)>,
    client_cas: Vec<CertificateDer<'static>>,
    proxy_cas: Vec<CertificateDer<'static>>,
    tokens: Option<TokenFile>,
    token_keys: TokenKeys,
    authentication: LoadedAuthentication,
    authorization: LoadedAuthorization,
    plugin_configurations: PluginConfigurations,
    audit: Option<AuditFiles>,
    tracing: Option<TracingConfiguration>,
    encryption: Option<EncryptionConfiguration>,
}

impl Server {
    /// Builds a server with `config`: reads its files, locks the data directory, creates
    /// certificates, opens the storage, binds the ports, writes the kubeconfig. HTTPS is served on `listener` if there is
    /// one, instead of on a port that is bound.
    ///
    /// # Errors
    /// The first of these that fails. Configuration errors are found before a port is bound.
    pub(in crate::server) async fn build(
        config: &Config,
        listener: Option<std::net::TcpListener>,
    ) -> Result<Self, BuildError> {
        warn_of_short_history(&config.registry.caches);
        warn_of_extension(&config.tokens);
        let provider = config.tls.provider();
        let material = Material::load(config, &provider)?;
        let data_dir = DataDir::lock(&config.data_dir)?;
        let pki_dir = data_dir.path.join("pki");
        let hostname = hostname::get()
            .ok()
            .and_then(|name| name.into_string().ok());
        let address = match &listener {
            Some(listener) => listener.local_addr().map_err(BuildError::Port)?.ip(),
            None => config.listen.address,
        };
        let names = ServingNames {
            address,
            hostname,
            extra: config.extra_names.clone(),
        };
        let pki = pki::load_or_create(&pki_dir, &names, Timestamp::now())?;
        let issuer = token_issuer(
            &config.tokens,
            material.token_keys,
            &pki.service_account_key,
            &pki_dir,
        )?;
        let metrics = Metrics::new();
        let authentication = Tasks::with_metrics(metrics.tasks());
        // If a later step fails, they end.
        let authentication_guard = authentication.token().drop_guard();
        let anonymous = material.authentication.anonymous();
        let external = material.authentication.into_authenticators(
            &config.authentication,
            issuer.audiences(),
            &authentication,
        );
        let tokens = TokenAuthenticator::new(material.tokens, issuer)
            .with_external(external.all())
            .with_metrics(metrics.authentication().service_account_tokens.clone());
        let tokens = Arc::new(tokens);
        let mut client_cas = material.client_cas;
        let own_ca = CertificateDer::from_pem_slice(pki.ca.as_bytes()).map_err(TlsError::from)?;
        client_cas.push(own_ca.clone());
        let proxy_cas = material.proxy_cas;
        let verifier = tls::client_verifier(&provider, client_cas.clone())?;
        let front_proxy = front_proxy(&provider, config, &proxy_cas)?;
        let authenticator = Authenticator::new(verifier, tokens.clone());
        let authenticator = Arc::new(authenticator.with_front_proxy(front_proxy));
        authenticator.replace_anonymous(anonymous);
        let auditor = material.audit.map(|files| files.open(&metrics));
        let auditor = auditor.transpose()?.map(Arc::new);
        let history = History {
            compaction_interval: config.compaction_interval,
            retention: config.retention,
        };
        let is_new_ca = pki.created.iter().any(|path| path.ends_with("ca.crt"));
        let parent = StoreParent {
            data_dir: &data_dir.path,
            was_used: !is_new_ca,
        };
        let storage = open_storage::open(&config.storage, history, parent, &metrics).await?;
        let settings = config.encryption.as_ref();
        let encryption =
            encryption::start(settings, material.encryption, &config.storage, &metrics).await?;

        let (secure, insecure) = bind(&config.listen, listener)?;
        let local = |listener: &TcpListener| listener.local_addr().map_err(BuildError::Port);
        let url = kubeconfig::reachable(local(&secure)?);
        let (certificate, trust) = match material.serving {
            Some(given) => {
                let trust = ServerTrust::of_configured_chain(&given.cert, url.ip());
                (given, trust)
            }
            None => (
                tls::own_certificate(&provider, &pki.serving.certificate, &pki.serving.key)?,
                ServerTrust::of_own_ca(&pki.ca),
            ),
        };
        let all_cas = client_cas.iter().chain(&proxy_cas).cloned();
        let handshakes = tls::client_verifier(&provider, all_cas)?;
        let certificates = ServingCertificates::new(certificate, material.sni);
        let tls = tls::server_config(&config.tls, certificates, handshakes)?;
        let tls = Arc::new(ArcSwap::from_pointee(tls));
        let kubeconfig =
            std::path::absolute(&config.kubeconfig).unwrap_or(config.kubeconfig.clone());
        let text = kubeconfig::render(url, &trust, &pki.admin);
        write_kubeconfig(&kubeconfig, &text)?;
        let (client_cas, client_cas_seen) = watch::channel(client_cas);
        let (proxy_cas, proxy_cas_seen) = watch::channel(proxy_cas);
        let proxy = config.authentication.front_proxy.as_ref();
        let tls_files = TlsFiles {
            provider,
            parameters: config.tls.clone(),
            serving: config.serving_certificate.clone(),
            sni: config.sni_certificates.clone(),
            pki_dir: pki_dir.clone(),
            names,
            client_ca_file: config.client_ca_file.clone(),
            proxy_ca_file: proxy.map(|proxy| proxy.ca_file.clone()),
            own_ca,
            settings: Arc::clone(&tls),
            authenticator: Arc::clone(&authenticator),
            client_cas,
            proxy_cas,
            kubeconfig: Kubeconfig {
                path: kubeconfig.clone(),
                url,
            },
        };
        let issuers = config.tokens.issuers.clone();
        let authorizers = material.authorization.start(&metrics, &authentication);
        let reloads = [
            authorization::reload(&config.authorization, &authorizers, &metrics),
            token_reload(config, &tokens),
            keys_reload(
                &config.tokens,
                pki.service_account_key,
                pki_dir.clone(),
                &tokens,
            ),
            Some(tls_files.into_reload()),
            encryption::reload(settings, encryption.as_ref(), &metrics),
        ];
        let of_authentication =
            external.reloads(&config.authentication, issuers, &authenticator, &metrics);
        let done = Done {
            new_ca: is_new_ca.then_some(pki_dir),
            storage: open_storage::describe(&config.storage, &data_dir.path),
            kubeconfig,
            secure: url,
            insecure: insecure.as_ref().map(&local).transpose()?,
        };
        authentication_guard.disarm();
        let memory = Memory::new(config.memory);
        Ok(Self {
            secure: SecurePort {
                listener: secure,
                tls,
                authenticator,
            },
            insecure,
            connections: Connections::new(
                config
                    .listen
                    .connections_max
                    .get()
                    .min(file_limit::connections_max()),
                &memory.server_memory,
            ),
            storage,
            encryption,
            tokens,
            authentication,
            authorizer: authorizers.authorizer,
            rbac: authorizers.local.rbac,
            nodes: authorizers.local.nodes,
            metrics,
            auditor,
            tracing: material.tracing,
            registry: RegistryConfig {
                plugin_configurations: material.plugin_configurations,
                ..config.registry.clone()
            },
            controllers: config.controllers.clone(),
            root_ca: trust.certificate_authority,
            signer: Arc::new(pki.signer),
            client_cas: client_cas_seen,
            front_proxy: proxy.map(|proxy| FrontProxyInfo {
                cas: proxy_cas_seen,
                headers: proxy.headers.clone(),
            }),
            reloads: reloads
                .into_iter()
                .flatten()
                .chain(of_authentication)
                .collect(),
            console: config.console,
            profiling: config.profiling,
            requests: config.requests.clone(),
            memory,
            shutdown_grace: config.lifetime.shutdown_grace,
            done,
            data_dir,
        })
    }
}

/// Writes the kubeconfig, unless it has this text. On a full disk the present one remains.
fn write_kubeconfig(path: &Path, text: &str) -> Result<(), FileError> {
    if files::read_if_exists(path).is_ok_and(|present| present.as_deref() == Some(text)) {
        return Ok(());
    }
    match files::write(path, text.as_bytes(), PRIVATE) {
        Err(error) if error.is_full_disk() => {
            tracing::warn!(
                %error,
                "the disk is full: starting without the kubeconfig of this start; free disk space, or \
                 delete objects, and restart the server"
            );
            Ok(())
        }
        written => written,
    }
}

impl Material {
    fn load(
        config: &Config,
        provider: &Arc<rustls::crypto::CryptoProvider>,
    ) -> Result<Self, ConfigError> {
        let serving = config.serving_certificate.as_ref();
        let serving = serving
            .map(|files| tls::given_certificate(provider, files))
            .transpose()?;
        let client_cas = match &config.client_ca_file {
            Some(file) => tls::client_cas(provider, file)?,
            None => Vec::new(),
        };
        let proxy_cas = match &config.authentication.front_proxy {
            Some(proxy) => tls::client_cas(provider, &proxy.ca_file)?,
            None => Vec::new(),
        };
        let tokens = match &config.token_auth_file {
            Some(file) => Some(token_file(file)?),
            None => None,
        };
        let plugin_configurations = match &config.admission_config_file {
            Some(file) => {
                let loaded = PluginConfigurations::load(&file.path);
                loaded.map_err(|error| file.error(error))?
            }
            None => PluginConfigurations::default(),
        };
        Ok(Self {
            serving,
            sni: tls::sni_certificates(provider, &config.sni_certificates)?,
            client_cas,
            proxy_cas,
            tokens,
            token_keys: config.tokens.read()?,
            authentication: LoadedAuthentication::load(
                &config.authentication,
                &config.tokens.issuers,
            )?,
            authorization: LoadedAuthorization::load(&config.authorization)?,
            plugin_configurations,
            audit: config.audit.as_ref().map(AuditFiles::read).transpose()?,
            tracing: traces::read(config.tracing_config_file.as_ref())?,
            encryption: match &config.encryption {
                Some(settings) => Some(settings.read()?),
                None => None,
            },
        })
    }
}

fn front_proxy(
    provider: &Arc<rustls::crypto::CryptoProvider>,
    config: &Config,
    cas: &[CertificateDer<'static>],
) -> Result<Option<FrontProxy>, TlsError> {
    let Some(proxy) = &config.authentication.front_proxy else {
        return Ok(None);
    };
    let verifier = tls::client_verifier(provider, cas.iter().cloned())?;
    Ok(Some(FrontProxy::new(verifier, proxy.headers.clone())))
}

fn token_file(file: &FileSetting) -> Result<TokenFile, ConfigError> {
    TokenFile::parse(&file.read()?).map_err(|error| file.error(error))
}

/// Returns the reload of the token file, if one is configured.
fn token_reload(config: &Config, tokens: &Arc<TokenAuthenticator>) -> Option<Reload> {
    let file = config.token_auth_file.clone()?;
    let tokens = Arc::clone(tokens);
    Some(Reload::new(vec![file.path.clone()], move || {
        tokens.replace_token_file(token_file(&file)?);
        Ok(())
    }))
}

/// Warns if a client that resumes from its last bookmark is likely to get a 410.
fn warn_of_short_history(caches: &CacherConfig) {
    let (window, bookmarks) = (caches.history_window, caches.bookmark_period);
    if window < bookmarks {
        tracing::warn!(
            ?window,
            ?bookmarks,
            "the watch history window is shorter than the time between two bookmarks: \
             an idle watch may be unable to resume"
        );
    }
}

fn bind(
    listen: &Listen,
    activated: Option<std::net::TcpListener>,
) -> Result<(TcpListener, Option<TcpListener>), BuildError> {
    let at = |port| SocketAddr::new(listen.address, port);
    let secure = match activated {
        Some(listener) => listen::adopt(listener).map_err(BuildError::Port)?,
        None => listen::bind("--secure-port", at(listen.secure_port))?,
    };
    let insecure = listen
        .insecure_port
        .map(|port| listen::bind("--insecure-port", at(port)))
        .transpose()?;
    Ok((secure, insecure))
}
