//! Connections: sockets, TLS, HTTP/1.1 and HTTP/2, and the time limits of both sides.

// In reading order: from the listener to the request.
pub(super) mod listen;

mod handshakes;
pub(super) mod tls;

pub(super) mod connection;
mod http2;
mod local;

mod corked;
mod overdue;
mod socket;
mod unread;
