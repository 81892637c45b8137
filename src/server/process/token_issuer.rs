//! Creates the issuer of service account tokens from the configuration and the keys in the data directory.

use std::path::Path;

use crate::auth::TokenIssuer;
use crate::server::config::setting_value::ConfigError;
use crate::server::config::token_config::{TokenConfig, TokenKeys};
use crate::server::process::pki::{Pki, PkiError};

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "documented by their sources")]
pub(in crate::server) enum TokenKeysError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Pki(#[from] PkiError),
}

/// Creates the issuer with these keys, or with the key of `pki` if no signing key is
/// configured.
///
/// # Errors
/// A file has no usable key.
pub(in crate::server) fn token_issuer(
    config: &TokenConfig,
    keys: TokenKeys,
    pki: &Pki,
    dir: &Path,
) -> Result<TokenIssuer, TokenKeysError> {
    let TokenKeys {
        signing,
        mut others,
    } = keys;
    // Tokens signed by the own key before another was configured remain valid.
    let own = signing.is_some().then(|| pki.service_account_key.clone());
    others.extend(own);
    let signing = signing.unwrap_or_else(|| pki.service_account_key.clone());
    let (issuers, audiences) = (config.issuers.clone(), config.audiences.clone());
    let made = TokenIssuer::new(&signing, &others, issuers, audiences);
    made.map_err(|(which, error)| {
        let given = match which {
            Some(index) => config.key_files.get(index),
            None => config.signing_key_file.as_ref(),
        };
        match given {
            Some(file) => file.error(error).into(),
            None => PkiError::service_account_key(dir, error.to_string()).into(),
        }
    })
}
