//! The settings of service account tokens: issuers, audiences, keys. The key files are read here.

use std::path::PathBuf;
use std::time::Duration;

use crate::server::config::file_setting::FileSetting;
use crate::server::config::flags::Flags;
use crate::server::config::setting_value::{
    ConfigError, SettingValue, parsed_bool, parsed_duration,
};

/// The settings of service account tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct TokenConfig {
    /// `--service-account-issuer`
    pub(in crate::server) issuers: Vec<String>,
    /// `--api-audiences`
    pub(in crate::server) audiences: Vec<String>,
    /// `--service-account-key-file`
    pub(in crate::server) key_files: Vec<FileSetting>,
    /// `--service-account-signing-key-file`
    pub(in crate::server) signing_key_file: Option<FileSetting>,
    /// `--service-account-max-token-expiration`; zero is no limit.
    pub(in crate::server) expiration_max: Duration,
    /// `--service-account-extend-token-expiration`
    pub(in crate::server) extends_expiration: bool,
}

/// The bounds of `--service-account-max-token-expiration`, as upstream.
const EXPIRATION_MIN: Duration = Duration::from_secs(60 * 60);
const EXPIRATION_MAX: Duration = Duration::from_secs(1 << 32);

/// The contents of configured key files.
#[derive(Debug)]
pub(in crate::server) struct TokenKeys {
    pub(in crate::server) signing: Option<String>,
    pub(in crate::server) others: Vec<String>,
}

impl TokenConfig {
    /// Validates `settings`.
    ///
    /// # Errors
    /// An issuer with a colon is not a URL, or another value is invalid.
    pub(in crate::server) fn check(flags: &Flags) -> Result<Self, ConfigError> {
        let issuers = flags.service_account_issuer.clone();
        let has_space = |text: &String| text.contains(char::is_whitespace);
        if let Some(wrong) = list(&issuers).iter().find(|one| has_space(one)) {
            let problem = format_args!("{wrong:?} contains a space: separate issuers by commas");
            return Err(issuers.error(problem));
        }
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
        let expiration = flags.service_account_max_token_expiration.clone();
        let expiration_max = parsed_duration(&expiration)?;
        if !expiration_max.is_zero() && !(EXPIRATION_MIN..=EXPIRATION_MAX).contains(&expiration_max)
        {
            return Err(expiration.error("must be 0, or at least 1h and at most 2^32 seconds"));
        }
        let extends_expiration = parsed_bool(&flags.service_account_extend_token_expiration)?;
        let key_files = flags.service_account_key_file.clone();
        let file = |path: String| FileSetting {
            path: PathBuf::from(path),
            given: key_files.clone(),
        };
        let signing = flags.service_account_signing_key_file.non_empty();
        Ok(Self {
            issuers: list(&issuers),
            audiences: list(&flags.api_audiences),
            key_files: list(&key_files).into_iter().map(file).collect(),
            signing_key_file: signing.map(FileSetting::new),
            expiration_max,
            extends_expiration,
        })
    }

    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(in crate::server) fn read(&self) -> Result<TokenKeys, ConfigError> {
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
    use super::*;
    use crate::server::config::setting_value::Source;
    use crate::server::config::settings::Settings;

    fn config(given: &[(&str, &str)]) -> Result<TokenConfig, String> {
        let mut settings = Settings::default();
        for (flag, text) in given {
            settings.give(flag, *text, Source::Flag);
        }
        TokenConfig::check(&settings.flags()).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_are_comma_separated() {
        let config = config(&[
            ("service-account-issuer", "https://a, b"),
            ("service-account-key-file", "/x.pem,/y.pem"),
        ])
        .unwrap();
        assert_eq!(config.issuers, ["https://a", "b"]);
        assert_eq!(config.audiences, [""; 0]);
        assert_eq!(config.key_files.len(), 2);
        let error = config.read().unwrap_err().to_string();
        assert!(error.contains("--service-account-key-file") && error.contains("cannot be read"));
    }

    #[test]
    fn maximum_expiration_is_limited() {
        let flag = "service-account-max-token-expiration";
        assert_eq!(
            config(&[(flag, "2h")]).unwrap().expiration_max,
            Duration::from_secs(7200)
        );
        for wrong in ["59m", "2000000h", "1"] {
            assert!(config(&[(flag, wrong)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn validity_of_tokens_of_pods_is_extended_unless_disabled() {
        let flag = "service-account-extend-token-expiration";
        assert!(config(&[]).unwrap().extends_expiration);
        assert!(!config(&[(flag, "false")]).unwrap().extends_expiration);
        let error = config(&[(flag, "maybe")]).unwrap_err();
        assert!(error.contains("must be true or false"), "{error}");
    }

    #[test]
    fn an_issuer_has_no_spaces() {
        assert_eq!(
            config(&[("service-account-issuer", "a b")]).unwrap_err(),
            r#"--service-account-issuer "a b": "a b" contains a space: separate issuers by commas"#
        );
    }

    #[test]
    fn an_issuer_with_a_colon_is_a_url() {
        let error = config(&[("service-account-issuer", "me:you")]).unwrap_err();
        assert!(
            error.contains("\"me:you\" contains a ':' but is no URL"),
            "{error}"
        );
    }
}
