//! Connections: sockets, TLS, HTTP/1.1 and HTTP/2, and the time limits of both sides.

// In reading order: from the listener to the request.
pub(super) mod listen;

pub(super) mod connections;
mod handshakes;
pub(super) mod serving_certificates;
pub(super) mod tls;

mod connection;
pub(super) mod handler;
mod http2;
mod local;
pub(super) mod service;

mod corked;
mod overdue;
mod socket;
mod unread;

use std::time::Duration;

/// The minimum time between two warnings about connections of one kind.
pub(in crate::server) const WARNING_INTERVAL: Duration = Duration::from_secs(1);
