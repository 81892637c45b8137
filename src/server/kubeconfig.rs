//! The kubeconfig that makes the admin credential usable. It is written as JSON, which every YAML
//! reader takes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls_pki_types::CertificateDer;
use serde_json::json;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::pki::{ADMIN_USER, Credential, subject_names};
use crate::x509;

/// The name of its cluster and context.
const NAME: &str = "watchet";

/// What a client must know to trust the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerTrust {
    /// PEM; what the serving certificate is verified with.
    pub(super) certificate_authority: String,
    /// The name to expect in the certificate when it does not name the host of the URL.
    pub(super) server_name: Option<String>,
}

impl ServerTrust {
    /// Trust in our own CA, whose serving certificates name every host they are used for.
    pub(super) fn own(ca: &str) -> Self {
        Self {
            certificate_authority: ca.to_owned(),
            server_name: None,
        }
    }

    /// Trust in a given chain, as far as it was given: the last certificate is the CA or the
    /// nearest thing to it. The kubeconfig is written at each start, so it follows a renewal.
    pub(super) fn given(chain: &[CertificateDer<'_>], host: IpAddr) -> Self {
        Self {
            certificate_authority: chain
                .last()
                .map(|last| x509::to_pem(last))
                .unwrap_or_default(),
            server_name: chain.first().and_then(|leaf| name_instead_of(leaf, host)),
        }
    }
}

/// A name of the certificate, unless it is good for `host`.
fn name_instead_of(leaf: &CertificateDer<'_>, host: IpAddr) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let names = subject_names(&certificate);
    if names.contains(&host.to_string()) {
        return None;
    }
    let name = names.iter().find(|name| name.parse::<IpAddr>().is_err())?;
    // A wildcard stands for one label, whatever that is.
    Some(name.replacen('*', NAME, 1))
}

/// The address a client on this machine reaches a listener at.
pub(super) fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

/// The file's text.
pub(super) fn render(server: SocketAddr, trust: &ServerTrust, admin: &Credential) -> String {
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
    fn the_host_is_one_that_can_be_reached() {
        for (listener, expected) in [
            ("0.0.0.0:6443", "127.0.0.1:6443"),
            ("[::]:1", "[::1]:1"),
            ("10.0.0.1:2", "10.0.0.1:2"),
        ] {
            assert_eq!(reachable(listener.parse().unwrap()).to_string(), expected);
        }
    }

    #[test]
    fn a_given_certificate_is_asked_for_by_a_name_it_has() {
        let host = "127.0.0.1".parse().unwrap();
        for (names, expected) in [
            (&["127.0.0.1", "a.example"][..], None),
            (&["10.0.0.1", "a.example"], Some("a.example")),
            (&["*.example"], Some("watchet.example")),
            (&["10.0.0.1"], None),
        ] {
            let trust = ServerTrust::given(&[certificate(names)], host);
            assert_eq!(trust.server_name.as_deref(), expected, "{names:?}");
        }
    }

    #[test]
    fn the_ca_of_a_given_chain_is_its_last_certificate() {
        use rustls_pki_types::pem::PemObject as _;
        let chain = [certificate(&["a.example"]), certificate(&["ca"])];
        let trust = ServerTrust::given(&chain, "127.0.0.1".parse().unwrap());
        let parsed = CertificateDer::from_pem_slice(trust.certificate_authority.as_bytes());
        assert_eq!(parsed.unwrap(), chain[1]);
    }

    #[test]
    fn the_file_is_complete() {
        let admin = Credential {
            certificate: "C".into(),
            key: "K".into(),
        };
        let text = render(
            "[::1]:6443".parse().unwrap(),
            &ServerTrust::own("CA"),
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
