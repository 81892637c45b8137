//! What the crate `watchet-fuzz` calls: tokens and key sets of issuers without an issuer.

use crate::jwt;

/// Returns true if `token` is a JWT that a key of the JSON Web Key Set `keys` has signed.
///
/// # Errors
/// The key set or the token is invalid.
pub fn verify(token: &str, keys: &[u8]) -> Result<bool, String> {
    jwt::verify(token, keys)
}
