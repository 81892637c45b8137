//! The three clients that watch: an informer of all pods, an informer with a label selector, and a watch that is read slowly.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use watchet_client::{
    ApiResource, DynamicObject, InvalidRestConfig, ListParams, ListWatchOptions,
    PartialObjectMetadata, ResourceEventHandlerFuncs, RestClient, RestConfig, RestError,
    SharedInformerFactory,
};

use super::error::DemoError;
use super::objects::NAMESPACE;
use super::pod::WATCHED_WORKLOAD;
use super::throttle::{ReadSpeed, ThrottledDialer};

/// The user agents of the clients.
pub(crate) const INFORMER: &str = "demo-informer";
pub(crate) const DASHBOARD: &str = "demo-dashboard";
pub(crate) const SLOW_READER: &str = "demo-slow-reader";

/// How long the slow reader reads slowly. The server parks its watch in less than half of this time, and retains the events of a
/// longer time, so that the watch loses none.
const SLOW_PERIOD: Duration = Duration::from_secs(40);

/// How long it then reads at full speed.
const FAST_PERIOD: Duration = Duration::from_secs(10);

/// The pause before the slow reader opens its watch again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// The maximum number of deletions that wait for their confirmation. Others are confirmed with the next change of the pod.
const DELETIONS_MAX: usize = 1024;

/// A pod with a deletionTimestamp.
#[derive(Debug)]
pub(crate) struct DeletedPod {
    pub name: String,
    pub uid: String,
    /// When the informer received the update.
    pub at: Instant,
}

/// The two informers. They stop when this is dropped.
#[derive(Debug)]
pub(crate) struct Informers {
    pods: SharedInformerFactory,
    dashboard: SharedInformerFactory,
}

impl Informers {
    /// Starts both informers and waits until their caches are synced. Also returns a channel of the pods that have a
    /// deletionTimestamp, so that kubelets can confirm the deletions.
    ///
    /// # Errors
    /// The configuration is invalid, or an informer stopped before its first list.
    pub(crate) async fn start(
        config: &RestConfig,
    ) -> Result<(Self, mpsc::Receiver<DeletedPod>), DemoError> {
        let pods = ApiResource::namespaced("", "v1", "pods", "Pod");
        let factory = |user_agent: &str, options| {
            let client = client(config, user_agent)?;
            let factory = SharedInformerFactory::new(client)
                .with_namespace(NAMESPACE)
                .with_options(options);
            let informer = factory.informer_for::<DynamicObject>(&pods);
            factory.start();
            Ok::<_, InvalidRestConfig>((factory, informer))
        };
        let labels = Some(format!("app={WATCHED_WORKLOAD}"));
        let selected = ListWatchOptions {
            labels,
            ..ListWatchOptions::default()
        };
        let (dashboard, _) = factory(DASHBOARD, selected)?;
        let (pods, informer) = factory(INFORMER, ListWatchOptions::default())?;
        let (deletions, receiver) = mpsc::channel(DELETIONS_MAX);
        let handler = ResourceEventHandlerFuncs::new().on_update(move |_, pod| {
            if let Some(deleted) = deleted_pod(&pod) {
                // If the queue is full, the next change of the pod confirms the deletion.
                let _sent = deletions.try_send(deleted);
            }
        });
        informer
            .add_event_handler(handler)
            .expect("the informer has not stopped");
        let informers = Self { pods, dashboard };
        informers.pods.wait_for_cache_sync().await?;
        informers.dashboard.wait_for_cache_sync().await?;
        Ok((informers, receiver))
    }
}

fn deleted_pod(pod: &DynamicObject) -> Option<DeletedPod> {
    pod.metadata.deletion_timestamp.as_ref()?;
    Some(DeletedPod {
        name: pod.metadata.name.clone()?,
        uid: pod.metadata.uid.clone()?,
        at: Instant::now(),
    })
}

/// A client that watches config maps and reads slowly most of the time.
#[derive(Debug)]
pub(crate) struct SlowReader {
    client: RestClient,
    speed: ReadSpeed,
}

impl SlowReader {
    /// Creates the client. It uses HTTP/1.1: over HTTP/2 it would buffer megabytes of a watch that it does not read, and its
    /// connection would have to answer pings in time.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub(crate) fn new(config: &RestConfig) -> Result<Self, InvalidRestConfig> {
        let speed = ReadSpeed::default();
        let config = RestConfig {
            dialer: Some(Arc::new(ThrottledDialer(speed.clone()))),
            http2: false,
            ..config.clone()
        };
        let client = client(&config, SLOW_READER)?;
        Ok(Self { client, speed })
    }

    /// Reads the watch, and opens it again when it ends.
    pub(crate) async fn run(self) -> Infallible {
        loop {
            self.speed.set_slow(false);
            if let Err(error) = self.watch().await {
                tracing::debug!(%error, "the slow watch failed");
            }
            sleep(REOPEN_PAUSE).await;
        }
    }

    /// Watches from the current resourceVersion until the watch ends.
    async fn watch(&self) -> Result<(), RestError> {
        let resource = ApiResource::namespaced("", "v1", "configmaps", "ConfigMap");
        let maps = self
            .client
            .resource::<PartialObjectMetadata>(resource.clone());
        let one = ListParams {
            limit: Some(1),
            ..ListParams::default()
        };
        let list = maps.namespace(NAMESPACE).list(&one).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        let path = resource.url_path(Some(NAMESPACE));
        let query = [("watch", "true"), ("resourceVersion", version.as_str())];
        let mut chunks = Box::pin(self.client.get_stream(&path, &query).await?);
        let read = async {
            while let Some(chunk) = chunks.next().await {
                chunk?;
            }
            Ok(())
        };
        let change_speed = async {
            loop {
                self.speed.set_slow(true);
                sleep(SLOW_PERIOD).await;
                self.speed.set_slow(false);
                sleep(FAST_PERIOD).await;
            }
        };
        // Check the end of the watch first: after it the speed has no effect.
        tokio::select! {
            biased;
            ended = read => ended,
            never = change_speed => never,
        }
    }
}

fn client(config: &RestConfig, user_agent: &str) -> Result<RestClient, InvalidRestConfig> {
    RestClient::new(&RestConfig {
        user_agent: user_agent.to_owned(),
        ..config.clone()
    })
}
