//! The flags of TLS and of requests: versions, cipher suites, requests in flight, their time limit.

use std::sync::Arc;

use http::{Method, StatusCode};
use rustls::crypto::aws_lc_rs;
use rustls::{CipherSuite, ProtocolVersion, SupportedProtocolVersion, version};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::admission::cluster::{Cluster, MAPS, allow, hook, map};
use crate::harness::{Protocol, Server, Webhook, full, request};

/// Connects with one version of TLS and returns what was negotiated.
async fn negotiated(
    server: &Server,
    version: &'static SupportedProtocolVersion,
    suites: &[CipherSuite],
) -> Option<(ProtocolVersion, CipherSuite)> {
    let ca = std::fs::read(server.data_dir().join("pki/ca.crt")).expect("a CA");
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(&ca).expect("PEM");
    roots.add(ca).expect("a usable CA");
    let mut provider = aws_lc_rs::default_provider();
    let is_offered = |suite: CipherSuite| suites.is_empty() || suites.contains(&suite);
    provider
        .cipher_suites
        .retain(|suite| is_offered(suite.suite()));
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("a version with suites")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.secure())
        .await
        .expect("a connection");
    let name = ServerName::from(server.secure().ip());
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .ok()?;
    let session = stream.get_ref().1;
    let suite = session.negotiated_cipher_suite().expect("a suite").suite();
    Some((session.protocol_version().expect("a version"), suite))
}

#[tokio::test]
async fn tls_versions_and_cipher_suites_are_those_of_the_flags() {
    const ALLOWED: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    const OTHER: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    let server = Server::start(&["--storage=memory", "--tls-min-version=VersionTLS13"]).await;
    assert_eq!(negotiated(&server, &version::TLS12, &[]).await, None);
    let (agreed, _) = negotiated(&server, &version::TLS13, &[])
        .await
        .expect("TLS 1.3");
    assert_eq!(agreed, ProtocolVersion::TLSv1_3);
    server.stop().await;

    let suites = format!("--tls-cipher-suites={ALLOWED:?}");
    let server = Server::start(&["--storage=memory", &suites]).await;
    let agreed = negotiated(&server, &version::TLS12, &[]).await;
    assert_eq!(agreed, Some((ProtocolVersion::TLSv1_2, ALLOWED)));
    assert_eq!(negotiated(&server, &version::TLS12, &[OTHER]).await, None);
    let agreed = negotiated(&server, &version::TLS13, &[]).await;
    assert!(agreed.is_some(), "the suites of TLS 1.3 stay");
    server.stop().await;
}

/// One write may be in flight, and its webhook hangs: others get a 429, reads go on, and the write ends at its time limit.
#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_and_their_time_are_limited_by_flags() {
    let flags = [
        "--enable-priority-and-fairness=false",
        "--max-mutating-requests-inflight=1",
        "--request-timeout=3s",
    ];
    let server = Server::start(&flags).await;
    let webhook = Webhook::start(|call| {
        Box::pin(async move {
            if call.body["request"]["name"] == "slow" {
                std::future::pending::<()>().await;
            }
            allow(&call)
        })
    })
    .await;
    let hook = hook(&webhook, "/hangs", json!({"timeoutSeconds": 30}));
    Cluster(&server).configure("Validating", "w", &[hook]).await;
    let mut wire = server.plain(Protocol::Http1).await;
    let slow = map("slow").to_string();
    let slow = async {
        let headers = [("content-type", "application/json")];
        let post = request(Method::POST, MAPS, &headers, full(&slow));
        wire.open(post).await.expect("a response").status()
    };
    let meanwhile = async {
        while !webhook
            .calls()
            .iter()
            .any(|call| call.body["request"]["name"] == "slow")
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let mut other = server.plain(Protocol::Http1).await;
        let write = other.post(MAPS, &map("other")).await.status;
        (write, other.get(MAPS).await.status)
    };
    let (slow, (write, read)) = tokio::join!(slow, meanwhile);
    assert_eq!(write, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(read, StatusCode::OK);
    assert_eq!(slow, StatusCode::GATEWAY_TIMEOUT);
    let mut other = server.plain(Protocol::Http1).await;
    assert_eq!(
        other.post(MAPS, &map("other")).await.status,
        StatusCode::CREATED
    );
    server.stop().await;
}
