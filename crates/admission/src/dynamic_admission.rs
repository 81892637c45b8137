//! The gate: the configurations as they are known now, and the two questions of the write pipeline. While
//! there is no configuration, a question costs a look at a pointer.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::client::{WebhookClient, WebhookCredentials};
use super::cluster::Cluster;
use super::error::AdmissionError;
use super::plugins::{EnabledPlugins, PluginConfigurations};
use super::policy::mutating::{Invocation, Mutating};
use super::policy::{self, Binding, MutatingPolicy, Policy};
use super::reinvocation::{Calls, Reinvocation};
use super::request::AdmissionRequest;
use super::webhook::{self, Calling, Hook};
use watchet_api::ResourceVersion;
use watchet_tasks::Tasks;

/// How long a write waits, after a start, until the configurations are known.
const READY_MAX: Duration = Duration::from_secs(10);

/// How long a write of a configuration waits at most until it is in force here; the cache's watch of
/// storage takes milliseconds.
const IN_FORCE_MAX: Duration = Duration::from_secs(2);

/// A kind of configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigurationKind {
    /// MutatingAdmissionPolicy
    MutatingPolicy,
    /// MutatingAdmissionPolicyBinding
    MutatingBinding,
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
    pub const ALL: [Self; 6] = [
        Self::MutatingPolicy,
        Self::MutatingBinding,
        Self::Mutating,
        Self::Validating,
        Self::Policy,
        Self::Binding,
    ];

    /// The plural name of its resource in admissionregistration.k8s.io.
    pub fn plural(self) -> &'static str {
        match self {
            Self::MutatingPolicy => "mutatingadmissionpolicies",
            Self::MutatingBinding => "mutatingadmissionpolicybindings",
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
            Self::Policy => "validatingadmissionpolicies",
            Self::Binding => "validatingadmissionpolicybindings",
        }
    }

    /// The admission plugin that it configures.
    fn plugin(self) -> &'static str {
        match self {
            Self::MutatingPolicy | Self::MutatingBinding => "MutatingAdmissionPolicy",
            Self::Mutating => "MutatingAdmissionWebhook",
            Self::Validating => "ValidatingAdmissionWebhook",
            Self::Policy | Self::Binding => "ValidatingAdmissionPolicy",
        }
    }
}

/// What there is, each kind in the order of names.
#[derive(Debug, Clone, Default)]
struct Known {
    mutating_policies: Arc<[Arc<MutatingPolicy>]>,
    mutating_bindings: Arc<[Arc<Binding>]>,
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
            ConfigurationKind::MutatingPolicy => {
                known.mutating_policies = read(&configurations, |policy| {
                    MutatingPolicy::read(policy).map(|policy| vec![Arc::new(policy)])
                });
            }
            ConfigurationKind::MutatingBinding => {
                known.mutating_bindings = read_bindings(&configurations);
            }
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
                known.bindings = read_bindings(&configurations);
            }
        }
        self.known.store(Arc::new(known));
        self.heard
            .send_modify(|heard| heard[kind as usize] = Some(at));
    }

    /// Returns the rounds in which policies and webhooks mutate a write, by `until`; `None` if there are
    /// none, so that the write need not be described.
    ///
    /// # Errors
    /// The configurations are not known yet.
    pub async fn mutators(&self, until: Instant) -> Result<Option<Mutators<'_>>, AdmissionError> {
        self.ready().await?;
        let known = self.known.load_full();
        let has_mutators = !known.mutating.is_empty() || !known.mutating_bindings.is_empty();
        Ok(has_mutators.then(|| Mutators {
            gate: self,
            known,
            until,
            reinvocation: Reinvocation::default(),
            policies: Calls::default(),
            webhooks: Calls::default(),
        }))
    }

    /// Whether nothing can refuse a write.
    pub async fn lets_all_in(&self) -> Result<bool, AdmissionError> {
        self.ready().await?;
        let known = self.known.load();
        Ok(known.validating.is_empty() && known.bindings.is_empty())
    }

    /// Has `write` judged, by `until`.
    ///
    /// # Errors
    /// Somebody refused it, or failed.
    pub async fn validate(
        &self,
        cluster: &dyn Cluster,
        write: &AdmissionRequest<'_>,
        until: Instant,
    ) -> Result<(), AdmissionError> {
        let known = self.known.load_full();
        let Known {
            policies, bindings, ..
        } = &*known;
        if !write.is_review() && !write.is_of_policies() {
            policy::validate(&self.tasks, cluster, policies, bindings, write, until).await?;
        }
        if write.is_exempt() {
            return Ok(());
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

/// The two rounds of mutating admission for one write. Both see the same configurations.
#[derive(Debug)]
pub struct Mutators<'a> {
    gate: &'a Gate,
    known: Arc<Known>,
    until: Instant,
    reinvocation: Reinvocation,
    policies: Calls<Invocation>,
    webhooks: Calls<usize>,
}

impl Mutators<'_> {
    /// Runs the mutating policies and then the mutating webhooks of a round, which `write`'s object becomes
    /// the result of.
    ///
    /// # Errors
    /// One of them refused the write, or failed.
    pub async fn mutate(
        &mut self,
        cluster: &dyn Cluster,
        write: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let Known {
            mutating_policies: policies,
            mutating_bindings: bindings,
            mutating: hooks,
            ..
        } = &*self.known;
        if !bindings.is_empty() && !write.is_review() && !write.is_of_policies() {
            let mutating = Mutating {
                tasks: &self.gate.tasks,
                cluster,
                policies,
                bindings,
                until: self.until,
            };
            mutating
                .round(write, &mut self.reinvocation, &mut self.policies)
                .await?;
        }
        if hooks.is_empty() || write.is_exempt() {
            return Ok(());
        }
        let client = &self.gate.mutating_client;
        let calling = self.gate.calling(client, cluster, self.until);
        let rounds = (&mut self.reinvocation, &mut self.webhooks);
        webhook::mutate(&calling, hooks, write, rounds).await
    }

    /// Begins the second round. Returns false if there is none: nothing has changed the object.
    pub fn begin_second_round(&mut self) -> bool {
        self.reinvocation.begin()
    }
}

fn read_bindings(configurations: &[Value]) -> Arc<[Arc<Binding>]> {
    read(configurations, |binding| {
        Binding::read(binding).map(|binding| vec![Arc::new(binding)])
    })
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
