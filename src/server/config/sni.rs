//! `--tls-sni-cert-key`: serving certificates for the names that clients request.

use std::path::PathBuf;

use rustls_pki_types::ServerName;

use crate::server::config::file_setting::{CertificateFiles, FileSetting};
use crate::server::config::setting_value::{ConfigError, SettingValue};

/// A serving certificate and the names for which it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct SniCertificate {
    /// The certificate and its key.
    pub files: CertificateFiles,
    /// Names in lower case, `*.example.com` for all names with one more label; empty for those of the certificate.
    pub names: Vec<String>,
}

/// Parses the pairs, which have the form `certificate,key` or `certificate,key:name,name`.
///
/// # Errors
/// A pair lacks its key, or a name is invalid.
pub(super) fn sni_certificates(setting: &SettingValue) -> Result<Vec<SniCertificate>, ConfigError> {
    let pairs = setting
        .text
        .split(';')
        .filter(|pair| !pair.trim().is_empty());
    pairs.map(|pair| parse(setting, pair.trim())).collect()
}

fn parse(setting: &SettingValue, pair: &str) -> Result<SniCertificate, ConfigError> {
    let (files, names) = pair.split_once(':').unwrap_or((pair, ""));
    let (certificate, key) = match files.split_once(',').map(|(a, b)| (a.trim(), b.trim())) {
        Some((certificate, key))
            if !certificate.is_empty() && !key.is_empty() && !key.contains(',') =>
        {
            (certificate, key)
        }
        _ => {
            return Err(setting.error(format_args!(
                "has {pair:?}: write certificate,key or certificate,key:name,*.name"
            )));
        }
    };
    let names = names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let names = names
        .map(|name| checked(setting, name))
        .collect::<Result<_, _>>()?;
    let file = |path: &str| FileSetting {
        path: PathBuf::from(path),
        given: setting.clone(),
    };
    Ok(SniCertificate {
        files: CertificateFiles {
            certificate: file(certificate),
            key: file(key),
        },
        names,
    })
}

fn checked(setting: &SettingValue, name: &str) -> Result<String, ConfigError> {
    let plain = name.strip_prefix("*.").unwrap_or(name);
    match ServerName::try_from(plain) {
        Ok(ServerName::DnsName(_)) => Ok(name.to_lowercase()),
        Ok(_) => Err(setting.error(format_args!(
            "has the name {name:?}: clients request no certificate for an address; use --tls-cert-file for it"
        ))),
        Err(_) => Err(setting.error(format_args!("has {name:?}, which is no DNS name"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<(String, String, Vec<String>)>, String> {
        let setting = SettingValue {
            flag: "tls-sni-cert-key".to_owned(),
            ..SettingValue::from(text.to_owned())
        };
        let pairs = sni_certificates(&setting).map_err(|error| error.to_string())?;
        let plain = pairs.into_iter().map(|pair| {
            let path = |file: FileSetting| file.path.display().to_string();
            (
                path(pair.files.certificate),
                path(pair.files.key),
                pair.names,
            )
        });
        Ok(plain.collect())
    }

    #[test]
    fn pairs_are_parsed_or_rejected() {
        let pair = |certificate: &str, key: &str, names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            (certificate.to_owned(), key.to_owned(), names)
        };
        assert_eq!(parsed(""), Ok(vec![]));
        assert_eq!(parsed("a.crt,a.key"), Ok(vec![pair("a.crt", "a.key", &[])]));
        assert_eq!(
            parsed("a.crt, a.key:*.Foo.com,foo.com;b.crt,b.key"),
            Ok(vec![
                pair("a.crt", "a.key", &["*.foo.com", "foo.com"]),
                pair("b.crt", "b.key", &[])
            ])
        );
        for (text, expected) in [
            ("a.crt", "has \"a.crt\": write certificate,key"),
            ("a.crt,", "has \"a.crt,\": write"),
            ("a,b,c", "has \"a,b,c\": write"),
            (
                "a,b:10.0.0.1",
                "clients request no certificate for an address",
            ),
            ("a,b:f oo", "has \"f oo\", which is no DNS name"),
            ("a,b:a.*.c", "which is no DNS name"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
