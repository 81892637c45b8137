//! The TLS configuration of a client: rustls settings from PEM.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::InvalidRestConfig;
use super::config::RestConfig;
use super::material::{Identity, Material, Sources};
use watchet_x509::AnyCertificate;

impl RestConfig {
    /// Returns the TLS configuration for connections outside of the client, with the current
    /// content of the files.
    ///
    /// # Errors
    /// A certificate or key is invalid.
    pub fn tls_client(&self) -> Result<ClientConfig, InvalidRestConfig> {
        let material = Sources::of(self).read();
        let config = material.and_then(|read| client_config(self.insecure_skip_tls_verify, &read));
        config.map_err(|detail| InvalidRestConfig {
            server: self.server.clone(),
            detail,
        })
    }
}

/// Returns the TLS configuration with `material`, or without verification.
///
/// # Errors
/// A certificate or key is invalid.
pub(super) fn client_config(insecure: bool, material: &Material) -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match insecure {
        // An error as in client-go: one of the two is a mistake, possibly a dangerous one.
        true if material.authority.is_some() => {
            return Err("a CA and insecure-skip-tls-verify are both set: remove one".into());
        }
        true => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider))),
        false => builder.with_root_certificates(roots(material.authority.as_deref())?),
    };
    match &material.identity {
        None => Ok(builder.with_no_client_auth()),
        Some(Identity { certificate, key }) => {
            let chain = CertificateDer::pem_slice_iter(certificate)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| format!("the client certificate is not PEM: {error}"))?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|error| format!("the client key is not PEM: {error}"))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| format!("the client certificate is invalid: {error}"))
        }
    }
}

/// Returns the name to verify in the server's certificate, if it is not the URL's host.
///
/// # Errors
/// The name is not valid in a certificate.
pub(super) fn server_name(config: &RestConfig) -> Result<Option<ServerName<'static>>, String> {
    let name = config.tls_server_name.as_ref();
    name.map(|name| {
        ServerName::try_from(name.clone())
            .map_err(|_| format!("the name {name:?} is not valid in a certificate"))
    })
    .transpose()
}

fn roots(authority: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate =
                    certificate.map_err(|error| format!("the CA is not PEM: {error}"))?;
                roots
                    .add(certificate)
                    .map_err(|error| format!("the CA is invalid: {error}"))?;
            }
            if roots.is_empty() {
                return Err("the CA has no certificate in PEM".to_owned());
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::warn!(%error, "cannot read some of the system's CA certificates");
            }
            let (_, unusable) = roots.add_parsable_certificates(found.certs);
            if unusable > 0 {
                tracing::debug!(unusable, "some of the system's CA certificates are invalid");
            }
        }
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_tls_settings_are_errors() {
        let with = |insecure, change: fn(&mut Material)| {
            let mut material = Material::default();
            change(&mut material);
            client_config(insecure, &material).unwrap_err()
        };
        for (error, message) in [
            (
                with(false, |material| {
                    material.authority = Some(b"none".to_vec())
                }),
                "no certificate in PEM",
            ),
            (
                with(true, |material| material.authority = Some(b"x".to_vec())),
                "remove one",
            ),
            (
                with(true, |material| {
                    material.identity = Some(Identity {
                        certificate: Vec::new(),
                        key: b"none".to_vec(),
                    });
                }),
                "client key is not PEM",
            ),
        ] {
            assert!(error.contains(message), "{error}");
        }
        let config = RestConfig {
            tls_server_name: Some("a b".into()),
            ..RestConfig::new("https://a")
        };
        assert!(server_name(&config).unwrap_err().contains("\"a b\""));
    }
}
