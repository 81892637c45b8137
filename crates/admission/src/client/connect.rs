//! Opens connections: resolves the name, connects by TCP, and performs the handshakes of TLS and HTTP/1.1. A task
//! drives the connection until the connection ends or the server stops.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error;
use super::pool::Destination;
use watchet_tasks::Tasks;

/// Connects to `host` and `port`, where `destination` is served.
///
/// # Errors
/// A message for users.
pub(super) async fn connect(
    tasks: &Tasks,
    destination: &Arc<Destination>,
    host: &str,
    port: u16,
) -> Result<SendRequest<Full<Bytes>>, String> {
    let stream = dial(host, port).await?;
    let name = destination.server_name.clone();
    let connector = TlsConnector::from(destination.tls.clone());
    let stream = connector.connect(name, stream).await;
    let stream = stream.map_err(|error| error::of_io(&error))?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error::of_hyper(&error))?;
    let stopped = tasks.token().cancelled_owned();
    tasks.spawn("webhook-connection", async move {
        tokio::select! {
            biased;
            // A call in progress fails, and the failure policy decides whether its write is rejected.
            () = stopped => {}
            ended = connection => {
                if let Err(error) = ended {
                    // A call in progress returns its own error. Without a call, an idle connection has ended.
                    tracing::debug!(%error, "a connection to a webhook ended");
                }
            }
        }
    });
    Ok(sender)
}

async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let addresses = tokio::net::lookup_host((host, port)).await;
    let addresses = addresses.map_err(|_| format!("dial tcp: lookup {host}: no such host"))?;
    let mut failed = format!("dial tcp: lookup {host}: no such host");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // A call is one small request, which must not be delayed to be combined with more data.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY cannot be set");
                }
                return Ok(stream);
            }
            Err(error) => {
                failed = format!("dial tcp {address}: connect: {}", error::of_io(&error));
            }
        }
    }
    Err(failed)
}
