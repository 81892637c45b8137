//! `--tls-min-version`, `--tls-cipher-suites` and `--tls-san`.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion, version};
use rustls_pki_types::ServerName;

use crate::server::config::flags::Flags;
use crate::server::config::setting_value::ConfigError;

/// Parses `--tls-san`.
///
/// # Errors
/// A name is neither a DNS name nor an address, or the server does not make its certificate.
pub(in crate::server) fn extra_names(flags: &Flags) -> Result<Vec<String>, ConfigError> {
    let setting = &flags.tls_san;
    if setting.text.is_empty() {
        return Ok(Vec::new());
    }
    if flags.tls_cert_file.non_empty().is_some() {
        return Err(setting.error("has no effect with --tls-cert-file: remove one of the two"));
    }
    let names = setting.text.split(',').map(str::trim).map(|name| {
        let plain = name.strip_prefix("*.").unwrap_or(name);
        match ServerName::try_from(plain) {
            Ok(_) => Ok(name.to_lowercase()),
            Err(_) => Err(setting.error(format_args!(
                "has {name:?}, which is neither a DNS name nor an IP address"
            ))),
        }
    });
    names.collect()
}

/// The TLS versions and cipher suites of the HTTPS port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct TlsParameters {
    /// Whether TLS 1.2 is allowed, in addition to TLS 1.3.
    allows_tls12: bool,
    /// The allowed cipher suites of TLS 1.2; empty for all. Those of TLS 1.3 are not configurable, as in Go.
    tls12_suites: Vec<CipherSuite>,
}

impl TlsParameters {
    /// Parses the parameters.
    ///
    /// # Errors
    /// A version or a cipher suite is unknown or not supported, or all suites are of TLS 1.3 while TLS 1.2 is allowed.
    pub(in crate::server) fn check(flags: &Flags) -> Result<Self, ConfigError> {
        let minimum = flags.tls_min_version.clone();
        let allows_tls12 = match minimum.text.as_str() {
            "VersionTLS12" => true,
            "VersionTLS13" => false,
            "VersionTLS10" | "VersionTLS11" => {
                return Err(minimum.error(
                    "is deprecated (RFC 8996) and not supported: use VersionTLS12 or VersionTLS13",
                ));
            }
            _ => return Err(minimum.error("must be VersionTLS12 or VersionTLS13")),
        };
        let setting = flags.tls_cipher_suites.clone();
        let known = aws_lc_rs::default_provider().cipher_suites;
        let mut tls12_suites = Vec::new();
        for name in setting.text.split(',').map(str::trim) {
            match known.iter().find(|suite| name_of(suite) == name) {
                Some(suite) if suite.tls13().is_some() => {}
                Some(suite) => tls12_suites.push(suite.suite()),
                None if setting.text.is_empty() => {}
                None => {
                    let known: Vec<String> = known.iter().map(name_of).collect();
                    let known = known.join(", ");
                    return Err(setting.error(format_args!(
                        "has {name:?}, which is not supported: choose among {known}"
                    )));
                }
            }
        }
        if allows_tls12 && tls12_suites.is_empty() && !setting.text.is_empty() {
            return Err(setting.error(
                "has no cipher suite of TLS 1.2, which --tls-min-version allows: add one, or set that to VersionTLS13",
            ));
        }
        Ok(Self {
            allows_tls12,
            tls12_suites,
        })
    }

    /// Returns the cryptography with the allowed cipher suites.
    pub(in crate::server) fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|suite| {
            suite.tls13().is_some()
                || self.tls12_suites.is_empty()
                || self.tls12_suites.contains(&suite.suite())
        });
        Arc::new(provider)
    }

    /// Returns the allowed versions.
    pub(in crate::server) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        match self.allows_tls12 {
            true => vec![&version::TLS13, &version::TLS12],
            false => vec![&version::TLS13],
        }
    }
}

/// Returns the name that the IANA has registered: rustls writes `TLS13_` for the suites of TLS 1.3.
fn name_of(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}
