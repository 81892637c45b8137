//! Access control of the port without authentication: local programs are allowed, web pages in the
//! user's browser are not. Only the request head is checked; `config` ensures that the port listens
//! on loopback only.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use http::uri::Authority;
use http::{Request, Response, header};

use crate::api::Status;
use crate::audit::Auditor;
use crate::http as http_layer;

/// What a page that makes a browser send a request has to do with the server (W3C Fetch Metadata).
const FETCH_SITE: &str = "sec-fetch-site";

/// 403: a request that a web page may have sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::server) enum ForeignRequest {
    /// Only browsers send `Origin` and `Sec-Fetch-Site`; a page of any server can send requests to loopback.
    #[error(
        "requests of web pages (with another Origin, or Sec-Fetch-Site other than none or same-origin) are not served without authentication"
    )]
    Page,
    /// A page can reach loopback under its own host name (DNS rebinding).
    #[error("without authentication only requests to localhost or a loopback address are served")]
    Host,
}

impl ForeignRequest {
    /// Returns the response.
    pub(in crate::server) fn response<B>(
        self,
        request: &Request<B>,
        auditor: Option<&Arc<Auditor>>,
    ) -> Response<Body> {
        let status = Status::failure(403, "Forbidden", self.to_string());
        http_layer::audited_error_response(auditor, request, &status)
    }
}

/// Checks that `request` is not from a web page.
///
/// # Errors
/// [`ForeignRequest`]
pub(in crate::server) fn check<B>(request: &Request<B>) -> Result<(), ForeignRequest> {
    // Browsers send no Origin with a GET of an image, a script or a form, but this, also for a page at another port.
    let is_of_page = |site: &http::HeaderValue| site != "none" && site != "same-origin";
    if request.headers().get_all(FETCH_SITE).iter().any(is_of_page) {
        return Err(ForeignRequest::Page);
    }
    // HTTP/2 has the host in the request line; if there are several, all must be local.
    let hosts = request.headers().get_all(header::HOST).iter();
    let hosts = hosts.map(|host| Authority::try_from(host.as_bytes()));
    let hosts = hosts.collect::<Result<Vec<_>, _>>();
    let hosts = hosts.map_err(|_| ForeignRequest::Host)?;
    let named: Vec<&Authority> = request
        .uri()
        .authority()
        .into_iter()
        .chain(&hosts)
        .collect();
    // The console's own pages send this server's origin with every request but GET.
    let mut origins = request.headers().get_all(header::ORIGIN).iter();
    let is_own = |origin: &http::HeaderValue| {
        let is_of = |authority: &&Authority| *origin == format!("http://{authority}");
        named.iter().any(is_of)
    };
    if !origins.all(is_own) {
        return Err(ForeignRequest::Page);
    }
    match !named.is_empty() && named.into_iter().all(is_local) {
        true => Ok(()),
        false => Err(ForeignRequest::Host),
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

    /// Checks a request with `uri`, a Host and an Origin, each unless it is empty.
    fn check_request(uri: &str, host: &str, origin: &str) -> Result<(), ForeignRequest> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        check(&request.body(()).unwrap())
    }

    #[test]
    fn every_host_header_is_checked() {
        let hosts = |first, second| {
            let request = Request::builder().header(header::HOST, first);
            check(&request.header(header::HOST, second).body(()).unwrap())
        };
        assert!(hosts("localhost", "127.0.0.1").is_ok());
        assert!(hosts("localhost", "evil.com").is_err());
    }

    #[test]
    fn requests_of_other_sites_are_rejected_without_an_origin() {
        let site = |site| {
            let request = Request::builder().header(header::HOST, "localhost");
            check(&request.header(FETCH_SITE, site).body(()).unwrap())
        };
        // `none`: the user has typed the address.
        for allowed in ["none", "same-origin"] {
            assert_eq!(site(allowed), Ok(()));
        }
        for other in ["cross-site", "same-site", "new"] {
            assert_eq!(site(other), Err(ForeignRequest::Page));
        }
    }

    #[test]
    fn only_local_requests_are_allowed() {
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]:8080",
        ] {
            assert_eq!(check_request("/api", host, ""), Ok(()), "{host}");
            assert_eq!(
                check_request(&format!("http://{host}/api"), "", ""),
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
            assert_eq!(
                check_request("/api", host, ""),
                Err(ForeignRequest::Host),
                "{host}"
            );
        }
        assert_eq!(
            check_request("http://evil.test/", "localhost", ""),
            Err(ForeignRequest::Host)
        );
        assert_eq!(
            check_request("http://localhost/", "evil.test", ""),
            Err(ForeignRequest::Host)
        );
        for origin in [
            "null",
            "http://evil.test",
            "http://localhost:81",
            "https://localhost",
        ] {
            assert_eq!(
                check_request("/api", "localhost", origin),
                Err(ForeignRequest::Page)
            );
        }
        // The console.
        let own = check_request("/api", "localhost:80", "http://localhost:80");
        assert_eq!(own, Ok(()));
        let rebound = check_request("/api", "evil.test", "http://evil.test");
        assert_eq!(rebound, Err(ForeignRequest::Host));
    }
}
