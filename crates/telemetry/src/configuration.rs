//! Parses a `TracingConfiguration` of `apiserver.config.k8s.io`. Unknown fields are errors, as upstream. All versions have the
//! same fields.

use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;
use serde::Deserialize;

const KIND: &str = "TracingConfiguration";
const VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];

/// The endpoint if the configuration has none: the default port of OTLP over gRPC on this machine.
const DEFAULT_ENDPOINT: &str = "localhost:4317";

/// The maximum of `samplingRatePerMillion`: all traces are sampled.
const SAMPLING_RATE_MAX: u32 = 1_000_000;

/// The error of an invalid configuration. The message names the field and its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfiguration(String);

/// The configuration of distributed tracing.
///
/// ```
/// use watchet_telemetry::TracingConfiguration;
///
/// let text = "
/// apiVersion: apiserver.config.k8s.io/v1
/// kind: TracingConfiguration
/// samplingRatePerMillion: 100
/// ";
/// let configuration: TracingConfiguration = text.parse()?;
/// assert_eq!(configuration.sampling_rate_per_million, 100);
/// assert_eq!(configuration.endpoint.to_string(), "localhost:4317");
/// # Ok::<(), watchet_telemetry::InvalidConfiguration>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracingConfiguration {
    /// The address of the collector.
    pub endpoint: Endpoint,
    /// The number of sampled traces per million traces that begin at this server, at most 1,000,000.
    pub sampling_rate_per_million: u32,
}

/// The address of a collector. The connection has no TLS, as upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// `http://host:port/`
    Tcp(Uri),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    endpoint: Option<String>,
    sampling_rate_per_million: Option<i64>,
}

impl FromStr for TracingConfiguration {
    type Err = InvalidConfiguration;

    /// Parses YAML or JSON.
    ///
    /// # Errors
    /// The text is not YAML or JSON, or has another kind or version, an unknown field or an invalid value.
    fn from_str(text: &str) -> Result<Self, InvalidConfiguration> {
        let options = serde_saphyr::options! { with_snippet: false };
        let document: Document = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| InvalidConfiguration(error.to_string()))?;
        let (version, kind) = (&document.api_version, &document.kind);
        if kind != KIND || !VERSIONS.contains(&&**version) {
            return Err(InvalidConfiguration(format!(
                "apiVersion is {version:?} and kind is {kind:?}: must be {:?} (or v1beta1, v1alpha1) and {KIND:?}",
                VERSIONS[0]
            )));
        }
        let rate = document.sampling_rate_per_million.unwrap_or(0);
        let valid_rate = u32::try_from(rate).ok();
        let valid_rate = valid_rate.filter(|rate| *rate <= SAMPLING_RATE_MAX);
        let sampling_rate_per_million = valid_rate.ok_or_else(|| {
            InvalidConfiguration(format!(
                "samplingRatePerMillion {rate}: must be 0 to {SAMPLING_RATE_MAX}"
            ))
        })?;
        let endpoint = document.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT);
        Ok(Self {
            endpoint: endpoint.parse()?,
            sampling_rate_per_million,
        })
    }
}

impl FromStr for Endpoint {
    type Err = InvalidConfiguration;

    /// Parses an address in the [notation of gRPC](https://github.com/grpc/grpc/blob/master/doc/naming.md): `host:port`,
    /// `dns:///host:port` or `unix:///path`.
    fn from_str(text: &str) -> Result<Self, InvalidConfiguration> {
        let invalid = |problem: &str| {
            InvalidConfiguration(format!(
                "endpoint {text:?}: {problem}: write host:port, dns:///host:port or unix:///path"
            ))
        };
        let authority = match text.split_once("//") {
            None => text,
            Some(("dns:", rest)) => {
                // In `dns://server/host:port` the server must be empty: the resolver of the system is used.
                rest.strip_prefix('/')
                    .ok_or_else(|| invalid("has a DNS server, which is not supported"))?
            }
            Some(("unix:", path)) if path.starts_with('/') && path.len() > 1 => {
                return Ok(Self::Unix(path.into()));
            }
            Some(("unix:", _)) => return Err(invalid("has no absolute path")),
            Some((scheme, _)) => {
                return Err(invalid(&format!(
                    "the scheme {:?} is not supported",
                    scheme.trim_end_matches(':')
                )));
            }
        };
        let authority: http::uri::Authority = authority
            .parse()
            .map_err(|_| invalid("is not an address"))?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(invalid("is not an address"));
        }
        if authority.port_u16().is_none() {
            return Err(invalid("has no port"));
        }
        let uri = Uri::builder().scheme("http").authority(authority);
        let uri = uri.path_and_query("/").build();
        uri.map(Self::Tcp).map_err(|_| invalid("is not an address"))
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(uri) => {
                f.write_str(uri.authority().map_or("", |authority| authority.as_str()))
            }
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(fields: &str) -> Result<TracingConfiguration, String> {
        let text = format!("apiVersion: apiserver.config.k8s.io/v1beta1\nkind: {KIND}\n{fields}");
        let parsed: Result<TracingConfiguration, _> = text.parse();
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn fields_have_upstreams_defaults() {
        let configuration = parse("").unwrap();
        assert_eq!(configuration.sampling_rate_per_million, 0);
        assert_eq!(configuration.endpoint.to_string(), "localhost:4317");
    }

    #[test]
    fn endpoints_are_read_in_the_notation_of_grpc() {
        for (text, expect) in [
            ("collector:4317", "collector:4317"),
            ("dns:///10.0.0.1:4317", "10.0.0.1:4317"),
            ("\"[::1]:4317\"", "[::1]:4317"),
            ("unix:///run/otel.sock", "unix:///run/otel.sock"),
        ] {
            let configuration = parse(&format!("endpoint: {text}")).unwrap();
            assert_eq!(configuration.endpoint.to_string(), expect);
        }
    }

    #[test]
    fn errors_name_the_field_and_the_value() {
        for (fields, expect) in [
            (
                "samplingRatePerMillion: -1",
                "samplingRatePerMillion -1: must be 0 to 1000000",
            ),
            (
                "samplingRatePerMillion: 1000001",
                "samplingRatePerMillion 1000001: must be",
            ),
            ("samplingRatePerMillion: often", "invalid i64 at line 3"),
            (
                "endpoint: http://collector:4318",
                "endpoint \"http://collector:4318\": the scheme \"http\" is not supported: write host:port",
            ),
            ("endpoint: collector", "endpoint \"collector\": has no port"),
            ("endpoint: 'a b:1'", "endpoint \"a b:1\": is not an address"),
            (
                "endpoint: 'a:1/v1'",
                "endpoint \"a:1/v1\": is not an address",
            ),
            ("endpoint: ''", "endpoint \"\": is not an address"),
            (
                "endpoint: dns://1.1.1.1/a:1",
                "has a DNS server, which is not supported",
            ),
            ("endpoint: unix://otel", "has no absolute path"),
            ("samplingRate: 1", "samplingRate"),
        ] {
            let error = parse(fields).unwrap_err();
            assert!(error.contains(expect), "{fields}: {error}");
        }
        let error = "apiVersion: v1\nkind: Pod".parse::<TracingConfiguration>();
        assert_eq!(
            error.unwrap_err().to_string(),
            "apiVersion is \"v1\" and kind is \"Pod\": must be \"apiserver.config.k8s.io/v1\" (or v1beta1, v1alpha1) \
             and \"TracingConfiguration\""
        );
    }
}
