//! Loads the configuration of authorization, creates its authorizers, and applies changes of its files.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::node::NodeAuthorizer;
use crate::auth::rbac::RbacAuthorizer;
use crate::auth::{AllowAuthenticated, AlwaysDeny, Authorizer};
use crate::authorizers::{
    AuthorizationConfiguration, AuthorizerType, ConfiguredAuthorizer, FailurePolicy,
    InstrumentedAuthorizer, MatchConditions, ValidAuthorizer, ValidConfiguration, ValidWebhook,
    WebhookAuthorizer, WebhookSettings,
};
use crate::client::{Kubeconfig, RestClient, RestConfig};
use crate::metrics::Metrics;
use crate::server::config::authorization::{AuthorizationConfig, WebhookConfig};
use crate::server::config::file_setting::FileSetting;
use crate::server::config::setting_value::ConfigError;
use crate::server::process::reload::Reload;
use crate::tasks::Tasks;

/// The name of the webhook of the mode `Webhook`, as upstream.
const WEBHOOK_NAME: &str = "default";
/// The time limit of a request to it, as upstream.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Why an authorizer exists: a reload cannot add a type.
const STARTED: &str = "the authorizer was configured at the start";

/// The authorizers of a configuration, those of webhooks with their clients.
pub(super) struct LoadedAuthorization(Vec<LoadedAuthorizer>);

enum LoadedAuthorizer {
    /// Of any type but `Webhook`.
    Local(AuthorizerType),
    Webhook {
        name: String,
        client: RestClient,
        settings: WebhookSettings,
    },
}

/// The authorizer of the configuration, and the authorizers that read stored objects, if they are a part of it.
pub(super) struct Authorizers {
    pub(super) authorizer: Arc<ConfiguredAuthorizer>,
    pub(super) local: LocalAuthorizers,
    /// The types that are no webhooks.
    types: BTreeSet<AuthorizerType>,
}

/// The authorizers that read stored objects.
#[derive(Clone, Default)]
pub(super) struct LocalAuthorizers {
    pub(super) rbac: Option<Arc<RbacAuthorizer>>,
    pub(super) nodes: Option<Arc<NodeAuthorizer>>,
}

impl LoadedAuthorization {
    /// Reads and validates the files.
    ///
    /// # Errors
    /// A file cannot be read or is invalid.
    pub(super) fn load(config: &AuthorizationConfig) -> Result<Self, ConfigError> {
        match config {
            AuthorizationConfig::File(file) => Self::read(file),
            AuthorizationConfig::Modes(modes, webhook) => Self::of_modes(modes, webhook.as_ref()),
        }
    }

    fn read(file: &FileSetting) -> Result<Self, ConfigError> {
        let configuration = file.read()?.parse::<AuthorizationConfiguration>();
        let configuration = configuration.map_err(|error| file.error(error))?;
        let valid = configuration
            .validate()
            .map_err(|error| file.error(error))?;
        Self::with_clients(valid, |error| file.error(error))
    }

    fn of_modes(
        modes: &[AuthorizerType],
        webhook: Option<&WebhookConfig>,
    ) -> Result<Self, ConfigError> {
        let of_mode = |mode: &AuthorizerType| match (mode, webhook) {
            (AuthorizerType::Webhook, Some(webhook)) => {
                ValidAuthorizer::Webhook(WEBHOOK_NAME.to_owned(), of_flags(webhook))
            }
            _ => ValidAuthorizer::Local(*mode),
        };
        let authorizers = modes.iter().map(of_mode).collect();
        let valid = ValidConfiguration { authorizers };
        Self::with_clients(valid, |error| match webhook {
            Some(webhook) => webhook.file.error(error),
            None => ConfigError::new(error),
        })
    }

    fn with_clients(
        valid: ValidConfiguration,
        failed: impl Fn(&dyn std::fmt::Display) -> ConfigError,
    ) -> Result<Self, ConfigError> {
        let with_client = |authorizer| {
            Ok(match authorizer {
                ValidAuthorizer::Local(local) => LoadedAuthorizer::Local(local),
                ValidAuthorizer::Webhook(name, webhook) => LoadedAuthorizer::Webhook {
                    name,
                    client: client(&webhook)?,
                    settings: webhook.settings,
                },
            })
        };
        let loaded: Result<_, String> = valid.authorizers.into_iter().map(with_client).collect();
        Ok(Self(loaded.map_err(|error| failed(&error))?))
    }

    /// Creates the authorizer; a task of it belongs to `tasks`.
    pub(super) fn start(self, metrics: &Metrics, tasks: &Tasks) -> Authorizers {
        let types = self.local_types();
        let local = LocalAuthorizers {
            rbac: types
                .contains(&AuthorizerType::Rbac)
                .then(|| Arc::new(RbacAuthorizer::with_default_policy())),
            nodes: types
                .contains(&AuthorizerType::Node)
                .then(|| Arc::new(NodeAuthorizer::new())),
        };
        let authorizers = self.instrumented(&local, metrics);
        Authorizers {
            authorizer: ConfiguredAuthorizer::start(authorizers, local.all(), tasks),
            local,
            types,
        }
    }

    fn instrumented(
        self,
        local: &LocalAuthorizers,
        metrics: &Metrics,
    ) -> Vec<InstrumentedAuthorizer> {
        let authorizers = self
            .0
            .into_iter()
            .map(|loaded| loaded.instrumented(local, metrics));
        authorizers.collect()
    }

    /// Returns the types that are no webhooks.
    fn local_types(&self) -> BTreeSet<AuthorizerType> {
        let local = self.0.iter().filter_map(|loaded| match loaded {
            LoadedAuthorizer::Local(local) => Some(*local),
            LoadedAuthorizer::Webhook { .. } => None,
        });
        local.collect()
    }
}

impl LoadedAuthorizer {
    /// # Panics
    /// If the type of the authorizer was not configured at the start.
    fn instrumented(self, local: &LocalAuthorizers, metrics: &Metrics) -> InstrumentedAuthorizer {
        let metrics = metrics.authorization();
        let (name, client, settings) = match self {
            Self::Local(local_type) => {
                let name = local_type.authorizer_name();
                return InstrumentedAuthorizer {
                    authorizer: local.of_type(local_type),
                    metrics: metrics.authorizer(local_type.name(), &name),
                    recheck_interval: None,
                };
            }
            Self::Webhook {
                name,
                client,
                settings,
            } => (name, client, settings),
        };
        let webhook = WebhookAuthorizer::new(client, settings, metrics.webhook(&name));
        InstrumentedAuthorizer {
            recheck_interval: Some(webhook.recheck_interval()),
            authorizer: Arc::new(webhook),
            metrics: metrics.authorizer(AuthorizerType::Webhook.name(), &name),
        }
    }
}

impl LocalAuthorizers {
    fn of_type(&self, local_type: AuthorizerType) -> Arc<dyn Authorizer> {
        match local_type {
            AuthorizerType::AlwaysAllow => Arc::new(AllowAuthenticated),
            // A webhook is not of this process.
            AuthorizerType::AlwaysDeny | AuthorizerType::Webhook => Arc::new(AlwaysDeny),
            AuthorizerType::Node => self.nodes.clone().expect(STARTED),
            AuthorizerType::Rbac => self.rbac.clone().expect(STARTED),
        }
    }

    fn all(&self) -> Vec<Arc<dyn Authorizer>> {
        let rbac = self.rbac.clone().map(|rbac| rbac as Arc<dyn Authorizer>);
        let nodes = self.nodes.clone().map(|nodes| nodes as Arc<dyn Authorizer>);
        rbac.into_iter().chain(nodes).collect()
    }
}

fn of_flags(webhook: &WebhookConfig) -> ValidWebhook {
    ValidWebhook {
        kubeconfig: webhook.file.path.clone(),
        timeout: WEBHOOK_TIMEOUT,
        settings: WebhookSettings {
            version: webhook.version,
            authorized_ttl: webhook.authorized_ttl,
            unauthorized_ttl: webhook.unauthorized_ttl,
            failure_policy: FailurePolicy::NoOpinion,
            match_conditions: MatchConditions::default(),
        },
    }
}

/// Returns the client of a webhook.
fn client(webhook: &ValidWebhook) -> Result<RestClient, String> {
    let path = &webhook.kubeconfig;
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let kubeconfig = Kubeconfig::load(&[path]).map_err(|error| failed(&error))?;
    let config = RestConfig::from_kubeconfig(&kubeconfig, None);
    let mut config = config.map_err(|error| failed(&error))?;
    config.timeout = webhook.timeout;
    RestClient::new(&config).map_err(|error| failed(&error))
}

/// Returns the reload of the files of the configuration, if it has any.
pub(super) fn reload(
    config: &AuthorizationConfig,
    authorizers: &Authorizers,
    metrics: &Arc<Metrics>,
) -> Option<Reload> {
    match config.clone() {
        AuthorizationConfig::File(file) => Some(config_reload(file, authorizers, metrics)),
        AuthorizationConfig::Modes(modes, Some(webhook)) => {
            Some(webhook_reload(modes, webhook, authorizers, metrics))
        }
        AuthorizationConfig::Modes(_, None) => None,
    }
}

/// Returns the reload of `--authorization-webhook-config-file`. The client itself reads the files that the kubeconfig names.
fn webhook_reload(
    modes: Vec<AuthorizerType>,
    webhook: WebhookConfig,
    authorizers: &Authorizers,
    metrics: &Arc<Metrics>,
) -> Reload {
    let authorizer = Arc::clone(&authorizers.authorizer);
    let (local, metrics) = (authorizers.local.clone(), Arc::clone(metrics));
    Reload::new(vec![webhook.file.path.clone()], move || {
        let loaded = LoadedAuthorization::of_modes(&modes, Some(&webhook))?;
        authorizer.replace(loaded.instrumented(&local, &metrics));
        Ok(())
    })
}

/// Returns the files of `--authorization-config`: `file`, and the kubeconfigs of its webhooks if it can be read.
fn files_of(file: &FileSetting) -> Vec<PathBuf> {
    let text = file.read().ok();
    let configuration = text.and_then(|text| text.parse::<AuthorizationConfiguration>().ok());
    let authorizers = configuration.map(|configuration| configuration.authorizers);
    let webhooks = authorizers
        .into_iter()
        .flatten()
        .filter_map(|authorizer| authorizer.webhook);
    let kubeconfigs = webhooks.filter_map(|webhook| webhook.connection_info.kube_config_file);
    let kubeconfigs = kubeconfigs.map(PathBuf::from);
    std::iter::once(file.path.clone())
        .chain(kubeconfigs)
        .collect()
}

/// Returns the reload of `--authorization-config`. Webhooks, their kubeconfigs and the order may change, but not which types
/// of other authorizers there are, as upstream.
fn config_reload(file: FileSetting, authorizers: &Authorizers, metrics: &Arc<Metrics>) -> Reload {
    let (authorizer, local) = (
        Arc::clone(&authorizers.authorizer),
        authorizers.local.clone(),
    );
    let initial_types = authorizers.types.clone();
    let metrics = Arc::clone(metrics);
    let found = file.clone();
    Reload::of_found(
        move || files_of(&found),
        move || {
            let reloads = &metrics.authorization().config_reloads;
            let loaded = LoadedAuthorization::read(&file).and_then(|loaded| {
            let types = loaded.local_types();
            let names = |types: Vec<&AuthorizerType>| {
                let names: Vec<&str> = types.into_iter().map(|one| one.name()).collect();
                names.join(", ")
            };
            let missing: Vec<_> = initial_types.difference(&types).collect();
            let added: Vec<_> = types.difference(&initial_types).collect();
            if !missing.is_empty() {
                let missing = names(missing);
                return Err(file.error(format_args!(
                    "missing required types: {missing}; only a restart can remove them"
                )));
            }
            if !added.is_empty() {
                let added = names(added);
                return Err(file.error(format_args!(
                    "authorizer type {added} is not allowed if it was not enabled at initial server startup"
                )));
            }
            Ok(loaded)
        });
            match loaded {
                Ok(loaded) => {
                    authorizer.replace(loaded.instrumented(&local, &metrics));
                    reloads.success.inc();
                    Ok(())
                }
                Err(error) => {
                    reloads.failure.inc();
                    Err(error.into())
                }
            }
        },
    )
}
