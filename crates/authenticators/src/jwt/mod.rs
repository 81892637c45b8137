//! `JwtAuthenticator`: authenticates JSON Web Tokens of the configured issuers.
//!
//! # Invariants
//!
//! 1. Only tokens whose unverified claim `iss` is that of an issuer cause work; all others are unknown.
//! 2. The claims become a user only after the signature was verified with a key of the issuer, by an allowed algorithm
//!    that fits the key.

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
