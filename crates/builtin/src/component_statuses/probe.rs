//! One GET of `/healthz` over HTTPS, as upstream probes the components of a control plane: it does not verify the
//! certificate, and reports every failure as a message.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use watchet_x509::AnyCertificate;

/// The maximum length of a response in a message, in bytes; upstream's value.
const SHOWN_BYTES_MAX: usize = 10 << 10;

/// The health of a component, with the message that its status shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Health {
    Healthy(String),
    Unhealthy(String),
    /// The component responds with a redirect.
    Unknown(String),
}

/// Returns the health of the component that serves HTTPS at `address`, which may take `timeout` to answer.
pub(super) async fn probe(address: SocketAddr, timeout: Duration) -> Health {
    let answer = tokio::time::timeout(timeout, get(address)).await;
    let failed = |why: &str| Health::Unhealthy(format!("Get \"https://{address}/healthz\": {why}"));
    match answer {
        Ok(Ok((status, body))) if status.is_success() => Health::Healthy(body),
        Ok(Ok((status, body))) if status.is_redirection() => {
            Health::Unknown(format!("Probe terminated redirects, Response body: {body}"))
        }
        // The body of a failed response may contain information that not every reader of the status may see.
        Ok(Ok((status, _))) => Health::Unhealthy(format!(
            "HTTP probe failed with statuscode: {}",
            status.as_u16()
        )),
        Ok(Err(why)) => failed(&why),
        Err(_) => failed("context deadline exceeded"),
    }
}

async fn get(address: SocketAddr) -> Result<(StatusCode, String), String> {
    let stream = TcpStream::connect(address).await.map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            _ => error.to_string(),
        };
        format!("dial tcp {address}: connect: {why}")
    })?;
    let connector = TlsConnector::from(Arc::new(tls()?));
    let stream = connector.connect(ServerName::from(address.ip()), stream);
    let stream = TokioIo::new(stream.await.map_err(|error| error.to_string())?);
    let handshake = http1::handshake(stream).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let request = Request::get("/healthz")
        .header(header::HOST, address.to_string())
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let exchange = async move {
        let response = sender.send_request(request).await;
        let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
        Ok((head.status, read_prefix(body).await?))
    };
    // An error of the connection is returned by the request.
    let (_, answer) = tokio::join!(connection, exchange);
    answer
}

fn tls() -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider)));
    Ok(builder.with_no_client_auth())
}

/// Reads the beginning of a body.
async fn read_prefix(mut body: Incoming) -> Result<String, String> {
    let mut bytes = Vec::new();
    while bytes.len() < SHOWN_BYTES_MAX
        && let Some(frame) = body.frame().await
    {
        if let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    bytes.truncate(SHOWN_BYTES_MAX);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use rustls_pki_types::PrivateKeyDer;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// Answers one request with `response`, with an untrusted certificate; with nothing if `response` is empty.
    async fn answered(response: &str) -> (SocketAddr, Health) {
        let issued = rcgen::generate_simple_self_signed(vec!["elsewhere".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![issued.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = async {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(config));
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut request = vec![0; 4096];
            let read = stream.read(&mut request).await.unwrap();
            assert!(request[..read].starts_with(b"GET /healthz HTTP/1.1\r\n"));
            if response.is_empty() {
                return std::future::pending().await;
            }
            stream.write_all(response.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        };
        let patience = Duration::from_millis(if response.is_empty() { 300 } else { 20_000 });
        let probing = probe(address, patience);
        tokio::pin!(serving, probing);
        let health = match futures_util::future::select(serving, probing).await {
            futures_util::future::Either::Left(((), probing)) => probing.await,
            futures_util::future::Either::Right((health, _)) => health,
        };
        (address, health)
    }

    /// A component counted as healthy as soon as its port accepted connections, whatever its response.
    #[tokio::test]
    async fn component_health_depends_on_its_response() {
        let (_, health) = answered("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        assert_eq!(health, Health::Healthy("ok".to_owned()));
        let broken = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 6\r\n\r\nsecret";
        let (_, health) = answered(broken).await;
        let expected = "HTTP probe failed with statuscode: 500";
        assert_eq!(health, Health::Unhealthy(expected.to_owned()));
        let moved = "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 2\r\n\r\nno";
        let (_, health) = answered(moved).await;
        let expected = "Probe terminated redirects, Response body: no";
        assert_eq!(health, Health::Unknown(expected.to_owned()));
        let (address, health) = answered("").await;
        let expected = format!("Get \"https://{address}/healthz\": context deadline exceeded");
        assert_eq!(health, Health::Unhealthy(expected));
        // The listener is closed.
        let health = probe(address, Duration::from_secs(20)).await;
        let expected = format!(
            "Get \"https://{address}/healthz\": dial tcp {address}: connect: connection refused"
        );
        assert_eq!(health, Health::Unhealthy(expected));
    }
}
