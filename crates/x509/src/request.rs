//! `CertificateRequest`: parses and verifies certificate requests (PKCS #10).

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1, ECDSA_P384_SHA256_ASN1,
    ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1,
    ECDSA_P521_SHA512_ASN1, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, UnparsedPublicKey, VerificationAlgorithm,
};
use x509_parser::error::X509Error;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{
    OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_PKCS1_SHA256WITHRSA,
    OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384,
    OID_SIG_ECDSA_WITH_SHA512, Oid,
};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};
use x509_parser::x509::AlgorithmIdentifier;

/// The content of a verified request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The subject's common names.
    pub common_names: Vec<String>,
    /// The subject's organizations.
    pub organizations: Vec<String>,
    /// The alternative names of the kinds that Go supports.
    pub names: Vec<AlternativeName>,
    /// The subject, DER.
    pub(super) subject: Vec<u8>,
    /// The SubjectPublicKeyInfo, DER.
    pub(super) key: Vec<u8>,
}

/// A name in a subjectAltName extension.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is what its name says")]
pub enum AlternativeName {
    Email(String),
    Dns(String),
    Uri(String),
    /// The bytes of the address.
    Ip(Vec<u8>),
}

impl CertificateRequest {
    /// Parses the first request in `pem`, and verifies that it is signed with its key.
    ///
    /// # Errors
    /// Returns an error if it is not a request or not signed by its key.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        with_verified(pem, Self::of)
    }

    fn of(request: &X509CertificationRequest<'_>) -> Result<Self, String> {
        let info = &request.certification_request_info;
        let subject = &info.subject;
        let texts = |attributes: Vec<Result<&str, X509Error>>| {
            let texts = attributes.into_iter().map(|text| text.map(str::to_owned));
            texts.collect::<Result<Vec<_>, _>>()
        };
        let of_subject = |error: X509Error| format!("invalid subject: {error}");
        let common_names = subject.iter_common_name().map(|one| one.as_str());
        let organizations = subject.iter_organization().map(|one| one.as_str());
        Ok(Self {
            common_names: texts(common_names.collect()).map_err(of_subject)?,
            organizations: texts(organizations.collect()).map_err(of_subject)?,
            names: alternative_names(request)?,
            subject: subject.as_raw().to_vec(),
            key: info.subject_pki.raw.to_vec(),
        })
    }
}

/// Checks that `pem` starts with a request signed by its key.
///
/// # Errors
/// Returns an error if it is not a request or not signed by its key.
pub fn check_request(pem: &[u8]) -> Result<(), String> {
    with_verified(pem, |_| Ok(()))
}

fn with_verified<T>(
    pem: &[u8],
    then: impl FnOnce(&X509CertificationRequest<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let block = Pem::iter_from_buffer(pem).next();
    let block = block.and_then(Result::ok);
    let block = block.filter(|block| block.label == "CERTIFICATE REQUEST");
    let block = block.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    let (_, request) =
        X509CertificationRequest::from_der(&block.contents).map_err(|error| error.to_string())?;
    verify(&request).map_err(|error| error.to_string())?;
    then(&request)
}

/// Returns the alternative names of `request`. Names of other kinds are not signed, as in Go.
fn alternative_names(
    request: &X509CertificationRequest<'_>,
) -> Result<Vec<AlternativeName>, String> {
    let mut names = Vec::new();
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(alternative) = extension else {
            continue;
        };
        for name in &alternative.general_names {
            names.push(match name {
                GeneralName::RFC822Name(text) => AlternativeName::Email((*text).to_owned()),
                GeneralName::DNSName(text) => AlternativeName::Dns((*text).to_owned()),
                GeneralName::URI(text) => AlternativeName::Uri((*text).to_owned()),
                GeneralName::IPAddress(bytes) if matches!(bytes.len(), 4 | 16) => {
                    AlternativeName::Ip(bytes.to_vec())
                }
                GeneralName::IPAddress(_) | GeneralName::Invalid(..) => {
                    return Err("invalid subject alternative name".to_owned());
                }
                _ => continue,
            });
        }
    }
    Ok(names)
}

/// Verifies the signature of a request. The parser's own check supports fewer combinations of curve
/// and hash than Go, and no 1024-bit RSA keys.
fn verify(request: &X509CertificationRequest<'_>) -> Result<(), X509Error> {
    let info = &request.certification_request_info;
    let key = &info.subject_pki;
    let Some(algorithm) = algorithm(&request.signature_algorithm.algorithm, &key.algorithm) else {
        return request.verify_signature();
    };
    UnparsedPublicKey::new(algorithm, &key.subject_public_key.data)
        .verify(info.raw, &request.signature_value.data)
        .map_err(|_| X509Error::SignatureVerificationError)
}

/// Returns the algorithm for this signature and key; `None` leaves the check to the parser.
fn algorithm(
    signature: &Oid<'_>,
    key: &AlgorithmIdentifier<'_>,
) -> Option<&'static dyn VerificationAlgorithm> {
    if *signature == OID_PKCS1_SHA256WITHRSA {
        return Some(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY);
    }
    if *signature == OID_PKCS1_SHA512WITHRSA {
        return Some(&RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY);
    }
    let curve = key.parameters.as_ref()?.as_oid().ok()?;
    let curves = [OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521];
    let hashes = [
        OID_SIG_ECDSA_WITH_SHA256,
        OID_SIG_ECDSA_WITH_SHA384,
        OID_SIG_ECDSA_WITH_SHA512,
    ];
    let curve = curves.iter().position(|known| *known == curve)?;
    let hash = hashes.iter().position(|known| known == signature)?;
    let known: [[&'static dyn VerificationAlgorithm; 3]; 3] = [
        [
            &ECDSA_P256_SHA256_ASN1,
            &ECDSA_P256_SHA384_ASN1,
            &ECDSA_P256_SHA512_ASN1,
        ],
        [
            &ECDSA_P384_SHA256_ASN1,
            &ECDSA_P384_SHA384_ASN1,
            &ECDSA_P384_SHA512_ASN1,
        ],
        [
            &ECDSA_P521_SHA256_ASN1,
            &ECDSA_P521_SHA384_ASN1,
            &ECDSA_P521_SHA512_ASN1,
        ],
    ];
    Some(known[curve][hash])
}
