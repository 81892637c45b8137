//! Ports for processes that a test starts again on the same port, and for programs that take only a number.

use std::io;
use std::net::TcpListener;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that Linux chooses for client connections and for port 0, 32768 to 60999. One of those can be taken while
/// the process of a test is down: the tests open thousands of connections.
const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;

/// The next port to try, minus [`FIRST`]. Random at first, because other processes of tests choose ports too.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(fastrand::u16(..COUNT)));

/// Returns a port of the loopback interface that is free now. No other of the next 20,000 calls in this process returns it.
///
/// # Panics
/// No port is free, or ports cannot be opened.
pub fn free_port() -> u16 {
    for _ in 0..COUNT {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return port,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => panic!("port {port}: {error}"),
        }
    }
    panic!("none of {COUNT} ports is free");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_those_in_use_are_left_out() {
        let first = free_port();
        // The last port is followed by the first one.
        let next = FIRST + (first + 1 - FIRST) % COUNT;
        // An error means that another process has it.
        let _taken = TcpListener::bind(("127.0.0.1", next));
        let second = free_port();
        assert!(second != first && second != next, "{first} {second}");
    }
}
