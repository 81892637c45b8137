//! Verifies certificate chains by the rules of Go's `Certificate.Verify`, but rejects certificates
//! with name constraints: webpki, which runs before, evaluates those.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::{CertificateError, OtherError};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::oid_registry::{
    OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA, OID_X509_EXT_BASIC_CONSTRAINTS,
    OID_X509_EXT_CERTIFICATE_POLICIES, OID_X509_EXT_CRL_DISTRIBUTION_POINTS,
    OID_X509_EXT_EXTENDED_KEY_USAGE, OID_X509_EXT_KEY_USAGE, OID_X509_EXT_SUBJECT_ALT_NAME, Oid,
};
use x509_parser::prelude::{X509Certificate, X509Version};
use x509_parser::time::ASN1Time;

use super::der::parse;

/// Maximum number of signature checks per certificate, as in Go: it bounds the cost of malicious
/// intermediates.
const SIGNATURE_CHECKS_MAX: usize = 100;

/// Maximum number of certificates in a chain; real ones have up to four.
const CHAIN_LENGTH_MAX: usize = 16;

/// The trusted certificates.
#[derive(Debug, Default)]
pub struct Anchors(HashMap<Vec<u8>, Vec<CertificateDer<'static>>>);

impl Anchors {
    /// Trusts `certificate`.
    ///
    /// # Errors
    /// Returns an error if `certificate` cannot be parsed.
    pub fn add(&mut self, certificate: CertificateDer<'static>) -> Result<(), CertificateError> {
        let subject = parse(&certificate)?.subject().as_raw().to_vec();
        self.0.entry(subject).or_default().push(certificate);
        Ok(())
    }

    /// Returns true if no certificate is trusted.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn named(&self, subject: &[u8]) -> &[CertificateDer<'static>] {
        self.0.get(subject).map_or(&[], Vec::as_slice)
    }
}

/// The purpose for which a certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// TLS server authentication.
    ServerAuth,
    /// TLS client authentication.
    ClientAuth,
}

/// Verifies that `leaf` is valid at `now` and is one of `anchors`, or that a chain of
/// `intermediates` leads from it to one of them whose certificates may all be used for `purpose`.
/// Does not check names.
///
/// # Errors
/// Returns the problem of the certificate, or [`CertificateError::UnknownIssuer`] if there is no chain.
pub fn verify(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    anchors: &Anchors,
    purpose: Purpose,
    now: UnixTime,
) -> Result<(), CertificateError> {
    let now = i64::try_from(now.as_secs())
        .ok()
        .and_then(|seconds| ASN1Time::from_timestamp(seconds).ok())
        .ok_or(CertificateError::Expired)?;
    let parsed = parse(leaf)?;
    check_usable(&parsed, now)?;
    check_purpose(&parsed, purpose)?;
    let trusted = anchors.named(parsed.subject().as_raw());
    if trusted.iter().any(|anchor| anchor == leaf) {
        return Ok(());
    }
    let intermediates = intermediates.iter().map(|der| parse(der));
    let mut search = Search {
        intermediates: &intermediates.collect::<Result<Vec<_>, _>>()?,
        anchors,
        purpose,
        now,
        checks_left: SIGNATURE_CHECKS_MAX,
        failure: CertificateError::UnknownIssuer,
    };
    match search.reaches_an_anchor(&mut vec![&parsed]) {
        true => Ok(()),
        false => Err(search.failure),
    }
}

/// A depth-first search for a chain.
struct Search<'a> {
    intermediates: &'a [X509Certificate<'a>],
    anchors: &'a Anchors,
    purpose: Purpose,
    now: ASN1Time,
    checks_left: usize,
    /// The reason for which the last issuer candidate was rejected.
    failure: CertificateError,
}

impl<'a> Search<'a> {
    /// Returns true if `chain`, which starts with the leaf, can be continued to an anchor.
    fn reaches_an_anchor(&mut self, chain: &mut Vec<&'a X509Certificate<'a>>) -> bool {
        let Some(child) = chain.last().copied() else {
            return false;
        };
        for anchor in self.anchors.named(child.issuer().as_raw()) {
            if let Ok(anchor) = parse(anchor)
                && self.issued(&anchor, chain)
            {
                return true;
            }
        }
        if chain.len() >= CHAIN_LENGTH_MAX {
            return false;
        }
        for candidate in self.intermediates {
            let named = candidate.subject().as_raw() == child.issuer().as_raw();
            let repeated = chain.iter().any(|one| one.as_raw() == candidate.as_raw());
            // Only an anchor may be a CA without the basic constraint.
            if !named || repeated || !candidate.is_ca() || !self.issued(candidate, chain) {
                continue;
            }
            chain.push(candidate);
            if self.reaches_an_anchor(chain) {
                return true;
            }
            chain.pop();
        }
        false
    }

    /// Returns true if `issuer` has signed the last certificate of `chain` and is allowed to.
    fn issued(&mut self, issuer: &X509Certificate<'_>, chain: &[&X509Certificate<'_>]) -> bool {
        let Some(left) = self.checks_left.checked_sub(1) else {
            return false;
        };
        self.checks_left = left;
        if !chain.last().is_some_and(|child| is_signed(child, issuer)) {
            return false;
        }
        let checked = check_usable(issuer, self.now)
            .and_then(|()| check_can_sign(issuer, chain.len() - 1))
            .and_then(|()| check_purpose(issuer, self.purpose));
        match checked {
            Ok(()) => true,
            Err(failure) => {
                self.failure = failure;
                false
            }
        }
    }
}

/// Returns true if the key of `issuer` has signed `child`. SHA-1 signatures are invalid.
fn is_signed(child: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    let algorithm = &child.signature_algorithm;
    let weak = [OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA].contains(&algorithm.algorithm);
    !weak
        && *algorithm == child.tbs_certificate.signature
        && child.verify_signature(Some(issuer.public_key())).is_ok()
}

/// Checks the validity period and the critical extensions.
fn check_usable(certificate: &X509Certificate<'_>, now: ASN1Time) -> Result<(), CertificateError> {
    const UNDERSTOOD: [Oid<'static>; 6] = [
        OID_X509_EXT_KEY_USAGE,
        OID_X509_EXT_SUBJECT_ALT_NAME,
        OID_X509_EXT_BASIC_CONSTRAINTS,
        OID_X509_EXT_EXTENDED_KEY_USAGE,
        OID_X509_EXT_CERTIFICATE_POLICIES,
        OID_X509_EXT_CRL_DISTRIBUTION_POINTS,
    ];
    let validity = certificate.validity();
    if now < validity.not_before {
        return Err(CertificateError::NotValidYet);
    }
    if now > validity.not_after {
        return Err(CertificateError::Expired);
    }
    let mut extensions = certificate.iter_extensions();
    match extensions.find(|one| one.critical && !UNDERSTOOD.contains(&one.oid)) {
        Some(_) => Err(CertificateError::UnhandledCriticalExtension),
        None => Ok(()),
    }
}

/// Checks that a certificate may be used for `purpose`: it has no extended key usage, or this one,
/// or any.
fn check_purpose(
    certificate: &X509Certificate<'_>,
    purpose: Purpose,
) -> Result<(), CertificateError> {
    let usage = certificate.extended_key_usage();
    let Some(usage) = usage.map_err(|_| CertificateError::BadEncoding)? else {
        return Ok(());
    };
    let named = match purpose {
        Purpose::ServerAuth => usage.value.server_auth,
        Purpose::ClientAuth => usage.value.client_auth,
    };
    match named || usage.value.any {
        true => Ok(()),
        false => Err(CertificateError::InvalidPurpose),
    }
}

/// Checks that a certificate may sign others with this number of intermediates below it. A version
/// 1 certificate has no basic constraints and may.
fn check_can_sign(
    issuer: &X509Certificate<'_>,
    intermediates: usize,
) -> Result<(), CertificateError> {
    let bad = |_| CertificateError::BadEncoding;
    let constraints = issuer.basic_constraints().map_err(bad)?;
    let is_ca = match &constraints {
        Some(constraints) => constraints.value.ca,
        None => issuer.version() != X509Version::V3,
    };
    let usage = issuer.key_usage().map_err(bad)?;
    if !is_ca || usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return Err(other(
            "parent certificate cannot sign this kind of certificate",
        ));
    }
    let length_max = constraints.and_then(|constraints| constraints.value.path_len_constraint);
    if length_max.is_some_and(|max| intermediates > max as usize) {
        return Err(other("too many intermediates for path length constraint"));
    }
    match issuer.name_constraints().map_err(bad)? {
        Some(_) => Err(other("name constraints are not supported in such a chain")),
        None => Ok(()),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Rejected(&'static str);

fn other(why: &'static str) -> CertificateError {
    CertificateError::Other(OtherError(Arc::new(Rejected(why))))
}

#[cfg(test)]
mod tests;
