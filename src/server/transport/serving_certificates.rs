//! `ServingCertificates`: chooses the certificate of a handshake by the name that the client requests.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::server::process::pki::subject_names;

/// The certificates of the HTTPS port.
#[derive(Debug)]
pub(in crate::server) struct ServingCertificates {
    /// For clients that request no name, or one without a certificate of its own.
    default: Arc<CertifiedKey>,
    /// By names in lower case; `*.example.com` is for all names with one more label.
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl ServingCertificates {
    /// Creates the set. Each of `named` is served for its names; without any, for those in the certificate unless
    /// another one has them. Of several for one name the first is served, as upstream.
    pub(in crate::server) fn new(
        default: CertifiedKey,
        named: Vec<(CertifiedKey, Vec<String>)>,
    ) -> Self {
        let mut by_name = HashMap::new();
        let named = named.into_iter();
        let named: Vec<_> = named.map(|(key, names)| (Arc::new(key), names)).collect();
        for (certificate, names) in &named {
            for name in names {
                by_name
                    .entry(name.clone())
                    .or_insert_with(|| certificate.clone());
            }
        }
        for (certificate, _) in named.iter().filter(|(_, names)| names.is_empty()) {
            for name in names_of(certificate) {
                by_name.entry(name).or_insert_with(|| certificate.clone());
            }
        }
        Self {
            default: Arc::new(default),
            by_name,
        }
    }

    fn of_name(&self, name: &str) -> &Arc<CertifiedKey> {
        let name = name.trim_end_matches('.').to_lowercase();
        let found = self.by_name.get(&name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.by_name.get(&format!("*.{parent}"))
        });
        found.unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for ServingCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = hello.server_name().map(|name| self.of_name(name));
        Some(Arc::clone(found.unwrap_or(&self.default)))
    }
}

fn names_of(certificate: &CertifiedKey) -> Vec<String> {
    let first = certificate.cert.first();
    let parsed = first.and_then(|first| X509Certificate::from_der(first).ok());
    parsed.map_or_else(Vec::new, |(_, parsed)| subject_names(&parsed))
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs;
    use rustls_pki_types::PrivateKeyDer;

    use super::*;

    fn certificate(name: &str) -> CertifiedKey {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = aws_lc_rs::default_provider();
        CertifiedKey::from_der(vec![made.cert.der().clone()], key, &provider).unwrap()
    }

    #[test]
    fn exact_names_win_over_wildcards_and_given_names_over_those_in_certificates() {
        let named = vec![
            (certificate("first.example.com"), vec![]),
            (
                certificate("second.example.com"),
                vec!["*.example.com".to_owned()],
            ),
            (
                certificate("third.example.com"),
                vec!["a.example.com".to_owned(), "first.example.com".to_owned()],
            ),
            (certificate("*.other.com"), vec![]),
        ];
        let all = ServingCertificates::new(certificate("default.example.com"), named);
        for (requested, expected) in [
            ("a.example.com", "third.example.com"),
            ("first.example.com", "third.example.com"),
            ("B.Example.com.", "second.example.com"),
            ("x.y.example.com", "default.example.com"),
            ("example.com", "default.example.com"),
            ("www.other.com", "*.other.com"),
            ("localhost", "default.example.com"),
        ] {
            assert_eq!(names_of(all.of_name(requested)), [expected], "{requested}");
        }
    }
}
