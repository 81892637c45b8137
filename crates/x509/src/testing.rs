//! Certificates for tests, including version 1, which rcgen cannot create.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    SigningKey as _,
};
use rustls_pki_types::CertificateDer;

use super::der::element;

/// A CA.
pub(super) struct Ca {
    pub(super) der: CertificateDer<'static>,
    pub(super) issuer: Issuer<'static, KeyPair>,
}

pub(super) fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params
}

/// Returns the parameters of a CA.
pub(super) fn authority(common_name: &str) -> CertificateParams {
    let mut params = named(common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// Returns a self-signed CA.
pub(super) fn root(params: CertificateParams) -> Ca {
    let key = KeyPair::generate().unwrap();
    let der = params.self_signed(&key).unwrap().der().clone();
    let issuer = Issuer::new(params, key);
    Ca { der, issuer }
}

/// Returns a CA signed by `parent`.
pub(super) fn intermediate(params: CertificateParams, parent: &Ca) -> Ca {
    let key = KeyPair::generate().unwrap();
    let signed = params.signed_by(&key, &parent.issuer).unwrap();
    let der = signed.der().clone();
    let issuer = Issuer::new(params, key);
    Ca { der, issuer }
}

pub(super) fn leaf(params: &CertificateParams, ca: &Ca) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    params.signed_by(&key, &ca.issuer).unwrap().der().clone()
}

/// Converts `certificate` to version 1, signed with `key`, an ECDSA P-256 key.
pub(super) fn version_1(certificate: &[u8], key: &KeyPair) -> CertificateDer<'static> {
    let (_, outer, _) = split(certificate);
    let (_, tbs, after_tbs) = split(outer);
    let (_, _, after_version) = split(tbs);
    // Before the extensions are serial, algorithm, issuer, validity, subject and key.
    let mut rest = after_version;
    for _ in 0..6 {
        rest = split(rest).2;
    }
    let tbs = element(0x30, &[&after_version[..after_version.len() - rest.len()]]);
    let signature = [&[0], &*key.sign(&tbs).unwrap()].concat();
    let after_algorithm = split(after_tbs).2;
    let algorithm = &after_tbs[..after_tbs.len() - after_algorithm.len()];
    element(0x30, &[&tbs, algorithm, &element(0x03, &[&signature])]).into()
}

/// Returns the tag and content of the first element, and the rest.
fn split(der: &[u8]) -> (u8, &[u8], &[u8]) {
    let (length, at) = match der[1] {
        short @ 0..0x80 => (usize::from(short), 2),
        long => {
            let bytes = usize::from(long & 0x7f);
            let length = der[2..2 + bytes]
                .iter()
                .fold(0, |length, byte| length << 8 | usize::from(*byte));
            (length, 2 + bytes)
        }
    };
    (der[0], &der[at..at + length], &der[at + length..])
}
