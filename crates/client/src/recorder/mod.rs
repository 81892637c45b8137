//! `EventRecorder`: records core/v1 Events. They go into a bounded queue and are written by one
//! task; recording never waits, and events that cannot be written are lost.

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
use watchet_metrics::Counter;
use watchet_tasks::Tasks;

use correlate::{Correlator, Write};

/// The capacity of the queue, as in client-go; when it is full, events are lost and counted.
const QUEUE_MAX: usize = 1000;

/// The attempts to write an event while the server is unavailable, and the pause between them, as
/// in client-go.
const ATTEMPTS_MAX: usize = 12;
const PAUSE: Duration = Duration::from_secs(10);

/// How long the shutdown waits for queued events.
const SHUTDOWN_MAX: Duration = Duration::from_secs(2);

/// Records events about objects. Clones share one queue and task.
///
/// ```no_run
/// use std::time::Duration;
/// use k8s_openapi::api::core::v1::{ConfigMap, Event};
/// use watchet_client::{ApiResource, EventRecorder, Kubeconfig, RestClient, RestConfig};
/// use watchet_tasks::Tasks;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let kubeconfig = Kubeconfig::load(&["kubeconfig"])?;
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
/// // Draining the task group writes the remaining events.
/// tasks.drain(Duration::from_secs(10)).await?;
/// let events = client.resource::<Event>(ApiResource::of::<Event>()).namespace("default");
/// let stored = events.list(&Default::default()).await?.items;
/// assert_eq!(stored.len(), 1);
/// assert_eq!(stored[0].count, Some(2));
/// assert_eq!(stored[0].message.as_deref(), Some("it is watchet now"));
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
    /// Returns the reference to an object for an event.
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
    /// Creates a recorder for `component`. Its task is part of `tasks` and writes the remaining
    /// events when they are drained.
    pub fn new(client: &RestClient, component: &str, tasks: &Tasks) -> Self {
        let (queue, events) = mpsc::channel(QUEUE_MAX);
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
        // Draining the group waits for the task.
        drop(tasks.spawn("event-recorder", writer.run(events, tasks.token())));
        recorder
    }

    /// Records a normal event.
    pub fn normal(&self, about: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.record("Normal", about, reason, message.into());
    }

    /// Records a warning.
    pub fn warning(&self, about: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.record("Warning", about, reason, message.into());
    }

    /// Returns the number of lost events: the queue was full, or the server rejected them.
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    fn record(&self, event_type: &str, about: &ObjectReference, reason: &str, message: String) {
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
            tracing::debug!(reason, name, "event lost: the queue is full or closed");
        }
    }
}

/// The state of the writing task.
struct Writer {
    events: ResourceClient<Event>,
    correlator: Correlator,
    lost: Arc<Counter>,
    random: fastrand::Rng,
}

impl Writer {
    async fn run(mut self, mut queue: mpsc::Receiver<Event>, stop: CancellationToken) {
        while let Some(Some(event)) = stop.run_until_cancelled(queue.recv()).await {
            let Some(write) = self.correlator.correlate(event, Instant::now()) else {
                continue;
            };
            self.write_with_retries(write, &stop).await;
        }
        queue.close();
        let last_words = async {
            while let Some(event) = queue.recv().await {
                if let Some(write) = self.correlator.correlate(event, Instant::now())
                    && let Err(error) = self.write(&write).await
                {
                    self.count_lost(&write, &error);
                }
            }
        };
        if timeout(SHUTDOWN_MAX, last_words).await.is_err() {
            let events = queue.len();
            self.lost.add(events);
            tracing::debug!(events, "events lost at shutdown");
        }
    }

    /// Writes an event, with retries while the server does not respond.
    async fn write_with_retries(&mut self, write: Write, stop: &CancellationToken) {
        for tried in 1..=ATTEMPTS_MAX {
            match self.write(&write).await {
                Ok(written) => {
                    self.correlator.written(&write, &written);
                    return;
                }
                Err(error) if error.status().is_some() || tried == ATTEMPTS_MAX => {
                    return self.count_lost(&write, &error);
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot write an event, retrying");
                    // The first pause has jitter, so that components do not retry together.
                    let pause = match tried {
                        1 => PAUSE.mul_f64(self.random.f64()),
                        _ => PAUSE,
                    };
                    if stop.run_until_cancelled(sleep(pause)).await.is_none() {
                        return self.count_lost(&write, &error);
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
                // The event has expired: it continues under a new name.
                Err(error) if error.is_not_found() => {}
                patched => return patched,
            }
        }
        events.create(&correlate::renamed(event)).await
    }

    fn count_lost(&self, write: &Write, error: &RestError) {
        let (Write::Create(event) | Write::Patch(event, _)) = write;
        self.lost.inc();
        let reason = event.reason.as_deref();
        // A terminating namespace rejects events, which is normal.
        tracing::debug!(%error, reason, "cannot write an event");
    }
}
