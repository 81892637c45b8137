//! Authentication and authorization of requests.
//!
//! Authentication maps a client certificate, a bearer token or the headers of a front proxy to a
//! [`UserInfo`](watchet_api::UserInfo). Service account tokens are bound to objects; the caller implements
//! [`ObjectReader`], which reads them.
//! Authorization decides whether a user may send a request: the server builds [`Attributes`] and calls an
//! [`Authorizer`]. Reviews, CEL expressions, admission plugins and impersonation call the same authorizer.
//!
//! An authorizer that allows reading to every user, and writing to one group:
//!
//! ```
//! use std::sync::Arc;
//!
//! use watchet_api::UserInfo;
//! use watchet_auth::{Attributes, Authorizer, Decision};
//!
//! #[derive(Debug)]
//! struct ReadOnly {
//!     writers: String,
//! }
//!
//! #[async_trait::async_trait]
//! impl Authorizer for ReadOnly {
//!     async fn authorize(&self, attributes: &Attributes) -> Decision {
//!         if matches!(&*attributes.verb, "get" | "list" | "watch") {
//!             return Decision::Allow("every user may read".into());
//!         }
//!         match attributes.user.groups.contains(&self.writers) {
//!             true => Decision::Allow("the user may write".into()),
//!             false => Decision::NoOpinion("the user may only read".into()),
//!         }
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let authorizer = ReadOnly { writers: "developers".to_owned() };
//! let mut attributes = Attributes {
//!     user: Arc::new(UserInfo { name: "jane".to_owned(), ..UserInfo::default() }),
//!     verb: "delete".to_owned(),
//!     is_resource_request: true,
//!     api_version: "v1".to_owned(),
//!     resource: "pods".to_owned(),
//!     namespace: "default".to_owned(),
//!     name: "web-0".to_owned(),
//!     ..Attributes::default()
//! };
//! let decision = authorizer.authorize(&attributes).await;
//! assert!(!decision.is_allowed());
//! assert_eq!(
//!     attributes.forbidden(decision.reason()).message,
//!     r#"pods "web-0" is forbidden: User "jane" cannot delete resource "pods" in API group "" in the namespace "default": the user may only read"#
//! );
//! attributes.verb = "get".to_owned();
//! assert!(authorizer.authorize(&attributes).await.is_allowed());
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

// In reading order: authorization, authentication.
mod allow_authenticated;
mod always_deny;
mod attributes;
mod authorizer;
pub mod node;
pub mod rbac;

mod authenticator;
mod client_certificate;
mod console_session;
mod credential;
mod external_authenticator;
mod external_token;
mod front_proxy;
pub mod impersonation;
mod object_reader;
mod review_cache;
mod service_account;
mod session_check;
mod token_authenticator;
mod token_error;
mod token_file;
mod unauthorized;
pub mod websocket_token;

pub use allow_authenticated::AllowAuthenticated;
pub use always_deny::AlwaysDeny;
pub use attributes::Attributes;
pub use authenticator::{AnonymousAccess, AuthenticatedRequest, Authenticator};
pub use authorizer::{Authorizer, Decision, NonResourceRule, ResourceRule, SubjectRules};
pub use client_certificate::{ClientCertificate, ClientCertificates, PeerCertificate};
pub use console_session::{
    ConsoleSession, ConsoleSessions, LOGIN_CODE_SECONDS, NewSession, SESSION_SECONDS,
    SessionIdentity,
};
pub use credential::Credential;
pub use external_authenticator::{ExternalAuthenticator, ExternalUser};
pub use external_token::ExternalToken;
pub use front_proxy::{FrontProxy, FrontProxyHeaders};
pub use object_reader::{Freshness, ObjectReadError, ObjectReader};
pub use review_cache::{ReviewCache, ReviewKey};
pub use service_account::{
    Claims, DEFAULT_ISSUER, EXTENDED_EXPIRATION_SECONDS, InvalidKeys, KubernetesClaims, Reference,
    ServiceAccountToken, TokenIssuer, TokenLifetime, WARN_ONLY_EXPIRATION_SECONDS, group_names,
    user_name,
};
pub use session_check::SessionCheck;
pub use token_authenticator::{AuthenticatedToken, TokenAuthenticator};
pub use token_error::InvalidToken;
pub use token_file::{InvalidTokenFile, TokenDigest, TokenFile};
pub use unauthorized::Unauthorized;
