//! A proxy between the load generator and the server that replaces a text in the responses once, so that a test can
//! check that the generator detects it. The replacement has the same length.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The text to replace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replacement {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    /// The number of occurrences to leave unchanged before the replaced one.
    pub(super) after: usize,
}

/// Starts the proxy and returns its URL. The proxy runs until the process of the tests ends.
pub(super) fn start(server: SocketAddr, replacement: Replacement) -> String {
    assert_eq!(
        replacement.from.len(),
        replacement.to.len(),
        "HTTP sends the length first"
    );
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let received = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let received = Arc::clone(&received);
            std::thread::spawn(move || relay(client, server, replacement, &received));
        }
    });
    format!("http://{address}")
}

fn relay(
    client: TcpStream,
    server: SocketAddr,
    replacement: Replacement,
    received: &AtomicUsize,
) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let (mut requests, mut to_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let copied = io::copy(&mut requests, &mut to_server);
        // The other side may have closed the connection already.
        drop(to_server.shutdown(Shutdown::Both));
        copied
    });
    let (mut answers, mut to_client) = (server, client);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = answers.read(&mut buffer)?;
        if length == 0 {
            return to_client.shutdown(Shutdown::Both);
        }
        let bytes = &mut buffer[..length];
        let occurrences: Vec<usize> = memchr::memmem::find_iter(bytes, replacement.from).collect();
        for at in occurrences {
            if received.fetch_add(1, Ordering::Relaxed) == replacement.after {
                bytes[at..at + replacement.to.len()].copy_from_slice(replacement.to.as_bytes());
            }
        }
        to_client.write_all(bytes)?;
    }
}
