//! Service account tokens: claims, keys, issuing, verification, and validation by the objects that they
//! refer to.

pub(crate) mod claims;
mod issuer;
mod keys;
mod lifetime;
mod secret_token;
mod token;

pub use claims::{Claims, KubernetesClaims, Reference, group_names, user_name};
pub use issuer::{DEFAULT_ISSUER, TokenIssuer};
pub use keys::InvalidKeys;
pub use lifetime::{EXTENDED_EXPIRATION_SECONDS, TokenLifetime, WARN_ONLY_EXPIRATION_SECONDS};
pub use token::ServiceAccountToken;
