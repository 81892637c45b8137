//! Tests of client certificates: certificates of other programs, rejected certificates, and certificates that the
//! server signs after a request and an approval.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::harness::{Identity, Kubectl, PATIENCE, Protocol, Server, Wire, on_both};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/certificates");
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

on_both!(|server| (server, &Kubectl::new(&server.kubeconfig())) => [
    approved_requests_are_signed, a_request_that_cannot_be_signed_reports_the_reason
]);

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{FIXTURES}/{name}")).expect("a fixture")
}

fn openssl_client(kind: &str) -> Identity {
    let certificate = fixture(&format!("client-{kind}.crt"));
    Identity::from_pem(&certificate, &fixture(&format!("client-{kind}.key")))
}

/// Returns the name of the user that the server authenticates over this version of TLS.
async fn who(
    server: &Server,
    identity: &Identity,
    version: &'static SupportedProtocolVersion,
) -> String {
    let answer = try_who(server, identity, version).await;
    answer.expect("an answer")
}

/// As `who`, but returns the error if the connection fails.
async fn try_who(
    server: &Server,
    identity: &Identity,
    version: &'static SupportedProtocolVersion,
) -> std::io::Result<String> {
    let ca = std::fs::read(server.data_dir().join("pki/ca.crt")).expect("a CA");
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(&ca).expect("a CA"))
        .expect("a CA that can be used");
    let provider = Arc::new(aws_lc_rs::default_provider());
    // rustls does not create a key pair with a certificate that it cannot parse, so the key is loaded separately.
    let key = provider
        .key_provider
        .load_private_key(identity.key.clone_key())
        .expect("a key");
    let pair = SingleCertAndKey::from(CertifiedKey::new(identity.chain.clone(), key));
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(pair));
    let stream = TcpStream::connect(server.secure()).await.expect("a port");
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await?;
    let body = "{}";
    let head = format!(
        "POST {REVIEWS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// `openssl x509 -req` creates certificates of version 1. The server rejected them: the client saw a failed handshake
/// ("unknown certificate") or a 401.
#[tokio::test]
async fn a_client_certificate_of_version_1_is_accepted() {
    let ca = format!("--client-ca-file={FIXTURES}/ca.crt");
    let server = Server::start(&[&ca]).await;
    for kind in ["rsa", "ec"] {
        for version in [&TLS12, &TLS13] {
            let answer = who(&server, &openssl_client(kind), version).await;
            let user = format!(r#""username":"jane-{kind}""#);
            assert!(answer.starts_with("HTTP/1.1 201"), "{version:?} {answer}");
            assert!(answer.contains(&user), "{version:?} {answer}");
            assert!(answer.contains(r#""groups":["dev""#), "{answer}");
        }
    }
    server.stop().await;
}

/// Certificates are public: the server must check that the client has the key, also where it verifies the handshake
/// itself.
#[tokio::test]
async fn certificate_of_version_1_without_its_key_is_rejected() {
    let ca = format!("--client-ca-file={FIXTURES}/ca.crt");
    let server = Server::start(&[&ca]).await;
    let other = KeyPair::generate().expect("a key").serialize_pem();
    for kind in ["rsa", "ec"] {
        let certificate = fixture(&format!("client-{kind}.crt"));
        let identity = Identity::from_pem(&certificate, other.as_bytes());
        for version in [&TLS12, &TLS13] {
            let answer = try_who(&server, &identity, version).await;
            assert!(answer.is_err(), "{kind} {version:?}: {answer:?}");
        }
    }
    server.stop().await;
}

/// The reason was logged at level debug only, or not at all.
#[tokio::test]
async fn unauthenticated_requests_are_logged_with_the_reason() {
    // A server without the CA that has signed the certificate.
    let server = Server::start(&[]).await;
    let answer = who(&server, &openssl_client("ec"), &TLS13).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let config = server.kubeconfig_value();
    let mut stranger = Wire::secure(server.secure(), &config, None, Protocol::Http2).await;
    let headers = [("authorization", "Bearer wrong")];
    for (headers, path) in [(&headers[..], "/api/v1/pods"), (&[], "/api/v1/nodes")] {
        let answer = stranger.send(Method::GET, path, headers, "").await;
        assert_eq!(answer.status, 401);
    }
    let log = server.log();
    let line = |words: &[&str]| {
        let mut lines = log.lines();
        let found = lines.any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "{words:?} in:\n{log}");
    };
    line(&[
        "INFO",
        "client certificate rejected",
        "O=dev, CN=jane-ec",
        "CN=openssl-ca",
        "UnknownIssuer",
    ]);
    line(&[
        "INFO",
        "request not authenticated",
        REVIEWS,
        "UnknownIssuer",
    ]);
    line(&[
        "INFO",
        "request not authenticated",
        "/api/v1/pods",
        "invalid bearer token",
    ]);
    line(&[
        "INFO",
        "request not authenticated",
        "/api/v1/nodes",
        "no credentials",
    ]);
    assert!(!log.contains("Bearer wrong"), "{log}");
    server.stop().await;
}

/// Returns a CertificateSigningRequest and its key.
fn requested(name: &str, subject: &[(DnType, &str)], spec: Value) -> (Value, KeyPair) {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, text) in subject {
        params.distinguished_name.push(kind.clone(), *text);
    }
    let key = KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).expect("a request");
    let mut spec = spec;
    spec["request"] = STANDARD.encode(pem.pem().expect("PEM")).into();
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name}, "spec": spec,
    });
    (request, key)
}

/// Waits until the status has this member and returns the status.
async fn status(wire: &mut Wire, name: &str, is_there: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut found = wire.get(&format!("{REQUESTS}/{name}")).await.json();
        let status = found["status"].take();
        if is_there(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Approved requests were never signed.
async fn approved_requests_are_signed(server: &Server, kubectl: &Kubectl) {
    let mut wire = server.plain(Protocol::Http1).await;
    let spec = json!({
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth", "digital signature"],
        "expirationSeconds": 3600,
    });
    let subject = [
        (DnType::OrganizationName, "dev"),
        (DnType::CommonName, "jane"),
    ];
    let (request, key) = requested("jane", &subject, spec.clone());
    let args = ["create", "-f", "-"];
    kubectl.run_with(&args, &request.to_string()).await;
    // The second request is not signed before it is approved.
    let (later, _) = requested("later", &subject, spec);
    kubectl.run_with(&args, &later.to_string()).await;
    kubectl.run(&["certificate", "approve", "later"]).await;
    let is_signed = |status: &Value| status["certificate"].is_string();
    status(&mut wire, "later", is_signed).await;
    let before = wire.get(&format!("{REQUESTS}/jane")).await.json();
    assert!(before["status"]["certificate"].is_null(), "{before}");
    kubectl.run(&["certificate", "approve", "jane"]).await;
    let signed = status(&mut wire, "jane", |status| {
        status["certificate"].is_string()
    })
    .await;
    assert_eq!(signed["conditions"].as_array().map(Vec::len), Some(1));
    let shown = kubectl.run(&["get", "csr", "jane"]).await;
    assert!(shown.contains("Approved,Issued"), "{shown}");

    let certificate = STANDARD.decode(signed["certificate"].as_str().unwrap_or_default());
    let certificate = certificate.expect("base64");
    let der = CertificateDer::from_pem_slice(&certificate).expect("a certificate");
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).expect("a certificate");
    let validity = parsed.validity();
    let seconds = validity.not_after.timestamp() - validity.not_before.timestamp();
    assert_eq!(seconds, 3600 + 300, "backdated by five minutes");
    // The server accepts the signed certificate.
    let identity = Identity::from_pem(&certificate, key.serialize_pem().as_bytes());
    let answer = who(server, &identity, &TLS13).await;
    assert!(answer.contains(r#""username":"jane""#), "{answer}");
    assert!(answer.contains(r#""groups":["dev""#), "{answer}");
}

async fn a_request_that_cannot_be_signed_reports_the_reason(server: &Server, kubectl: &Kubectl) {
    let mut wire = server.plain(Protocol::Http1).await;
    let subject = [
        (DnType::OrganizationName, "dev"),
        (DnType::CommonName, "system:node:a"),
    ];
    for (name, signer) in [
        ("node", "kubernetes.io/kubelet-serving"),
        ("elsewhere", "example.com/signer"),
    ] {
        let usages = ["server auth", "digital signature"];
        let spec = json!({"signerName": signer, "usages": usages});
        let (request, _) = requested(name, &subject, spec);
        let args = ["create", "-f", "-"];
        kubectl.run_with(&args, &request.to_string()).await;
        kubectl.run(&["certificate", "approve", name]).await;
    }
    let failed = status(&mut wire, "node", |status| {
        status["conditions"].as_array().map(Vec::len) == Some(2)
    });
    let condition = &failed.await["conditions"][1];
    assert_eq!(condition["type"], "Failed", "{condition}");
    assert_eq!(condition["status"], "True", "{condition}");
    assert_eq!(condition["reason"], "SignerValidationFailure");
    let why = "subject organization is not system:nodes";
    assert_eq!(condition["message"], why);
    // The server does not sign requests for the signers of other programs.
    let other = wire.get(&format!("{REQUESTS}/elsewhere")).await.json();
    let conditions = other["status"]["conditions"].as_array().map(Vec::len);
    assert_eq!(conditions, Some(1), "{other}");
    assert!(other["status"]["certificate"].is_null(), "{other}");
}
