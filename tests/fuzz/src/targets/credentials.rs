//! Credentials: bearer tokens, key sets, certificates.

use std::sync::LazyLock;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use watchet_auth::TokenAuthenticator;
use watchet_authenticators::fuzzing::verify;
use watchet_x509::{
    Anchors, CertificateRequest, Purpose, check_request, describe, not_after, to_pem,
};

use super::parts;
use crate::mutate::split;

/// Accepts tokens of its own key, with which nothing is signed.
static AUTHENTICATOR: LazyLock<TokenAuthenticator> = LazyLock::new(TokenAuthenticator::default);

/// The first part is a token, the second a key set of an issuer. No token of this program's key is in a corpus, so none is
/// accepted.
pub(super) fn tokens(input: &[u8]) {
    let [token, keys] = parts(input);
    let Ok(token) = str::from_utf8(token) else {
        return;
    };
    for audiences in [
        &[][..],
        &["https://kubernetes.default.svc.cluster.local".to_owned()],
    ] {
        let accepted = AUTHENTICATOR.authenticate(token, audiences);
        assert!(accepted.is_err(), "{token:?} was accepted");
    }
    if let Ok(is_valid) = verify(token, keys) {
        assert_eq!(verify(token, keys), Ok(is_valid));
    }
}

/// A time within the validity of the certificates of the corpus, in seconds: 2027-01-01.
const NOW: u64 = 1_798_761_600;

/// Each part is a certificate or a request, in PEM or DER. The first certificate is verified with the others as intermediates and
/// anchors.
pub(super) fn certificates(input: &[u8]) {
    let mut certificates = Vec::new();
    for part in split(input).take(8) {
        drop(check_request(part));
        drop(CertificateRequest::from_pem(part));
        let in_pem: Vec<_> = CertificateDer::pem_slice_iter(part)
            .filter_map(Result::ok)
            .take(8)
            .collect();
        match in_pem.is_empty() {
            true => certificates.push(CertificateDer::from(part.to_vec())),
            false => certificates.extend(in_pem),
        }
    }
    for certificate in &certificates {
        drop((describe(certificate), not_after(certificate)));
        let again = CertificateDer::from_pem_slice(to_pem(certificate).as_bytes());
        assert!(
            again.is_ok_and(|again| again == *certificate),
            "PEM has another certificate"
        );
    }
    let Some((leaf, others)) = certificates.split_first() else {
        return;
    };
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW));
    let mut anchors = Anchors::default();
    for other in others {
        drop(anchors.add(other.clone()));
    }
    for purpose in [Purpose::ClientAuth, Purpose::ServerAuth] {
        let verified = watchet_x509::verify(leaf, others, &anchors, purpose, now);
        assert!(
            verified.is_err() || !others.is_empty(),
            "{leaf:?} is trusted although no certificate is an anchor"
        );
        let without = watchet_x509::verify(leaf, others, &Anchors::default(), purpose, now);
        assert!(without.is_err(), "{leaf:?} is trusted without anchors");
    }
}
