//! The informers of scripts: a shared informer of the client library over any source.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc;
use watchet_client::{
    Deleted, DynamicObject, HandlerRegistration, ResourceEventHandler, SharedInformer,
};
use watchet_reflector::ListerWatcher;
use watchet_tasks::Tasks;

use super::driver::{Informer, InformerRequest, Notifications, Received};
use super::item::Notification;
use super::object::ReceivedObject;

/// A running informer. It is stopped when it is dropped.
pub struct ScriptInformer {
    informer: SharedInformer<DynamicObject>,
    handlers: BTreeMap<String, HandlerRegistration>,
    set_connected: Box<dyn FnMut(bool)>,
    tasks: Tasks,
}

impl fmt::Debug for ScriptInformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptInformer")
            .field("informer", &self.informer)
            .finish_non_exhaustive()
    }
}

impl ScriptInformer {
    /// Starts an informer of `source`. `set_connected` implements [`Informer::set_connected`].
    ///
    /// # Panics
    /// If it is called outside of a Tokio runtime.
    pub fn start(
        source: impl ListerWatcher<Object = DynamicObject>,
        request: &InformerRequest,
        set_connected: impl FnMut(bool) + 'static,
    ) -> Self {
        let informer = SharedInformer::new("pods", source, request.resync);
        let tasks = Tasks::new();
        informer
            .start(&tasks)
            .expect("a new informer is not started");
        Self {
            informer,
            handlers: BTreeMap::new(),
            set_connected: Box::new(set_connected),
            tasks,
        }
    }
}

impl Drop for ScriptInformer {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl Informer for ScriptInformer {
    fn add_handler(&mut self, name: &str) -> Notifications {
        let (sender, notifications) = mpsc::channel(1);
        let registration = self.informer.add_event_handler(Sending(sender));
        let registration = registration.expect("the informer runs until it is dropped");
        self.handlers.insert(name.to_owned(), registration);
        notifications
    }

    fn remove_handler(&mut self, name: &str) {
        let handler = self.handlers.remove(name);
        let is_removed =
            handler.is_some_and(|handler| self.informer.remove_event_handler(&handler));
        assert!(is_removed, "no handler {name}");
    }

    fn objects(&self) -> Vec<ReceivedObject> {
        let objects = self.informer.indexer().list();
        objects.iter().map(|object| received(object)).collect()
    }

    fn version(&self) -> Option<u64> {
        let version = self.informer.last_sync_resource_version();
        version.map(|version| version.get())
    }

    fn set_connected(&mut self, connected: bool) {
        (self.set_connected)(connected);
    }
}

fn received(object: &DynamicObject) -> ReceivedObject {
    let json = serde_json::to_value(object).expect("an object is JSON");
    ReceivedObject::from_json(&json)
}

/// A handler that sends its notifications, and waits until each is received.
struct Sending(mpsc::Sender<Received>);

impl Sending {
    async fn send(&self, kind: Notification<u64>, object: &DynamicObject) {
        let notification = Received::Notification(kind, received(object));
        // The receiver is dropped when the script closes the handler.
        self.0.send(notification).await.ok();
    }
}

impl ResourceEventHandler<DynamicObject> for Sending {
    async fn on_add(&mut self, object: Arc<DynamicObject>, is_in_initial_list: bool) {
        let kind = Notification::Added { is_in_initial_list };
        self.send(kind, &object).await;
    }

    async fn on_update(&mut self, old: Arc<DynamicObject>, new: Arc<DynamicObject>) {
        let old = received(&old).version;
        self.send(Notification::Updated { old }, &new).await;
    }

    async fn on_delete(&mut self, deleted: Deleted<DynamicObject>) {
        let kind = Notification::Deleted {
            is_final_state_unknown: matches!(deleted, Deleted::Unknown(_)),
        };
        self.send(kind, deleted.object()).await;
    }
}
