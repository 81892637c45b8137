//! A client with an informer of the client library, which may use any server, and a handler that records its notifications.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use watchet_client::{
    ByteStream, Deleted, Dialer, ResourceEventHandlerFuncs, RestClient, RestConfig, SharedInformer,
    SharedInformerFactory,
};

use super::object::PREFIX;
use super::{Client, Transport};
use crate::check::{Content, InformerLog, Notification, NotificationKind, Object, Selector};
use crate::network::Node;

/// The namespace of the objects.
const NAMESPACE: &str = "default";

/// Opens connections to servers that a seed decides.
struct RandomDialer {
    transport: Transport,
    node: Node,
    servers: Vec<Node>,
    random: Mutex<fastrand::Rng>,
}

#[async_trait]
impl Dialer for RandomDialer {
    async fn dial(&self, _host: &str, _port: u16) -> io::Result<Box<dyn ByteStream>> {
        let server = self.random.lock().usize(..self.servers.len());
        let to = &self.servers[server];
        self.transport.connect(&self.node, to).await
    }
}

/// A running informer.
pub(crate) struct RunningInformer {
    id: u64,
    client: Client,
    factory: SharedInformerFactory,
    informer: SharedInformer<ConfigMap>,
}

impl RunningInformer {
    /// Starts an informer.
    pub(crate) fn start(client: Client, random: fastrand::Rng) -> Self {
        let dialer = RandomDialer {
            transport: client.transport.clone(),
            node: client.node.clone(),
            servers: client.servers.clone(),
            random: Mutex::new(random),
        };
        let config = RestConfig {
            dialer: Some(Arc::new(dialer)),
            ..RestConfig::new("http://localhost")
        };
        let rest = RestClient::new(&config).expect("the configuration is valid");
        let factory = SharedInformerFactory::new(rest).with_namespace(NAMESPACE);
        let informer = factory.informer::<ConfigMap>();
        let (id, recorder) = (client.recorder.id(), &client.recorder);
        let log = InformerLog {
            id,
            client: client.number,
            selector: Selector::prefix(PREFIX),
            notifications: Vec::new(),
            store: None,
        };
        recorder.change(|history| history.informers.push(log));
        let record = {
            let recorder = recorder.clone();
            move |kind: NotificationKind| {
                let time = recorder.now();
                recorder.change_informer(id, |log| {
                    log.notifications.push(Notification { time, kind });
                });
            }
        };
        let (add, update, delete) = (record.clone(), record.clone(), record);
        let handler = ResourceEventHandlerFuncs::new()
            .on_add(move |map: Arc<ConfigMap>, _| add(NotificationKind::Added(object(&map))))
            .on_update(move |_, map: Arc<ConfigMap>| {
                update(NotificationKind::Updated(object(&map)));
            })
            .on_delete(move |deleted: Deleted<ConfigMap>| delete(deletion(&deleted)));
        let registered = informer.add_event_handler(handler);
        drop(registered.expect("the informer has not ended"));
        factory.start();
        Self {
            id,
            client,
            factory,
            informer,
        }
    }

    /// Returns the objects of the store.
    pub(crate) fn store(&self) -> Vec<Object> {
        let objects = self.informer.indexer().list();
        let mut objects: Vec<Object> = objects.iter().map(|map| object(map)).collect();
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        objects
    }

    /// Records the store, and stops the informer.
    pub(crate) async fn stop(self, grace: std::time::Duration) {
        let store = self.store();
        let recorder = &self.client.recorder;
        recorder.change_informer(self.id, |log| log.store = Some(store));
        // What is still running ends with the simulation.
        drop(self.factory.shutdown(grace).await);
    }
}

fn deletion(deleted: &Deleted<ConfigMap>) -> NotificationKind {
    NotificationKind::Deleted {
        object: object(deleted.object()),
        is_final_state_unknown: matches!(deleted, Deleted::Unknown(_)),
    }
}

/// Returns the object for the history.
pub(crate) fn object(map: &ConfigMap) -> Object {
    let metadata = &map.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let value = map.data.as_ref().and_then(|data| data.get("value"));
    Object {
        key: format!(
            "configmaps/{}/{}",
            text(&metadata.namespace),
            text(&metadata.name)
        ),
        revision: text(&metadata.resource_version).parse().unwrap_or_default(),
        content: Content {
            value: value
                .and_then(|value| value.parse().ok())
                .unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
        },
    }
}
