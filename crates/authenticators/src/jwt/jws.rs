//! The compact serialization of a signed token (RFC 7515) and the algorithms of its signature (RFC 7518).

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The maximum length of a token in bytes.
pub(super) const TOKEN_BYTES_MAX: usize = 64 << 10;

/// An asymmetric algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SigningAlgorithm {
    /// An algorithm of the library.
    Library(Algorithm),
    /// ECDSA with P-521 and SHA-512, which the library does not support.
    Es512,
}

const ALGORITHMS: [(&str, SigningAlgorithm); 9] = [
    ("RS256", SigningAlgorithm::Library(Algorithm::RS256)),
    ("RS384", SigningAlgorithm::Library(Algorithm::RS384)),
    ("RS512", SigningAlgorithm::Library(Algorithm::RS512)),
    ("ES256", SigningAlgorithm::Library(Algorithm::ES256)),
    ("ES384", SigningAlgorithm::Library(Algorithm::ES384)),
    ("ES512", SigningAlgorithm::Es512),
    ("PS256", SigningAlgorithm::Library(Algorithm::PS256)),
    ("PS384", SigningAlgorithm::Library(Algorithm::PS384)),
    ("PS512", SigningAlgorithm::Library(Algorithm::PS512)),
];

/// The algorithms that tokens may be signed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningAlgorithms(Vec<&'static str>);

/// The error of an algorithm that is not supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no supported signing algorithm: use RS256, RS384, RS512, ES256, ES384, ES512, PS256, PS384 or PS512"
)]
pub struct InvalidAlgorithm(String);

impl Default for SigningAlgorithms {
    /// Allows all asymmetric algorithms of RFC 7518.
    fn default() -> Self {
        Self(ALGORITHMS.iter().map(|(name, _)| *name).collect())
    }
}

impl FromStr for SigningAlgorithms {
    type Err = InvalidAlgorithm;

    /// Reads names that are separated by commas.
    fn from_str(text: &str) -> Result<Self, InvalidAlgorithm> {
        let known = |name: &str| {
            let found = ALGORITHMS.iter().find(|(known, _)| *known == name);
            let found = found.map(|(known, _)| *known);
            found.ok_or_else(|| InvalidAlgorithm(name.to_owned()))
        };
        let names = text.split(',').map(str::trim).map(known);
        Ok(Self(names.collect::<Result<_, _>>()?))
    }
}

impl SigningAlgorithms {
    /// Returns the algorithm of a token.
    ///
    /// # Errors
    /// The algorithm is not allowed; the error has upstream's message.
    fn find(&self, name: &str) -> Result<SigningAlgorithm, String> {
        let mut allowed = ALGORITHMS
            .iter()
            .filter(|(known, _)| self.0.contains(known));
        let found = allowed.find(|(known, _)| *known == name);
        found.map(|(_, algorithm)| *algorithm).ok_or_else(|| {
            let all: Vec<String> = self.0.iter().map(|name| format!("{name:?}")).collect();
            format!(
                "oidc: id token signed with unsupported algorithm, expected [{}] got {name:?}",
                all.join(" ")
            )
        })
    }
}

/// The header of a token.
#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that the verifier must support (`crit`); none is supported.
    crit: Option<IgnoredAny>,
}

/// A signed token; the signature is not verified.
#[derive(Debug)]
pub(super) struct Jws<'a> {
    header: Header,
    pub(super) payload: Vec<u8>,
    /// The signed part: the header and the payload, as sent.
    pub(super) message: &'a str,
    /// The signature in base64url.
    pub(super) signature: &'a str,
}

impl<'a> Jws<'a> {
    /// Splits a token; returns `None` if it is not a JSON Web Token.
    pub(super) fn parse(token: &'a str) -> Option<Self> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (message, signature) = token.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        let header = URL_SAFE_NO_PAD.decode(header).ok()?;
        let header: Header = serde_json::from_slice(&header).ok()?;
        Some(Self {
            payload: URL_SAFE_NO_PAD.decode(payload).ok()?,
            header,
            message,
            signature,
        })
    }

    /// Returns the ID of the key.
    pub(super) fn key_id(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    /// Returns the algorithm if it is one of `allowed`.
    ///
    /// # Errors
    /// The algorithm is not allowed, or the token has extensions.
    pub(super) fn algorithm(
        &self,
        allowed: &SigningAlgorithms,
    ) -> Result<SigningAlgorithm, String> {
        if self.header.crit.is_some() {
            return Err("oidc: malformed jwt: the header crit is not supported".to_owned());
        }
        allowed.find(&self.header.alg)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn algorithms_are_asymmetric() {
        let all = SigningAlgorithms::default();
        for name in ["none", "HS256", "HS512", "EdDSA", "rs256", ""] {
            assert!(all.find(name).is_err(), "{name}");
        }
        let some: SigningAlgorithms = "RS256, ES512".parse().unwrap();
        assert_eq!(some.find("ES512"), Ok(SigningAlgorithm::Es512));
        assert_eq!(
            some.find("PS256").unwrap_err(),
            r#"oidc: id token signed with unsupported algorithm, expected ["RS256" "ES512"] got "PS256""#
        );
        assert!("HS256".parse::<SigningAlgorithms>().is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_split_or_rejected(text in "[A-Za-z0-9_.=-]{0,80}|\\PC{0,40}") {
            if let Some(jws) = Jws::parse(&text) {
                prop_assert_eq!(format!("{}.{}", jws.message, jws.signature), text);
            }
        }
    }
}
