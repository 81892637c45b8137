//! Dynamic admission: the current configurations of webhooks and policies, and their evaluation for a write. Without
//! configurations an evaluation costs the read of a pointer.

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
use super::webhook::{self, CallContext, Hook};
use watchet_api::ResourceVersion;
use watchet_tasks::Tasks;

/// The time limit for a write after a start to wait until the configurations are read.
const READY_MAX: Duration = Duration::from_secs(10);

/// The time limit for a write of a configuration to wait until this server applies it. The cache usually receives it within
/// milliseconds, on a busy machine within seconds.
const APPLY_MAX: Duration = Duration::from_secs(10);

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

/// The current configurations; each kind in the order of names.
#[derive(Debug, Clone, Default)]
struct Configurations {
    mutating_policies: Arc<[Arc<MutatingPolicy>]>,
    mutating_bindings: Arc<[Arc<Binding>]>,
    mutating: Arc<[Hook]>,
    validating: Arc<[Hook]>,
    policies: Arc<[Arc<Policy>]>,
    bindings: Arc<[Arc<Binding>]>,
}

/// The resourceVersion of the configurations of each kind, once they are read.
type Versions = [Option<ResourceVersion>; ConfigurationKind::ALL.len()];

/// The webhooks and policies of a server.
#[derive(Debug)]
pub struct DynamicAdmission {
    /// Calls mutating webhooks.
    mutating_client: WebhookClient,
    /// Calls validating webhooks.
    validating_client: WebhookClient,
    tasks: Tasks,
    plugins: EnabledPlugins,
    configurations: ArcSwap<Configurations>,
    replacing: Mutex<()>,
    /// Sent by [`DynamicAdmission::replace`]; the first writes and writes of configurations wait for it.
    versions: watch::Sender<Versions>,
}

impl DynamicAdmission {
    /// Creates the dynamic admission without configurations. Configurations of plugins that are not among `plugins`
    /// are ignored. `client` calls the webhooks, with the credentials of `configurations`.
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
            configurations: ArcSwap::default(),
            replacing: Mutex::default(),
            versions: watch::Sender::default(),
        }
    }

    /// Replaces all configurations of a kind by those at the resourceVersion `at`.
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
        // Each kind is replaced by a task of its own.
        let _guard = self.replacing.lock();
        let mut next = Configurations::clone(&self.configurations.load());
        match kind {
            ConfigurationKind::MutatingPolicy => {
                next.mutating_policies = read(&configurations, |policy| {
                    MutatingPolicy::read(policy).map(|policy| vec![Arc::new(policy)])
                });
            }
            ConfigurationKind::MutatingBinding => {
                next.mutating_bindings = read_bindings(&configurations);
            }
            ConfigurationKind::Mutating => {
                next.mutating = read(&configurations, Hook::of_mutating);
            }
            ConfigurationKind::Validating => {
                next.validating = read(&configurations, Hook::of_validating);
            }
            ConfigurationKind::Policy => {
                next.policies = read(&configurations, |policy| {
                    Policy::read(policy).map(|policy| vec![Arc::new(policy)])
                });
            }
            ConfigurationKind::Binding => {
                next.bindings = read_bindings(&configurations);
            }
        }
        self.configurations.store(Arc::new(next));
        self.versions
            .send_modify(|versions| versions[kind as usize] = Some(at));
    }

    /// Returns the mutating policies and webhooks for a write with this deadline; `None` if none is configured, so
    /// the `AdmissionRequest` need not be built.
    ///
    /// # Errors
    /// The configurations are not read yet.
    pub async fn mutators(
        &self,
        deadline: Instant,
    ) -> Result<Option<Mutators<'_>>, AdmissionError> {
        self.ready().await?;
        let configurations = self.configurations.load_full();
        let has_mutators =
            !configurations.mutating.is_empty() || !configurations.mutating_bindings.is_empty();
        Ok(has_mutators.then(|| Mutators {
            admission: self,
            configurations,
            deadline,
            reinvocation: Reinvocation::default(),
            policies: Calls::default(),
            webhooks: Calls::default(),
        }))
    }

    /// Returns true if a validating policy or webhook is configured.
    ///
    /// # Errors
    /// The configurations are not read yet.
    pub async fn has_validators(&self) -> Result<bool, AdmissionError> {
        self.ready().await?;
        let configurations = self.configurations.load();
        Ok(!configurations.validating.is_empty() || !configurations.bindings.is_empty())
    }

    /// Evaluates the validating policies and webhooks for `write`, until the deadline.
    ///
    /// # Errors
    /// A policy or webhook denies the write, or fails.
    pub async fn validate(
        &self,
        cluster: &dyn Cluster,
        write: &AdmissionRequest<'_>,
        deadline: Instant,
    ) -> Result<(), AdmissionError> {
        let configurations = self.configurations.load_full();
        let Configurations {
            policies, bindings, ..
        } = &*configurations;
        if !write.is_review() && !write.is_of_policies() {
            policy::validate(&self.tasks, cluster, policies, bindings, write, deadline).await?;
        }
        if write.is_exempt() {
            return Ok(());
        }
        let context = self.call_context(&self.validating_client, cluster, deadline);
        webhook::validate(&context, &configurations.validating, write).await
    }

    /// Waits until the configurations of `kind` have the resourceVersion `at` or a later one, so that they apply to the
    /// next write of a client that wrote one. The wait is bounded; other servers may apply them later.
    pub async fn wait_until_applied(&self, kind: ConfigurationKind, at: ResourceVersion) {
        let mut versions = self.versions.subscribe();
        let reached = versions.wait_for(|versions| versions[kind as usize] >= Some(at));
        if tokio::time::timeout(APPLY_MAX, reached).await.is_err() {
            let kind = kind.plural();
            tracing::warn!(kind, %at, "an admission configuration is not applied yet");
        }
    }

    fn call_context<'a>(
        &'a self,
        client: &'a WebhookClient,
        cluster: &'a dyn Cluster,
        deadline: Instant,
    ) -> CallContext<'a> {
        CallContext {
            client,
            cluster,
            tasks: &self.tasks,
            deadline,
        }
    }

    /// Waits until the configurations of every kind are read, so that they apply to all writes after a start.
    async fn ready(&self) -> Result<(), AdmissionError> {
        let all = |versions: &Versions| versions.iter().all(Option::is_some);
        if all(&self.versions.borrow()) {
            return Ok(());
        }
        let mut versions = self.versions.subscribe();
        let waited = tokio::time::timeout(READY_MAX, versions.wait_for(all)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            _ => Err(AdmissionError::NotReady),
        }
    }
}

/// The two rounds of mutating admission for one write. Both see the same configurations.
#[derive(Debug)]
pub struct Mutators<'a> {
    admission: &'a DynamicAdmission,
    configurations: Arc<Configurations>,
    deadline: Instant,
    reinvocation: Reinvocation,
    policies: Calls<Invocation>,
    webhooks: Calls<usize>,
}

impl Mutators<'_> {
    /// Runs the mutating policies and then the mutating webhooks of a round on the object of `write`.
    ///
    /// # Errors
    /// A policy or webhook denies the write, or fails.
    pub async fn mutate(
        &mut self,
        cluster: &dyn Cluster,
        write: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let Configurations {
            mutating_policies: policies,
            mutating_bindings: bindings,
            mutating: hooks,
            ..
        } = &*self.configurations;
        if !bindings.is_empty() && !write.is_review() && !write.is_of_policies() {
            let mutating = Mutating {
                tasks: &self.admission.tasks,
                cluster,
                policies,
                bindings,
                deadline: self.deadline,
            };
            let round = mutating.round(write, &mut self.reinvocation, &mut self.policies);
            // Boxed: most clusters have no such policies, and the future of every write would reserve space for them.
            Box::pin(round).await?;
        }
        if hooks.is_empty() || write.is_exempt() {
            return Ok(());
        }
        let client = &self.admission.mutating_client;
        let context = self.admission.call_context(client, cluster, self.deadline);
        let rounds = (&mut self.reinvocation, &mut self.webhooks);
        webhook::mutate(&context, hooks, write, rounds).await
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
            // Validation refuses such a configuration; it was stored by other means.
            Err(error) => tracing::error!(
                name = name(configuration),
                error,
                "ignored an admission configuration that cannot be read"
            ),
        }
    }
    all.into()
}
