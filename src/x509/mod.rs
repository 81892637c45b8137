//! Verification of X.509 certificates that accepts what Go's `crypto/x509` accepts: clusters are full of
//! certificates that Go's tools made and that webpki refuses. webpki decides first; a chain that it refuses is
//! then judged by Go's rules in `chain`. Where the trusted certificates come from is the caller's business.
//!
//! [`CertificateAuthority`] signs certificates by requests, as Go does for upstream's controllers.
//!
//! webpki has no certificates of version 1 (`openssl x509 -req` makes them), none with `CA:TRUE` as the end
//! of a chain, and none that is trusted itself without being a CA. It does not look at the validity of a trusted
//! certificate: those that are not valid now are left out of what it trusts.

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
