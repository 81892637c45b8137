//! `Dial`: opens the byte stream of a connection: TCP, a tunnel through a proxy, or what the program provides.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http::uri::Scheme;
use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower_service::Service;

/// The timeout of opening a connection, and the idle time after which TCP sends a keep-alive. Go's
/// defaults.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
const KEEP_ALIVE: Duration = Duration::from_secs(30);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Opens the connections of a client in place of TCP: through a tunnel of the program, over a Unix socket, or within the
/// process. `Dial` of client-go's `rest.Config`. TLS is added for `https` URLs.
///
/// ```
/// use std::io;
/// use std::path::PathBuf;
/// use std::sync::Arc;
///
/// use watchet_client::{ByteStream, Dialer, RestClient, RestConfig};
///
/// struct Socket(PathBuf);
///
/// #[async_trait::async_trait]
/// impl Dialer for Socket {
///     async fn dial(&self, _host: &str, _port: u16) -> io::Result<Box<dyn ByteStream>> {
///         Ok(Box::new(tokio::net::UnixStream::connect(&self.0).await?))
///     }
/// }
///
/// let config = RestConfig {
///     dialer: Some(Arc::new(Socket("/run/api.sock".into()))),
///     ..RestConfig::new("http://localhost")
/// };
/// assert!(RestClient::new(&config).is_ok());
/// ```
#[async_trait]
pub trait Dialer: Send + Sync + 'static {
    /// Opens a connection to the server at `host` and `port`, those of [`RestConfig::server`](super::RestConfig::server).
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn ByteStream>>;
}

/// A connection that a [`Dialer`] opens.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Opens a connection to the server.
#[derive(Clone)]
pub(super) enum Dial {
    Custom(Arc<dyn Dialer>),
    Direct(HttpConnector),
    Tunnel(Tunnel<HttpConnector>),
    Socks(SocksV5<HttpConnector>),
}

/// Omits the password of a proxy's URL.
impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Custom(_) => "Custom(..)",
            Self::Direct(_) => "Direct(..)",
            Self::Tunnel(_) => "Tunnel(..)",
            Self::Socks(_) => "Socks(..)",
        })
    }
}

impl Dial {
    /// Returns what opens connections, through `proxy` or with `dialer` if there is one.
    ///
    /// # Errors
    /// The proxy is invalid, or there are both.
    pub(super) fn new(
        proxy: Option<&str>,
        dialer: Option<&Arc<dyn Dialer>>,
    ) -> Result<Self, String> {
        if let Some(dialer) = dialer {
            return match proxy {
                None => Ok(Self::Custom(dialer.clone())),
                Some(_) => Err("a client with a dialer cannot use a proxy-url".to_owned()),
            };
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEP_ALIVE));
        tcp.set_connect_timeout(Some(DIAL_TIMEOUT));
        let Some(proxy) = proxy else {
            return Ok(Self::Direct(tcp));
        };
        let refuse = |why: &str| format!("proxy-url {:?} {why}", without_password(proxy));
        let uri: Uri = proxy.parse().map_err(|_| refuse("is not a URL"))?;
        let user = uri.authority().and_then(|a| a.as_str().rsplit_once('@'));
        let user = user.map(|(user, _)| user.split_once(':').unwrap_or((user, "")));
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => {
                let tunnel = Tunnel::new(uri.clone(), tcp);
                Ok(Self::Tunnel(match user {
                    Some(user) => tunnel.with_auth(basic(user)?),
                    None => tunnel,
                }))
            }
            Some(scheme) if matches!(scheme.as_str(), "socks5" | "socks5h") => {
                let socks = SocksV5::new(uri.clone(), tcp);
                Ok(Self::Socks(match user {
                    Some((name, password)) => socks.with_auth(decoded(name), decoded(password)),
                    None => socks,
                }))
            }
            _ => Err(refuse("must start with http:// or socks5://")),
        }
    }
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8_lossy()
        .into_owned()
}

fn basic((name, password): (&str, &str)) -> Result<HeaderValue, String> {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    let text = format!("{}:{}", decoded(name), decoded(password));
    let value = format!("Basic {}", BASE64_STANDARD.encode(text));
    HeaderValue::try_from(value).map_err(|error| error.to_string())
}

impl Service<Uri> for Dial {
    type Response = TokioIo<ClientStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Custom(_) => Poll::Ready(Ok(())),
            Self::Direct(tcp) => tcp.poll_ready(cx).map_err(BoxError::from),
            Self::Tunnel(tunnel) => tunnel.poll_ready(cx).map_err(BoxError::from),
            Self::Socks(socks) => socks.poll_ready(cx).map_err(BoxError::from),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match self {
            Self::Custom(dialer) => {
                let dialer = dialer.clone();
                Box::pin(async move {
                    let host = server.host().unwrap_or_default();
                    let is_tls = server.scheme() == Some(&Scheme::HTTPS);
                    let port = server.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
                    let stream = dialer.dial(host, port).await?;
                    Ok(TokioIo::new(ClientStream::Custom(stream)))
                })
            }
            Self::Direct(tcp) => connected(tcp.call(server)),
            Self::Tunnel(tunnel) => connected(tunnel.call(server)),
            Self::Socks(socks) => connected(socks.call(server)),
        }
    }
}

/// Returns a URL without its credentials.
pub(super) fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // Even in an invalid URL everything that may be a password is removed.
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://..@{host}"),
        None => url.to_owned(),
    }
}

/// Converts the stream and the error of a connector.
fn connected<E: Into<BoxError>>(
    connecting: impl Future<Output = Result<TokioIo<TcpStream>, E>> + Send + 'static,
) -> Pin<Box<dyn Future<Output = Result<TokioIo<ClientStream>, BoxError>> + Send>> {
    Box::pin(async move {
        let stream = connecting.await.map_err(Into::into)?;
        Ok(TokioIo::new(ClientStream::Tcp(stream.into_inner())))
    })
}

/// The byte stream of a connection.
pub(super) enum ClientStream {
    Tcp(TcpStream),
    Custom(Box<dyn ByteStream>),
}

impl Connection for ClientStream {
    fn connected(&self) -> Connected {
        match self {
            Self::Tcp(stream) => stream.connected(),
            Self::Custom(_) => Connected::new(),
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Custom(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Custom(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Custom(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Custom(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Custom(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Custom(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's Debug output used to contain the password of its proxy.
    #[test]
    fn debug_output_has_no_proxy_password() {
        for scheme in ["http", "socks5"] {
            let dial =
                Dial::new(Some(&format!("{scheme}://jane:s3cret@proxy:3128")), None).unwrap();
            let shown = format!("{dial:?}");
            assert!(!shown.contains("s3cret"), "{shown}");
        }
    }

    #[test]
    fn proxies_are_checked() {
        assert!(matches!(Dial::new(None, None), Ok(Dial::Direct(_))));
        let with = |proxy| Dial::new(Some(proxy), None);
        assert!(matches!(with("http://p:3128"), Ok(Dial::Tunnel(_))));
        assert!(matches!(with("http://a:b%20c@p:3128"), Ok(Dial::Tunnel(_))));
        assert!(matches!(with("socks5://p:1080"), Ok(Dial::Socks(_))));
        for wrong in ["https://p", "p:3128", "http://a b"] {
            let error = with(wrong).unwrap_err();
            assert!(
                error.starts_with(&format!("proxy-url {wrong:?} ")),
                "{error}"
            );
        }
        assert_eq!(basic(("a", "b%20c")).unwrap(), "Basic YTpiIGM=");
    }
}
