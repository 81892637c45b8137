//! Parses certificates and encodes DER elements.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::CertificateError;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};

/// Parses one certificate without trailing data.
///
/// # Errors
/// Returns [`CertificateError::BadEncoding`], also for extensions in a version 1 or 2 certificate.
pub(super) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, CertificateError> {
    let bad = CertificateError::BadEncoding;
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| bad.clone())?;
    let extensible = certificate.version() == X509Version::V3;
    match rest.is_empty() && (extensible || certificate.extensions().is_empty()) {
        true => Ok(certificate),
        false => Err(bad),
    }
}

/// Returns the end of a certificate's validity, if it can be parsed.
pub fn not_after(der: &[u8]) -> Option<Timestamp> {
    let certificate = parse(der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

/// Encodes a certificate in PEM, as Go does.
pub fn to_pem(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in encoded.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

/// Returns the subject and the issuer of a certificate, for log messages.
pub fn describe(der: &[u8]) -> (String, String) {
    match parse(der) {
        Ok(certificate) => (
            certificate.subject().to_string(),
            certificate.issuer().to_string(),
        ),
        Err(_) => Default::default(),
    }
}

/// Returns a DER element with the concatenation of `parts` as its content.
pub(super) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let bytes = length.to_be_bytes();
    let significant = &bytes[length.leading_zeros() as usize / 8..];
    let mut der = vec![tag];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => der.push(short),
        _ => {
            // At most the size of a usize.
            der.push(0x80 | significant.len().to_be_bytes()[size_of::<usize>() - 1]);
            der.extend_from_slice(significant);
        }
    }
    for part in parts {
        der.extend_from_slice(part);
    }
    der
}

/// Returns a SEQUENCE of these elements.
pub(super) fn sequence(elements: &[Vec<u8>]) -> Vec<u8> {
    let parts: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
    element(0x30, &parts)
}
