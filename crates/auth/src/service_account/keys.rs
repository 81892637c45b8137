//! The keys that sign and verify service account tokens: read from PEM, identified by their digest, and
//! published as JSON Web Keys.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use rcgen::{KeyPair, PublicKeyData as _};
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// A key file is invalid. The message says what is wrong and what to do; it never contains the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidKeys(String);

fn invalid(problem: impl std::fmt::Display) -> InvalidKeys {
    InvalidKeys(problem.to_string())
}

/// A private key that signs tokens.
pub(super) struct SigningKey {
    pub(super) id: String,
    pub(super) algorithm: Algorithm,
    pub(super) key: EncodingKey,
}

/// A public key that verifies tokens.
pub(super) struct VerifyingKey {
    pub(super) id: String,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
    pub(super) jwk: Value,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SigningKey").field(&self.id).finish()
    }
}

impl std::fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("VerifyingKey").field(&self.id).finish()
    }
}

impl SigningKey {
    /// Reads the one private key of a PEM text: RSA, or ECDSA with P-256 or P-384.
    ///
    /// # Errors
    /// The text has no private key, or one of another kind or form.
    pub(super) fn from_pem(pem: &str) -> Result<(Self, VerifyingKey), InvalidKeys> {
        let pair = KeyPair::from_pem(pem)
            .map_err(|error| invalid(format_args!("holds no private key ({error})")))?;
        let verifying = VerifyingKey::from_spki(&pair.subject_public_key_info())?;
        let key = match verifying.algorithm {
            Algorithm::RS256 => EncodingKey::from_rsa_pem(pem.as_bytes()),
            _ => EncodingKey::from_ec_pem(pem.as_bytes()),
        };
        let key = key.map_err(|_| {
            invalid(
                "holds a private key in a form that is not read here: write it as PKCS #8, e.g. \
                 with `openssl pkcs8 -topk8 -nocrypt`",
            )
        })?;
        let signing = Self {
            id: verifying.id.clone(),
            algorithm: verifying.algorithm,
            key,
        };
        Ok((signing, verifying))
    }
}

impl VerifyingKey {
    /// Reads all keys of a PEM text: public ones, those of private keys, and those of certificates.
    ///
    /// # Errors
    /// The text has no key, or a section that is not a key of a supported kind.
    pub(super) fn all_from_pem(pem: &str) -> Result<Vec<Self>, InvalidKeys> {
        let mut keys = Vec::new();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes()) {
            let section = section.map_err(|error| invalid(format_args!("is no PEM ({error})")))?;
            keys.push(Self::from_spki(&public_key(section)?)?);
        }
        match keys.is_empty() {
            true => Err(invalid("holds no key in PEM")),
            false => Ok(keys),
        }
    }

    /// Reads the key of a `SubjectPublicKeyInfo` in DER.
    fn from_spki(der: &[u8]) -> Result<Self, InvalidKeys> {
        let unknown = || invalid("holds a key that is neither RSA nor ECDSA with P-256 or P-384");
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| unknown())?;
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(der));
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (algorithm, key, own) = match info.parsed().map_err(|_| unknown())? {
            PublicKey::RSA(rsa) => {
                let (n, e) = (unsigned(rsa.modulus), unsigned(rsa.exponent));
                let key = DecodingKey::from_rsa_raw_components(n, e);
                let own = json!({"kty": "RSA", "alg": "RS256", "n": text(n), "e": text(e)});
                (Algorithm::RS256, key, own)
            }
            PublicKey::EC(point) => {
                let (algorithm, name, curve) = match point.data() {
                    [4, rest @ ..] if rest.len() == 64 => (Algorithm::ES256, "ES256", "P-256"),
                    [4, rest @ ..] if rest.len() == 96 => (Algorithm::ES384, "ES384", "P-384"),
                    _ => return Err(unknown()),
                };
                let (x, y) = point.data()[1..].split_at((point.data().len() - 1) / 2);
                let key = DecodingKey::from_ec_der(point.data());
                let own = json!({
                    "kty": "EC", "alg": name, "crv": curve, "x": text(x), "y": text(y),
                });
                (algorithm, key, own)
            }
            _ => return Err(unknown()),
        };
        let mut jwk = own;
        jwk["use"] = "sig".into();
        jwk["kid"] = id.clone().into();
        Ok(Self {
            id,
            algorithm,
            key,
            jwk,
        })
    }
}

/// Returns the public key of a section as a `SubjectPublicKeyInfo` in DER.
fn public_key((kind, der): (SectionKind, Vec<u8>)) -> Result<Vec<u8>, InvalidKeys> {
    let private = |key: PrivateKeyDer<'_>| {
        let pair = KeyPair::try_from(&key)
            .map_err(|error| invalid(format_args!("holds a private key of no use ({error})")))?;
        Ok(pair.subject_public_key_info())
    };
    match kind {
        SectionKind::PublicKey => Ok(der),
        SectionKind::PrivateKey => private(PrivateKeyDer::Pkcs8(der.into())),
        SectionKind::RsaPrivateKey => private(PrivateKeyDer::Pkcs1(der.into())),
        SectionKind::EcPrivateKey => private(PrivateKeyDer::Sec1(der.into())),
        SectionKind::Certificate => {
            let der = CertificateDer::from(der);
            let (_, certificate) = X509Certificate::from_der(&der)
                .map_err(|error| invalid(format_args!("holds a damaged certificate ({error})")))?;
            Ok(certificate.public_key().raw.to_vec())
        }
        other => Err(invalid(format_args!(
            "holds a section that is no key ({other:?})"
        ))),
    }
}

/// Removes the leading zeros of a number in DER.
fn unsigned(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_id_is_the_digest_of_the_public_key() {
        for (algorithm, name) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, "ES256"),
            (&rcgen::PKCS_ECDSA_P384_SHA384, "ES384"),
            (&rcgen::PKCS_RSA_SHA256, "RS256"),
        ] {
            let pair = KeyPair::generate_for(algorithm).unwrap();
            let (signing, verifying) = SigningKey::from_pem(&pair.serialize_pem()).unwrap();
            assert_eq!(verifying.jwk["alg"], name);
            assert_eq!(verifying.jwk["kid"], signing.id.as_str());
            assert_eq!(signing.id.len(), 43);
            let token = jsonwebtoken::encode(
                &jsonwebtoken::Header::new(signing.algorithm),
                &json!({"exp": u32::MAX}),
                &signing.key,
            );
            let jwk: jsonwebtoken::jwk::Jwk = serde_json::from_value(verifying.jwk).unwrap();
            for key in [verifying.key, DecodingKey::from_jwk(&jwk).unwrap()] {
                let validation = jsonwebtoken::Validation::new(verifying.algorithm);
                jsonwebtoken::decode::<Value>(token.as_ref().unwrap(), &key, &validation).unwrap();
            }
            let params = rcgen::CertificateParams::default();
            let certificate = params.self_signed(&pair).unwrap().pem();
            let texts = [pair.serialize_pem(), pair.public_key_pem(), certificate];
            let all = VerifyingKey::all_from_pem(&texts.concat()).unwrap();
            assert_eq!(all.len(), 3);
            assert!(
                all.iter().all(|key| key.id == signing.id),
                "{name}: {all:?}"
            );
        }
    }

    #[test]
    fn invalid_keys_are_reported() {
        let reported = |pem: &str| SigningKey::from_pem(pem).unwrap_err().to_string();
        assert!(reported("sesame").contains("holds no private key"));
        let edwards = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let reported = reported(&edwards.serialize_pem());
        assert!(reported.contains("neither RSA nor ECDSA"), "{reported}");
        let reported = VerifyingKey::all_from_pem("sesame").unwrap_err();
        assert_eq!(reported.to_string(), "holds no key in PEM");
    }
}
