//! `RestConfig`: where a server is, whom to trust there and who asks. It opens no connection and reads
//! no file but those that it is made from; tokens and certificates in files are read by the client, again
//! and again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::exec::ExecPlugin;
use super::kubeconfig::{Kubeconfig, KubeconfigError};

/// How long a request other than a watch may take. Servers give one up after 60 s; the rest is for the
/// answer that says so.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(65);

/// Where a pod finds its own credentials.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What a client has to know of a server.
///
/// ```
/// use watchet::informer::{Kubeconfig, RestConfig};
///
/// let kubeconfig: Kubeconfig = "
/// current-context: one
/// contexts: [{name: one, context: {cluster: c, user: u, namespace: shop}}]
/// clusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443', tls-server-name: api}}]
/// users: [{name: u, user: {token: s3cret}}]
/// ".parse().unwrap();
/// let config = RestConfig::from_kubeconfig(&kubeconfig, None).unwrap();
/// assert_eq!(config.server, "https://10.0.0.1:6443");
/// assert_eq!(config.namespace, "shop");
/// ```
#[derive(Clone)]
pub struct RestConfig {
    /// The server's URL: `https://10.0.0.1:6443`; a path is what all requests begin with.
    pub server: String,
    /// Certificates that may have signed the server's; `None`: those that the system trusts.
    pub certificate_authority: Option<Pem>,
    /// Whoever answers is trusted. The connection is encrypted, and that is all.
    pub insecure_skip_tls_verify: bool,
    /// The name in the server's certificate, when it is not that of the URL.
    pub tls_server_name: Option<String>,
    /// Who asks, by a certificate.
    pub client_certificate: Option<ClientCertificate>,
    /// Who asks, by a bearer token.
    pub token: Option<Token>,
    /// As whom it is asked: the server checks that this one may act as them.
    pub impersonate: Option<Impersonate>,
    /// What connections go through: `http://proxy:3128` or `socks5://proxy:1080`.
    pub proxy_url: Option<String>,
    /// The namespace that is meant where none is named.
    pub namespace: String,
    /// What the client calls itself; field managers are named by what is before the slash.
    pub user_agent: String,
    /// How long a request other than a watch may take.
    pub timeout: Duration,
}

/// A certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The chain's first certificate first.
    pub certificate: Pem,
    /// Its key.
    pub key: Pem,
}

/// Certificates or a key in PEM, or where they are.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// They do not change.
    Text(Vec<u8>),
    /// They are in this file, which somebody keeps fresh: it is read again every minute, and when a request
    /// fails. Connections that are there go on; the requests that follow open others.
    File(PathBuf),
}

impl Pem {
    /// It, from the disk if need be.
    ///
    /// # Errors
    /// The file cannot be read; in words.
    pub(super) fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => std::fs::read(path).map_err(|error| format!("{path:?}: {error}")),
        }
    }

    /// The same, waiting for the disk as for anything else.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) async fn read_again(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => {
                let read = tokio::fs::read(path).await;
                read.map_err(|error| format!("{path:?}: {error}"))
            }
        }
    }
}

impl From<String> for Pem {
    fn from(text: String) -> Self {
        Self::Text(text.into_bytes())
    }
}

/// A bearer token, or where it is.
#[derive(Clone)]
pub enum Token {
    /// It does not change.
    Fixed(String),
    /// It is in this file, which somebody keeps fresh: it is read again every minute.
    File(PathBuf),
    /// This program says it.
    Exec(ExecPlugin),
}

/// As whom a request is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Impersonate {
    /// The user.
    pub user: String,
    /// Its uid, if that matters.
    pub uid: Option<String>,
    /// Its groups.
    pub groups: Vec<String>,
    /// What else authenticators say of it.
    pub extra: Vec<(String, Vec<String>)>,
}

impl std::fmt::Debug for RestConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let proxy_url = self.proxy_url.as_deref().map(without_password);
        f.debug_struct("RestConfig")
            .field("server", &self.server)
            .field("certificate_authority", &self.certificate_authority)
            .field("insecure_skip_tls_verify", &self.insecure_skip_tls_verify)
            .field("tls_server_name", &self.tls_server_name)
            .field("client_certificate", &self.client_certificate)
            .field("token", &self.token)
            .field("impersonate", &self.impersonate)
            .field("proxy_url", &proxy_url)
            .field("namespace", &self.namespace)
            .field("user_agent", &self.user_agent)
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// A URL as people may see it.
pub(super) fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // What is wrong with the rest does not matter here: all that may be a password goes.
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://..@{host}"),
        None => url.to_owned(),
    }
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed(_) => f.write_str("Fixed(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Exec(plugin) => f.debug_tuple("Exec").field(&plugin.command).finish(),
        }
    }
}

/// There is nothing to connect to.
#[derive(Debug, thiserror::Error)]
pub enum RestConfigError {
    /// The kubeconfig.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// Neither a kubeconfig nor a pod's service account.
    #[error(
        "no server is named: set KUBECONFIG, or make ~/.kube/config, or run in a pod with a service account"
    )]
    None,
    /// A pod's service account is incomplete.
    #[error("the pod's service account cannot be used: {path:?}: {source}")]
    ServiceAccount {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl RestConfig {
    /// The server at `server`, with the defaults of everything else.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            certificate_authority: None,
            insecure_skip_tls_verify: false,
            tls_server_name: None,
            client_certificate: None,
            token: None,
            impersonate: None,
            proxy_url: None,
            namespace: "default".to_owned(),
            user_agent: concat!("watchet/", env!("CARGO_PKG_VERSION")).to_owned(),
            timeout: REQUEST_TIMEOUT,
        }
    }

    /// What `kubeconfig` says of `context`, or of its current one.
    ///
    /// # Errors
    /// It says too little, or wants what is not done here.
    pub fn from_kubeconfig(
        kubeconfig: &Kubeconfig,
        context: Option<&str>,
    ) -> Result<Self, RestConfigError> {
        Ok(kubeconfig.access(context)?)
    }

    /// What programs use that are told nothing: the files of `KUBECONFIG`, else `~/.kube/config`, else
    /// the service account of the pod that it runs in.
    ///
    /// # Errors
    /// There is none of these, or it cannot be used.
    pub fn infer() -> Result<Self, RestConfigError> {
        let kubeconfig = Kubeconfig::load_default()?;
        if !kubeconfig.is_empty() {
            return Self::from_kubeconfig(&kubeconfig, None);
        }
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST");
        match host.zip(variable("KUBERNETES_SERVICE_PORT")) {
            Some((host, port)) => Self::in_cluster(&host, &port, Path::new(SERVICE_ACCOUNT)),
            None => Err(RestConfigError::None),
        }
    }

    /// What a pod has: the server's address from its environment (`KUBERNETES_SERVICE_HOST` and
    /// `_PORT`), the rest from the directory of its service account.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn in_cluster(host: &str, port: &str, directory: &Path) -> Result<Self, RestConfigError> {
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read(&path).map_err(|source| RestConfigError::ServiceAccount { path, source })
        };
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        // It is read at the first request; that there is none should be known before.
        read("token")?;
        read("ca.crt")?;
        let namespace = String::from_utf8_lossy(&read("namespace")?)
            .trim()
            .to_owned();
        Ok(Self {
            certificate_authority: Some(Pem::File(directory.join("ca.crt"))),
            token: Some(Token::File(directory.join("token"))),
            namespace,
            ..Self::new(format!("https://{host}:{port}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_finds_its_server() {
        let directory = tempfile::tempdir().unwrap();
        let error = RestConfig::in_cluster("10.0.0.1", "443", directory.path()).unwrap_err();
        assert!(error.to_string().contains("/token\""), "{error}");
        for (name, text) in [("token", "T"), ("namespace", "shop\n"), ("ca.crt", "CA")] {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let config = RestConfig::in_cluster("::1", "6443", directory.path()).unwrap();
        assert_eq!(config.server, "https://[::1]:6443");
        assert_eq!(config.namespace, "shop");
        let authority = Pem::File(directory.path().join("ca.crt"));
        assert_eq!(config.certificate_authority, Some(authority));
        assert!(matches!(config.token, Some(Token::File(path)) if path.ends_with("token")));
    }

    #[test]
    fn secrets_are_not_told() {
        let config = RestConfig {
            token: Some(Token::Fixed("s3cret".into())),
            client_certificate: Some(ClientCertificate {
                certificate: Pem::Text(b"s3cret".to_vec()),
                key: Pem::Text(b"s3cret".to_vec()),
            }),
            proxy_url: Some("http://jane:s3cret@proxy:3128".into()),
            ..RestConfig::new("https://a")
        };
        let shown = format!("{config:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("http://..@proxy:3128"), "{shown}");
        assert_eq!(without_password("jane:s3c@ret@p"), "://..@p");
    }
}
