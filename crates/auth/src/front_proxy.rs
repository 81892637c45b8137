//! `FrontProxy`: authenticates requests by headers in which a front proxy sends the user that it has authenticated, as
//! [upstream](https://github.com/kubernetes/kubernetes/tree/v1.35.0/staging/src/k8s.io/apiserver/pkg/authentication/request/headerrequest).
//! It reads the headers only with a client certificate of the proxies' CA, and always removes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use rustls::server::danger::ClientCertVerifier;

use crate::client_certificate::{ClientCertificate, ClientCertificates, PeerCertificate};
use crate::credential::Credential;
use crate::impersonation::decoded;
use watchet_api::UserInfo;

/// The headers with the user, and the proxies that may send them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrontProxyHeaders {
    /// The common names of the proxies' certificates; empty for any.
    pub allowed_names: Vec<String>,
    /// The headers with the user name; the first that is not empty is used.
    pub username: Vec<HeaderName>,
    /// The headers with the unique ID; the first that is not empty is used.
    pub uid: Vec<HeaderName>,
    /// The headers with groups; each value of each is a group.
    pub group: Vec<HeaderName>,
    /// The prefixes, in lower case, of headers with further attributes. The rest of the name is the key.
    pub extra_prefixes: Vec<String>,
}

/// Authenticates requests of front proxies.
#[derive(Debug)]
pub struct FrontProxy {
    certificates: Arc<ClientCertificates>,
    headers: FrontProxyHeaders,
}

impl FrontProxy {
    /// Creates an authenticator of proxies whose certificates `verifier` accepts.
    pub fn new(verifier: Arc<dyn ClientCertVerifier>, headers: FrontProxyHeaders) -> Self {
        Self {
            certificates: Arc::new(ClientCertificates::new(verifier)),
            headers,
        }
    }

    /// Returns the accepted certificates.
    pub fn certificates(&self) -> &Arc<ClientCertificates> {
        &self.certificates
    }

    /// Removes the headers. Returns the user in them if `peer` is the certificate of an allowed proxy; `None` if it is
    /// not or there is no user. `now` is in Unix seconds.
    pub fn authenticate(
        &self,
        peer: &PeerCertificate,
        headers: &mut HeaderMap,
        now: i64,
    ) -> Option<(Arc<UserInfo>, Credential)> {
        let user = self.user(headers);
        self.remove(headers);
        let PeerCertificate::Valid(certificate) = peer else {
            return None;
        };
        if !self.allows(certificate) || certificate.check(now).is_err() {
            return None;
        }
        let credential = Credential::ClientCertificate(Arc::clone(certificate));
        Some((Arc::new(user?), credential))
    }

    fn allows(&self, certificate: &ClientCertificate) -> bool {
        let allowed = &self.headers.allowed_names;
        allowed.is_empty() || allowed.contains(&certificate.user().name)
    }

    fn user(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let values = |names: &[HeaderName]| {
            let values = names.iter().flat_map(|name| headers.get_all(name));
            let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            texts.filter(|text| !text.is_empty()).collect::<Vec<_>>()
        };
        let first = |names: &[HeaderName]| values(names).into_iter().next();
        let name = first(&self.headers.username)?;
        let uid = first(&self.headers.uid).unwrap_or_default();
        let mut user = UserInfo::authenticated(name, uid, values(&self.headers.group));
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.headers.extra_prefixes {
            for (name, value) in headers {
                if let Some(key) = name.as_str().strip_prefix(prefix.as_str()) {
                    let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                    extra.entry(decoded(key)).or_default().push(value);
                }
            }
        }
        user.extra = extra;
        Some(user)
    }

    fn remove(&self, headers: &mut HeaderMap) {
        let own = &self.headers;
        for name in own.username.iter().chain(&own.uid).chain(&own.group) {
            headers.remove(name);
        }
        let is_extra = |name: &HeaderName| {
            let mut prefixes = own.extra_prefixes.iter();
            prefixes.any(|prefix| name.as_str().starts_with(prefix.as_str()))
        };
        let extra: Vec<HeaderName> = headers
            .keys()
            .filter(|name| is_extra(name))
            .cloned()
            .collect();
        for name in extra {
            headers.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs;
    use rustls_pki_types::{CertificateDer, UnixTime};
    use watchet_x509::ClientVerifier;

    use super::*;

    struct Ca(
        rcgen::Issuer<'static, rcgen::KeyPair>,
        CertificateDer<'static>,
    );

    fn ca() -> Ca {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Ca(rcgen::Issuer::new(params, key), certificate)
    }

    fn leaf(ca: &Ca, name: &str) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        params.signed_by(&key, &ca.0).unwrap().der().clone()
    }

    fn proxy(ca: &Ca, allowed: &[&str]) -> FrontProxy {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = ClientVerifier::new(&provider, [ca.1.clone()]).unwrap();
        let headers = FrontProxyHeaders {
            allowed_names: allowed.iter().map(|name| (*name).to_owned()).collect(),
            username: vec!["x-user".parse().unwrap(), "x-remote-user".parse().unwrap()],
            uid: vec!["x-remote-uid".parse().unwrap()],
            group: vec!["x-remote-group".parse().unwrap()],
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
        };
        FrontProxy::new(Arc::new(verifier), headers)
    }

    fn sent() -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "jane"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "dev"),
            ("x-remote-group", "ops"),
            ("x-remote-extra-acme.com%2fscope", "a"),
            ("accept", "b"),
        ] {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_allowed_proxies_send_users_and_the_headers_are_removed() {
        let (trusted, other) = (ca(), ca());
        let now = UnixTime::now();
        let seconds = i64::try_from(now.as_secs()).unwrap();
        for (ca, name, allowed, expected) in [
            (&trusted, "proxy", &["proxy"][..], true),
            (&trusted, "anyone", &[], true),
            (&trusted, "anyone", &["proxy"], false),
            (&other, "proxy", &["proxy"], false),
        ] {
            let proxy = proxy(&trusted, allowed);
            let peer = proxy
                .certificates()
                .peer_certificate(Some(&[leaf(ca, name)]), now);
            let mut headers = sent();
            let found = proxy.authenticate(&peer, &mut headers, seconds);
            assert_eq!(found.is_some(), expected, "{name} {allowed:?}");
            assert_eq!(headers.len(), 1, "{headers:?}");
            if let Some((user, _)) = found {
                assert_eq!((&*user.name, &*user.uid), ("jane", "7"));
                assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
                assert_eq!(user.extra["acme.com/scope"], ["a"]);
            }
            if expected {
                let mut forwarded = HeaderMap::new();
                forwarded.append("x-user", "system:anonymous".parse().unwrap());
                forwarded.append("x-remote-group", "system:unauthenticated".parse().unwrap());
                let found = proxy.authenticate(&peer, &mut forwarded, seconds);
                let (anonymous, _) = found.unwrap();
                assert_eq!(anonymous.groups, ["system:unauthenticated"]);
            }
            let without = proxy.authenticate(&peer, &mut HeaderMap::new(), seconds);
            assert_eq!(without, None);
            let absent = proxy.authenticate(&PeerCertificate::Absent, &mut sent(), seconds);
            assert_eq!(absent, None);
        }
    }
}
