//! The login of the console by clients without a credential.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Duration, Instant, timeout};

use crate::harness::{PATIENCE, Protocol, Server, tls};

/// A client that sends no body occupies a connection for some seconds only.
#[tokio::test]
async fn a_login_without_its_body_times_out() {
    let server = Server::start(&["--storage=memory"]).await;
    let kubeconfig = server.kubeconfig_value();
    let mut stream = tls(server.secure(), &kubeconfig, None, Protocol::Http1).await;
    let head = "POST /console/login HTTP/1.1\r\nHost: localhost\r\n\
                Content-Type: application/json\r\nContent-Length: 500\r\n\r\n";
    let begun = Instant::now();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut received = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut received)).await;
    let text = String::from_utf8_lossy(&received);
    assert!(read.is_ok(), "the connection stays open: {text}");
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
    assert!(begun.elapsed() >= Duration::from_secs(4), "{text}");
}
