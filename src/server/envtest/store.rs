//! The protocol by which envtest's `etcd` and `kube-apiserver` share a store: the etcd process owns
//! its data directory and serves its location at [`PATH`]; the API server requests it and opens a
//! store inside, which it uses while the etcd process runs. A server without that path is a real etcd.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::storage::embedded::Durability;

/// The path of the store's location.
pub(super) const PATH: &str = "/watchet/store";

/// The time limit of one attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);

/// The time limit for an etcd to start, the same as for a real one.
const START_MAX: Duration = Duration::from_secs(30);

/// The pause between attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// The maximum size of a response.
const RESPONSE_BYTES_MAX: u64 = 64 * 1024;

/// The location of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::server) struct Store {
    /// The absolute path of the etcd's data directory.
    pub(in crate::server) data_dir: PathBuf,
    /// Whether writes are synced to disk before they are acknowledged.
    pub(super) fsync: bool,
}

impl Store {
    /// Returns the durability of an embedded store inside.
    pub(in crate::server) fn durability(&self) -> Durability {
        match self.fsync {
            true => Durability::Fsync,
            false => Durability::None,
        }
    }
}

/// Requests the store from the first of `endpoints` that responds; `None` if that is a real etcd.
///
/// # Errors
/// None responds within half a minute.
pub(super) fn locate(endpoints: &[String]) -> Result<Option<Store>, io::Error> {
    let deadline = Instant::now() + START_MAX;
    let mut logged = false;
    loop {
        let mut failure = io::Error::other("no endpoint is configured");
        for endpoint in endpoints {
            match request_store(endpoint) {
                Ok(store) => return Ok(store),
                Err(error) => failure = io::Error::other(format!("{endpoint}: {error}")),
            }
        }
        if Instant::now() >= deadline {
            return Err(failure);
        }
        if !logged {
            tracing::warn!(error = %failure, "etcd does not respond yet");
            logged = true;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Requests the store from one endpoint, over plain HTTP only: envtest's etcd serves nothing else.
pub(super) fn request_store(endpoint: &str) -> io::Result<Option<Store>> {
    if endpoint.starts_with("https://") {
        return Ok(None);
    }
    let authority = authority(endpoint);
    let address = authority.to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::other("the host has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, ATTEMPT_MAX)?;
    stream.set_read_timeout(Some(ATTEMPT_MAX))?;
    stream.set_write_timeout(Some(ATTEMPT_MAX))?;
    let request = format!("GET {PATH} HTTP/1.0\r\nHost: {authority}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response)?;
    Ok(parse(&response))
}

/// Returns HOST:PORT of an endpoint.
pub(super) fn authority(endpoint: &str) -> &str {
    let authority = endpoint
        .split_once("://")
        .map_or(endpoint, |(_, rest)| rest);
    authority.trim_end_matches('/')
}

/// Parses the store in a response, if it is one of [`PATH`].
fn parse(response: &[u8]) -> Option<Store> {
    let text = std::str::from_utf8(response).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?;
    let store: Store = serde_json::from_str(body).ok()?;
    (status == "200" && store.data_dir.is_absolute()).then_some(store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_response_of_this_program_has_a_store() {
        let response = "HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n\
                    {\"dataDir\":\"/tmp/x\",\"fsync\":false}";
        let store = Store {
            data_dir: "/tmp/x".into(),
            fsync: false,
        };
        assert_eq!(parse(response.as_bytes()), Some(store));
        for other in [
            "HTTP/1.0 404 Not Found\r\n\r\n404 page not found\n",
            "HTTP/1.0 404 Not Found\r\n\r\n{\"dataDir\":\"/tmp/x\",\"fsync\":false}",
            "HTTP/1.0 200 OK\r\n\r\n{\"dataDir\":\"x\",\"fsync\":false}",
            "HTTP/1.0 200 OK\r\n\r\n{}",
            "",
        ] {
            assert_eq!(parse(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn an_endpoint_with_tls_is_a_real_etcd() {
        assert_eq!(request_store("https://127.0.0.1:1").unwrap(), None);
    }
}
