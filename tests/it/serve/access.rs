//! Tests of certificates, the kubeconfig and authentication.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Method, StatusCode};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;

use crate::harness::{Identity, PROTOCOLS, Protocol, Server, Wire, tls, write_file};
use crate::storage::etcd::EtcdProcess;

fn mode(path: &Path) -> u32 {
    path.metadata().expect("it exists").permissions().mode() & 0o777
}

struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn ca(name: &str) -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key");
    let pem = params.self_signed(&key).expect("a CA").pem();
    Ca {
        issuer: Issuer::new(params, key),
        pem,
    }
}

impl Ca {
    /// Returns a certificate and its key in PEM.
    fn sign(&self, common_name: &str, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    fn client(&self, common_name: &str) -> Identity {
        let (certificate, key) = self.sign(common_name, &[]);
        Identity::from_pem(certificate.as_bytes(), key.as_bytes())
    }
}

fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    write_file(&path, text);
    path
}

async fn status_as(server: &Server, identity: &Identity) -> StatusCode {
    let config = server.kubeconfig_value();
    let mut wire = Wire::secure(server.secure(), &config, Some(identity), Protocol::Http2).await;
    wire.get("/api").await.status
}

#[tokio::test]
async fn a_first_start_leaves_what_the_next_command_needs() {
    let server = Server::start(&["--storage=memory"]).await;
    let kubeconfig = server.kubeconfig();
    assert_eq!(mode(&kubeconfig), 0o600);
    assert_eq!(mode(server.data_dir()), 0o700);
    let pki = server.data_dir().join("pki");
    for name in ["ca.key", "apiserver.key", "admin.key"] {
        assert_eq!(mode(&pki.join(name)), 0o600, "{name}");
    }
    let config = server.kubeconfig_value();
    let cluster = &config["clusters"][0]["cluster"];
    assert_eq!(cluster["server"], format!("https://{}", server.secure()));
    assert_ne!(server.secure().port(), 0);
    assert_eq!(config["current-context"], "watchet");
    assert_eq!(config["clusters"][0]["name"], "watchet");
    let commands = format!(
        "    export KUBECONFIG={}\n    kubectl get namespaces\n",
        kubeconfig.display()
    );
    assert!(
        server.announcement.ends_with(&commands),
        "{}",
        server.announcement
    );
    for protocol in PROTOCOLS {
        let mut admin = server.admin(protocol).await;
        let namespaces = admin.get("/api/v1/namespaces").await;
        assert_eq!(namespaces.status, StatusCode::OK);
        let items = namespaces.json()["items"].as_array().map(Vec::len);
        assert_eq!(
            items,
            Some(4),
            "the system namespaces are there when it is ready"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn server_runs_on_every_kind_of_storage() {
    let etcd = EtcdProcess::start(&[]).await;
    let etcd_flags = [
        "--storage=etcd".to_owned(),
        format!("--etcd-servers={}", etcd.url()),
    ];
    let etcd_flags: Vec<&str> = etcd_flags.iter().map(String::as_str).collect();
    for (flags, name) in [
        (&[][..], "the embedded store"),
        (&["--durability=interval"], "the embedded store"),
        (&["--storage=memory"], "memory"),
        (&etcd_flags, "etcd at"),
    ] {
        let server = Server::start(flags).await;
        let announced = format!("Keeping objects in {name}");
        assert!(
            server.announcement.contains(&announced),
            "{}",
            server.announcement
        );
        let mut admin = server.admin(Protocol::Http2).await;
        let body = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        let path = "/api/v1/namespaces/default/configmaps";
        let made = admin.post(path, &body).await;
        assert_eq!(made.status, StatusCode::CREATED, "{:?}", made.body);
        let read = admin.get(&format!("{path}/a")).await;
        assert_eq!(read.json()["data"]["k"], "v");
        server.stop().await;
    }
}

#[tokio::test]
async fn without_a_credential_only_health_and_version_are_served() {
    let server = Server::start(&["--storage=memory"]).await;
    for protocol in PROTOCOLS {
        let mut stranger = server.stranger(protocol).await;
        for path in [
            "/api",
            "/version/openapi",
            "/readyz/etcd",
            "/api/v1/namespaces",
            "/nowhere",
            "/healthzz",
            "/metrics",
        ] {
            let answer = stranger.get(path).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
            assert_eq!(
                answer.json(),
                json!({
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Failure",
                    "message": "Unauthorized",
                    "reason": "Unauthorized",
                    "code": 401,
                }),
                "{path}"
            );
            assert_eq!(answer.headers["content-type"], "application/json");
            assert_eq!(answer.headers["cache-control"], "no-cache, private");
            assert!(answer.headers.contains_key("audit-id"), "{path}");
        }
        for path in [
            "/healthz",
            "/livez",
            "/readyz",
            "/readyz?verbose",
            "/version",
        ] {
            let answer = stranger.get(path).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}: {:?}", answer.body);
            let wrong = [("authorization", "Bearer wrong")];
            let answer = stranger.send(Method::GET, path, &wrong, "").await;
            assert_eq!(
                answer.status,
                StatusCode::UNAUTHORIZED,
                "{path}, wrong token"
            );
            // `curl -u a:b`: passwords are ignored.
            let other = [("authorization", "Basic YTpi")];
            let answer = stranger.send(Method::GET, path, &other, "").await;
            assert_eq!(answer.status, StatusCode::OK, "{path}, a password");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn tokens_of_the_file_are_accepted() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let tokens = write(files.path(), "tokens.csv", "sesame,jane,u1,\"dev,ops\"\n");
    let flag = format!("--token-auth-file={}", tokens.display());
    let server = Server::start(&["--storage=memory", &flag]).await;
    let mut wire = server.stranger(Protocol::Http1).await;
    let (good, bad) = (StatusCode::OK, StatusCode::UNAUTHORIZED);
    // An invalid token is rejected even on public paths. Other values of the header count as no token.
    for (header, public, private) in [
        ("Bearer sesame", good, good),
        ("Bearer sesam", bad, bad),
        ("Bearer sesame2", bad, bad),
        ("Basic sesame", good, bad),
        ("Bearer", good, bad),
    ] {
        for (path, expected) in [("/version", public), ("/api", private)] {
            let headers = [("authorization", header)];
            let answer = wire.send(Method::GET, path, &headers, "").await;
            assert_eq!(answer.status, expected, "{header} {path}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn certificates_of_configured_cas_are_accepted() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (accepted, foreign) = (ca("accepted"), ca("foreign"));
    let path = write(files.path(), "ca.crt", &accepted.pem);
    let flag = format!("--client-ca-file={}", path.display());
    let server = Server::start(&["--storage=memory", &flag]).await;
    assert_eq!(
        status_as(&server, &accepted.client("jane")).await,
        StatusCode::OK
    );
    let refused = status_as(&server, &foreign.client("jane")).await;
    assert_eq!(refused, StatusCode::UNAUTHORIZED);
    let admin = Identity::from_kubeconfig(&server.kubeconfig_value());
    assert_eq!(
        status_as(&server, &admin).await,
        StatusCode::OK,
        "our own CA always is"
    );
    server.stop().await;
}

#[tokio::test]
async fn certificate_of_another_ca_with_the_same_name_is_rejected() {
    let server = Server::start(&["--storage=memory"]).await;
    let impostor = ca("watchet-ca");
    let refused = status_as(&server, &impostor.client("kubernetes-admin")).await;
    assert_eq!(refused, StatusCode::UNAUTHORIZED);
    server.stop().await;
}

#[tokio::test]
async fn a_restart_keeps_the_ca_and_the_credentials() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let first = Server::start_in(directory.path(), &["--storage=memory"]).await;
    assert!(
        first.announcement.contains("Made a CA"),
        "{}",
        first.announcement
    );
    let before = first.kubeconfig_value();
    first.stop().await;
    let second = Server::start_in(directory.path(), &["--storage=memory"]).await;
    assert!(
        !second.announcement.contains("Made a CA"),
        "{}",
        second.announcement
    );
    let after = second.kubeconfig_value();
    assert_eq!(after["users"], before["users"]);
    let ca = |config: &serde_json::Value| {
        config["clusters"][0]["cluster"]["certificate-authority-data"].clone()
    };
    assert_eq!(ca(&after), ca(&before));
    assert!(ca(&after).is_string());
    let old = Identity::from_kubeconfig(&before);
    assert_eq!(status_as(&second, &old).await, StatusCode::OK);
    second.stop().await;
}

#[tokio::test]
async fn a_given_certificate_is_served_and_the_kubeconfig_trusts_it() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let ca = ca("corporate");
    let (certificate, key) = ca.sign("api", &["api.example.com"]);
    let certificate = write(files.path(), "tls.crt", &(certificate + &ca.pem));
    let key = write(files.path(), "tls.key", &key);
    let flags = [
        "--storage=memory".to_owned(),
        format!("--tls-cert-file={}", certificate.display()),
        format!("--tls-private-key-file={}", key.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start(&flags).await;
    let config = server.kubeconfig_value();
    let cluster = &config["clusters"][0]["cluster"];
    assert_eq!(cluster["tls-server-name"], "api.example.com");
    let mut admin = server.admin(Protocol::Http2).await;
    assert_eq!(admin.get("/api").await.status, StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn replaced_serving_certificate_is_served_without_a_restart() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let ca = ca("corporate");
    let install = || {
        let (certificate, key) = ca.sign("api", &["api.example.com"]);
        let certificate = write(files.path(), "tls.crt", &(certificate + &ca.pem));
        (certificate, write(files.path(), "tls.key", &key))
    };
    let (certificate, key) = install();
    let flags = [
        "--storage=memory".to_owned(),
        format!("--tls-cert-file={}", certificate.display()),
        format!("--tls-private-key-file={}", key.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start(&flags).await;
    let config = server.kubeconfig_value();
    let served = async || {
        let stream = tls(server.secure(), &config, None, Protocol::Http2).await;
        let certificates = stream.get_ref().1.peer_certificates();
        certificates.expect("a certificate")[0].as_ref().to_vec()
    };
    let first = served().await;
    let mut open = server.admin(Protocol::Http2).await;
    install();
    let replaced = async {
        while served().await == first {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(60), replaced).await;
    assert!(within.is_ok(), "{}", server.log());
    assert_eq!(open.get("/api").await.status, StatusCode::OK);
    let mut admin = server.admin(Protocol::Http2).await;
    assert_eq!(admin.get("/api").await.status, StatusCode::OK);
    server.stop().await;
}

/// Returns the certificate that is served for `name`, verified against the CAs in `ca`.
async fn served_for(server: &Server, name: &str, ca: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(root.expect("PEM")).expect("a CA");
    }
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = tokio::net::TcpStream::connect(server.secure())
        .await
        .expect("a connection");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let stream = connector.connect(name, stream).await.expect("a handshake");
    let certificates = stream.get_ref().1.peer_certificates();
    certificates.expect("a certificate")[0].as_ref().to_vec()
}

#[tokio::test]
async fn clients_get_the_certificate_of_the_name_that_they_request() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let ca = ca("corporate");
    let pair = |file: &str, names: &[&str]| {
        let (certificate, key) = ca.sign("api", names);
        let certificate = write(files.path(), &format!("{file}.crt"), &certificate);
        let key = write(files.path(), &format!("{file}.key"), &key);
        format!("{},{}", certificate.display(), key.display())
    };
    let flags = [
        format!("--tls-sni-cert-key={}", pair("a", &["a.example.com"])),
        format!(
            "--tls-sni-cert-key={}:*.b.example.com",
            pair("b", &["x.b.example.com"])
        ),
        "--tls-san=extra.example.com,192.0.2.7".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start(&flags).await;
    let own = std::fs::read_to_string(server.data_dir().join("pki/ca.crt")).expect("a CA");
    let a = served_for(&server, "a.example.com", &ca.pem).await;
    let b = served_for(&server, "x.b.example.com", &ca.pem).await;
    assert_ne!(a, b);
    let extra = served_for(&server, "extra.example.com", &own).await;
    assert_eq!(served_for(&server, "192.0.2.7", &own).await, extra);
    assert_eq!(served_for(&server, "localhost", &own).await, extra);

    pair("a", &["a.example.com"]);
    let replaced = async {
        while served_for(&server, "a.example.com", &ca.pem).await == a {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(60), replaced).await;
    assert!(within.is_ok(), "{}", server.log());
    assert_eq!(served_for(&server, "x.b.example.com", &ca.pem).await, b);
    server.stop().await;
}

#[tokio::test]
async fn the_servers_own_certificates_are_renewed_without_a_restart() {
    let server = Server::start(&["--storage=memory"]).await;
    let pki = server.data_dir().join("pki");
    let read = |name: &str| std::fs::read_to_string(pki.join(name)).expect("it exists");
    let (authority, first) = (read("ca.crt"), read("apiserver.crt"));
    let before = served_for(&server, "localhost", &authority).await;
    // Certificates that expire soon, with the keys that the server would use.
    let key = KeyPair::from_pem(&read("ca.key")).expect("a key");
    let der = CertificateDer::from_pem_slice(authority.as_bytes()).expect("PEM");
    let issuer = Issuer::from_ca_cert_der(&der, key).expect("an issuer");
    let soon = ["apiserver", "admin"].map(|name| {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let ten_days = Duration::from_secs(10 * 24 * 3600);
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_epoch.unwrap() + ten_days;
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        (name, key.serialize_pem(), certificate.pem())
    });
    // Each key immediately before its certificate: the server reads the files at any time, and both must match.
    for (name, key, certificate) in soon {
        write(&pki, &format!("{name}.key"), &key);
        write(&pki, &format!("{name}.crt"), &certificate);
    }
    let old_kubeconfig = std::fs::read(server.kubeconfig()).expect("it exists");
    let renewed = async {
        while served_for(&server, "localhost", &authority).await == before {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(60), renewed).await;
    assert!(within.is_ok(), "{}", server.log());
    assert!(server.log().contains("it expires soon"), "{}", server.log());
    assert_ne!(read("apiserver.crt"), first);
    assert_ne!(
        std::fs::read(server.kubeconfig()).expect("it exists"),
        old_kubeconfig
    );
    let mut admin = server.admin(Protocol::Http2).await;
    assert_eq!(admin.get("/api").await.status, StatusCode::OK);

    // Another CA is not taken over while the server runs, and no new one is made.
    std::fs::remove_file(pki.join("ca.crt")).expect("it exists");
    std::fs::remove_file(pki.join("admin.crt")).expect("it exists");
    let reported = async {
        while !server.log().contains("is no longer the CA of this server") {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(60), reported).await;
    assert!(within.is_ok(), "{}", server.log());
    assert!(!pki.join("ca.crt").exists());
    assert_eq!(admin.get("/api").await.status, StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn insecure_port_serves_both_protocols() {
    let server = Server::start(&["--storage=memory"]).await;
    for protocol in PROTOCOLS {
        let mut wire = server.plain(protocol).await;
        let answer = wire.get("/api/v1/namespaces/default").await;
        assert_eq!(answer.status, StatusCode::OK, "{protocol:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn split_preface_is_recognized() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Server::start(&["--storage=memory"]).await;
    let mut stream = tokio::net::TcpStream::connect(server.insecure())
        .await
        .expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    // The preface, then an empty SETTINGS frame.
    for part in [
        &b"PR"[..],
        b"I * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\x04\0\0\0\0\0",
    ] {
        stream.write_all(part).await.expect("it reads");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).await.expect("an answer");
    assert_eq!(frame[3], 4, "the server's SETTINGS: {frame:?}");
    server.stop().await;
}
