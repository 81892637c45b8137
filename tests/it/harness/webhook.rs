//! A webhook: an HTTPS server in the process of the test with its own CA. The test provides the responses; the requests
//! are recorded.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use watchet::tasks::Tasks;
use watchet::x509::ClientVerifier;

/// The response of a webhook.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Returns a success with this body.
    pub(crate) fn json(body: &Value) -> Self {
        Self {
            code: 200,
            body: body.to_string().into_bytes(),
        }
    }

    /// Returns any other response.
    pub(crate) fn other(code: u16, body: &str) -> Self {
        Self {
            code,
            body: body.as_bytes().to_vec(),
        }
    }
}

/// A request to a webhook.
#[derive(Debug, Clone)]
pub(crate) struct WebhookRequest {
    /// The path with the query.
    pub(crate) path: String,
    pub(crate) body: Value,
    /// The header `Authorization`; empty if absent.
    pub(crate) authorization: String,
    /// The header `traceparent`; empty if absent.
    pub(crate) traceparent: String,
    /// True if the client presented a certificate.
    pub(crate) has_certificate: bool,
}

/// A response that is computed asynchronously.
pub(crate) type Replying = Pin<Box<dyn Future<Output = Reply> + Send>>;

type Handler = dyn Fn(WebhookRequest) -> Replying + Send + Sync;

/// A running webhook, which ends when dropped.
pub(crate) struct Webhook {
    address: SocketAddr,
    ca: String,
    leaf: String,
    calls: Arc<Mutex<Vec<WebhookRequest>>>,
    connections: Arc<AtomicUsize>,
    tasks: Tasks,
    /// Its token cancels the open connections; replaced at each cancellation.
    open: Arc<Mutex<tokio_util::sync::CancellationToken>>,
}

impl Webhook {
    /// Starts a webhook that responds immediately.
    pub(crate) async fn answering(
        answer: impl Fn(&WebhookRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |call| {
            let reply = answer(&call);
            Box::pin(async move { reply })
        })
        .await
    }

    /// Starts a webhook with asynchronous responses and a certificate for 127.0.0.1.
    pub(crate) async fn start(
        handler: impl Fn(WebhookRequest) -> Replying + Send + Sync + 'static,
    ) -> Self {
        Self::start_as("127.0.0.1", handler).await
    }

    /// Starts a webhook with a certificate for `name`.
    pub(crate) async fn start_as(
        name: &str,
        handler: impl Fn(WebhookRequest) -> Replying + Send + Sync + 'static,
    ) -> Self {
        Self::start_at(IpAddr::from([127, 0, 0, 1]), name, handler).await
    }

    /// Starts a webhook that listens on `ip`, which other machines may reach.
    pub(crate) async fn start_at(
        ip: IpAddr,
        name: &str,
        handler: impl Fn(WebhookRequest) -> Replying + Send + Sync + 'static,
    ) -> Self {
        Self::serve(ip, certificate(name), handler).await
    }

    /// Starts a webhook that requires the client certificate `client`.
    pub(crate) async fn start_with_client(
        client: CertificateDer<'static>,
        handler: impl Fn(WebhookRequest) -> Replying + Send + Sync + 'static,
    ) -> Self {
        let mut certificate = certificate("127.0.0.1");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = ClientVerifier::new(&provider, [client]).expect("a verifier");
        certificate.tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(certificate.tls.cert_resolver.clone());
        Self::serve(IpAddr::from([127, 0, 0, 1]), certificate, handler).await
    }

    /// Starts a webhook whose certificate for 127.0.0.1 is self-signed, as a CA.
    pub(crate) async fn start_self_signed(
        handler: impl Fn(WebhookRequest) -> Replying + Send + Sync + 'static,
    ) -> Self {
        let certificate = self_signed("127.0.0.1");
        Self::serve(IpAddr::from([127, 0, 0, 1]), certificate, handler).await
    }

    async fn serve(
        ip: IpAddr,
        certificate: Certificate,
        handler: impl Fn(WebhookRequest) -> Replying + Send + Sync + 'static,
    ) -> Self {
        let Certificate { tls, ca, leaf } = certificate;
        let listener = TcpListener::bind((ip, 0)).await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let tasks = Tasks::new();
        let webhook = Self {
            address,
            ca,
            leaf,
            calls: Arc::default(),
            connections: Arc::default(),
            tasks: tasks.clone(),
            open: Arc::default(),
        };
        let open = webhook.open.clone();
        let (calls, connections) = (webhook.calls.clone(), webhook.connections.clone());
        let handler: Arc<Handler> = Arc::new(handler);
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        tasks.clone().spawn("webhook", async move {
            let stop = tasks.token();
            while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
                let (calls, handler) = (calls.clone(), handler.clone());
                let (acceptor, connections) = (acceptor.clone(), connections.clone());
                let stop = open.lock().clone();
                tasks.spawn("webhook-connection", async move {
                    let serve = async move {
                        // A client that does not trust the certificate disconnects, which some tests expect.
                        let Ok(stream) = acceptor.accept(stream).await else {
                            return;
                        };
                        connections.fetch_add(1, Ordering::SeqCst);
                        let (_, session) = stream.get_ref();
                        let has_certificate = session.peer_certificates().is_some();
                        let service = service_fn(move |request| {
                            reply(request, has_certificate, calls.clone(), handler.clone())
                        });
                        let http = hyper::server::conn::http1::Builder::new();
                        drop(http.serve_connection(TokioIo::new(stream), service).await);
                    };
                    stop.run_until_cancelled(serve).await;
                });
            }
        });
        webhook
    }

    /// Returns a `clientConfig` with the URL and the CA bundle of the webhook.
    pub(crate) fn client_config(&self, path: &str) -> Value {
        json!({"url": self.url(path), "caBundle": self.ca_bundle()})
    }

    /// Returns a kubeconfig with the URL, the CA and a token.
    pub(crate) fn kubeconfig(&self, path: &str) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "w", "cluster": {
                "server": self.url(path), "certificate-authority-data": self.ca_bundle(),
            }}],
            "users": [{"name": "u", "user": {"token": "of-the-server"}}],
            "contexts": [{"name": "c", "context": {"cluster": "w", "user": "u"}}],
        })
        .to_string()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns its CA in the form of `caBundle`.
    pub(crate) fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.ca)
    }

    /// Returns its serving certificate in the form of `caBundle`.
    pub(crate) fn leaf_bundle(&self) -> String {
        STANDARD.encode(&self.leaf)
    }

    /// Returns the requests so far.
    pub(crate) fn calls(&self) -> Vec<WebhookRequest> {
        self.calls.lock().clone()
    }

    /// Closes the open connections.
    pub(crate) fn close_connections(&self) {
        std::mem::take(&mut *self.open.lock()).cancel();
    }

    /// Returns the number of accepted connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.tasks.cancel();
        self.close_connections();
    }
}

async fn reply(
    request: http::Request<Incoming>,
    has_certificate: bool,
    calls: Arc<Mutex<Vec<WebhookRequest>>>,
    handler: Arc<Handler>,
) -> Result<http::Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().to_string();
    let header = |name: &str| {
        let value = request.headers().get(name);
        let value = value.map_or("", |value| value.to_str().expect("text"));
        value.to_owned()
    };
    let (authorization, traceparent) = (header("authorization"), header("traceparent"));
    let body = request.into_body().collect().await?.to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let one = WebhookRequest {
        path,
        body,
        authorization,
        traceparent,
        has_certificate,
    };
    calls.lock().push(one.clone());
    let reply = handler(one).await;
    Ok(http::Response::builder()
        .status(reply.code)
        .header("content-type", "application/json")
        .header("location", "https://127.0.0.1:1/elsewhere")
        .body(Full::new(reply.body.into()))
        .expect("a response"))
}

/// The serving certificate and key, and the certificates in PEM.
struct Certificate {
    tls: ServerConfig,
    ca: String,
    leaf: String,
}

/// Returns a certificate for `name` that a CA has signed.
fn certificate(name: &str) -> Certificate {
    let ca_key = KeyPair::generate().expect("a key");
    let ca = authority(Vec::new());
    let ca_pem = ca.self_signed(&ca_key).expect("a CA").pem();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    let leaf = leaf.signed_by(&key, &issuer).expect("a certificate");
    Certificate {
        tls: serving(&leaf, &key),
        ca: ca_pem,
        leaf: leaf.pem(),
    }
}

/// Returns a certificate for `name` that is its own CA.
fn self_signed(name: &str) -> Certificate {
    let key = KeyPair::generate().expect("a key");
    let leaf = authority(vec![name.to_owned()]).self_signed(&key);
    let leaf = leaf.expect("a certificate");
    Certificate {
        tls: serving(&leaf, &key),
        ca: leaf.pem(),
        leaf: leaf.pem(),
    }
}

fn authority(names: Vec<String>) -> CertificateParams {
    let mut params = CertificateParams::new(names).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn serving(leaf: &rcgen::Certificate, key: &KeyPair) -> ServerConfig {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .expect("a certificate that can be served")
}
