//! Tests of the chains that Go accepts and webpki rejects.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair,
    KeyUsagePurpose, NameConstraints,
};

use super::super::testing::{self, Ca};
use super::*;

/// The first second of 2026.
const NOW: u64 = 1_767_225_600;

fn anchors(certificates: &[&CertificateDer<'static>]) -> Anchors {
    let mut anchors = Anchors::default();
    for certificate in certificates {
        anchors.add((*certificate).clone()).unwrap();
    }
    anchors
}

fn at(
    seconds: u64,
    leaf: &CertificateDer<'_>,
    intermediates: &[&CertificateDer<'static>],
    anchors: &Anchors,
) -> Result<(), CertificateError> {
    let intermediates: Vec<_> = intermediates.iter().map(|&one| one.clone()).collect();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    verify(leaf, &intermediates, anchors, Purpose::ClientAuth, now)
}

fn check(
    leaf: &CertificateDer<'_>,
    intermediates: &[&CertificateDer<'static>],
    anchors: &Anchors,
) -> Result<(), CertificateError> {
    at(NOW, leaf, intermediates, anchors)
}

fn root() -> Ca {
    testing::root(testing::authority("root"))
}

/// Returns a version 1 leaf signed by `ca`.
fn old(ca: &Ca) -> CertificateDer<'static> {
    let leaf = testing::leaf(&testing::named("jane"), ca);
    testing::version_1(&leaf, ca.issuer.key())
}

fn check_rejected(why: &str, verified: Result<(), CertificateError>) {
    match verified {
        Err(CertificateError::Other(error)) => assert_eq!(error.0.to_string(), why),
        other => panic!("{why}: {other:?}"),
    }
}

const CANNOT_SIGN: &str = "parent certificate cannot sign this kind of certificate";

/// webpki rejects each of these.
#[test]
fn certificates_accepted_by_go_only() {
    let ca = root();
    let trusted = anchors(&[&ca.der]);
    assert_eq!(check(&old(&ca), &[], &trusted), Ok(()));
    // A CA at the end of the chain: signed by another CA, by itself, and trusted itself.
    let other = testing::intermediate(testing::authority("other"), &ca);
    assert_eq!(check(&other.der, &[], &trusted), Ok(()));
    assert_eq!(check(&ca.der, &[], &trusted), Ok(()));
    // A leaf that is trusted although its CA is not.
    let leaf = testing::leaf(&testing::named("leaf"), &ca);
    assert_eq!(check(&leaf, &[], &anchors(&[&leaf])), Ok(()));
    // Version 1 below an intermediate, and below a version 1 root.
    let middle = testing::intermediate(testing::authority("middle"), &ca);
    assert_eq!(check(&old(&middle), &[&middle.der], &trusted), Ok(()));
    let old_root = testing::version_1(&ca.der, ca.issuer.key());
    assert_eq!(check(&old(&ca), &[], &anchors(&[&old_root])), Ok(()));
}

#[test]
fn chain_needs_signatures_up_to_an_anchor() {
    let (ca, other_root) = (root(), root());
    let trusted = anchors(&[&ca.der]);
    let unknown = Err(CertificateError::UnknownIssuer);
    // An anchor with the same name and another key.
    assert_eq!(check(&old(&other_root), &[], &trusted), unknown);
    assert_eq!(
        check(&old(&other_root), &[&other_root.der], &trusted),
        unknown
    );
    // Also if the anchor with that name is sent, or there are no anchors.
    assert_eq!(check(&old(&other_root), &[&ca.der], &trusted), unknown);
    assert_eq!(check(&old(&ca), &[&ca.der], &Anchors::default()), unknown);
    // The issuer of the intermediate is missing.
    let middle = testing::intermediate(testing::authority("middle"), &ca);
    assert_eq!(check(&old(&middle), &[], &trusted), unknown);
    // A flipped bit.
    let mut changed = old(&ca).to_vec();
    let last = changed.len() - 1;
    changed[last] ^= 1;
    assert_eq!(check(&changed.into(), &[], &trusted), unknown);
    // A leaf that differs from the trusted one.
    let leaf = testing::leaf(&testing::named("leaf"), &other_root);
    let twin = testing::leaf(&testing::named("leaf"), &other_root);
    assert_eq!(check(&twin, &[], &anchors(&[&leaf])), unknown);
}

#[test]
fn issuer_must_be_allowed_to_sign() {
    let ca = root();
    let trusted = anchors(&[&ca.der]);
    // A leaf of the CA signs another certificate.
    let forger = testing::intermediate(testing::named("forger"), &ca);
    let unknown = Err(CertificateError::UnknownIssuer);
    assert_eq!(check(&old(&forger), &[&forger.der], &trusted), unknown);
    check_rejected(
        CANNOT_SIGN,
        check(&old(&forger), &[], &anchors(&[&forger.der])),
    );
    // A version 1 certificate, which has no basic constraints.
    let old_forger = testing::version_1(&forger.der, ca.issuer.key());
    assert_eq!(check(&old(&forger), &[&old_forger], &trusted), unknown);
    let mut params = testing::authority("no signer");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let no_signer = testing::intermediate(params, &ca);
    check_rejected(
        CANNOT_SIGN,
        check(&old(&no_signer), &[&no_signer.der], &trusted),
    );
    let mut params = testing::authority("constrained");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let constrained = testing::root(params);
    let below = testing::intermediate(testing::authority("below"), &constrained);
    let trusted = anchors(&[&constrained.der]);
    assert_eq!(check(&old(&constrained), &[], &trusted), Ok(()));
    check_rejected(
        "too many intermediates for path length constraint",
        check(&old(&below), &[&below.der], &trusted),
    );
    let mut params = testing::authority("names");
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName("example.com".to_owned())],
        excluded_subtrees: Vec::new(),
    });
    let names = testing::root(params);
    assert!(check(&old(&names), &[], &anchors(&[&names.der])).is_err());
}

#[test]
fn all_certificates_of_a_chain_must_be_valid() {
    let dated = |mut params: CertificateParams, from: i32, until: i32| {
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        params
    };
    let year = |year: u64| NOW - 10 * 365 * 24 * 3600 + (year - 2016) * 365 * 24 * 3600;
    let ca = testing::root(dated(testing::authority("root"), 2020, 2040));
    let middle = dated(testing::authority("middle"), 2024, 2032);
    let middle = testing::intermediate(middle, &ca);
    let leaf = testing::leaf(&dated(testing::named("leaf"), 2022, 2036), &middle);
    let leaf = testing::version_1(&leaf, middle.issuer.key());
    let trusted = anchors(&[&ca.der]);
    for (now, expected) in [
        (year(2021), Err(CertificateError::NotValidYet)),
        (year(2023), Err(CertificateError::NotValidYet)),
        (year(2025), Ok(())),
        (year(2034), Err(CertificateError::Expired)),
        (year(2038), Err(CertificateError::Expired)),
    ] {
        assert_eq!(at(now, &leaf, &[&middle.der], &trusted), expected, "{now}");
    }
    // Also a leaf that is trusted itself.
    let trusted = anchors(&[&leaf]);
    assert_eq!(
        at(year(2038), &leaf, &[], &trusted),
        Err(CertificateError::Expired)
    );
}

#[test]
fn purpose_applies_to_the_whole_chain() {
    let purposed = |mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose| {
        params.extended_key_usages = vec![purpose];
        params
    };
    let invalid = Err(CertificateError::InvalidPurpose);
    let ca = root();
    let trusted = anchors(&[&ca.der]);
    for (purpose, expected) in [
        (ExtendedKeyUsagePurpose::ClientAuth, Ok(())),
        (ExtendedKeyUsagePurpose::Any, Ok(())),
        (ExtendedKeyUsagePurpose::ServerAuth, invalid.clone()),
    ] {
        let leaf = purposed(testing::authority("leaf"), purpose.clone());
        let leaf = testing::leaf(&leaf, &ca);
        assert_eq!(check(&leaf, &[], &trusted), expected);
        assert_eq!(check(&leaf, &[], &anchors(&[&leaf])), expected);
        let middle = purposed(testing::authority("middle"), purpose);
        let middle = testing::intermediate(middle, &ca);
        assert_eq!(check(&old(&middle), &[&middle.der], &trusted), expected);
    }
}

#[test]
fn unknown_critical_extensions_are_rejected() {
    let ca = root();
    let trusted = anchors(&[&ca.der]);
    let mut params = testing::authority("leaf");
    let mut unknown = rcgen::CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    unknown.set_criticality(true);
    params.custom_extensions = vec![unknown];
    let leaf = testing::leaf(&params, &ca);
    assert_eq!(
        check(&leaf, &[], &trusted),
        Err(CertificateError::UnhandledCriticalExtension)
    );
    let junk = CertificateDer::from(vec![0x30, 0]);
    let bad = Err(CertificateError::BadEncoding);
    assert_eq!(check(&junk, &[], &trusted), bad);
    assert_eq!(check(&old(&ca), &[&junk], &trusted), bad);
    let long = [&*old(&ca), &[0]].concat();
    assert_eq!(check(&long.into(), &[], &trusted), bad);
}

/// Many intermediates with one name cost a bounded number of signature checks.
#[test]
fn search_is_bounded() {
    let ca = root();
    let crowd: Vec<Ca> = (0..12)
        .map(|_| testing::root(testing::authority("crowd")))
        .collect();
    let key = KeyPair::generate().unwrap();
    let first = &crowd[0];
    let leaf = testing::named("leaf").signed_by(&key, &first.issuer);
    let leaf = leaf.unwrap().der().clone();
    let sent: Vec<_> = crowd.iter().map(|one| &one.der).collect();
    let trusted = anchors(&[&ca.der]);
    assert_eq!(
        check(&leaf, &sent, &trusted),
        Err(CertificateError::UnknownIssuer)
    );
}
