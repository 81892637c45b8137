//! The configuration of the etcd client, and its validation into endpoints. It opens no connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::dialer::Dialer;
use super::keys::Layout;
use super::last_seen_file::LastSeenFile;
use watchet_metrics::Histogram;

/// Timeout of a TCP connection with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval of keepalive pings on an idle connection with open streams. etcd closes connections
/// with pings less than 5 s apart. Connections without streams are not pinged for the same reason;
/// the next call detects their failure.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(6);

/// A connection without a ping response for this long is dead.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The flow-control window of one HTTP/2 stream.
pub(super) const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// The number of streams of a connection that may be unread, with full windows, before they block
/// each other. A connection carries at most this many watches (see `cluster`).
pub(super) const STREAMS_PER_CONNECTION: u32 = 64;

/// The connection's window is the sum of its streams' windows, so that a slow watch cannot block
/// the others.
const CONNECTION_WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES * STREAMS_PER_CONNECTION;

// etcd and gRPC servers commonly allow 100 streams per connection; further streams would block.
const _: () = assert!(STREAMS_PER_CONNECTION < 100);

/// The connection to etcd and the key prefix.
#[derive(Debug, Clone)]
pub struct Etcd3Config {
    /// `--etcd-servers`: URLs (`http://`, `https://`) or `host:port`.
    pub endpoints: Vec<String>,
    /// `--etcd-prefix`: the prefix of all keys.
    pub prefix: String,
    /// `--etcd-cafile`: PEM certificates of the CAs of the servers' certificates.
    pub ca_file: Option<PathBuf>,
    /// `--etcd-certfile`: this client's PEM certificate chain.
    pub cert_file: Option<PathBuf>,
    /// `--etcd-keyfile`: the private key of that certificate.
    pub key_file: Option<PathBuf>,
    /// `--etcd-compaction-interval`: history is one to two intervals long; zero disables
    /// compaction.
    pub compaction_interval: Duration,
    /// Observes the number of keys of each lease that is replaced.
    pub lease_keys: Arc<Histogram>,
    /// Opens the connections.
    pub dialer: Dialer,
    /// The file that retains the latest revision, so that the next start detects a restored etcd.
    pub last_seen_file: Option<PathBuf>,
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
            dialer: Dialer::default(),
            last_seen_file: None,
        }
    }
}

/// The configuration is invalid or etcd is unreachable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// `--etcd-servers` is empty.
    #[error("no etcd endpoint address: --etcd-servers needs at least one URL")]
    NoEndpoints,
    /// An endpoint is invalid.
    #[error("etcd endpoint {endpoint:?} cannot be used: {reason}")]
    Endpoint {
        /// The configured value.
        endpoint: String,
        /// The reason and the remedy.
        reason: String,
    },
    /// A certificate or key file is unusable.
    #[error("{flag} {path:?} cannot be used: {reason}")]
    File {
        /// The flag of the file.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A certificate without a key, or a key without a certificate.
    #[error("--etcd-certfile and --etcd-keyfile belong together: {missing} is missing")]
    HalfIdentity {
        /// The flag that is missing.
        missing: &'static str,
    },
    /// `--etcd-prefix` is not a path.
    #[error("--etcd-prefix {prefix:?} cannot be used: {reason}")]
    Prefix {
        /// The configured value.
        prefix: String,
        /// The reason.
        reason: String,
    },
    /// etcd was restored from a backup, and could not be advanced past the revisions that clients have received.
    #[error("{0}")]
    NotAdvanced(String),
    /// The backup is too old to advance etcd by writes.
    #[error(
        "{0}; if this is another etcd than before, remove the file etcd-revision in the data directory"
    )]
    TooOld(String),
    /// No endpoint responded.
    #[error("no etcd endpoint answered: {}", .failures.join("; "))]
    Unreachable {
        /// `endpoint: reason` of each endpoint.
        failures: Vec<String>,
    },
}

/// The validated configuration.
pub(super) struct Checked {
    pub(super) layout: Layout,
    pub(super) endpoints: Vec<Endpoint>,
}

impl Etcd3Config {
    /// Reads the files and validates every value.
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

    /// Opens the file with the latest revision, if one is configured.
    pub(super) fn open_last_seen_file(&self) -> Result<Option<LastSeenFile>, ConnectError> {
        let Some(path) = &self.last_seen_file else {
            return Ok(None);
        };
        match LastSeenFile::open(path, &self.endpoints) {
            Ok(file) => Ok(Some(file)),
            Err(error) => Err(unusable("--data-dir", path, error.to_string())),
        }
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

/// Returns the endpoint of a URL, or of `host:port` with the scheme that the TLS files imply.
fn dialable(address: &str, tls: Option<&ClientTlsConfig>) -> Result<Endpoint, String> {
    let url = match (address.contains("://"), tls) {
        (true, _) => address.to_owned(),
        (false, Some(_)) => format!("https://{address}"),
        (false, None) => format!("http://{address}"),
    };
    let endpoint = Endpoint::from_shared(url).map_err(|error| format!("not a URL: {error}"))?;
    if endpoint.uri().host().is_none_or(str::is_empty) {
        return Err("it has no host".into());
    }
    let path = endpoint.uri().path();
    if !path.is_empty() && path != "/" {
        return Err(format!("the path {path:?} is not allowed; remove it"));
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
            Err("certificate files are address but the URL is http://; make it https://".into())
        }
        (Some("https"), Some(tls)) => endpoint
            .tls_config(tls.clone())
            .map_err(|error| error.to_string()),
        (Some("https"), None) => Err(
            "https:// requires --etcd-cafile, the CA certificates of etcd's server certificate"
                .into(),
        ),
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

/// Reads the file and checks that it has at least one certificate.
fn certificates(flag: &'static str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    let pem = read(flag, path)?;
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match parsed {
        Ok(found) if found.is_empty() => Err(unusable(
            flag,
            path,
            "it contains no PEM certificate".into(),
        )),
        Ok(_) => Ok(pem),
        Err(error) => Err(unusable(flag, path, error.to_string())),
    }
}

/// Reads the file and checks that it has a private key.
fn private_key(flag: &'static str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    let pem = read(flag, path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
        unusable(
            flag,
            path,
            format!("it contains no PEM private key: {error}"),
        )
    })?;
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(config: Etcd3Config) -> String {
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
    fn address_without_scheme_is_http() {
        let checked = with_endpoint("127.0.0.1:2379").check().unwrap();
        assert_eq!(checked.endpoints[0].uri().scheme_str(), Some("http"));
    }

    #[test]
    fn invalid_values_are_reported() {
        assert!(error_of(Etcd3Config::default()).contains("--etcd-servers"));
        for (endpoint, words) in [
            ("ftp://h:1", "\"ftp\""),
            ("http://h:1/v3", "\"/v3\""),
            ("https://h:1", "--etcd-cafile"),
            ("http://", "http://"),
        ] {
            let error_of = error_of(with_endpoint(endpoint));
            assert!(
                error_of.contains(words) && error_of.contains(endpoint),
                "{error_of}"
            );
        }
        let error_of = error_of(Etcd3Config {
            prefix: "/a/../b".into(),
            ..with_endpoint("h:1")
        });
        assert!(error_of.contains("/a/../b"), "{error_of}");
    }

    #[test]
    fn invalid_files_are_reported() {
        let missing = error_of(Etcd3Config {
            ca_file: Some("/nowhere/ca.pem".into()),
            ..with_endpoint("https://h:1")
        });
        assert!(
            missing.contains("--etcd-cafile \"/nowhere/ca.pem\""),
            "{missing}"
        );
        let half = error_of(Etcd3Config {
            cert_file: Some("/nowhere/cert.pem".into()),
            ..with_endpoint("https://h:1")
        });
        assert!(half.contains("--etcd-keyfile is missing"), "{half}");
        let text = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(text.path(), "not a certificate").unwrap();
        let empty = error_of(Etcd3Config {
            ca_file: Some(text.path().into()),
            ..with_endpoint("https://h:1")
        });
        assert!(empty.contains("no PEM certificate"), "{empty}");
    }
}
