//! Fetches the documents of an issuer: one GET over HTTPS and HTTP/1.1 on a new connection, because fetches are rare.
//! It follows no redirects and uses no proxy.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use watchet_x509::{ServerVerifier, Trusted};

/// The time limit of a fetch, including the connection.
const FETCH_MAX: Duration = Duration::from_secs(10);

/// The maximum size of a document in bytes.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

const HTTPS_PORT: u16 = 443;

/// Fetches documents from servers whose certificates are signed by given CAs.
#[derive(Debug, Clone)]
pub(super) struct Fetcher(Arc<ClientConfig>);

impl Fetcher {
    /// Trusts the CAs in `pem`, or those of the system if it is empty. Reads files, so it may block.
    ///
    /// # Errors
    /// There is no usable CA.
    pub(super) fn new(pem: &str) -> Result<Self, String> {
        let certificates: Vec<CertificateDer<'static>> = match pem {
            "" => rustls_native_certs::load_native_certs().certs,
            pem => CertificateDer::pem_slice_iter(pem.as_bytes())
                .flatten()
                .collect(),
        };
        let trusted = Trusted::new(certificates);
        if trusted.is_empty() {
            return Err("there is no usable CA certificate".to_owned());
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Arc::new(ServerVerifier::new(Arc::new(trusted), &provider));
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    /// Fetches the document at `url`. Cancel safe.
    ///
    /// # Errors
    /// The document cannot be fetched in time or is too large, or the status is not 200.
    pub(super) async fn get(&self, url: &str) -> Result<Bytes, String> {
        let failed = |error: String| format!("Get {url:?}: {error}");
        let fetched = tokio::time::timeout(FETCH_MAX, self.exchange(url)).await;
        let fetched = fetched.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
        fetched.map_err(failed)
    }

    async fn exchange(&self, url: &str) -> Result<Bytes, String> {
        let uri: Uri = url.parse().map_err(|_| "it is no URL".to_owned())?;
        let authority = uri.authority().ok_or("it has no host")?;
        if uri.scheme_str() != Some("https") {
            return Err("URL scheme must be https".to_owned());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(HTTPS_PORT);
        let name = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
        let stream = TcpStream::connect((host.as_str(), port)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(Arc::clone(&self.0)).connect(name, stream);
        let stream = stream.await.map_err(|error| error.to_string())?;
        let connection = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connection.map_err(|error| error.to_string())?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(header::HOST, authority.as_str())
            .header(header::ACCEPT, "application/json")
            .header(
                header::USER_AGENT,
                concat!("watchet/", env!("CARGO_PKG_VERSION")),
            )
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        let exchange = async {
            let response = sender.send_request(request).await;
            let response = response.map_err(|error| error.to_string())?;
            if response.status() != StatusCode::OK {
                return Err(format!("the status is {}", response.status()));
            }
            read(response.into_body()).await
        };
        tokio::select! {
            biased;
            document = exchange => document,
            // The exchange returns the error of a connection that ends before it.
            _ended = async { drop(connection.await); std::future::pending::<()>().await } => {
                Err("the connection ended".to_owned())
            }
        }
    }
}

async fn read(mut body: Incoming) -> Result<Bytes, String> {
    let too_large = || format!("the document is larger than {DOCUMENT_BYTES_MAX} bytes");
    if body.size_hint().lower() > DOCUMENT_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let mut document = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        if let Ok(data) = frame.into_data() {
            if document.len() + data.len() > DOCUMENT_BYTES_MAX {
                return Err(too_large());
            }
            document.extend_from_slice(&data);
        }
    }
    Ok(document.freeze())
}
