//! Reads `WebhookClientConfig`, which is the same in admissionregistration.k8s.io and apiextensions.k8s.io: the address
//! of a webhook and its CA. The module `check` validates it when a client writes it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::ServerName;
use serde::Deserialize;
use serde_json::Value;

use super::{WebhookError, url_path};

/// The port of a Service reference that names none, and of a URL.
pub(super) const HTTPS_PORT: u16 = 443;

/// The address of a webhook and its trusted certificates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// The address.
    pub address: Address,
    /// The CA certificates in PEM; `None` for those that the system trusts.
    pub ca_bundle: Option<Vec<u8>>,
}

/// The address of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// An https URL.
    Url {
        /// The host and the port as in the URL.
        authority: String,
        /// A name or an address, without brackets.
        host: String,
        /// 443 by default.
        port: u16,
        /// The path, cleaned as Go cleans paths: no empty, `.` or `..` segments.
        path: String,
    },
    /// A reference to a Service.
    Service {
        /// Of the Service.
        namespace: String,
        /// Of the Service.
        name: String,
        /// The path, cleaned as Go cleans paths: no empty, `.` or `..` segments.
        path: String,
        /// Of the Service.
        port: u16,
    },
}

#[derive(Deserialize)]
struct WebhookClientConfig {
    url: Option<String>,
    service: Option<ServiceReference>,
    #[serde(rename = "caBundle")]
    ca_bundle: Option<String>,
}

#[derive(Deserialize)]
struct ServiceReference {
    namespace: String,
    name: String,
    path: Option<String>,
    port: Option<u16>,
}

impl ClientConfig {
    /// Reads a `clientConfig` as it is stored.
    ///
    /// # Errors
    /// [`WebhookError::Config`] if it has no usable address or CA.
    pub fn parse(value: &Value) -> Result<Self, WebhookError> {
        let config = WebhookClientConfig::deserialize(value);
        let config = config.map_err(|error| WebhookError::Config(error.to_string()))?;
        let ca_bundle = match config.ca_bundle.as_deref() {
            None | Some("") => None,
            Some(text) => Some(STANDARD.decode(text).map_err(|error| {
                WebhookError::Config(format!("unable to load root certificates: {error}"))
            })?),
        };
        let address = match (config.service, config.url) {
            (Some(service), _) => Address::Service {
                namespace: service.namespace,
                name: service.name,
                path: url_path::clean(service.path.unwrap_or_default().as_bytes()),
                port: service.port.unwrap_or(HTTPS_PORT),
            },
            (None, Some(url)) => Address::parse(&url)?,
            (None, None) => {
                let why = "webhook configuration must have either service or URL";
                return Err(WebhookError::Config(why.to_owned()));
            }
        };
        Ok(Self { address, ca_bundle })
    }

    /// Returns the URL of the requests, as errors show it.
    pub(super) fn url(&self, timeout: Duration) -> String {
        let seconds = timeout.as_millis().div_ceil(1000);
        let (Address::Url { path, .. } | Address::Service { path, .. }) = &self.address;
        let authority = self.address.authority();
        format!("https://{authority}{path}?timeout={seconds}s")
    }

    /// Returns the name that the webhook's certificate must be valid for.
    pub(super) fn server_name(&self) -> Result<ServerName<'static>, String> {
        let host = match &self.address {
            Address::Url { host, .. } => host.clone(),
            Address::Service {
                namespace, name, ..
            } => format!("{name}.{namespace}.svc"),
        };
        ServerName::try_from(host.clone()).map_err(|error| format!("{host:?}: {error}"))
    }
}

impl Address {
    fn parse(url: &str) -> Result<Self, WebhookError> {
        let refuse = |why: &dyn std::fmt::Display| {
            WebhookError::Config(format!("Unparsable webhook URL: {url:?}: {why}"))
        };
        let uri: http::Uri = url.parse().map_err(|e: http::uri::InvalidUri| refuse(&e))?;
        if uri.scheme_str() != Some("https") {
            return Err(refuse(&"'https' is the only allowed URL scheme"));
        }
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(refuse(&"host must be specified"));
        }
        let path = url_path::unescape(uri.path());
        let path = path.ok_or_else(|| refuse(&"invalid URL escape"))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let given = authority
            .rsplit_once('@')
            .map_or(authority, |(_, given)| given);
        Ok(Self::Url {
            authority: given.to_owned(),
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(HTTPS_PORT),
            path: url_path::clean(&path),
        })
    }

    /// Returns the header `Host`: the host, and the port unless a URL omits it.
    pub(super) fn authority(&self) -> String {
        match self {
            Self::Url { authority, .. } => authority.clone(),
            Self::Service {
                namespace,
                name,
                port,
                ..
            } => format!("{name}.{namespace}.svc:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(config: Value, url: &str, name: &str) {
        let parsed = ClientConfig::parse(&config).unwrap();
        assert_eq!(parsed.url(Duration::from_secs(10)), url);
        assert_eq!(parsed.server_name().unwrap().to_str(), name);
    }

    #[test]
    fn addresses_are_read_with_their_defaults() {
        check(
            json!({"url": "https://127.0.0.1:9443/mutate"}),
            "https://127.0.0.1:9443/mutate?timeout=10s",
            "127.0.0.1",
        );
        check(
            json!({"url": "https://[::1]/x"}),
            "https://[::1]/x?timeout=10s",
            "::1",
        );
        check(
            json!({"service": {"namespace": "ns", "name": "svc"}, "caBundle": ""}),
            "https://svc.ns.svc:443/?timeout=10s",
            "svc.ns.svc",
        );
        check(
            json!({"service": {"namespace": "ns", "name": "svc", "path": "a/b", "port": 9443}}),
            "https://svc.ns.svc:9443/a/b?timeout=10s",
            "svc.ns.svc",
        );
    }

    /// `https://host:port//x` was posted to `//x`, which Go's servers redirect, so the call of the webhook failed.
    #[test]
    fn paths_are_cleaned() {
        let port = "https://127.0.0.1:9443";
        for (given, posted) in [
            ("", "/"),
            ("/", "/"),
            ("//x", "/x"),
            ("/a/./b/../c/", "/a/c"),
            ("/a%20b/%2e%2e/%63", "/c"),
            ("/a%20b%3F", "/a%20b%3F"),
        ] {
            let url = format!("{port}{given}");
            let posted = format!("{port}{posted}?timeout=10s");
            check(json!({"url": url}), &posted, "127.0.0.1");
        }
        for (given, posted) in [("//x", "/x"), ("/x/", "/x"), ("/a%20b", "/a%2520b")] {
            let service = json!({"namespace": "ns", "name": "svc", "path": given});
            let posted = format!("https://svc.ns.svc:443{posted}?timeout=10s");
            check(json!({"service": service}), &posted, "svc.ns.svc");
        }
    }

    #[test]
    fn unusable_client_configs_are_rejected() {
        for config in [
            json!({}),
            json!({"url": "http://127.0.0.1/"}),
            json!({"url": "https://"}),
            json!({"url": "https://a b/"}),
            json!({"url": "https://a/%zz"}),
            json!({"url": "https://a/", "caBundle": "*"}),
            json!({"service": {"name": "a"}}),
        ] {
            assert!(ClientConfig::parse(&config).is_err(), "{config}");
        }
    }
}
