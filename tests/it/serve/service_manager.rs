//! Tests of the protocols of systemd: notifications of the state, and sockets that the service manager has opened.

use std::os::fd::OwnedFd;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Stdio;

use std::os::linux::net::SocketAddrExt as _;
use tokio::time::timeout;

use crate::harness::{PATIENCE, Protocol, Server, command, shell};

const FLAGS: [&str; 2] = ["--storage=memory", "--secure-port=0"];

/// Passes its standard input as the socket of the service manager.
const ACTIVATED: &str = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3<&0 0</dev/null";

fn received(socket: &UnixDatagram) -> String {
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut buffer = [0; 1000];
    let length = socket.recv(&mut buffer).expect("a notification");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

#[tokio::test]
async fn service_manager_is_notified_of_readiness_and_end() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("notify");
    let name = format!("watchet-test-{}", std::process::id());
    let abstract_address = SocketAddr::from_abstract_name(&name).expect("a name");
    for (socket, address) in [
        (UnixDatagram::bind(&path), path.display().to_string()),
        (
            UnixDatagram::bind_addr(&abstract_address),
            format!("@{name}"),
        ),
    ] {
        let socket = socket.expect("a socket");
        let mut program = command();
        program.env("NOTIFY_SOCKET", address);
        let mut server = Server::start_by(program, &FLAGS).await;
        let expected = format!("READY=1\nSTATUS=Serving https://{}\n", server.secure());
        assert_eq!(received(&socket), expected);
        server.signal("TERM");
        assert_eq!(received(&socket), "STOPPING=1\nSTATUS=Draining\n");
        assert!(server.wait().await.success());
    }
}

#[tokio::test]
async fn a_server_without_a_listening_service_manager_logs_a_warning() {
    let mut program = command();
    program.env("NOTIFY_SOCKET", "/nonexistent/notify");
    let mut server = Server::start_by(program, &FLAGS).await;
    server.signal("TERM");
    assert!(server.wait().await.success());
    let log = server.log();
    assert!(log.contains("cannot notify the service manager"), "{log}");
}

#[tokio::test]
async fn server_serves_on_the_socket_of_the_service_manager() {
    let listener = std::net::TcpListener::bind("127.0.0.2:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut program = shell(ACTIVATED);
    program.stdin(Stdio::from(OwnedFd::from(listener)));
    let server = Server::start_by(program, &FLAGS).await;
    assert_eq!(server.secure(), address);
    // The serving certificate has the address of the socket, not of --bind-address.
    let mut wire = server.admin(Protocol::Http2).await;
    assert_eq!(wire.get("/readyz").await.status, 200);
    drop(wire);
    server.stop().await;
}

#[tokio::test]
async fn sockets_that_cannot_serve_https_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let datagrams = Stdio::from(OwnedFd::from(datagrams));
    let several = ACTIVATED.replace("FDS=1", "FDS=2");
    for (script, stdin, expected) in [
        (
            ACTIVATED,
            datagrams,
            "LISTEN_FDS=1: fd 3 is not a valid tcp socket",
        ),
        (
            &several,
            Stdio::null(),
            "LISTEN_FDS=2: the service manager passes 2 sockets",
        ),
    ] {
        let mut program = shell(script);
        let output = program
            .current_dir(directory.path())
            .args(FLAGS)
            .stdin(stdin)
            .output();
        let output = timeout(PATIENCE, output).await.expect("in time");
        let output = output.expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(log.contains(expected), "{log}");
    }
}
