//! The settings of service account tokens: issuers, audiences, keys. The key files are read here.

use std::path::{Path, PathBuf};

use super::config::FileSetting;
use super::pki::{Pki, PkiError};
use super::settings::{ConfigError, Setting, SettingValue, Settings};
use crate::auth::TokenIssuer;

/// The settings of service account tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenConfig {
    /// `--service-account-issuer`
    issuers: Vec<String>,
    /// `--api-audiences`
    audiences: Vec<String>,
    /// `--service-account-key-file`
    key_files: Vec<FileSetting>,
    /// `--service-account-signing-key-file`
    signing_key_file: Option<FileSetting>,
}

/// The contents of configured key files.
#[derive(Debug)]
pub(super) struct TokenKeys {
    signing: Option<String>,
    others: Vec<String>,
}

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "documented by their sources")]
pub(super) enum TokenKeysError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Pki(#[from] PkiError),
}

impl TokenConfig {
    /// Validates `settings`.
    ///
    /// # Errors
    /// An issuer with a colon is not a URL.
    pub(super) fn check(settings: &Settings) -> Result<Self, ConfigError> {
        let issuers = settings.get(Setting::ServiceAccountIssuer);
        let is_url = |text: &String| {
            text.parse::<http::Uri>()
                .is_ok_and(|uri| uri.scheme().is_some())
        };
        if let Some(wrong) = list(&issuers)
            .iter()
            .find(|one| one.contains(':') && !is_url(one))
        {
            return Err(issuers.error(format_args!(
                "{wrong:?} contains a ':' but is no URL: write e.g. \
                 https://kubernetes.default.svc.cluster.local"
            )));
        }
        let key_files = settings.get(Setting::ServiceAccountKeyFile);
        let file = |path: String| FileSetting {
            path: PathBuf::from(path),
            given: key_files.clone(),
        };
        let signing = settings.find(Setting::ServiceAccountSigningKeyFile);
        Ok(Self {
            issuers: list(&issuers),
            audiences: list(&settings.get(Setting::ApiAudiences)),
            key_files: list(&key_files).into_iter().map(file).collect(),
            signing_key_file: signing.map(FileSetting::new),
        })
    }

    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn read(&self) -> Result<TokenKeys, ConfigError> {
        let others = self.key_files.iter().map(FileSetting::read);
        Ok(TokenKeys {
            signing: self
                .signing_key_file
                .as_ref()
                .map(FileSetting::read)
                .transpose()?,
            others: others.collect::<Result<_, _>>()?,
        })
    }

    /// Creates the issuer with these keys, or with the key of `pki` if no signing key is
    /// configured.
    ///
    /// # Errors
    /// A file has no usable key.
    pub(super) fn issuer(
        &self,
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
        let (issuers, audiences) = (self.issuers.clone(), self.audiences.clone());
        let made = TokenIssuer::new(&signing, &others, issuers, audiences);
        made.map_err(|(which, error)| {
            let given = match which {
                Some(index) => self.key_files.get(index),
                None => self.signing_key_file.as_ref(),
            };
            match given {
                Some(file) => file.error(error).into(),
                None => PkiError::service_account_key(dir, error.to_string()).into(),
            }
        })
    }
}

/// Splits a comma-separated list.
fn list(given: &SettingValue) -> Vec<String> {
    let members = given.text.split(',').map(str::trim);
    members
        .filter(|one| !one.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::settings::Source;
    use super::*;

    fn config(given: &[(Setting, &str)]) -> Result<TokenConfig, String> {
        let mut settings = Settings::default();
        for (setting, text) in given {
            settings.give(*setting, *text, Source::Flag);
        }
        TokenConfig::check(&settings).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_are_comma_separated() {
        let config = config(&[
            (Setting::ServiceAccountIssuer, "https://a, b"),
            (Setting::ServiceAccountKeyFile, "/x.pem,/y.pem"),
        ])
        .unwrap();
        assert_eq!(config.issuers, ["https://a", "b"]);
        assert_eq!(config.audiences, [""; 0]);
        assert_eq!(config.key_files.len(), 2);
        let error = config.read().unwrap_err().to_string();
        assert!(error.contains("--service-account-key-file") && error.contains("cannot be read"));
    }

    #[test]
    fn an_issuer_with_a_colon_is_a_url() {
        let error = config(&[(Setting::ServiceAccountIssuer, "me:you")]).unwrap_err();
        assert!(
            error.contains("\"me:you\" contains a ':' but is no URL"),
            "{error}"
        );
    }
}
