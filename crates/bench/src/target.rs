//! The server to load: its address, TLS and credentials, validated once and shared by all
//! connections.

use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, InvalidHeaderValue};
use http::uri::{InvalidUri, Scheme, Uri};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls_pki_types::ServerName;

use super::args::{Protocol, TargetArgs};
use watchet_client::{
    InvalidRestConfig, Kubeconfig, KubeconfigError, RestConfig, RestConfigError, Token,
};

/// Why the target cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Config(#[from] RestConfigError),
    #[error("no server given: use --kubeconfig or --server")]
    None,
    #[error("the kubeconfig {0}, which the measurement would include: use --server and --token")]
    Indirect(&'static str),
    #[error("server {url:?} is not a URL: {source}")]
    Url { url: String, source: InvalidUri },
    #[error("server {url:?} must start with https:// or http:// and have a host")]
    Scheme { url: String },
    #[error("server {url:?} has a path: only servers at the root are supported")]
    Path { url: String },
    #[error("the name {name:?} is not valid in a certificate")]
    Name { name: String },
    #[error(transparent)]
    Tls(#[from] InvalidRestConfig),
    #[error("the token cannot be read: {0}")]
    TokenFile(String),
    #[error("the token is not a valid header value: {0}")]
    Token(#[from] InvalidHeaderValue),
}

/// A server to load.
#[derive(Debug)]
pub(super) struct Target {
    /// The URL, for the report.
    pub url: String,
    pub host: String,
    pub port: u16,
    /// `None` for plain HTTP.
    pub tls: Option<Tls>,
    pub protocol: Protocol,
    /// The headers of every request.
    pub headers: HeaderMap,
    /// `host:port` of requests.
    pub authority: String,
}

/// The TLS settings of connections.
#[derive(Debug)]
pub(super) struct Tls {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

impl Target {
    /// Loads the target from the arguments or from the kubeconfig that they or the environment
    /// select.
    ///
    /// # Errors
    /// A setting is missing or invalid.
    pub(super) fn open(args: &TargetArgs) -> Result<Self, TargetError> {
        let config = match &args.server {
            Some(server) => RestConfig {
                insecure_skip_tls_verify: args.insecure,
                token: args.token.clone().map(Token::Fixed),
                ..RestConfig::new(server)
            },
            None => {
                let kubeconfig = match &args.kubeconfig {
                    Some(path) => Kubeconfig::load(&[path])?,
                    None => Kubeconfig::load_default()?,
                };
                if kubeconfig.is_empty() {
                    return Err(TargetError::None);
                }
                RestConfig::from_kubeconfig(&kubeconfig, args.context.as_deref())?
            }
        };
        Self::new(&config, args.http)
    }

    /// Creates a target from `config` that is used over `protocol`.
    ///
    /// # Errors
    /// A setting is not supported.
    pub(super) fn new(config: &RestConfig, protocol: Protocol) -> Result<Self, TargetError> {
        let url = config.server.as_str();
        let url = url.strip_suffix('/').unwrap_or(url).to_owned();
        let uri: Uri = match url.parse() {
            Ok(uri) => uri,
            Err(source) => return Err(TargetError::Url { url, source }),
        };
        let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
        let Some(host) = uri.host().filter(|_| uri.scheme().is_some()) else {
            return Err(TargetError::Scheme { url });
        };
        if !encrypted && uri.scheme() != Some(&Scheme::HTTP) {
            return Err(TargetError::Scheme { url });
        }
        if !matches!(uri.path(), "" | "/") {
            return Err(TargetError::Path { url });
        }
        let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let plain_host = host.trim_matches(['[', ']']).to_owned();
        let mut headers = HeaderMap::new();
        if config.proxy_url.is_some() {
            return Err(TargetError::Indirect("uses a proxy"));
        }
        if config.impersonate.is_some() {
            return Err(TargetError::Indirect("impersonates a user"));
        }
        if let Some(token) = token(config)? {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let tls = match encrypted {
            true => Some(tls(config, &plain_host, protocol)?),
            false => None,
        };
        Ok(Self {
            authority: format!("{host}:{port}"),
            host: plain_host,
            port,
            tls,
            protocol,
            headers,
            url,
        })
    }
}

/// Returns the current bearer token: a run is too short for it to expire.
fn token(config: &RestConfig) -> Result<Option<String>, TargetError> {
    match &config.token {
        None => Ok(None),
        Some(Token::Fixed(token)) => Ok(Some(token.clone())),
        Some(Token::File(path)) => match std::fs::read_to_string(path) {
            Ok(token) => Ok(Some(token.trim().to_owned())),
            Err(error) => Err(TargetError::TokenFile(format!("{path:?}: {error}"))),
        },
        Some(_) => Err(TargetError::Indirect("uses a credential plugin")),
    }
}

fn tls(config: &RestConfig, host: &str, protocol: Protocol) -> Result<Tls, TargetError> {
    let name = config.tls_server_name.as_deref().unwrap_or(host);
    let name = ServerName::try_from(name.to_owned()).map_err(|_| TargetError::Name {
        name: name.to_owned(),
    })?;
    let mut config = config.tls_client()?;
    config.alpn_protocols = vec![match protocol {
        Protocol::Http1 => b"http/1.1".to_vec(),
        Protocol::Http2 => b"h2".to_vec(),
    }];
    // Each connection represents a separate client, which has no session to resume.
    config.resumption = Resumption::disabled();
    Ok(Tls {
        config: Arc::new(config),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(server: &str, expected: Result<(&str, u16, &str, bool), &str>) {
        let config = RestConfig {
            insecure_skip_tls_verify: true,
            token: Some(Token::Fixed("t".into())),
            ..RestConfig::new(server)
        };
        match (Target::new(&config, Protocol::Http2), expected) {
            (Ok(target), Ok((host, port, authority, encrypted))) => {
                assert_eq!((target.host.as_str(), target.port), (host, port));
                assert_eq!(target.authority, authority);
                assert_eq!(target.tls.is_some(), encrypted);
                assert_eq!(target.headers[AUTHORIZATION], "Bearer t");
            }
            (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
            (other, expected) => panic!("{server}: {other:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn urls_are_checked() {
        check(
            "https://a.example",
            Ok(("a.example", 443, "a.example:443", true)),
        );
        check("https://[::1]:6443/", Ok(("::1", 6443, "[::1]:6443", true)));
        check(
            "http://127.0.0.1",
            Ok(("127.0.0.1", 80, "127.0.0.1:80", false)),
        );
        check("https://a/clusters/b", Err("has a path"));
        check("ftp://a", Err("must start with"));
        check("localhost:8080", Err("must start with"));
        check("https://", Err("is not a URL"));
    }
    #[test]
    fn indirect_targets_are_rejected() {
        let refused = |change: fn(&mut RestConfig)| {
            let mut config = RestConfig::new("http://a");
            change(&mut config);
            Target::new(&config, Protocol::Http2)
                .unwrap_err()
                .to_string()
        };
        let proxy = refused(|config| config.proxy_url = Some("http://b".into()));
        assert!(proxy.contains("uses a proxy"), "{proxy}");
        let other = refused(|config| config.impersonate = Some(Default::default()));
        assert!(other.contains("impersonates"), "{other}");
        let missing = refused(|config| config.token = Some(Token::File("/nowhere".into())));
        assert!(missing.contains("/nowhere"), "{missing}");
    }
}
