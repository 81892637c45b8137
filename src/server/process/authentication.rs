//! Loads the configuration of authentication, creates its authenticators, and applies changes of its files.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::{AnonymousAccess, Authenticator, ExternalAuthenticator};
use crate::authenticators::{
    Anonymous, AuthenticationConfiguration, JwtAuthenticator, SigningAlgorithms,
    ValidConfiguration, WebhookAuthenticator,
};
use crate::client::{Kubeconfig, RestClient, RestConfig};
use crate::metrics::Metrics;
use crate::server::config::authentication::{AuthenticationConfig, OidcConfig, TokenWebhookConfig};
use crate::server::config::file_setting::FileSetting;
use crate::server::config::setting_value::ConfigError;
use crate::server::process::reload::Reload;
use crate::tasks::Tasks;

/// The time limit of one request to the token webhook, as upstream.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// The valid content of the files.
pub(super) struct LoadedAuthentication {
    /// The issuers; `None` if they cannot be configured.
    jwt: Option<ValidConfiguration>,
    anonymous: AnonymousAccess,
    webhook: Option<RestClient>,
}

/// The authenticators of the configuration.
pub(super) struct ExternalAuthenticators {
    jwt: Option<Arc<JwtAuthenticator>>,
    webhook: Option<Arc<WebhookAuthenticator>>,
}

impl LoadedAuthentication {
    /// Reads and validates the files. `issuers` are those of service account tokens.
    ///
    /// # Errors
    /// A file cannot be read or is invalid.
    pub(super) fn load(
        config: &AuthenticationConfig,
        issuers: &[String],
    ) -> Result<Self, ConfigError> {
        let mut anonymous = match config.anonymous {
            None => AnonymousAccess::PublicPaths,
            Some(true) => AnonymousAccess::All,
            Some(false) => AnonymousAccess::None,
        };
        let jwt = match (&config.file, &config.oidc) {
            (Some(file), _) => {
                let (jwt, configured) = read(file, config.anonymous, issuers)?;
                anonymous = configured.unwrap_or(anonymous);
                Some(jwt)
            }
            (None, Some(oidc)) => Some(of_flags(oidc, issuers)?),
            (None, None) => None,
        };
        let webhook = config.webhook.as_ref();
        let webhook = webhook.map(|webhook| client(&webhook.file)).transpose()?;
        Ok(Self {
            jwt,
            anonymous,
            webhook,
        })
    }

    /// Returns which requests may be anonymous.
    pub(super) fn anonymous(&self) -> AnonymousAccess {
        self.anonymous.clone()
    }

    /// Creates the authenticators, whose tasks belong to `tasks`. `audiences` are those of this server.
    pub(super) fn into_authenticators(
        self,
        config: &AuthenticationConfig,
        audiences: &[String],
        tasks: &Tasks,
    ) -> ExternalAuthenticators {
        let algorithms = match &config.oidc {
            Some(oidc) => oidc.algorithms.clone(),
            None => SigningAlgorithms::default(),
        };
        let jwt = self.jwt.map(|jwt| {
            Arc::new(JwtAuthenticator::new(
                jwt,
                algorithms,
                audiences.to_vec(),
                tasks,
            ))
        });
        let webhook = self.webhook.zip(config.webhook.as_ref());
        let webhook = webhook.map(|(client, webhook)| {
            let audiences = audiences.to_vec();
            let (version, ttl) = (webhook.version, webhook.cache_ttl);
            Arc::new(WebhookAuthenticator::new(client, version, ttl, audiences))
        });
        ExternalAuthenticators { jwt, webhook }
    }
}

impl ExternalAuthenticators {
    /// Returns the authenticators in the order in which they are asked.
    pub(super) fn all(&self) -> Vec<Arc<dyn ExternalAuthenticator>> {
        let jwt = self.jwt.clone().map(|jwt| jwt as Arc<_>);
        let webhook = self.webhook.clone().map(|webhook| webhook as Arc<_>);
        jwt.into_iter().chain(webhook).collect()
    }

    /// Returns the reloads of those files that are set: `--authentication-config` or `--oidc-ca-file`, and the kubeconfig of
    /// the token webhook.
    pub(super) fn reloads(
        self,
        config: &AuthenticationConfig,
        issuers: Vec<String>,
        authenticator: &Arc<Authenticator>,
        metrics: &Arc<Metrics>,
    ) -> Vec<Reload> {
        let of_issuers = match (&config.file, &config.oidc, self.jwt) {
            (Some(file), _, Some(jwt)) => {
                let (authenticator, metrics) = (Arc::clone(authenticator), Arc::clone(metrics));
                let flag = config.anonymous;
                let reload =
                    config_reload(file.clone(), flag, issuers, jwt, authenticator, metrics);
                Some(reload)
            }
            (None, Some(oidc), Some(jwt)) => oidc_reload(oidc.clone(), issuers, jwt),
            _ => None,
        };
        let webhook = config.webhook.clone().zip(self.webhook);
        let of_webhook = webhook.map(|(config, webhook)| webhook_reload(config, webhook));
        of_issuers.into_iter().chain(of_webhook).collect()
    }
}

/// Returns the reload of `--authentication-config`. `flag` is `--anonymous-auth`.
fn config_reload(
    file: FileSetting,
    flag: Option<bool>,
    issuers: Vec<String>,
    jwt: Arc<JwtAuthenticator>,
    authenticator: Arc<Authenticator>,
    metrics: Arc<Metrics>,
) -> Reload {
    Reload::new(vec![file.path.clone()], move || {
        let reloads = &metrics.authentication().config_reloads;
        match read(&file, flag, &issuers) {
            Ok((configuration, anonymous)) => {
                reloads.success.inc();
                jwt.replace(configuration);
                // Without the member the flag counts, which does not change.
                let unset = match flag {
                    None => AnonymousAccess::PublicPaths,
                    Some(true) => AnonymousAccess::All,
                    Some(false) => AnonymousAccess::None,
                };
                authenticator.replace_anonymous(anonymous.unwrap_or(unset));
                Ok(())
            }
            Err(error) => {
                reloads.failure.inc();
                Err(error.into())
            }
        }
    })
}

/// Returns the reload of `--oidc-ca-file`, if it is set. With other CAs the keys of the issuer are fetched again.
fn oidc_reload(
    oidc: OidcConfig,
    issuers: Vec<String>,
    jwt: Arc<JwtAuthenticator>,
) -> Option<Reload> {
    let file = oidc.ca_file.as_ref()?.path.clone();
    Some(Reload::new(vec![file], move || {
        jwt.replace(of_flags(&oidc, &issuers)?);
        Ok(())
    }))
}

/// Returns the reload of the kubeconfig of the token webhook. The client itself reads the files that the kubeconfig names.
fn webhook_reload(config: TokenWebhookConfig, webhook: Arc<WebhookAuthenticator>) -> Reload {
    Reload::new(vec![config.file.path.clone()], move || {
        webhook.replace_client(client(&config.file)?);
        Ok(())
    })
}

/// Reads `--authentication-config`. `flag` is `--anonymous-auth`.
fn read(
    file: &FileSetting,
    flag: Option<bool>,
    issuers: &[String],
) -> Result<(ValidConfiguration, Option<AnonymousAccess>), ConfigError> {
    let configuration = file.read()?.parse::<AuthenticationConfiguration>();
    let configuration = configuration.map_err(|error| file.error(error))?;
    let valid = configuration.validate(issuers);
    let valid = valid.map_err(|error| file.error(error))?;
    if configuration.anonymous.is_some() && flag.is_some() {
        return Err(file.error(
            "has the member anonymous, which excludes --anonymous-auth: remove one of the two",
        ));
    }
    Ok((valid, configuration.anonymous.as_ref().map(access)))
}

fn access(anonymous: &Anonymous) -> AnonymousAccess {
    match (anonymous.enabled, anonymous.conditions.is_empty()) {
        (false, _) => AnonymousAccess::None,
        (true, true) => AnonymousAccess::All,
        (true, false) => {
            let paths = anonymous.conditions.iter().map(|one| one.path.clone());
            AnonymousAccess::Paths(paths.collect())
        }
    }
}

/// Returns the configuration of the `--oidc-` flags.
fn of_flags(oidc: &OidcConfig, issuers: &[String]) -> Result<ValidConfiguration, ConfigError> {
    let mut jwt = oidc.jwt.clone();
    if let Some(file) = &oidc.ca_file {
        jwt.issuer.certificate_authority = file.read()?;
        if jwt.issuer.certificate_authority.is_empty() {
            return Err(file.error("has no certificate in PEM"));
        }
    }
    let configuration = AuthenticationConfiguration {
        jwt: vec![jwt],
        ..AuthenticationConfiguration::default()
    };
    let valid = configuration.validate(issuers);
    valid.map_err(|error| oidc.url.error(error))
}

/// Returns the client of the server in a kubeconfig.
fn client(file: &FileSetting) -> Result<RestClient, ConfigError> {
    let kubeconfig = Kubeconfig::load(&[&file.path]).map_err(|error| file.error(error))?;
    let config = RestConfig::from_kubeconfig(&kubeconfig, None);
    let mut config = config.map_err(|error| file.error(error))?;
    config.timeout = WEBHOOK_TIMEOUT;
    RestClient::new(&config).map_err(|error| file.error(error))
}
