//! `RestConfig`: a server's address, its trust settings and the client's credentials. It opens no
//! connections; tokens and certificates in files are re-read by the client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::dial::{Dialer, without_password};
use super::exec_plugin::ExecPlugin;
use super::pem::{ClientCertificate, Pem};

/// The default timeout of requests other than watches: longer than a server's own 60 s, to receive
/// its timeout response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(65);

/// The configuration of a client for one server.
///
/// ```
/// use watchet_client::{Kubeconfig, RestConfig};
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
    /// The URL of the server: `https://10.0.0.1:6443`; its path is prepended to all requests.
    pub server: String,
    /// The CA certificates of the server; `None` for the system's.
    pub certificate_authority: Option<Pem>,
    /// Disables verification of the server's certificate; connections are still encrypted.
    pub insecure_skip_tls_verify: bool,
    /// The name in the server's certificate, if it is not the URL's host.
    pub tls_server_name: Option<String>,
    /// The client certificate.
    pub client_certificate: Option<ClientCertificate>,
    /// The bearer token.
    pub token: Option<Token>,
    /// The user to impersonate, if the server allows it.
    pub impersonate: Option<Impersonate>,
    /// The proxy for connections: `http://proxy:3128` or `socks5://proxy:1080`.
    pub proxy_url: Option<String>,
    /// Opens the connections instead of TCP.
    pub dialer: Option<Arc<dyn Dialer>>,
    /// Whether TLS connections offer HTTP/2, with which all requests share a connection. With HTTP/1.1 each request in progress
    /// has its own connection. The default is true. `TLSClientConfig.NextProtos` of client-go.
    pub http2: bool,
    /// The default namespace.
    pub namespace: String,
    /// The `User-Agent` header; the server derives the default field manager from the part before
    /// the slash.
    pub user_agent: String,
    /// The timeout of requests other than watches.
    pub timeout: Duration,
}

/// A bearer token, or its source.
#[derive(Clone)]
#[non_exhaustive]
pub enum Token {
    /// A fixed token.
    Fixed(String),
    /// A file that may be rotated: it is read again every minute.
    File(PathBuf),
    /// A credential plugin.
    Exec(ExecPlugin),
}

/// A user to impersonate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Impersonate {
    /// The user name.
    pub user: String,
    /// The uid, if any.
    pub uid: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// Extra attributes of the user.
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
            .field("dialer", &self.dialer.as_ref().map(|_| ".."))
            .field("http2", &self.http2)
            .field("namespace", &self.namespace)
            .field("user_agent", &self.user_agent)
            .field("timeout", &self.timeout)
            .finish()
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

impl RestConfig {
    /// Creates a configuration for the server at `server` with defaults otherwise.
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
            dialer: None,
            http2: true,
            namespace: "default".to_owned(),
            user_agent: concat!("watchet/", env!("CARGO_PKG_VERSION")).to_owned(),
            timeout: REQUEST_TIMEOUT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_has_no_secrets() {
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
