//! `EventRecorder`: tells people what a controller did, as core/v1 Events. What it is told goes into a
//! bounded queue and is written by one task; nobody waits for it, and what cannot be written is lost.

mod correlate;
mod recent;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::KubeObject;
use super::rest::{ApiResource, Patch, ResourceClient, RestClient, RestError};
use crate::metrics::Counter;
use crate::tasks::Tasks;

use correlate::{Correlator, Write};

/// How many events wait to be written: client-go's. From those who tell to the one task that writes; when
/// it is full, what is told is lost and counted.
const QUEUE_MAX: usize = 1000;

/// How often an event is tried to be written while the server is away, and the pause between: client-go's.
const TRIES_MAX: usize = 12;
const PAUSE: Duration = Duration::from_secs(10);

/// How long the end waits for what is still in the queue.
const LAST_WORDS_MAX: Duration = Duration::from_secs(2);

/// Tells what happened to objects. Clones write by the same task.
///
/// ```
/// use std::time::Duration;
/// use k8s_openapi::api::core::v1::{ConfigMap, Event};
/// use watchet::informer::{ApiResource, EventRecorder, Kubeconfig, RestClient, RestConfig};
/// use watchet::tasks::Tasks;
/// use watchet::testing::Server;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = Server::start().await?;
/// # let kubeconfig: Kubeconfig = server.kubeconfig().parse()?;
/// let client = RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None)?)?;
/// let tasks = Tasks::new();
/// let recorder = EventRecorder::new(&client, "painter", &tasks);
///
/// let resource = ApiResource::of::<ConfigMap>();
/// let mut map = ConfigMap::default();
/// map.metadata.name = Some("colours".into());
/// map.metadata.namespace = Some("default".into());
/// let map = client.resource(resource.clone()).create(&map).await?;
/// recorder.normal(&resource.reference(&map), "Painted", "it is watchet now");
/// recorder.normal(&resource.reference(&map), "Painted", "it is watchet now");
///
/// // The end of the group writes what is left.
/// tasks.drain(Duration::from_secs(10)).await?;
/// let events = client.resource::<Event>(ApiResource::of::<Event>()).namespace("default");
/// let told = events.list(&Default::default()).await?.items;
/// assert_eq!(told.len(), 1);
/// assert_eq!(told[0].count, Some(2));
/// assert_eq!(told[0].message.as_deref(), Some("it is watchet now"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct EventRecorder {
    component: Arc<str>,
    queue: mpsc::Sender<Event>,
    lost: Arc<Counter>,
}

impl ApiResource {
    /// What an event says about whom it is.
    pub fn reference<T: KubeObject>(&self, object: &T) -> ObjectReference {
        let metadata = object.metadata();
        ObjectReference {
            api_version: Some(self.api_version()),
            kind: Some(self.kind.clone()),
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            field_path: None,
        }
    }
}

impl EventRecorder {
    /// A recorder of what `component` does. Its task is one of `tasks` and ends with them, when it has
    /// written what is left.
    pub fn new(client: &RestClient, component: &str, tasks: &Tasks) -> Self {
        let (queue, told) = mpsc::channel(QUEUE_MAX);
        let recorder = Self {
            component: component.into(),
            queue,
            lost: Arc::default(),
        };
        let writer = Writer {
            events: client.resource(ApiResource::of::<Event>()),
            correlator: Correlator::default(),
            lost: recorder.lost.clone(),
            random: fastrand::Rng::new(),
        };
        // Whoever drains the group waits for it.
        drop(tasks.spawn("event-recorder", writer.run(told, tasks.token())));
        recorder
    }

    /// What should happen happened.
    pub fn normal(&self, about: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.tell("Normal", about, reason, message.into());
    }

    /// Something is not as it should be.
    pub fn warning(&self, about: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.tell("Warning", about, reason, message.into());
    }

    /// How many events were lost: the queue was full, or the server did not take them.
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    fn tell(&self, event_type: &str, about: &ObjectReference, reason: &str, message: String) {
        let now = Timestamp::now();
        let name = about.name.as_deref().unwrap_or_default();
        let namespace = about
            .namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(correlate::event_name(name, now)),
                namespace: Some(namespace.unwrap_or("default").to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: about.clone(),
            type_: Some(event_type.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            source: Some(EventSource {
                component: Some(self.component.to_string()),
                host: None,
            }),
            reporting_component: Some(self.component.to_string()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        };
        if self.queue.try_send(event).is_err() {
            self.lost.inc();
            tracing::debug!(
                reason,
                name,
                "an event is lost: too many wait, or this is the end"
            );
        }
    }
}

/// The task.
struct Writer {
    events: ResourceClient<Event>,
    correlator: Correlator,
    lost: Arc<Counter>,
    random: fastrand::Rng,
}

impl Writer {
    async fn run(mut self, mut told: mpsc::Receiver<Event>, stop: CancellationToken) {
        while let Some(Some(event)) = stop.run_until_cancelled(told.recv()).await {
            let Some(write) = self.correlator.correlate(event, Instant::now()) else {
                continue;
            };
            self.insist(write, &stop).await;
        }
        told.close();
        let last_words = async {
            while let Some(event) = told.recv().await {
                if let Some(write) = self.correlator.correlate(event, Instant::now())
                    && let Err(error) = self.write(&write).await
                {
                    self.lose(&write, &error);
                }
            }
        };
        if timeout(LAST_WORDS_MAX, last_words).await.is_err() {
            let events = told.len();
            self.lost.add(events);
            tracing::debug!(events, "the last events are lost");
        }
    }

    /// Writes it, again and again while the server does not answer.
    async fn insist(&mut self, write: Write, stop: &CancellationToken) {
        for tried in 1..=TRIES_MAX {
            match self.write(&write).await {
                Ok(written) => {
                    self.correlator.written(&write, &written);
                    return;
                }
                Err(error) if error.status().is_some() || tried == TRIES_MAX => {
                    return self.lose(&write, &error);
                }
                Err(error) => {
                    tracing::debug!(%error, "an event cannot be written yet");
                    // The first pause is a part of one, so that not all components come back together.
                    let pause = match tried {
                        1 => PAUSE.mul_f64(self.random.f64()),
                        _ => PAUSE,
                    };
                    if stop.run_until_cancelled(sleep(pause)).await.is_none() {
                        return self.lose(&write, &error);
                    }
                }
            }
        }
    }

    async fn write(&self, write: &Write) -> Result<Event, RestError> {
        let (Write::Create(event) | Write::Patch(event, _)) = write;
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let events = self.events.clone().namespace(namespace);
        if let Write::Patch(event, patch) = write {
            let name = event.metadata.name.as_deref().unwrap_or_default();
            match events.patch(name, &Patch::Strategic(patch.clone())).await {
                // Events go after a while; this one goes on under a new name.
                Err(error) if error.is_not_found() => {}
                patched => return patched,
            }
        }
        events.create(&correlate::anew(event)).await
    }

    fn lose(&self, write: &Write, error: &RestError) {
        let (Write::Create(event) | Write::Patch(event, _)) = write;
        self.lost.inc();
        let reason = event.reason.as_deref();
        // A namespace that ends takes no events: that is no mistake of anybody.
        tracing::debug!(%error, reason, "an event cannot be written");
    }
}
