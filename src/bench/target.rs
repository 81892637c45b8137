//! The server that is loaded: its address, how it is trusted and who asks, checked once and shared by
//! all connections. It opens none.

use std::path::PathBuf;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, InvalidHeaderValue};
use http::uri::{InvalidUri, Scheme, Uri};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::args::{Protocol, TargetArgs};
use super::kubeconfig::{self, Access, KubeconfigError};

/// The target cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error("no server is named: give --kubeconfig or --server")]
    None,
    #[error("server {url:?} is no URL: {source}")]
    Url { url: String, source: InvalidUri },
    #[error("server {url:?} must begin with https:// or http:// and name a host")]
    Scheme { url: String },
    #[error("server {url:?} has a path: only servers at the root are supported")]
    Path { url: String },
    #[error("the name {name:?} cannot be in a certificate")]
    Name { name: String },
    #[error("a certificate or key of the target is not PEM: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    #[error("a certificate or key of the target cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the token cannot be sent: {0}")]
    Token(#[from] InvalidHeaderValue),
}

/// Where connections go.
#[derive(Debug)]
pub(super) struct Target {
    /// The URL, as it is told in the report.
    pub url: String,
    pub host: String,
    pub port: u16,
    /// `None`: plain HTTP.
    pub tls: Option<Tls>,
    pub protocol: Protocol,
    /// Headers of every request.
    pub headers: HeaderMap,
    /// `host:port` as requests name it.
    pub authority: String,
}

/// How connections are encrypted.
#[derive(Debug)]
pub(super) struct Tls {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

impl Target {
    /// Checks what the arguments, and the kubeconfig that they or the environment name, say.
    ///
    /// # Errors
    /// Something is missing or cannot be used.
    pub(super) fn open(args: &TargetArgs) -> Result<Self, TargetError> {
        let access = match &args.server {
            Some(server) => Access {
                server: server.clone(),
                insecure: args.insecure,
                token: args.token.clone(),
                ..Access::default()
            },
            None => {
                let path = args.kubeconfig.clone().or_else(environment);
                kubeconfig::read(&path.ok_or(TargetError::None)?, args.context.as_deref())?
            }
        };
        Self::new(access, args.http)
    }

    /// What `access` says, by `protocol`.
    ///
    /// # Errors
    /// It cannot be used.
    pub(super) fn new(access: Access, protocol: Protocol) -> Result<Self, TargetError> {
        let url = access.server.as_str();
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
        if let Some(token) = &access.token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let tls = match encrypted {
            true => Some(tls(&access, &plain_host, protocol)?),
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

fn environment() -> Option<PathBuf> {
    let variable = std::env::var("KUBECONFIG").ok();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    kubeconfig::default_path(variable.as_deref(), home.as_deref())
}

fn tls(access: &Access, host: &str, protocol: Protocol) -> Result<Tls, TargetError> {
    let name = access.server_name.as_deref().unwrap_or(host);
    let name = ServerName::try_from(name.to_owned()).map_err(|_| TargetError::Name {
        name: name.to_owned(),
    })?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = if access.insecure {
        let any = Arc::new(AnyCertificate(provider));
        builder.dangerous().with_custom_certificate_verifier(any)
    } else {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = &access.authority {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate?)?;
            }
        }
        builder.with_root_certificates(roots)
    };
    let mut config = match &access.certificate {
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key)?)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![match protocol {
        Protocol::Http1 => b"http/1.1".to_vec(),
        Protocol::Http2 => b"h2".to_vec(),
    }];
    // Each connection stands for a client of its own, which has no session to resume.
    config.resumption = Resumption::disabled();
    Ok(Tls {
        config: Arc::new(config),
        name,
    })
}

/// Takes any certificate, as `--insecure` asks for. Signatures are verified all the same: they cost
/// what they cost a real client.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(server: &str, expected: Result<(&str, u16, &str, bool), &str>) {
        let access = Access {
            server: server.into(),
            insecure: true,
            token: Some("t".into()),
            ..Access::default()
        };
        match (Target::new(access, Protocol::Http2), expected) {
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
        check("ftp://a", Err("must begin with"));
        check("localhost:8080", Err("must begin with"));
        check("https://", Err("is no URL"));
    }
}
