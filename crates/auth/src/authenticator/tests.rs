//! Tests of authentication.

use std::time::Duration;

use rcgen::{CertificateParams, DnType, Issuer, KeyPair};

use rustls::crypto::aws_lc_rs;
use rustls_pki_types::{CertificateDer, UnixTime};

use super::*;
use crate::service_account::TokenIssuer;
use crate::token_file::TokenFile;
use watchet_x509::ClientVerifier;

struct Ca(Issuer<'static, KeyPair>, CertificateDer<'static>);

fn ca() -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    Ca(Issuer::new(params, key), certificate)
}

fn client(ca: &Ca, subject: &[(DnType, &str)], until_year: i32) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, text) in subject {
        params.distinguished_name.push(kind.clone(), *text);
    }
    params.not_after = rcgen::date_time_ymd(until_year, 1, 1);
    let key = KeyPair::generate().unwrap();
    params.signed_by(&key, &ca.0).unwrap().der().clone()
}

/// The first second of 2026.
const NOW: i64 = 1_767_225_600;

fn time(seconds: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds.unsigned_abs()))
}

fn peer(authenticator: &Authenticator, leaf: &CertificateDer<'static>) -> PeerCertificate {
    let chain = Some(std::slice::from_ref(leaf));
    let certificates = authenticator.client_certificates();
    certificates.peer_certificate(chain, time(NOW))
}

fn authenticator(ca: &Ca, tokens: &str) -> Authenticator {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = ClientVerifier::new(&provider, [ca.1.clone()]).unwrap();
    let tokens = TokenFile::parse(tokens).unwrap();
    let tokens = TokenAuthenticator::new(Some(tokens), TokenIssuer::ephemeral());
    Authenticator::new(Arc::new(verifier), Arc::new(tokens))
}

/// Returns the user of an authenticated request, if it needs no further check.
fn known(authenticated: Result<AuthenticatedRequest, Unauthorized>) -> Option<Arc<UserInfo>> {
    match authenticated {
        Ok(AuthenticatedRequest::User { user, .. }) => Some(user),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    }
}

fn headers(authorization: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(value) = authorization {
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
    }
    headers
}

#[test]
fn a_certificate_names_user_and_groups() {
    let ca = ca();
    let authenticator = authenticator(&ca, "");
    let subject = [
        (DnType::CommonName, "jane"),
        (DnType::OrganizationName, "dev"),
    ];
    let leaf = client(&ca, &subject, 2030);
    let peer = peer(&authenticator, &leaf);
    let authenticated = authenticator.authenticate(&peer, "/api", &headers(None), NOW);
    let user = known(authenticated).unwrap();
    assert_eq!(user.name, "jane");
    assert_eq!(user.groups, ["dev", "system:authenticated"]);
}

/// A certificate with several common names authenticated its client as the first one, but a signer that uses Go's
/// libraries has checked only the last one.
#[test]
fn the_last_common_name_is_the_user() {
    let ca = ca();
    let authenticator = authenticator(&ca, "");
    let another = DnType::CustomDnType(vec![2, 5, 4, 3]);
    let subject = [(DnType::CommonName, "admin"), (another, "system:node:n")];
    let leaf = client(&ca, &subject, 2030);
    let peer = peer(&authenticator, &leaf);
    let authenticated = authenticator.authenticate(&peer, "/api", &headers(None), NOW);
    assert_eq!(known(authenticated).unwrap().name, "system:node:n");
}

#[test]
fn a_certificate_expires_even_on_an_open_connection() {
    let ca = ca();
    let authenticator = authenticator(&ca, "");
    let leaf = client(&ca, &[(DnType::CommonName, "jane")], 2027);
    let peer = peer(&authenticator, &leaf);
    let later = NOW + 366 * 24 * 3600;
    for (at, expected) in [(NOW, true), (later, false)] {
        let result = authenticator.authenticate(&peer, "/api", &headers(None), at);
        assert_eq!(result.is_ok(), expected);
    }
    let late = authenticator
        .client_certificates()
        .peer_certificate(Some(&[leaf]), time(later));
    assert!(matches!(late, PeerCertificate::Invalid(_)));
}

#[test]
fn invalid_credentials_are_rejected() {
    let accepted = ca();
    let authenticator = authenticator(&accepted, "t1,joe,u1");
    let valid = client(&accepted, &[(DnType::CommonName, "jane")], 2030);
    let nameless = client(&accepted, &[(DnType::OrganizationName, "dev")], 2030);
    let foreign = client(&ca(), &[(DnType::CommonName, "jane")], 2030);
    let junk = CertificateDer::from(vec![1, 2, 3]);
    let bearer = |token: &str| Some(format!("Bearer {token}"));
    for (leaf, authorization, path, expected) in [
        (None, None, "/api", None),
        (None, None, "/healthz", Some("system:anonymous")),
        (None, None, "/readyz/ping", None),
        (None, None, "/healthzz", None),
        (None, None, "/version", Some("system:anonymous")),
        (None, None, "/version/x", None),
        (None, bearer("t1"), "/api", Some("joe")),
        (None, Some("bEARER  t1 ".to_owned()), "/api", Some("joe")),
        (None, bearer("t2"), "/api", None),
        (None, bearer("t2"), "/healthz", None),
        (None, Some("Basic t1".to_owned()), "/api", None),
        (None, Some("Bearer".to_owned()), "/api", None),
        (
            None,
            Some("Basic YTpi".to_owned()),
            "/healthz",
            Some("system:anonymous"),
        ),
        (
            None,
            Some("Bearer ".to_owned()),
            "/healthz",
            Some("system:anonymous"),
        ),
        (Some(&valid), None, "/api", Some("jane")),
        (Some(&valid), bearer("t2"), "/api", Some("jane")),
        (Some(&foreign), None, "/api", None),
        (Some(&foreign), None, "/healthz", None),
        (Some(&foreign), bearer("t1"), "/api", Some("joe")),
        (Some(&nameless), None, "/api", None),
        (Some(&junk), None, "/api", None),
    ] {
        let chain = leaf.map(std::slice::from_ref);
        let peer = authenticator
            .client_certificates()
            .peer_certificate(chain, time(NOW));
        let headers = headers(authorization.as_deref());
        let result = authenticator.authenticate(&peer, path, &headers, NOW);
        let user = known(result);
        let name = user.as_ref().map(|user| user.name.as_str());
        assert_eq!(name, expected, "{authorization:?} {path}");
    }
}

/// After a CA was removed, clients could use its certificates until they disconnected.
#[test]
fn replaced_cas_apply_to_open_connections() {
    let (first, second) = (ca(), ca());
    let authenticator = authenticator(&first, "");
    let verifier = |ca: &Ca| {
        let provider = Arc::new(aws_lc_rs::default_provider());
        Arc::new(ClientVerifier::new(&provider, [ca.1.clone()]).unwrap())
    };
    let leaf = client(&first, &[(DnType::CommonName, "jane")], 2030);
    let peer = peer(&authenticator, &leaf);
    let is_accepted = || {
        let result = authenticator.authenticate(&peer, "/api", &headers(None), NOW);
        result.is_ok()
    };
    assert!(is_accepted());
    authenticator
        .client_certificates()
        .replace(verifier(&second));
    assert!(!is_accepted());
    authenticator
        .client_certificates()
        .replace(verifier(&first));
    assert!(is_accepted());
}

#[test]
fn anonymous_requests_can_be_allowed_and_refused() {
    let ca = ca();
    let authenticator = authenticator(&ca, "");
    let allowed = |path| {
        let result =
            authenticator.authenticate(&PeerCertificate::Absent, path, &headers(None), NOW);
        known(result).is_some_and(|user| user.name == "system:anonymous")
    };
    let paths = AnonymousAccess::Paths(vec!["/a".to_owned()]);
    for (access, expected) in [
        (AnonymousAccess::PublicPaths, [true, false, false]),
        (AnonymousAccess::None, [false, false, false]),
        (AnonymousAccess::All, [true, true, true]),
        (paths, [false, true, false]),
    ] {
        authenticator.replace_anonymous(access.clone());
        assert_eq!(
            ["/livez", "/a", "/a/b"].map(allowed),
            expected,
            "{access:?}"
        );
    }
    // An invalid credential is an error even where none is required.
    authenticator.replace_anonymous(AnonymousAccess::All);
    let wrong = headers(Some("Bearer wrong"));
    let result = authenticator.authenticate(&PeerCertificate::Absent, "/a", &wrong, NOW);
    assert!(result.is_err());
}
