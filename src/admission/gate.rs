//! The gate: the configurations as they are known now, and the two questions of the write pipeline. While
//! there is no configuration, a question costs a look at a pointer.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::attributes::Attributes;
use super::client::{WebhookClient, WebhookCredentials};
use super::cluster::Cluster;
use super::error::AdmissionError;
use super::plugins::{EnabledPlugins, PluginConfigurations};
use super::policy::{self, Binding, Policy};
use super::webhook::{self, Calling, Hook};
use crate::api::ResourceVersion;
use crate::tasks::Tasks;

/// How long a write waits, after a start, until the configurations are known.
const READY_MAX: Duration = Duration::from_secs(10);

/// How long a write of a configuration waits at most until it is in force here; the cache's watch of
/// storage takes milliseconds.
const IN_FORCE_MAX: Duration = Duration::from_secs(2);

/// A kind of configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigurationKind {
    /// MutatingWebhookConfiguration
    Mutating,
    /// ValidatingWebhookConfiguration
    Validating,
    /// ValidatingAdmissionPolicy
    Policy,
    /// ValidatingAdmissionPolicyBinding
    Binding,
}

impl ConfigurationKind {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Mutating,
        Self::Validating,
        Self::Policy,
        Self::Binding,
    ];

    /// The plural name of its resource in admissionregistration.k8s.io.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
            Self::Policy => "validatingadmissionpolicies",
            Self::Binding => "validatingadmissionpolicybindings",
        }
    }

    /// The admission plugin that it configures.
    fn plugin(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingAdmissionWebhook",
            Self::Validating => "ValidatingAdmissionWebhook",
            Self::Policy | Self::Binding => "ValidatingAdmissionPolicy",
        }
    }
}

/// What there is, each kind in the order of names.
#[derive(Debug, Clone, Default)]
struct Known {
    mutating: Arc<[Hook]>,
    validating: Arc<[Hook]>,
    policies: Arc<[Arc<Policy>]>,
    bindings: Arc<[Arc<Binding>]>,
}

/// Up to which version the configurations of each kind are known, if they are.
type Heard = [Option<ResourceVersion>; ConfigurationKind::ALL.len()];

/// The gate. One per server.
#[derive(Debug)]
pub struct Gate {
    /// Calls mutating webhooks.
    mutating_client: WebhookClient,
    /// Calls validating webhooks.
    validating_client: WebhookClient,
    tasks: Tasks,
    plugins: EnabledPlugins,
    known: ArcSwap<Known>,
    replacing: Mutex<()>,
    /// How far each kind has been heard of. The sender is [`Gate::replace`], who waits are the first
    /// writes and those of configurations; nothing is queued.
    heard: watch::Sender<Heard>,
}

impl Gate {
    /// A gate that knows no configuration yet. Those of plugins that are not among `plugins` are ignored.
    /// Webhooks are called by `client`, with the credentials of `configurations`.
    pub fn new(
        client: &WebhookClient,
        tasks: &Tasks,
        plugins: &EnabledPlugins,
        configurations: &PluginConfigurations,
    ) -> Self {
        let client =
            |credentials: &WebhookCredentials| client.with_credentials(credentials.clone());
        Self {
            mutating_client: client(&configurations.mutating_webhooks),
            validating_client: client(&configurations.validating_webhooks),
            tasks: tasks.clone(),
            plugins: plugins.clone(),
            known: ArcSwap::default(),
            replacing: Mutex::default(),
            heard: watch::Sender::default(),
        }
    }

    /// From now on these, the state at `at`, are all configurations of a kind, by name.
    pub fn replace(
        &self,
        kind: ConfigurationKind,
        mut configurations: Vec<Value>,
        at: ResourceVersion,
    ) {
        if !self.plugins.has(kind.plugin()) {
            configurations.clear();
        }
        configurations.sort_by(|a, b| name(a).cmp(name(b)));
        // Each kind has a follower of its own.
        let _one_at_a_time = self.replacing.lock();
        let mut known = Known::clone(&self.known.load());
        match kind {
            ConfigurationKind::Mutating => {
                known.mutating = read(&configurations, Hook::of_mutating);
            }
            ConfigurationKind::Validating => {
                known.validating = read(&configurations, Hook::of_validating);
            }
            ConfigurationKind::Policy => {
                known.policies = read(&configurations, |policy| {
                    Policy::read(policy).map(|policy| vec![Arc::new(policy)])
                });
            }
            ConfigurationKind::Binding => {
                known.bindings = read(&configurations, |binding| {
                    Binding::read(binding).map(|binding| vec![Arc::new(binding)])
                });
            }
        }
        self.known.store(Arc::new(known));
        self.heard
            .send_modify(|heard| heard[kind as usize] = Some(at));
    }

    /// Whether nothing can change this kind of write, so that it need not be described.
    pub async fn lets_all_be(&self) -> Result<bool, AdmissionError> {
        self.ready().await?;
        Ok(self.known.load().mutating.is_empty())
    }

    /// Whether nothing can refuse a write.
    pub async fn lets_all_in(&self) -> Result<bool, AdmissionError> {
        self.ready().await?;
        let known = self.known.load();
        Ok(known.validating.is_empty() && known.bindings.is_empty())
    }

    /// Has the mutating webhooks make of `write`'s object what they want, by `until`.
    ///
    /// # Errors
    /// One refused, or failed.
    pub async fn mutate(
        &self,
        cluster: &dyn Cluster,
        write: &mut Attributes<'_>,
        until: Instant,
    ) -> Result<(), AdmissionError> {
        let known = self.known.load_full();
        if known.mutating.is_empty() || write.is_exempt() {
            return Ok(());
        }
        let calling = self.calling(&self.mutating_client, cluster, until);
        webhook::mutate(&calling, &known.mutating, write).await
    }

    /// Has `write` judged, by `until`.
    ///
    /// # Errors
    /// Somebody refused it, or failed.
    pub async fn validate(
        &self,
        cluster: &dyn Cluster,
        write: &Attributes<'_>,
        until: Instant,
    ) -> Result<(), AdmissionError> {
        let known = self.known.load_full();
        if write.is_exempt() {
            return Ok(());
        }
        let Known {
            policies, bindings, ..
        } = &*known;
        if !write.is_review() {
            policy::validate(&self.tasks, cluster, policies, bindings, write, until).await?;
        }
        let calling = self.calling(&self.validating_client, cluster, until);
        webhook::validate(&calling, &known.validating, write).await
    }

    /// Waits until the configurations of `kind` are those of version `at` or later, so that who wrote
    /// one finds its next write judged by it. Other servers, and other clients meanwhile, may take as
    /// long as they do upstream: what is written is written, in force here or not.
    pub async fn in_force(&self, kind: ConfigurationKind, at: ResourceVersion) {
        let mut heard = self.heard.subscribe();
        let reached = heard.wait_for(|heard| heard[kind as usize] >= Some(at));
        if tokio::time::timeout(IN_FORCE_MAX, reached).await.is_err() {
            let kind = kind.plural();
            tracing::warn!(kind, %at, "a configuration of admission is not in force yet");
        }
    }

    fn calling<'a>(
        &'a self,
        client: &'a WebhookClient,
        cluster: &'a dyn Cluster,
        until: Instant,
    ) -> Calling<'a> {
        Calling {
            client,
            cluster,
            tasks: &self.tasks,
            until,
        }
    }

    /// Waits until every kind has been heard of once: nothing slips in while the server starts.
    async fn ready(&self) -> Result<(), AdmissionError> {
        let all = |heard: &Heard| heard.iter().all(Option::is_some);
        if all(&self.heard.borrow()) {
            return Ok(());
        }
        let mut heard = self.heard.subscribe();
        let waited = tokio::time::timeout(READY_MAX, heard.wait_for(all)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            _ => Err(AdmissionError::NotReady),
        }
    }
}

fn name(configuration: &Value) -> &str {
    configuration["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
}

fn read<T>(configurations: &[Value], parts: impl Fn(&Value) -> Result<Vec<T>, String>) -> Arc<[T]> {
    let mut all = Vec::new();
    for configuration in configurations {
        match parts(configuration) {
            Ok(parts) => all.extend(parts),
            // Its write was not refused, so it came by another way.
            Err(error) => tracing::error!(
                name = name(configuration),
                error,
                "an admission configuration cannot be read, and does not count"
            ),
        }
    }
    all.into()
}
