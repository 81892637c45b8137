//! Authenticators of bearer tokens that other programs issue or review.
//!
//! - [`JwtAuthenticator`]: JSON Web Tokens of OIDC issuers. An [`AuthenticationConfiguration`] has the issuers and the
//!   mapping from claims to users; expressions are in CEL. A task for each issuer fetches its keys over HTTPS, so an
//!   issuer that does not respond delays no other authentication.
//! - [`WebhookAuthenticator`]: posts tokens to a webhook for review, and caches its responses.
//!
//! Both implement [`ExternalAuthenticator`](watchet_auth::ExternalAuthenticator).
//!
//! ```
//! use watchet_authenticators::AuthenticationConfiguration;
//!
//! let text = "
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: AuthenticationConfiguration
//! jwt:
//! - issuer: {url: http://issuer.example.com, audiences: [watchet]}
//!   claimMappings: {username: {claim: sub, prefix: ''}}
//! ";
//! let config: AuthenticationConfiguration = text.parse()?;
//! assert_eq!(
//!     config.validate(&[]).unwrap_err().to_string(),
//!     r#"jwt[0].issuer.url: Invalid value: "http://issuer.example.com": URL scheme must be https"#
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod jwt;
mod webhook;

pub use config::{
    Anonymous, AnonymousCondition, AuthenticationConfiguration, ClaimMappings, ClaimOrExpression,
    ClaimValidationRule, ExtraMapping, InvalidConfiguration, Issuer, JwtConfiguration,
    PrefixedClaimOrExpression, UserValidationRule, ValidConfiguration,
};
pub use jwt::{InvalidAlgorithm, JwtAuthenticator, SigningAlgorithms};
pub use webhook::{ReviewVersion, WebhookAuthenticator};

/// The maximum number of cached results of an authenticator.
const RESULTS_MAX: usize = 4096;
