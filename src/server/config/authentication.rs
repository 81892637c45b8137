//! The settings of authentication besides certificates and service account tokens: issuers of JSON Web Tokens, anonymous
//! requests, the token webhook. The files are read where they are loaded.

use std::time::Duration;

use http::HeaderName;

use crate::auth::FrontProxyHeaders;
use crate::authenticators::{
    ClaimMappings, ClaimValidationRule, Issuer, JwtConfiguration, PrefixedClaimOrExpression,
    ReviewVersion, SigningAlgorithms,
};
use crate::server::config::file_setting::FileSetting;
use crate::server::config::flags::Flags;
use crate::server::config::setting_value::{ConfigError, SettingValue, parsed_duration};

/// The settings of authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct AuthenticationConfig {
    /// `--authentication-config`
    pub file: Option<FileSetting>,
    /// `--anonymous-auth`; `None` if it is not set.
    pub anonymous: Option<bool>,
    /// The issuer of the `--oidc-` flags.
    pub oidc: Option<OidcConfig>,
    /// The token webhook.
    pub webhook: Option<TokenWebhookConfig>,
    /// The front proxies.
    pub front_proxy: Option<FrontProxyConfig>,
}

/// The front proxies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct FrontProxyConfig {
    /// `--requestheader-client-ca-file`
    pub ca_file: FileSetting,
    /// The allowed proxies and their headers.
    pub headers: FrontProxyHeaders,
}

/// The issuer of the `--oidc-` flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct OidcConfig {
    /// The issuer, without its CA.
    pub jwt: JwtConfiguration,
    /// `--oidc-issuer-url`
    pub url: SettingValue,
    /// `--oidc-ca-file`
    pub ca_file: Option<FileSetting>,
    /// `--oidc-signing-algs`
    pub algorithms: SigningAlgorithms,
}

/// The token webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct TokenWebhookConfig {
    /// `--authentication-token-webhook-config-file`
    pub file: FileSetting,
    /// `--authentication-token-webhook-version`
    pub version: ReviewVersion,
    /// `--authentication-token-webhook-cache-ttl`
    pub cache_ttl: Duration,
}

impl AuthenticationConfig {
    /// Validates the settings.
    ///
    /// # Errors
    /// A value is invalid, or two settings exclude each other.
    pub(super) fn check(flags: &Flags) -> Result<Self, ConfigError> {
        let file = flags.authentication_config.non_empty();
        let anonymous = match flags.anonymous_auth.text.as_str() {
            "" => None,
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                let setting = flags.anonymous_auth.clone();
                return Err(setting.error("must be true or false"));
            }
        };
        let oidc = oidc(flags)?;
        if let (Some(file), Some(_)) = (&file, &oidc) {
            return Err(file.error(
                "authentication-config file and oidc-* flags are mutually exclusive: remove one of the two",
            ));
        }
        Ok(Self {
            file: file.map(FileSetting::new),
            anonymous,
            oidc,
            webhook: webhook(flags)?,
            front_proxy: front_proxy(flags)?,
        })
    }
}

fn front_proxy(flags: &Flags) -> Result<Option<FrontProxyConfig>, ConfigError> {
    let names = |setting: &SettingValue| {
        let parsed = list(setting).into_iter().map(|name| {
            HeaderName::try_from(&name).map_err(|_| {
                setting
                    .clone()
                    .error(format_args!("has {name:?}, which is no header name"))
            })
        });
        parsed.collect::<Result<Vec<_>, _>>()
    };
    let prefixes = names(&flags.requestheader_extra_headers_prefix)?;
    let headers = FrontProxyHeaders {
        allowed_names: list(&flags.requestheader_allowed_names),
        username: names(&flags.requestheader_username_headers)?,
        uid: names(&flags.requestheader_uid_headers)?,
        group: names(&flags.requestheader_group_headers)?,
        extra_prefixes: prefixes.iter().map(ToString::to_string).collect(),
    };
    let file = flags.requestheader_client_ca_file.non_empty();
    Ok(file.map(|file| FrontProxyConfig {
        ca_file: FileSetting::new(file),
        headers,
    }))
}

/// Splits a comma-separated list.
fn list(setting: &SettingValue) -> Vec<String> {
    let members = setting.text.split(',').map(str::trim);
    let members = members.filter(|member| !member.is_empty());
    members.map(str::to_owned).collect()
}

fn webhook(flags: &Flags) -> Result<Option<TokenWebhookConfig>, ConfigError> {
    let cache_ttl = parsed_duration(&flags.authentication_token_webhook_cache_ttl)?;
    let setting = flags.authentication_token_webhook_version.clone();
    let version = match setting.text.as_str() {
        "v1" => ReviewVersion::V1,
        "v1beta1" => ReviewVersion::V1Beta1,
        _ => return Err(setting.error("must be v1 or v1beta1")),
    };
    let file = flags.authentication_token_webhook_config_file.non_empty();
    Ok(file.map(|file| TokenWebhookConfig {
        file: FileSetting::new(file),
        version,
        cache_ttl,
    }))
}

/// Returns the issuer of the flags, as upstream converts them to a configuration.
fn oidc(flags: &Flags) -> Result<Option<OidcConfig>, ConfigError> {
    let (url, client) = (&flags.oidc_issuer_url, &flags.oidc_client_id);
    let (given_url, client) = match (url.non_empty(), client.non_empty()) {
        (Some(url), Some(client)) => (url, client),
        (None, None) => {
            let others = [
                &flags.oidc_ca_file,
                &flags.oidc_groups_claim,
                &flags.oidc_groups_prefix,
                &flags.oidc_required_claim,
                &flags.oidc_username_prefix,
            ];
            let given = others.into_iter().find(|one| !one.text.is_empty());
            return match given {
                Some(given) => Err(given
                    .clone()
                    .error("needs --oidc-issuer-url and --oidc-client-id too")),
                None => Ok(None),
            };
        }
        (Some(url), None) => return Err(url.error("needs --oidc-client-id too")),
        (None, Some(client)) => return Err(client.error("needs --oidc-issuer-url too")),
    };
    let claim = flags.oidc_username_claim.text.clone();
    let prefix = match flags.oidc_username_prefix.text.as_str() {
        "-" => String::new(),
        "" if claim == "email" => String::new(),
        "" => format!("{}#", given_url.text),
        given => given.to_owned(),
    };
    let groups_claim = flags.oidc_groups_claim.text.clone();
    let groups = PrefixedClaimOrExpression {
        prefix: (!groups_claim.is_empty()).then(|| flags.oidc_groups_prefix.text.clone()),
        claim: groups_claim,
        expression: String::new(),
    };
    let algorithms = flags.oidc_signing_algs.text.parse();
    Ok(Some(OidcConfig {
        jwt: JwtConfiguration {
            issuer: Issuer {
                url: given_url.text.clone(),
                audiences: vec![client.text],
                ..Issuer::default()
            },
            claim_validation_rules: required_claims(&flags.oidc_required_claim)?,
            claim_mappings: ClaimMappings {
                username: PrefixedClaimOrExpression {
                    claim,
                    prefix: Some(prefix),
                    expression: String::new(),
                },
                groups,
                ..ClaimMappings::default()
            },
            user_validation_rules: Vec::new(),
        },
        url: given_url,
        ca_file: flags.oidc_ca_file.non_empty().map(FileSetting::new),
        algorithms: algorithms.map_err(|error| flags.oidc_signing_algs.clone().error(error))?,
    }))
}

fn required_claims(setting: &SettingValue) -> Result<Vec<ClaimValidationRule>, ConfigError> {
    let pairs = setting.text.split(',').filter(|pair| !pair.is_empty());
    let rule = |pair: &str| match pair.split_once('=') {
        Some((claim, value)) if !claim.is_empty() => Ok(ClaimValidationRule {
            claim: claim.to_owned(),
            required_value: value.to_owned(),
            ..ClaimValidationRule::default()
        }),
        _ => Err(setting.error(format_args!("has {pair:?}: write claim=value"))),
    };
    pairs.map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::config::setting_value::Source;
    use crate::server::config::settings::Settings;

    fn config(given: &[(&str, &str)]) -> Result<AuthenticationConfig, String> {
        let mut settings = Settings::default();
        for (flag, text) in given {
            settings.give(flag, *text, Source::Flag);
        }
        AuthenticationConfig::check(&settings.flags()).map_err(|error| error.to_string())
    }

    const ISSUER: [(&str, &str); 2] = [("oidc-issuer-url", "https://i"), ("oidc-client-id", "c")];

    fn mappings(more: &[(&str, &str)]) -> ClaimMappings {
        let config = config(&[&ISSUER[..], more].concat()).unwrap();
        config.oidc.unwrap().jwt.claim_mappings
    }

    #[test]
    fn prefixes_have_upstreams_defaults() {
        let prefix = |more: &[(&str, &str)]| mappings(more).username.prefix.unwrap();
        assert_eq!(prefix(&[]), "https://i#");
        assert_eq!(prefix(&[("oidc-username-claim", "email")]), "");
        assert_eq!(prefix(&[("oidc-username-prefix", "-")]), "");
        assert_eq!(prefix(&[("oidc-username-prefix", "p:")]), "p:");
        assert_eq!(mappings(&[]).groups, PrefixedClaimOrExpression::default());
        let groups = mappings(&[("oidc-groups-claim", "g"), ("oidc-groups-prefix", "p:")]).groups;
        assert_eq!(
            (groups.claim.as_str(), groups.prefix.as_deref()),
            ("g", Some("p:"))
        );
    }

    #[test]
    fn required_claims_are_pairs() {
        let given = [&ISSUER[..], &[("oidc-required-claim", "a=b,c=d=e")]].concat();
        let rules = config(&given)
            .unwrap()
            .oidc
            .unwrap()
            .jwt
            .claim_validation_rules;
        let pairs: Vec<_> = rules
            .iter()
            .map(|rule| (&*rule.claim, &*rule.required_value))
            .collect();
        assert_eq!(pairs, [("a", "b"), ("c", "d=e")]);
    }

    #[test]
    fn invalid_settings_are_reported() {
        let both = [&ISSUER[..], &[("authentication-config", "/x")]].concat();
        let claim = [&ISSUER[..], &[("oidc-required-claim", "a")]].concat();
        let algorithm = [&ISSUER[..], &[("oidc-signing-algs", "HS256")]].concat();
        for (given, expected) in [
            (
                &[("requestheader-uid-headers", "a b")][..],
                "has \"a b\", which is no header name",
            ),
            (
                &both[..],
                "authentication-config file and oidc-* flags are mutually exclusive",
            ),
            (
                &claim,
                "--oidc-required-claim \"a\": has \"a\": write claim=value",
            ),
            (&algorithm, "\"HS256\" is no supported signing algorithm"),
            (&ISSUER[..1], "needs --oidc-client-id too"),
            (&ISSUER[1..], "needs --oidc-issuer-url too"),
            (
                &[("oidc-groups-claim", "g")],
                "--oidc-groups-claim \"g\": needs --oidc-issuer-url and",
            ),
            (
                &[("anonymous-auth", "no")],
                "--anonymous-auth \"no\": must be true or false",
            ),
            (
                &[("authentication-token-webhook-version", "v2")],
                "must be v1 or v1beta1",
            ),
            (
                &[("authentication-token-webhook-cache-ttl", "2")],
                "must be a duration",
            ),
        ] {
            let error = config(given).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
