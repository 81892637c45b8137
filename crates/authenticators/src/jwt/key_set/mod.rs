//! The public keys of an issuer: a JSON Web Key Set (RFC 7517). Keys that cannot be used are ignored, as upstream.

use aws_lc_rs::signature::{ECDSA_P521_SHA512_FIXED, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

use crate::jwt::jws::{Jws, SigningAlgorithm};

/// The maximum number of keys; further ones are ignored. A token without a key ID is verified with each.
const KEYS_MAX: usize = 100;

/// The length of a coordinate on P-521 in bytes.
const P521_BYTES: usize = 66;

/// Public keys.
#[derive(Debug, Default)]
pub(super) struct KeySet(Vec<Key>);

struct Key {
    id: Option<String>,
    /// The only algorithm that the key may be used with (`alg`), if it names one.
    algorithm: Option<String>,
    public: PublicKey,
}

enum PublicKey {
    Rsa(DecodingKey),
    P256(DecodingKey),
    P384(DecodingKey),
    /// An uncompressed point.
    P521(Vec<u8>),
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    r#use: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads the document of an issuer.
    ///
    /// # Errors
    /// The document is not a key set.
    pub(super) fn parse(document: &[u8]) -> Result<Self, String> {
        let document: Document =
            serde_json::from_slice(document).map_err(|error| error.to_string())?;
        let keys = document.keys.iter().take(KEYS_MAX).filter_map(Key::read);
        Ok(Self(keys.collect()))
    }

    /// Returns the number of usable keys.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if a key has verified the signature of `token`.
    pub(super) fn verifies(&self, token: &Jws<'_>, algorithm: SigningAlgorithm) -> bool {
        let id = token.key_id().filter(|id| !id.is_empty());
        let is_named = |key: &&Key| id.is_none_or(|id| key.id.as_deref() == Some(id));
        let mut candidates = self.0.iter().filter(is_named);
        candidates.any(|key| key.verifies(token, algorithm))
    }
}

impl Key {
    fn read(value: &Value) -> Option<Self> {
        let jwk = Jwk::deserialize(value).ok()?;
        if jwk.r#use.as_deref().is_some_and(|used| used != "sig") {
            return None;
        }
        let public = match (&*jwk.kty, jwk.crv.as_deref()) {
            ("RSA", _) => {
                let (n, e) = (jwk.n?, jwk.e?);
                PublicKey::Rsa(DecodingKey::from_rsa_components(&n, &e).ok()?)
            }
            ("EC", Some(curve)) => {
                let (x, y) = (jwk.x?, jwk.y?);
                let key = || DecodingKey::from_ec_components(&x, &y).ok();
                match curve {
                    "P-256" => PublicKey::P256(key()?),
                    "P-384" => PublicKey::P384(key()?),
                    "P-521" => PublicKey::P521(p521_point(&x, &y)?),
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some(Self {
            id: jwk.kid,
            algorithm: jwk.alg,
            public,
        })
    }

    fn verifies(&self, token: &Jws<'_>, algorithm: SigningAlgorithm) -> bool {
        let is_for = |name: &str| match algorithm {
            SigningAlgorithm::Library(algorithm) => name == format!("{algorithm:?}"),
            SigningAlgorithm::Es512 => name == "ES512",
        };
        if self.algorithm.as_deref().is_some_and(|name| !is_for(name)) {
            return false;
        }
        let message = token.message.as_bytes();
        match (&self.public, algorithm) {
            (
                PublicKey::Rsa(key),
                SigningAlgorithm::Library(
                    algorithm @ (Algorithm::RS256
                    | Algorithm::RS384
                    | Algorithm::RS512
                    | Algorithm::PS256
                    | Algorithm::PS384
                    | Algorithm::PS512),
                ),
            )
            | (PublicKey::P256(key), SigningAlgorithm::Library(algorithm @ Algorithm::ES256))
            | (PublicKey::P384(key), SigningAlgorithm::Library(algorithm @ Algorithm::ES384)) => {
                let verified =
                    jsonwebtoken::crypto::verify(token.signature, message, key, algorithm);
                verified.unwrap_or(false)
            }
            (PublicKey::P521(point), SigningAlgorithm::Es512) => {
                let key = UnparsedPublicKey::new(&ECDSA_P521_SHA512_FIXED, point);
                let signature = URL_SAFE_NO_PAD.decode(token.signature);
                signature.is_ok_and(|signature| key.verify(message, &signature).is_ok())
            }
            _ => false,
        }
    }
}

fn p521_point(x: &str, y: &str) -> Option<Vec<u8>> {
    let mut point = vec![4];
    for coordinate in [x, y] {
        let bytes = URL_SAFE_NO_PAD.decode(coordinate).ok()?;
        let missing = P521_BYTES.checked_sub(bytes.len())?;
        point.extend(std::iter::repeat_n(0, missing));
        point.extend(bytes);
    }
    Some(point)
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Key").field(&self.id).finish()
    }
}

#[cfg(test)]
mod tests;
