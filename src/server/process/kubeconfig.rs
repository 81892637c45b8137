//! Writes the kubeconfig with the admin credential, as JSON, which is valid YAML.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls_pki_types::CertificateDer;
use serde_json::json;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::server::process::pki::{ADMIN_USER, CertificateAndKey, subject_names};
use crate::x509;

/// The name of the cluster and of the context.
const NAME: &str = "watchet";

/// How clients verify the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct ServerTrust {
    /// The PEM certificate that verifies the serving certificate.
    pub(in crate::server) certificate_authority: String,
    /// The name to verify in the certificate, if it is not the URL's host.
    pub(in crate::server) server_name: Option<String>,
}

impl ServerTrust {
    /// Creates the settings for the server's own CA, whose certificates contain every host.
    pub(in crate::server) fn of_own_ca(ca: &str) -> Self {
        Self {
            certificate_authority: ca.to_owned(),
            server_name: None,
        }
    }

    /// Creates the settings for a configured chain: its last certificate is the CA or the closest
    /// to it. The kubeconfig is written at each start, so it follows a rotation.
    pub(in crate::server) fn of_configured_chain(
        chain: &[CertificateDer<'_>],
        host: IpAddr,
    ) -> Self {
        Self {
            certificate_authority: chain
                .last()
                .map(|last| x509::to_pem(last))
                .unwrap_or_default(),
            server_name: chain.first().and_then(|leaf| name_instead_of(leaf, host)),
        }
    }
}

/// Returns a name in the certificate, unless it is valid for `host`.
fn name_instead_of(leaf: &CertificateDer<'_>, host: IpAddr) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let names = subject_names(&certificate);
    if names.contains(&host.to_string()) {
        return None;
    }
    let name = names.iter().find(|name| name.parse::<IpAddr>().is_err())?;
    // A wildcard matches any single label.
    Some(name.replacen('*', NAME, 1))
}

/// Returns the address at which clients on this machine reach a listener.
pub(in crate::server) fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

/// Returns the file's text.
pub(in crate::server) fn render(
    server: SocketAddr,
    trust: &ServerTrust,
    admin: &CertificateAndKey,
) -> String {
    let base64 = |pem: &str| BASE64_STANDARD.encode(pem);
    let mut cluster = json!({
        "server": format!("https://{server}"),
        "certificate-authority-data": base64(&trust.certificate_authority),
    });
    if let Some(name) = &trust.server_name {
        cluster["tls-server-name"] = json!(name);
    }
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": ADMIN_USER, "user": {
            "client-certificate-data": base64(&admin.certificate),
            "client-key-data": base64(&admin.key),
        }}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": ADMIN_USER}}],
        "current-context": NAME,
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(names: &[&str]) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let issued = rcgen::generate_simple_self_signed(names).unwrap();
        issued.cert.der().clone()
    }

    #[test]
    fn unspecified_addresses_become_loopback() {
        for (listener, expected) in [
            ("0.0.0.0:6443", "127.0.0.1:6443"),
            ("[::]:1", "[::1]:1"),
            ("10.0.0.1:2", "10.0.0.1:2"),
        ] {
            assert_eq!(reachable(listener.parse().unwrap()).to_string(), expected);
        }
    }

    #[test]
    fn a_configured_certificate_is_verified_by_its_name() {
        let host = "127.0.0.1".parse().unwrap();
        for (names, expected) in [
            (&["127.0.0.1", "a.example"][..], None),
            (&["10.0.0.1", "a.example"], Some("a.example")),
            (&["*.example"], Some("watchet.example")),
            (&["10.0.0.1"], None),
        ] {
            let trust = ServerTrust::of_configured_chain(&[certificate(names)], host);
            assert_eq!(trust.server_name.as_deref(), expected, "{names:?}");
        }
    }

    #[test]
    fn the_ca_of_a_configured_chain_is_its_last_certificate() {
        use rustls_pki_types::pem::PemObject as _;
        let chain = [certificate(&["a.example"]), certificate(&["ca"])];
        let trust = ServerTrust::of_configured_chain(&chain, "127.0.0.1".parse().unwrap());
        let parsed = CertificateDer::from_pem_slice(trust.certificate_authority.as_bytes());
        assert_eq!(parsed.unwrap(), chain[1]);
    }

    #[test]
    fn the_file_is_complete() {
        let admin = CertificateAndKey {
            certificate: "C".into(),
            key: "K".into(),
        };
        let text = render(
            "[::1]:6443".parse().unwrap(),
            &ServerTrust::of_own_ca("CA"),
            &admin,
        );
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            config["clusters"][0]["cluster"]["server"],
            "https://[::1]:6443"
        );
        assert_eq!(
            config["clusters"][0]["cluster"]["certificate-authority-data"],
            "Q0E="
        );
        assert_eq!(config["users"][0]["user"]["client-key-data"], "Sw==");
        assert_eq!(config["current-context"], "watchet");
        assert_eq!(config["contexts"][0]["context"]["user"], "kubernetes-admin");
    }
}
