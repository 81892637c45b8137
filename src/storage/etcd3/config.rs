//! How to reach etcd: the configuration as given, and the same checked into endpoints that can be
//! dialled. It opens no connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::keys::Layout;
use crate::metrics::Histogram;

/// How long a TCP connection and its TLS handshake may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A quiet connection with an open stream is asked for a sign of life after this long. etcd counts
/// pings that come less than 5 s apart as abuse and hangs up, so there is a second to spare; for the
/// same reason a connection without streams is not pinged. What it hides, the next call finds out.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(6);

/// A connection that owes a sign of life for this long is dead.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// What one HTTP/2 stream may have in flight towards us.
pub(super) const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// The streams of one connection that may stand unread, all windows full, before they stop each
/// other. A connection carries at most this many watches (see `cluster`).
pub(super) const STREAMS_PER_CONNECTION: u32 = 64;

/// The connection's window holds the windows of all its streams: one watch whose reader is behind
/// cannot starve the others.
const CONNECTION_WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES * STREAMS_PER_CONNECTION;

// etcd and gRPC servers commonly grant 100 streams to a connection; one more would wait unseen.
const _: () = assert!(STREAMS_PER_CONNECTION < 100);

/// How to reach etcd and what part of it is ours.
#[derive(Debug, Clone)]
pub struct Etcd3Config {
    /// `--etcd-servers`: URLs (`http://`, `https://`) or `host:port`.
    pub endpoints: Vec<String>,
    /// `--etcd-prefix`: the root of all keys.
    pub prefix: String,
    /// `--etcd-cafile`: PEM certificates that sign the servers'.
    pub ca_file: Option<PathBuf>,
    /// `--etcd-certfile`: this client's PEM certificate chain.
    pub cert_file: Option<PathBuf>,
    /// `--etcd-keyfile`: the private key for it.
    pub key_file: Option<PathBuf>,
    /// `--etcd-compaction-interval`: history lives one to two of these; zero never compacts.
    pub compaction_interval: Duration,
    /// Told of each lease that is replaced: how many keys it has.
    pub lease_keys: Arc<Histogram>,
}

impl Default for Etcd3Config {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            prefix: "/registry".into(),
            ca_file: None,
            cert_file: None,
            key_file: None,
            compaction_interval: Duration::from_secs(300),
            lease_keys: Arc::new(Histogram::new(&[])),
        }
    }
}

/// Why etcd cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// `--etcd-servers` is empty.
    #[error("no etcd endpoint given: --etcd-servers needs at least one URL")]
    NoEndpoints,
    /// An endpoint that cannot be dialled as written.
    #[error("etcd endpoint {endpoint:?} cannot be used: {reason}")]
    Endpoint {
        /// As given.
        endpoint: String,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// A certificate or key file that cannot be used.
    #[error("{flag} {path:?} cannot be used: {reason}")]
    File {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A certificate without a key, or the reverse.
    #[error("--etcd-certfile and --etcd-keyfile belong together: {missing} is missing")]
    HalfIdentity {
        /// The flag that is missing.
        missing: &'static str,
    },
    /// `--etcd-prefix` is no path.
    #[error("--etcd-prefix {prefix:?} cannot be used: {reason}")]
    Prefix {
        /// As given.
        prefix: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No endpoint answered.
    #[error("no etcd endpoint answered: {}", .failures.join("; "))]
    Unreachable {
        /// `endpoint: reason` for each.
        failures: Vec<String>,
    },
}

/// The configuration, checked.
pub(super) struct Checked {
    pub(super) layout: Layout,
    pub(super) endpoints: Vec<Endpoint>,
}

impl Etcd3Config {
    /// Reads the files and checks every value.
    pub(super) fn check(&self) -> Result<Checked, ConnectError> {
        let layout = Layout::new(&self.prefix).map_err(|error| ConnectError::Prefix {
            prefix: self.prefix.clone(),
            reason: error.to_string(),
        })?;
        if self.endpoints.is_empty() {
            return Err(ConnectError::NoEndpoints);
        }
        let tls = self.tls()?;
        let endpoints = self
            .endpoints
            .iter()
            .map(|endpoint| {
                dialable(endpoint, tls.as_ref()).map_err(|reason| ConnectError::Endpoint {
                    endpoint: endpoint.clone(),
                    reason,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Checked { layout, endpoints })
    }

    fn tls(&self) -> Result<Option<ClientTlsConfig>, ConnectError> {
        let mut tls = None;
        if let Some(path) = &self.ca_file {
            let pem = certificates("--etcd-cafile", path)?;
            let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
            tls = Some(config);
        }
        let identity = match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => Identity::from_pem(
                certificates("--etcd-certfile", cert)?,
                private_key("--etcd-keyfile", key)?,
            ),
            (None, None) => return Ok(tls),
            (None, Some(_)) => {
                let missing = "--etcd-certfile";
                return Err(ConnectError::HalfIdentity { missing });
            }
            (Some(_), None) => {
                let missing = "--etcd-keyfile";
                return Err(ConnectError::HalfIdentity { missing });
            }
        };
        Ok(Some(tls.unwrap_or_default().identity(identity)))
    }
}

/// The endpoint for a URL, or for `host:port` with the scheme that the TLS files imply.
fn dialable(given: &str, tls: Option<&ClientTlsConfig>) -> Result<Endpoint, String> {
    let url = match (given.contains("://"), tls) {
        (true, _) => given.to_owned(),
        (false, Some(_)) => format!("https://{given}"),
        (false, None) => format!("http://{given}"),
    };
    let endpoint = Endpoint::from_shared(url).map_err(|error| format!("not a URL: {error}"))?;
    if endpoint.uri().host().is_none_or(str::is_empty) {
        return Err("it names no host".into());
    }
    let path = endpoint.uri().path();
    if !path.is_empty() && path != "/" {
        return Err(format!(
            "the path {path:?} has no meaning to etcd; leave it out"
        ));
    }
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    match (endpoint.uri().scheme_str(), tls) {
        (Some("http"), None) => Ok(endpoint),
        (Some("http"), Some(_)) => {
            Err("certificate files are given but the URL is http://; make it https://".into())
        }
        (Some("https"), Some(tls)) => endpoint
            .tls_config(tls.clone())
            .map_err(|error| error.to_string()),
        (Some("https"), None) => {
            Err("https:// needs --etcd-cafile: the certificates that etcd's are checked by".into())
        }
        (scheme, _) => Err(format!(
            "the scheme {:?} is not http or https",
            scheme.unwrap_or_default()
        )),
    }
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    std::fs::read(path).map_err(|error| unusable(flag, path, error.to_string()))
}

fn unusable(flag: &'static str, path: &Path, reason: String) -> ConnectError {
    let path = path.to_owned();
    ConnectError::File { flag, path, reason }
}

/// The file's bytes, once they are known to hold at least one certificate.
fn certificates(flag: &'static str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    let pem = read(flag, path)?;
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match parsed {
        Ok(found) if found.is_empty() => {
            Err(unusable(flag, path, "it holds no PEM certificate".into()))
        }
        Ok(_) => Ok(pem),
        Err(error) => Err(unusable(flag, path, error.to_string())),
    }
}

/// The file's bytes, once they are known to hold a private key.
fn private_key(flag: &'static str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    let pem = read(flag, path)?;
    PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|error| unusable(flag, path, format!("it holds no PEM private key: {error}")))?;
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(config: Etcd3Config) -> String {
        match config.check() {
            Ok(_) => panic!("accepted"),
            Err(error) => error.to_string(),
        }
    }

    fn with_endpoint(endpoint: &str) -> Etcd3Config {
        Etcd3Config {
            endpoints: vec![endpoint.into()],
            ..Etcd3Config::default()
        }
    }

    #[test]
    fn a_bare_address_is_plain_http() {
        let checked = with_endpoint("127.0.0.1:2379").check().unwrap();
        assert_eq!(checked.endpoints[0].uri().scheme_str(), Some("http"));
    }

    #[test]
    fn bad_values_are_named() {
        assert!(refusal(Etcd3Config::default()).contains("--etcd-servers"));
        for (endpoint, words) in [
            ("ftp://h:1", "\"ftp\""),
            ("http://h:1/v3", "\"/v3\""),
            ("https://h:1", "--etcd-cafile"),
            ("http://", "http://"),
        ] {
            let refusal = refusal(with_endpoint(endpoint));
            assert!(
                refusal.contains(words) && refusal.contains(endpoint),
                "{refusal}"
            );
        }
        let refusal = refusal(Etcd3Config {
            prefix: "/a/../b".into(),
            ..with_endpoint("h:1")
        });
        assert!(refusal.contains("/a/../b"), "{refusal}");
    }

    #[test]
    fn bad_files_are_named() {
        let missing = refusal(Etcd3Config {
            ca_file: Some("/nowhere/ca.pem".into()),
            ..with_endpoint("https://h:1")
        });
        assert!(
            missing.contains("--etcd-cafile \"/nowhere/ca.pem\""),
            "{missing}"
        );
        let half = refusal(Etcd3Config {
            cert_file: Some("/nowhere/cert.pem".into()),
            ..with_endpoint("https://h:1")
        });
        assert!(half.contains("--etcd-keyfile is missing"), "{half}");
        let text = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(text.path(), "not a certificate").unwrap();
        let empty = refusal(Etcd3Config {
            ca_file: Some(text.path().into()),
            ..with_endpoint("https://h:1")
        });
        assert!(empty.contains("no PEM certificate"), "{empty}");
    }
}
