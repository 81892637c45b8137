//! One connection to the target: a socket, TLS over it when the target has it, HTTP/1.1 or HTTP/2. The
//! task that uses a connection drives it too, so that there is one task each. It knows no Kubernetes.

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

use super::args::{Encoding, Protocol};
use super::target::Target;
use crate::tasks::Tasks;

/// How long a connection, or an answer, may take. Upstream's own limit of a request.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(60);

/// How many connections are opened at the same time: what a listener's queue holds with ease.
pub(super) const OPENING_MAX: usize = 64;

/// What a stream may have in flight before we read it, and a connection: those of Go's client, which
/// nearly every client of Kubernetes is.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// A request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("cannot connect to {authority}: {source}")]
    Connect {
        authority: String,
        source: io::Error,
    },
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("the connection failed: {0}")]
    Http(#[from] hyper::Error),
    #[error("cannot ask for {path}: {source}")]
    Request { path: String, source: http::Error },
    #[error("{method} {path}: {status}: {message}")]
    Status {
        method: Method,
        path: String,
        status: StatusCode,
        message: String,
    },
    #[error("{path}: the answer is not what Kubernetes sends: {problem}")]
    Answer { path: String, problem: String },
}

impl ClientError {
    /// The status, when the server gave one.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

type Body = Full<Bytes>;

enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

/// Sends requests over one connection, which must be driven by [`Driver::run`] meanwhile.
pub(super) struct Connection {
    sender: Sender,
    target: Arc<Target>,
    accept: Encoding,
}

impl Encoding {
    /// As it is told in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
        }
    }

    /// As it is asked for, and how the type of an answer in it begins.
    const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// Moves the bytes of a connection.
pub(super) struct Driver(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Driver {
    /// Moves bytes until `work` is done. When the connection ends first, `work` hears of it by its
    /// requests.
    pub(super) async fn run<T>(self, work: impl Future<Output = T>) -> T {
        match select(pin!(work), self.0).await {
            Either::Left((result, _)) => result,
            Either::Right(((), work)) => work.await,
        }
    }
}

/// Does something over a connection of its own.
pub(super) async fn alone<T>(
    target: &Arc<Target>,
    tasks: &Tasks,
    work: impl AsyncFnOnce(&mut Connection) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let (mut connection, driver) = connect(target, tasks).await?;
    driver.run(work(&mut connection)).await
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Opens a connection. `tasks` own what HTTP/2 needs beside it.
///
/// # Errors
/// The server cannot be reached, is not trusted, or does not speak the protocol.
pub(super) async fn connect(
    target: &Arc<Target>,
    tasks: &Tasks,
) -> Result<(Connection, Driver), ClientError> {
    let opened = timeout(ANSWER_MAX, open(target)).await;
    let stream = opened
        .map_err(|_| ClientError::Timeout(ANSWER_MAX))?
        .map_err(|source| ClientError::Connect {
            authority: target.authority.clone(),
            source,
        })?;
    let (sender, driver) = match target.protocol {
        Protocol::Http1 => {
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            // Its failure is told to the request that waits.
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
        let problem = "the server does not speak HTTP/2: give --http 1.1";
        return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
    }
    Ok(Box::new(stream))
}

impl Connection {
    /// The same, asking for answers in `encoding`; it is JSON at first.
    pub(super) fn accepting(self, encoding: Encoding) -> Self {
        Self {
            accept: encoding,
            ..self
        }
    }

    /// What it asks for.
    pub(super) fn accept(&self) -> Encoding {
        self.accept
    }

    /// Asks for `encoding` from now on.
    pub(super) fn set_accept(&mut self, encoding: Encoding) {
        self.accept = encoding;
    }

    /// Sends a request and returns the answer with its body yet to be read; 2xx only.
    ///
    /// # Errors
    /// No such answer came, or one in another encoding.
    pub(super) async fn open(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let request = self.request(method.clone(), path, body)?;
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
        let answer = timeout(ANSWER_MAX, answer).await;
        let response = answer.map_err(|_| ClientError::Timeout(ANSWER_MAX))??;
        let status = response.status();
        if status.is_success() {
            self.check_type(path, response.headers())?;
            return Ok(response);
        }
        let message = timeout(ANSWER_MAX, response.into_body().collect()).await;
        let message = message
            .map_err(|_| ClientError::Timeout(ANSWER_MAX))??
            .to_bytes();
        Err(ClientError::Status {
            method,
            path: path.to_owned(),
            status,
            message: message_of(&message),
        })
    }

    /// A server that knows no protobuf may answer in JSON: what is measured then is not what was asked
    /// for.
    fn check_type(&self, path: &str, headers: &HeaderMap) -> Result<(), ClientError> {
        let expected = self.accept.media_type();
        let given = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let given = given.unwrap_or_default();
        if given.starts_with(expected.as_bytes()) {
            return Ok(());
        }
        let given = String::from_utf8_lossy(given);
        Err(ClientError::Answer {
            path: path.to_owned(),
            problem: format!("its type is {given:?} instead of {expected}"),
        })
    }

    /// Sends a request and returns the body of its answer, whole.
    ///
    /// # Errors
    /// No answer with 2xx came, or not all of it.
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, ClientError> {
        let body = self.open(method, path, body).await?.into_body();
        let whole = timeout(ANSWER_MAX, body.collect()).await;
        Ok(whole
            .map_err(|_| ClientError::Timeout(ANSWER_MAX))??
            .to_bytes())
    }

    /// As [`Self::send`] for an answer that is not needed: its length, without keeping it.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(super) async fn measure(&mut self, path: &str) -> Result<u64, ClientError> {
        let mut body = self
            .open(Method::GET, path, Bytes::new())
            .await?
            .into_body();
        let mut bytes = 0;
        let whole = async {
            while let Some(frame) = body.frame().await {
                bytes += frame?.data_ref().map_or(0, |data| data.len() as u64);
            }
            Ok(bytes)
        };
        let whole = timeout(ANSWER_MAX, whole).await;
        whole.map_err(|_| ClientError::Timeout(ANSWER_MAX))?
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Body>, ClientError> {
        let target = &self.target;
        let scheme = if target.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let builder = match self.sender {
            Sender::Http1(_) => Request::builder().uri(path).header(HOST, &target.authority),
            // The authority is a pseudo-header there.
            Sender::Http2(_) => {
                let uri = format!("{scheme}://{}{path}", target.authority);
                Request::builder().uri(uri)
            }
        };
        let content_type = (!body.is_empty()).then_some(match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        });
        let mut request = builder
            .method(method)
            .body(Full::new(body))
            .map_err(|source| ClientError::Request {
                path: path.to_owned(),
                source,
            })?;
        let headers = request.headers_mut();
        let accept = HeaderValue::from_static(self.accept.media_type());
        headers.insert(ACCEPT, accept);
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        let ours = target.headers.iter();
        headers.extend(ours.map(|(name, value)| (name.clone(), value.clone())));
        Ok(request)
    }
}

/// The message of a Status, or the beginning of whatever came instead.
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

/// `text` as a value in a query.
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
    fn a_failure_says_what_the_server_said() {
        assert_eq!(message_of(br#"{"kind":"Status","message":"no"}"#), "no");
        assert_eq!(message_of(b"<html>"), "<html>");
    }
}
