//! The gate: the configurations as they are known now, and the two questions of the write pipeline. While
//! there is no configuration, a question costs a look at a pointer.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::attributes::Attributes;
use super::client::WebhookClient;
use super::cluster::Cluster;
use super::error::AdmissionError;
use super::webhook::{self, Calling, Hook};
use crate::tasks::Tasks;

/// How long a write waits, after a start, until the configurations are known.
const READY_MAX: Duration = Duration::from_secs(10);

/// A kind of configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigurationKind {
    /// MutatingWebhookConfiguration
    Mutating,
    /// ValidatingWebhookConfiguration
    Validating,
}

impl ConfigurationKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Mutating, Self::Validating];

    /// The plural name of its resource in admissionregistration.k8s.io.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What there is, each kind in the order of names.
#[derive(Debug, Clone, Default)]
struct Known {
    mutating: Arc<[Hook]>,
    validating: Arc<[Hook]>,
}

/// The gate. One per server.
#[derive(Debug)]
pub struct Gate {
    client: WebhookClient,
    tasks: Tasks,
    known: ArcSwap<Known>,
    /// Which kinds have been heard of, by their bits. The sender is [`Gate::replace`], who waits are
    /// the first writes; nothing is queued.
    heard: watch::Sender<u8>,
}

impl Gate {
    /// A gate that nobody has told of any configuration yet.
    pub fn new(client: WebhookClient, tasks: &Tasks) -> Self {
        Self {
            client,
            tasks: tasks.clone(),
            known: ArcSwap::default(),
            heard: watch::Sender::default(),
        }
    }

    /// From now on these are all configurations of a kind, by name.
    pub fn replace(&self, kind: ConfigurationKind, mut configurations: Vec<Value>) {
        configurations.sort_by(|a, b| name(a).cmp(name(b)));
        let mut known = Known::clone(&self.known.load());
        match kind {
            ConfigurationKind::Mutating => {
                known.mutating = read(&configurations, Hook::of_mutating);
            }
            ConfigurationKind::Validating => {
                known.validating = read(&configurations, Hook::of_validating);
            }
        }
        self.known.store(Arc::new(known));
        self.heard.send_modify(|heard| *heard |= kind.bit());
    }

    /// Whether nothing can change this kind of write, so that it need not be described.
    pub async fn lets_all_be(&self) -> Result<bool, AdmissionError> {
        self.ready().await?;
        Ok(self.known.load().mutating.is_empty())
    }

    /// Whether nothing can refuse a write.
    pub async fn lets_all_in(&self) -> Result<bool, AdmissionError> {
        self.ready().await?;
        Ok(self.known.load().validating.is_empty())
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
        webhook::mutate(&self.calling(cluster, until), &known.mutating, write).await
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
        webhook::validate(&self.calling(cluster, until), &known.validating, write).await
    }

    fn calling<'a>(&'a self, cluster: &'a dyn Cluster, until: Instant) -> Calling<'a> {
        Calling {
            client: &self.client,
            cluster,
            tasks: &self.tasks,
            until,
        }
    }

    /// Waits until every kind has been heard of once: nothing slips in while the server starts.
    async fn ready(&self) -> Result<(), AdmissionError> {
        let all = ConfigurationKind::ALL
            .iter()
            .fold(0, |all, kind| all | kind.bit());
        if *self.heard.borrow() == all {
            return Ok(());
        }
        let mut heard = self.heard.subscribe();
        let waited = tokio::time::timeout(READY_MAX, heard.wait_for(|heard| *heard == all)).await;
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

fn read(
    configurations: &[Value],
    hooks: impl Fn(&Value) -> Result<Vec<Hook>, String>,
) -> Arc<[Hook]> {
    let mut all = Vec::new();
    for configuration in configurations {
        match hooks(configuration) {
            Ok(hooks) => all.extend(hooks),
            // Its write was not refused, so it came by another way.
            Err(error) => tracing::error!(
                name = name(configuration),
                error,
                "a webhook configuration cannot be read, and none of its webhooks is called"
            ),
        }
    }
    all.into()
}
