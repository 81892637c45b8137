//! A server between a load and the real one that changes one thing in what the real one says, so that a
//! test can see whether the load notices. It speaks no protocol: it replaces text by text as long.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is replaced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lie {
    pub(super) truth: &'static str,
    pub(super) lie: &'static str,
    /// The number of occurrences that are not replaced.
    pub(super) after: usize,
}

/// Listens, and lies once in all. Returns its URL. It ends with the process of the tests.
pub(super) fn start(server: SocketAddr, lie: Lie) -> String {
    assert_eq!(
        lie.truth.len(),
        lie.lie.len(),
        "HTTP sends the length first"
    );
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let received = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let received = Arc::clone(&received);
            std::thread::spawn(move || relay(client, server, lie, &received));
        }
    });
    format!("http://{address}")
}

fn relay(
    client: TcpStream,
    server: SocketAddr,
    lie: Lie,
    received: &AtomicUsize,
) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let (mut requests, mut to_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let copied = io::copy(&mut requests, &mut to_server);
        // The other side may be gone already.
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
        let truths: Vec<usize> = memchr::memmem::find_iter(bytes, lie.truth).collect();
        for at in truths {
            if received.fetch_add(1, Ordering::Relaxed) == lie.after {
                bytes[at..at + lie.lie.len()].copy_from_slice(lie.lie.as_bytes());
            }
        }
        to_client.write_all(bytes)?;
    }
}
