//! Clients that send a request and do not read the response.

use http::Method;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

use super::MAPS;
use crate::harness::{Protocol, Response, Server};

/// A small receive buffer, so that the response stays in the server.
const RECEIVE_BYTES: u32 = 4 << 10;

/// Connections with a response that is not read, closed when dropped.
pub(super) struct SlowClients {
    _connections: Vec<TcpStream>,
}

impl SlowClients {
    /// Opens lists, and watches and WebSockets that begin with the state.
    pub(super) async fn open(server: &Server, [lists, watches, sockets]: [usize; 3]) -> Self {
        let watch = format!("{MAPS}?watch=true&resourceVersion=0");
        let mut connections = Vec::new();
        for (path, headers, count) in [
            (MAPS, "", lists),
            (&watch, "", watches),
            (&watch, UPGRADE, sockets),
        ] {
            for _ in 0..count {
                connections.push(request(server, path, headers).await);
            }
        }
        Self {
            _connections: connections,
        }
    }
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

/// Sends a request and does not read the response.
pub(super) async fn request(server: &Server, path: &str, headers: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .set_recv_buffer_size(RECEIVE_BYTES)
        .expect("a buffer size");
    let mut stream = socket.connect(server.insecure()).await.expect("accepted");
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nImpersonate-User: slow\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("it reads");
    stream
}

/// Lists all objects as a user without privileges, and reads the response to its end.
pub(super) async fn list_until_end(server: &Server, accept: &str) -> Response {
    let mut wire = server.plain(Protocol::Http1).await;
    let headers = [("impersonate-user", "bob"), ("accept", accept)];
    wire.send(Method::GET, MAPS, &headers, "").await
}
