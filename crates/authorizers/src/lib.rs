//! The authorizers that `--authorization-mode` or `--authorization-config` configure.
//!
//! - [`AuthorizationConfiguration`]: the authorizers and their order, the content of `--authorization-config`.
//! - [`ConfiguredAuthorizer`]: consults the authorizers in order. The configuration can change while requests are
//!   authorized.
//! - [`WebhookAuthorizer`]: an authorizer that posts reviews to a webhook, and caches its responses.
//!
//! ```
//! use watchet_authorizers::AuthorizationConfiguration;
//!
//! let text = "
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: AuthorizationConfiguration
//! authorizers:
//! - {type: Node, name: node}
//! - {type: RBAC, name: roles}
//! ";
//! let config: AuthorizationConfiguration = text.parse()?;
//! assert_eq!(
//!     config.validate().unwrap_err().to_string(),
//!     "expected name rbac for authorizer RBAC instead of roles"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod configured;
mod match_conditions;
mod review;
mod webhook;

pub use config::{
    AuthorizationConfiguration, AuthorizerConfiguration, AuthorizerType, ConnectionInfo,
    InvalidConfiguration, MatchCondition, ValidAuthorizer, ValidConfiguration, ValidWebhook,
    WebhookConfiguration,
};
pub use configured::{ConfiguredAuthorizer, InstrumentedAuthorizer};
pub use match_conditions::MatchConditions;
pub use review::ReviewVersion;
pub use webhook::{FailurePolicy, WebhookAuthorizer, WebhookSettings};
