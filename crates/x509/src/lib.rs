//! Verifies X.509 certificates, and accepts those that Go's `crypto/x509` accepts: many certificates
//! in clusters are created by Go and rejected by webpki. webpki verifies first; `chain` verifies
//! rejected chains by Go's rules.
//!
//! [`CertificateAuthority`] signs certificate requests as upstream's controllers do.
//!
//! webpki rejects version 1 certificates (`openssl x509 -req` creates them), leaf certificates with
//! `CA:TRUE`, and trusted leaf certificates that are not a CA. It ignores the validity period of trusted
//! certificates, so `trusted` excludes those that are not valid now.

mod any;
mod chain;
mod client;
mod der;
mod issue;
mod request;
mod server;
mod trusted;
mod usages;

#[cfg(test)]
mod testing;

pub use any::AnyCertificate;
pub use chain::{Anchors, Purpose, verify};
pub use client::{ClientVerifier, ClientVerifierError};
pub use der::{describe, not_after, to_pem};
pub use issue::{CertificateAuthority, Profile};
pub use request::{AlternativeName, CertificateRequest, check_request};
pub use server::ServerVerifier;
pub use trusted::Trusted;
pub use usages::Usages;
