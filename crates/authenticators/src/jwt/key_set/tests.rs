//! Tests of keys: each algorithm verifies signatures of its own keys only.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaKeyPair,
};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::jwt::jws::SigningAlgorithms;

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Signs a token with this header.
fn token(header: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let message = format!(
        "{}.{}",
        encode(header.to_string().as_bytes()),
        encode(b"{}")
    );
    let signature = encode(&sign(message.as_bytes()));
    format!("{message}.{signature}")
}

fn ecdsa(curve: &str) -> (Value, impl Fn(&[u8]) -> Vec<u8>) {
    let algorithm = match curve {
        "P-256" => &ECDSA_P256_SHA256_FIXED_SIGNING,
        "P-384" => &ECDSA_P384_SHA384_FIXED_SIGNING,
        _ => &ECDSA_P521_SHA512_FIXED_SIGNING,
    };
    let pair = EcdsaKeyPair::generate(algorithm).unwrap();
    let point = pair.public_key().as_ref()[1..].to_vec();
    let (x, y) = point.split_at(point.len() / 2);
    let jwk = json!({"kty": "EC", "crv": curve, "kid": curve, "x": encode(x), "y": encode(y)});
    let sign = move |message: &[u8]| {
        let signature = pair.sign(&SystemRandom::new(), message).unwrap();
        signature.as_ref().to_vec()
    };
    (jwk, sign)
}

fn verifies(keys: &Value, token: &str) -> bool {
    let keys = KeySet::parse(keys.to_string().as_bytes()).unwrap();
    let jws = Jws::parse(token).unwrap();
    let algorithm = jws.algorithm(&SigningAlgorithms::default()).unwrap();
    keys.verifies(&jws, algorithm)
}

#[test]
fn elliptic_curves_are_verified_with_their_algorithm() {
    for (curve, algorithm) in [("P-256", "ES256"), ("P-384", "ES384"), ("P-521", "ES512")] {
        let (jwk, sign) = ecdsa(curve);
        let good = token(&json!({"alg": algorithm, "kid": curve}), &sign);
        assert!(verifies(&json!({"keys": [jwk]}), &good), "{curve}");
        let nameless = token(&json!({"alg": algorithm}), &sign);
        let (other, _) = ecdsa(curve);
        assert!(
            verifies(&json!({"keys": [other, jwk]}), &nameless),
            "{curve}"
        );
        assert!(
            !verifies(&json!({"keys": [other]}), &good),
            "{curve}: another key"
        );
        let unknown = token(&json!({"alg": algorithm, "kid": "x"}), &sign);
        assert!(
            !verifies(&json!({"keys": [jwk]}), &unknown),
            "{curve}: another kid"
        );
        for other in ["ES256", "ES384", "ES512", "RS256"] {
            let confused = token(&json!({"alg": other, "kid": curve}), &sign);
            assert_eq!(
                verifies(&json!({"keys": [jwk]}), &confused),
                other == algorithm
            );
        }
        let mut bound = jwk.clone();
        bound["alg"] = "PS256".into();
        assert!(
            !verifies(&json!({"keys": [bound]}), &good),
            "{curve}: key of another algorithm"
        );
        let mut encrypting = jwk;
        encrypting["use"] = "enc".into();
        assert!(
            !verifies(&json!({"keys": [encrypting]}), &good),
            "{curve}: key for encryption"
        );
    }
}

#[test]
fn rsa_is_verified_with_each_algorithm() {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let public = pair.public_key();
    let (n, e) = (public.modulus(), public.exponent());
    let jwk = json!({
        "kty": "RSA", "kid": "r",
        "n": encode(n.big_endian_without_leading_zero()),
        "e": encode(e.big_endian_without_leading_zero()),
    });
    let keys = json!({"keys": [{"kty": "oct", "k": "AAAA"}, {"kty": "EC"}, 7, jwk]});
    for (algorithm, padding) in [
        (
            "RS256",
            &RSA_PKCS1_SHA256 as &'static dyn aws_lc_rs::signature::RsaEncoding,
        ),
        ("RS384", &RSA_PKCS1_SHA384),
        ("RS512", &RSA_PKCS1_SHA512),
        ("PS256", &RSA_PSS_SHA256),
        ("PS384", &RSA_PSS_SHA384),
        ("PS512", &RSA_PSS_SHA512),
    ] {
        let sign = |message: &[u8]| {
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign(padding, &SystemRandom::new(), message, &mut signature)
                .unwrap();
            signature
        };
        for named in [
            "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES512",
        ] {
            let token = token(&json!({"alg": named, "kid": "r"}), sign);
            assert_eq!(
                verifies(&keys, &token),
                named == algorithm,
                "{algorithm} {named}"
            );
        }
    }
    assert!(pair.as_der().is_ok());
}

proptest! {
    #[test]
    fn any_document_is_read_or_rejected(document in "\\PC{0,60}|\\{\"keys\":\\[[^\"]{0,20}\\]\\}") {
        if let Ok(keys) = KeySet::parse(document.as_bytes()) {
            prop_assert!(keys.len() <= KEYS_MAX);
        }
    }

    #[test]
    fn changed_tokens_are_not_verified(at in 0usize..200, byte in 0u8..64) {
        let (jwk, sign) = ecdsa("P-256");
        let good = token(&json!({"alg": "ES256", "kid": "P-256"}), sign);
        let at = at % good.len();
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut changed = good.clone().into_bytes();
        changed[at] = alphabet[usize::from(byte)];
        let changed = String::from_utf8(changed).unwrap();
        prop_assume!(changed != good);
        let keys = KeySet::parse(json!({"keys": [jwk]}).to_string().as_bytes()).unwrap();
        if let Some(jws) = Jws::parse(&changed)
            && let Ok(algorithm) = jws.algorithm(&SigningAlgorithms::default())
        {
            prop_assert!(!keys.verifies(&jws, algorithm));
        }
    }
}
