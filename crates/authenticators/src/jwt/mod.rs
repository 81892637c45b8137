//! `JwtAuthenticator`: authenticates JSON Web Tokens of the configured issuers.
//!
//! # Invariants
//!
//! 1. Signatures are verified only of tokens whose claim `iss` is the URL of a configured issuer; other tokens are not
//!    recognized.
//! 2. Claims are mapped to a user only after the signature was verified with a key of the issuer and an allowed
//!    algorithm that fits the key.

mod authenticator;
mod claims;
mod expression;
mod fetch;
mod issuer_keys;
mod jws;
mod key_set;
mod user_mapping;

pub use authenticator::JwtAuthenticator;
pub(crate) use expression::{Expression, Rule};
pub use jws::{InvalidAlgorithm, SigningAlgorithms};

/// Returns true if a key of the JSON Web Key Set `keys` has signed `token`, and its claims can be read.
///
/// # Errors
/// The key set, the token or its claims are invalid.
#[cfg(feature = "fuzzing")]
pub(crate) fn verify(token: &str, keys: &[u8]) -> Result<bool, String> {
    let keys = key_set::KeySet::parse(keys)?;
    let token = jws::Jws::parse(token).ok_or("it is no JSON Web Token")?;
    let algorithm = token.algorithm(&SigningAlgorithms::default())?;
    let claims = claims::Claims::parse(&token.payload)?;
    claims.strings("groups")?;
    claims.time("exp")?;
    Ok(keys.verifies(&token, algorithm))
}
