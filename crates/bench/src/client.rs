//! A connection to the target: a socket, optionally TLS, HTTP/1.1 or HTTP/2. The task that uses a
//! connection also drives it. Independent of Kubernetes, except for error messages.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::args::Protocol;
use super::encoding::{Content, Encoding};
use super::target::Target;
use watchet_client::connection_error_message;
use watchet_tasks::Tasks;

/// The time limit for a connection or a response, equal to kube-apiserver's request timeout.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// How many connections may be in the handshake concurrently: fewer than a listener's backlog.
pub(super) const CONNECTING_MAX: usize = 64;

/// The HTTP/2 receive windows of a stream and of a connection, equal to those of Go's client, which
/// most Kubernetes clients use.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("cannot connect to {authority}: {}", connection_error_message(source))]
    Connect {
        authority: String,
        source: io::Error,
    },
    #[error("no response within {0:?}")]
    Timeout(Duration),
    #[error("the connection failed: {0}")]
    Http(#[from] hyper::Error),
    #[error("cannot request {path}: {source}")]
    Request { path: String, source: http::Error },
    #[error("{method} {path}: {status}: {message}")]
    Status {
        method: Method,
        path: String,
        status: StatusCode,
        message: String,
    },
    #[error("{path}: unexpected response: {problem}")]
    Response { path: String, problem: String },
}

impl ClientError {
    /// Returns the status code, if the server sent one.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns true if the connection can send further requests: the server has responded.
    pub(super) fn connection_lives(&self) -> bool {
        matches!(self, Self::Status { .. } | Self::Response { .. })
    }
}

type Body = Full<Bytes>;

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Call<'a> {
    pub method: Method,
    pub path: &'a str,
    pub body: Bytes,
    /// The media type of the body, if it is not empty.
    pub content_type: &'static str,
    /// The content of the response.
    pub content: Content,
}

impl<'a> Call<'a> {
    /// Creates a request whose response is an object, a watch or a Status. The body is JSON; that
    /// of a PATCH is a merge patch.
    pub(super) fn new(method: Method, path: &'a str, body: Bytes) -> Self {
        let content_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        Self {
            method,
            path,
            body,
            content_type,
            content: Content::Object,
        }
    }

    /// Creates a GET of an object.
    pub(super) fn get(path: &'a str) -> Self {
        Self::new(Method::GET, path, Bytes::new())
    }

    /// Creates a list.
    pub(super) fn list(path: &'a str) -> Self {
        Self {
            content: Content::List,
            ..Self::get(path)
        }
    }
}

enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

/// Sends requests over one connection, while [`Driver::run`] drives it.
pub(super) struct Connection {
    sender: Sender,
    target: Arc<Target>,
    accept: Encoding,
}

/// Drives the I/O of a connection.
pub(super) struct Driver(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Driver {
    /// Drives the connection until `work` is done. If the connection ends first, the requests of
    /// `work` fail.
    pub(super) async fn run<T>(self, work: impl Future<Output = T>) -> T {
        match select(pin!(work), self.0).await {
            Either::Left((result, _)) => result,
            Either::Right(((), work)) => work.await,
        }
    }
}

/// Runs something over a new connection.
pub(super) async fn with_connection<T>(
    target: &Arc<Target>,
    tasks: &Tasks,
    work: impl AsyncFnOnce(&mut Connection) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let (mut connection, driver) = connect(target, tasks).await?;
    driver.run(work(&mut connection)).await
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Opens a connection. `tasks` own the background task of HTTP/2.
///
/// # Errors
/// The server cannot be reached, is not trusted, or does not speak the protocol.
pub(super) async fn connect(
    target: &Arc<Target>,
    tasks: &Tasks,
) -> Result<(Connection, Driver), ClientError> {
    let opened = timeout(RESPONSE_TIMEOUT, open(target)).await;
    let stream = opened
        .map_err(|_| ClientError::Timeout(RESPONSE_TIMEOUT))?
        .map_err(|source| ClientError::Connect {
            authority: target.authority.clone(),
            source,
        })?;
    let (sender, driver) = match target.protocol {
        Protocol::Http1 => {
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            // The waiting request reports its failure.
            let driver: Pin<Box<dyn Future<Output = ()> + Send>> =
                Box::pin(async { drop(connection.await) });
            (Sender::Http1(sender), driver)
        }
        Protocol::Http2 => {
            let (sender, connection) = http2::Builder::new(tasks.clone())
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .handshake(TokioIo::new(stream))
                .await?;
            let driver: Pin<Box<dyn Future<Output = ()> + Send>> =
                Box::pin(async { drop(connection.await) });
            (Sender::Http2(sender), driver)
        }
    };
    let connection = Connection {
        sender,
        target: Arc::clone(target),
        accept: Encoding::Json,
    };
    Ok((connection, Driver(driver)))
}

async fn open(target: &Target) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = &target.tls else {
        return Ok(Box::new(stream));
    };
    let connector = TlsConnector::from(tls.config.clone());
    let stream = connector.connect(tls.name.clone(), stream).await?;
    if target.protocol == Protocol::Http2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        let problem = "the server does not speak HTTP/2: use --http 1.1";
        return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
    }
    Ok(Box::new(stream))
}

impl Connection {
    /// Returns the connection with `encoding` as the requested encoding; the default is JSON.
    pub(super) fn accepting(self, encoding: Encoding) -> Self {
        Self {
            accept: encoding,
            ..self
        }
    }

    /// Returns the requested encoding.
    pub(super) fn accept(&self) -> Encoding {
        self.accept
    }

    /// Sets the requested encoding.
    pub(super) fn set_accept(&mut self, encoding: Encoding) {
        self.accept = encoding;
    }

    /// Sends a request and returns the response with its body unread; 2xx only.
    ///
    /// # Errors
    /// The request fails, or the response has another encoding.
    pub(super) async fn open(&mut self, call: Call<'_>) -> Result<Response<Incoming>, ClientError> {
        let (method, path) = (call.method.clone(), call.path);
        let request = self.request(call)?;
        let response = async {
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
        let response = timeout(RESPONSE_TIMEOUT, response).await;
        let response = response.map_err(|_| ClientError::Timeout(RESPONSE_TIMEOUT))??;
        let status = response.status();
        if status.is_success() {
            self.check_type(path, response.headers())?;
            return Ok(response);
        }
        let message = timeout(RESPONSE_TIMEOUT, response.into_body().collect()).await;
        let message = message
            .map_err(|_| ClientError::Timeout(RESPONSE_TIMEOUT))??
            .to_bytes();
        Err(ClientError::Status {
            method,
            path: path.to_owned(),
            status,
            message: message_of(&message),
        })
    }

    /// Checks the Content-Type: a server without protobuf may respond in JSON, which would be a
    /// different measurement.
    fn check_type(&self, path: &str, headers: &HeaderMap) -> Result<(), ClientError> {
        let expected = self.accept.wire().media_type();
        let given = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let given = given.unwrap_or_default();
        if given.starts_with(expected.as_bytes()) {
            return Ok(());
        }
        let given = String::from_utf8_lossy(given);
        Err(ClientError::Response {
            path: path.to_owned(),
            problem: format!("its type is {given:?} instead of {expected}"),
        })
    }

    /// Sends a request with a JSON body and returns the complete body of the response.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, ClientError> {
        self.call(Call::new(method, path, body)).await
    }

    /// Sends a request and returns the complete body of the response.
    ///
    /// # Errors
    /// The request fails, or the response is incomplete.
    pub(super) async fn call(&mut self, call: Call<'_>) -> Result<Bytes, ClientError> {
        let body = self.open(call).await?.into_body();
        let whole = timeout(RESPONSE_TIMEOUT, body.collect()).await;
        Ok(whole
            .map_err(|_| ClientError::Timeout(RESPONSE_TIMEOUT))??
            .to_bytes())
    }

    /// Sends a request, calls `each` with each part of the response's body, and returns its length.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub(super) async fn stream(
        &mut self,
        call: Call<'_>,
        mut each: impl FnMut(&[u8]),
    ) -> Result<u64, ClientError> {
        let mut body = self.open(call).await?.into_body();
        let mut bytes = 0;
        let whole = async {
            while let Some(frame) = body.frame().await {
                if let Some(data) = frame?.data_ref() {
                    bytes += data.len() as u64;
                    each(data);
                }
            }
            Ok(bytes)
        };
        let whole = timeout(RESPONSE_TIMEOUT, whole).await;
        whole.map_err(|_| ClientError::Timeout(RESPONSE_TIMEOUT))?
    }

    fn request(&self, call: Call<'_>) -> Result<Request<Body>, ClientError> {
        let (target, path) = (&self.target, call.path);
        let scheme = if target.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let builder = match self.sender {
            Sender::Http1(_) => Request::builder().uri(path).header(HOST, &target.authority),
            // In HTTP/2 the authority is a pseudo-header.
            Sender::Http2(_) => {
                let uri = format!("{scheme}://{}{path}", target.authority);
                Request::builder().uri(uri)
            }
        };
        let has_body = !call.body.is_empty();
        let mut request = builder
            .method(call.method)
            .body(Full::new(call.body))
            .map_err(|source| ClientError::Request {
                path: path.to_owned(),
                source,
            })?;
        let headers = request.headers_mut();
        let accept = HeaderValue::from_static(self.accept.accept(call.content));
        headers.insert(ACCEPT, accept);
        if has_body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type));
        }
        let ours = target.headers.iter();
        headers.extend(ours.map(|(name, value)| (name.clone(), value.clone())));
        Ok(request)
    }
}

/// Returns the message of a Status, or the beginning of any other body.
fn message_of(body: &[u8]) -> String {
    let status: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = status
        .as_ref()
        .and_then(|status| status["message"].as_str());
    match message {
        Some(message) => message.to_owned(),
        None => String::from_utf8_lossy(body).chars().take(200).collect(),
    }
}

/// Escapes `text` as a value in a query.
pub(super) fn query_value(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_escaped() {
        assert_eq!(query_value("a in (b,c)"), "a%20in%20%28b%2Cc%29");
        assert_eq!(query_value("spec.nodeName=n-1"), "spec.nodeName%3Dn-1");
        assert_eq!(query_value("ü&"), "%C3%BC%26");
    }

    #[test]
    fn a_failure_has_the_servers_message() {
        assert_eq!(message_of(br#"{"kind":"Status","message":"no"}"#), "no");
        assert_eq!(message_of(b"<html>"), "<html>");
    }
}
