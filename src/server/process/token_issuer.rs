//! Creates the issuer of service account tokens from the configuration and the keys in the data directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::auth::{
    EXTENDED_EXPIRATION_SECONDS, TokenAuthenticator, TokenIssuer, WARN_ONLY_EXPIRATION_SECONDS,
};
use crate::server::config::setting_value::ConfigError;
use crate::server::config::token_config::{TokenConfig, TokenKeys};
use crate::server::process::pki::PkiError;
use crate::server::process::reload::{ApplyError, Reload};

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "documented by their sources")]
pub(in crate::server) enum TokenKeysError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Pki(#[from] PkiError),
}

/// Creates the issuer with these keys, or with `own_key`, which is stored in `dir`, if no signing key is
/// configured.
///
/// # Errors
/// A file has no usable key.
pub(in crate::server) fn token_issuer(
    config: &TokenConfig,
    keys: TokenKeys,
    own_key: &str,
    dir: &Path,
) -> Result<TokenIssuer, TokenKeysError> {
    let TokenKeys {
        signing,
        mut others,
    } = keys;
    // Tokens signed by the own key before another was configured remain valid.
    let own = signing.is_some().then(|| own_key.to_owned());
    others.extend(own);
    let signing = signing.unwrap_or_else(|| own_key.to_owned());
    let (issuers, audiences) = (config.issuers.clone(), config.audiences.clone());
    let made = TokenIssuer::new(&signing, &others, issuers, audiences);
    let seconds = i64::try_from(config.expiration_max.as_secs()).unwrap_or(i64::MAX);
    let expiration_max = Some(seconds).filter(|seconds| *seconds > 0);
    let made = made.map(|issuer| {
        issuer
            .with_expiration_max(expiration_max)
            .with_extended_expiration(config.extends_expiration)
    });
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

/// Logs that tokens of pods are valid for longer than the configured maximum, or that the maximum prevents the extension of
/// their validity.
pub(in crate::server) fn warn_of_extension(config: &TokenConfig) {
    if !config.extends_expiration || config.expiration_max.is_zero() {
        return;
    }
    let maximum = config.expiration_max.as_secs();
    if maximum < WARN_ONLY_EXPIRATION_SECONDS.unsigned_abs() {
        tracing::warn!(
            maximum,
            minimum = WARN_ONLY_EXPIRATION_SECONDS,
            "validity of the tokens of pods is not extended: --service-account-max-token-expiration is too short"
        );
    } else if maximum < EXTENDED_EXPIRATION_SECONDS.unsigned_abs() {
        tracing::warn!(
            maximum,
            extended = EXTENDED_EXPIRATION_SECONDS,
            "tokens of pods are valid for longer than --service-account-max-token-expiration: disable --service-account-extend-token-expiration to prevent it"
        );
    }
}

/// Returns the reload of the configured key files; `None` if there are none.
pub(in crate::server) fn keys_reload(
    config: &TokenConfig,
    own_key: String,
    dir: PathBuf,
    tokens: &Arc<TokenAuthenticator>,
) -> Option<Reload> {
    let files = config.key_files.iter().chain(&config.signing_key_file);
    let files: Vec<PathBuf> = files.map(|file| file.path.clone()).collect();
    if files.is_empty() {
        return None;
    }
    let (config, tokens) = (config.clone(), Arc::clone(tokens));
    Some(Reload::new(files, move || {
        let issuer = token_issuer(&config, config.read()?, &own_key, &dir);
        tokens.replace_issuer(issuer.map_err(ApplyError::invalid)?);
        Ok(())
    }))
}
