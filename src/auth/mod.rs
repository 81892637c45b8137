//! Authentication and authorization of requests.
//!
//! Authentication maps a client certificate or a bearer token to a [`UserInfo`](crate::api::UserInfo).
//! Service account tokens refer to objects; the registry gives access to them as an [`ObjectReader`].
//! Authorization decides whether a user may send a request: `http` builds [`Attributes`] and calls an
//! [`Authorizer`] after it has parsed the `RequestInfo`. Reviews, CEL expressions, admission plugins and
//! impersonation call the same authorizer.

// In reading order: authorization, authentication.
mod allow_authenticated;
mod attributes;
mod authorizer;

mod authenticator;
pub mod impersonation;
mod object_reader;
mod service_account;
mod token_authenticator;
mod token_error;
mod token_file;
pub mod websocket_token;

pub use allow_authenticated::AllowAuthenticated;
pub use attributes::Attributes;
pub use authenticator::{Authenticator, PeerCertificate, Unauthorized};
pub use authorizer::{Authorizer, Decision, NonResourceRule, ResourceRule, SubjectRules};
pub use object_reader::{Freshness, ObjectReadError, ObjectReader};
pub use service_account::{
    Claims, DEFAULT_ISSUER, InvalidKeys, KubernetesClaims, Reference, ServiceAccountToken,
    TokenIssuer, group_names, user_name,
};
pub use token_authenticator::{AuthenticatedToken, TokenAuthenticator};
pub use token_error::InvalidToken;
pub use token_file::{InvalidTokenFile, TokenFile};
