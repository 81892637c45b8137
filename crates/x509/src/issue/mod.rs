//! `CertificateAuthority`: signs certificate requests as upstream's signing controller does with
//! Go's `crypto/x509`.

use aws_lc_rs::rand;
use jiff::{Timestamp, tz::TimeZone};
use rcgen::{Issuer, KeyPair, SignatureAlgorithm, SigningKey as _};
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{ParsedExtension, X509Certificate};

use super::der::{element, parse, sequence};
use super::request::{AlternativeName, CertificateRequest};
use super::usages::Usages;

/// A CA with its key.
pub struct CertificateAuthority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CertificateAuthority")
    }
}

/// The properties of a certificate besides those of its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The usages of the key.
    pub usages: Usages,
    /// The start of the validity.
    pub not_before: Timestamp,
    /// The end of the validity.
    pub not_after: Timestamp,
}

impl CertificateAuthority {
    /// Returns the CA of this certificate with the key of `issuer`.
    pub fn new(certificate: CertificateDer<'static>, issuer: Issuer<'static, KeyPair>) -> Self {
        Self {
            certificate,
            issuer,
        }
    }

    /// Returns the end of validity of the CA's certificate.
    ///
    /// # Errors
    /// Returns an error if the certificate cannot be parsed.
    pub fn not_after(&self) -> Result<Timestamp, String> {
        let certificate = parse(&self.certificate).map_err(|error| error.to_string())?;
        let seconds = certificate.validity().not_after.timestamp();
        Timestamp::from_second(seconds).map_err(|error| error.to_string())
    }

    /// Signs a certificate with the subject, key and alternative names of `request`.
    ///
    /// # Errors
    /// Returns an error if the CA's key cannot sign.
    pub fn sign(
        &self,
        request: &CertificateRequest,
        profile: &Profile,
    ) -> Result<CertificateDer<'static>, String> {
        let ca = parse(&self.certificate).map_err(|error| error.to_string())?;
        let key = self.issuer.key();
        let algorithm = signature_algorithm(key.algorithm())
            .ok_or("the CA's key is of a kind that cannot sign")?;
        let extensions = sequence(&extensions(request, profile, &ca));
        let tbs = sequence(&[
            element(0xa0, &[&element(0x02, &[&[2]])]),
            element(0x02, &[&serial_number()?]),
            algorithm.clone(),
            ca.subject().as_raw().to_vec(),
            sequence(&[time(profile.not_before), time(profile.not_after)]),
            request.subject.clone(),
            request.key.clone(),
            element(0xa3, &[&extensions]),
        ]);
        let signature = key.sign(&tbs).map_err(|error| error.to_string())?;
        let signature = element(0x03, &[&[0], &signature]);
        Ok(sequence(&[tbs, algorithm, signature]).into())
    }
}

/// Returns a random positive number of 16 bytes, as upstream.
fn serial_number() -> Result<[u8; 16], String> {
    let mut number = [0; 16];
    rand::fill(&mut number).map_err(|_| "unable to generate a serial number".to_owned())?;
    // With the first bit set the number would be negative, and its first byte must not be zero.
    number[0] = number[0] & 0x7f | 0x40;
    Ok(number)
}

/// Encodes a time as UTCTime until 2049, then as GeneralizedTime (RFC 5280, 4.1.2.5).
fn time(at: Timestamp) -> Vec<u8> {
    let at = at.to_zoned(TimeZone::UTC);
    match at.year() < 2050 {
        true => element(0x17, &[at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes()]),
        false => element(0x18, &[at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes()]),
    }
}

/// Returns the DER AlgorithmIdentifier of the key's signatures.
fn signature_algorithm(key: &'static SignatureAlgorithm) -> Option<Vec<u8>> {
    const ECDSA: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    const RSA: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const NULL: [u8; 2] = [0x05, 0x00];
    let ecdsa = |last: u8| sequence(&[element(0x06, &[&ECDSA, &[last]])]);
    let rsa = |last: u8| sequence(&[element(0x06, &[&RSA, &[last]]), NULL.to_vec()]);
    let known = [
        (&rcgen::PKCS_ECDSA_P256_SHA256, ecdsa(2)),
        (&rcgen::PKCS_ECDSA_P384_SHA384, ecdsa(3)),
        (&rcgen::PKCS_ECDSA_P521_SHA512, ecdsa(4)),
        (&rcgen::PKCS_RSA_SHA256, rsa(11)),
        (&rcgen::PKCS_RSA_SHA384, rsa(12)),
        (&rcgen::PKCS_RSA_SHA512, rsa(13)),
        (
            &rcgen::PKCS_ED25519,
            sequence(&[element(0x06, &[&[0x2b, 0x65, 0x70]])]),
        ),
    ];
    let mut known = known.into_iter();
    known.find(|(one, _)| *one == key).map(|(_, der)| der)
}

/// Returns the extensions that Go encodes for such a template, in its order.
fn extensions(
    request: &CertificateRequest,
    profile: &Profile,
    ca: &X509Certificate<'_>,
) -> Vec<Vec<u8>> {
    let mut extensions = Vec::new();
    if let Some(bits) = profile.usages.key_usage() {
        extensions.push(extension(15, true, &bits));
    }
    if let Some(purposes) = profile.usages.extended() {
        extensions.push(extension(37, false, &purposes));
    }
    // Not a CA.
    extensions.push(extension(19, true, &sequence(&[])));
    let key_id = ca
        .iter_extensions()
        .find_map(|one| match one.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        });
    if let Some(id) = key_id {
        extensions.push(extension(35, false, &sequence(&[element(0x80, &[id])])));
    }
    if !request.names.is_empty() {
        let nameless = request.subject == sequence(&[]);
        let names: Vec<_> = request.names.iter().map(general_name).collect();
        extensions.push(extension(17, nameless, &sequence(&names)));
    }
    extensions
}

/// Returns an extension of the arc `id-ce`.
fn extension(number: u8, critical: bool, value: &[u8]) -> Vec<u8> {
    let mut parts = vec![element(0x06, &[&[0x55, 0x1d, number]])];
    if critical {
        parts.push(element(0x01, &[&[0xff]]));
    }
    parts.push(element(0x04, &[value]));
    sequence(&parts)
}

fn general_name(name: &AlternativeName) -> Vec<u8> {
    match name {
        AlternativeName::Email(text) => element(0x81, &[text.as_bytes()]),
        AlternativeName::Dns(text) => element(0x82, &[text.as_bytes()]),
        AlternativeName::Uri(text) => element(0x86, &[text.as_bytes()]),
        AlternativeName::Ip(bytes) => element(0x87, &[bytes]),
    }
}

#[cfg(test)]
mod tests;
