//! Who may use the port without authentication: programs of this machine, but no web page that the
//! user's browser shows. It looks at the request's head alone; that the port listens on loopback only
//! is `config`'s matter.

use std::net::IpAddr;

use axum::body::Body;
use http::uri::Authority;
use http::{Request, Response, header};

use crate::api::Status;
use crate::http as http_room;

/// A request that a web page may have made: 403.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Foreign {
    /// Only browsers send `Origin`, and they send any page's requests to loopback.
    #[error("requests with an Origin, which browsers send, are not served without authentication")]
    Page,
    /// A page reaches loopback under its own name when the name is made to resolve so.
    #[error("without authentication only requests to localhost or a loopback address are served")]
    Host,
}

impl Foreign {
    /// The answer.
    pub(super) fn response<B>(self, request: &Request<B>) -> Response<Body> {
        let status = Status::failure(403, "Forbidden", self.to_string());
        http_room::error_response(request.headers(), &status)
    }
}

/// Checks that `request` is no web page's.
///
/// # Errors
/// [`Foreign`]
pub(super) fn check<B>(request: &Request<B>) -> Result<(), Foreign> {
    if request.headers().contains_key(header::ORIGIN) {
        return Err(Foreign::Page);
    }
    // HTTP/2 names the host in the request line; where there are several, all must be local.
    let hosts = request.headers().get_all(header::HOST).iter();
    let hosts = hosts.map(|host| Authority::try_from(host.as_bytes()));
    let hosts = hosts.collect::<Result<Vec<_>, _>>();
    let hosts = hosts.map_err(|_| Foreign::Host)?;
    let named: Vec<&Authority> = request
        .uri()
        .authority()
        .into_iter()
        .chain(&hosts)
        .collect();
    match !named.is_empty() && named.into_iter().all(is_local) {
        true => Ok(()),
        false => Err(Foreign::Host),
    }
}

fn is_local(authority: &Authority) -> bool {
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `uri`, a Host and an Origin, each unless it is empty.
    fn told(uri: &str, host: &str, origin: &str) -> Result<(), Foreign> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        check(&request.body(()).unwrap())
    }

    #[test]
    fn every_host_that_is_named_counts() {
        let hosts = |first, second| {
            let request = Request::builder().header(header::HOST, first);
            check(&request.header(header::HOST, second).body(()).unwrap())
        };
        assert!(hosts("localhost", "127.0.0.1").is_ok());
        assert!(hosts("localhost", "evil.com").is_err());
    }

    #[test]
    fn only_local_programs_are_let_in() {
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]:8080",
        ] {
            assert_eq!(told("/api", host, ""), Ok(()), "{host}");
            assert_eq!(
                told(&format!("http://{host}/api"), "", ""),
                Ok(()),
                "{host}"
            );
        }
        for host in [
            "",
            "evil.test",
            "127.0.0.1.evil.test",
            "10.0.0.1",
            "localhost.evil.test:8080",
        ] {
            assert_eq!(told("/api", host, ""), Err(Foreign::Host), "{host}");
        }
        assert_eq!(
            told("http://evil.test/", "localhost", ""),
            Err(Foreign::Host)
        );
        assert_eq!(
            told("http://localhost/", "evil.test", ""),
            Err(Foreign::Host)
        );
        for origin in ["null", "http://evil.test", "http://localhost"] {
            assert_eq!(told("/api", "localhost", origin), Err(Foreign::Page));
        }
    }
}
