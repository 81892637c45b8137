//! An HTTP connection to a server under test: HTTP/1.1 or HTTP/2, with or without TLS. Independent of Kubernetes.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use watchet::tasks::Tasks;

use super::PATIENCE;

/// A client certificate with its key.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Returns the identity in a kubeconfig.
    pub(crate) fn from_kubeconfig(config: &Value) -> Self {
        let user = &config["users"][0]["user"];
        let certificate = decoded(&user["client-certificate-data"]);
        let key = decoded(&user["client-key-data"]);
        Self::from_pem(&certificate, &key)
    }

    pub(crate) fn from_pem(certificate: &[u8], key: &[u8]) -> Self {
        Self {
            chain: vec![CertificateDer::from_pem_slice(certificate).expect("a certificate")],
            key: PrivateKeyDer::from_pem_slice(key).expect("a key"),
        }
    }
}

fn decoded(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("a text");
    BASE64_STANDARD.decode(text).expect("base64")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

pub(crate) const PROTOCOLS: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// A complete response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Response {
    /// Returns the body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }
}

type Body = BoxBody<Bytes, std::io::Error>;

enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

/// A connection, closed when dropped.
pub(crate) struct Wire {
    sender: Sender,
    tasks: Tasks,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl Wire {
    /// Opens a connection with TLS that trusts the CA of the kubeconfig.
    pub(crate) async fn secure(
        address: SocketAddr,
        kubeconfig: &Value,
        identity: Option<&Identity>,
        protocol: Protocol,
    ) -> Self {
        let stream = tls(address, kubeconfig, identity, protocol).await;
        Self::over(stream, protocol).await
    }

    /// Opens a connection without TLS.
    pub(crate) async fn plain(address: SocketAddr, protocol: Protocol) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        Self::over(stream, protocol).await
    }

    async fn over<S>(stream: S, protocol: Protocol) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(stream);
        let tasks = Tasks::new();
        let stop = tasks.token();
        let sender = match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(io).await.expect("HTTP/1.1");
                let driver = stop.run_until_cancelled_owned(connection);
                drop(tasks.spawn("http1", driver));
                Sender::Http1(sender)
            }
            Protocol::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), io)
                    .await
                    .expect("HTTP/2");
                let driver = stop.run_until_cancelled_owned(connection);
                drop(tasks.spawn("http2", driver));
                Sender::Http2(sender)
            }
        };
        Self { sender, tasks }
    }

    /// Sends a request and returns the response with its body unread.
    pub(crate) async fn open(
        &mut self,
        request: Request<Body>,
    ) -> hyper::Result<http::Response<Incoming>> {
        let answer = async {
            match &mut self.sender {
                Sender::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Sender::Http2(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        timeout(PATIENCE, answer).await.expect("an answer in time")
    }

    /// Sends a request with headers and a body and returns the complete response.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        self.send_bytes(method, path, headers, body.to_owned().into_bytes())
            .await
    }

    /// As [`Self::send`], with any body.
    pub(crate) async fn send_bytes(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Response {
        let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
        let request = request(method, path, headers, body.boxed());
        let response = self.open(request).await.expect("an answer");
        let (head, body) = response.into_parts();
        let body = timeout(PATIENCE, body.collect()).await;
        let body = body.expect("a body in time").expect("a whole body");
        Response {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Response {
        self.send(Method::GET, path, &[], "").await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Response {
        let headers = [("content-type", "application/json")];
        self.send(Method::POST, path, &headers, &body.to_string())
            .await
    }
}

/// Opens a TLS connection that trusts the CA of the kubeconfig.
pub(crate) async fn tls(
    address: SocketAddr,
    kubeconfig: &Value,
    identity: Option<&Identity>,
    protocol: Protocol,
) -> TlsStream<TcpStream> {
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    let ca = decoded(&cluster["certificate-authority-data"]);
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(&ca).expect("a CA");
    roots.add(ca).expect("a CA that can be used");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS versions")
        .with_root_certificates(roots);
    let mut config = match identity {
        Some(identity) => config
            .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            .expect("a client certificate"),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
    };
    let name = match cluster["tls-server-name"].as_str() {
        Some(name) => ServerName::try_from(name.to_owned()).expect("a name"),
        None => ServerName::from(address.ip()),
    };
    let stream = TcpStream::connect(address).await.expect("a connection");
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .expect("a TLS connection")
}

/// Returns a complete body.
pub(crate) fn full(text: &str) -> Body {
    Full::new(Bytes::copy_from_slice(text.as_bytes()))
        .map_err(|never| match never {})
        .boxed()
}

/// Returns a request for [`Wire::open`].
pub(crate) fn request(
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Body,
) -> Request<Body> {
    let mut request = Request::builder()
        .method(method)
        // HTTP/2 takes the authority from the URI; HTTP/1.1 uses the header Host.
        .uri(format!("http://localhost{path}"))
        .header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).expect("a request")
}
