//! Clients that this project did not write: an informer of client-go, a watcher of kube-rs, and kubectl. They reach the servers
//! through a proxy that balances connections.

mod go_informer;
mod kube_watcher;
mod kubectl;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use watchet_tasks::Tasks;

use self::go_informer::GoInformer;
use super::Programs;
use crate::check::{InformerLog, Notification, NotificationKind, Object, Selector};
use crate::client::{Client, KEY_PREFIX};

pub(super) use self::kubectl::KubectlCount;

/// The running clients.
pub(super) struct OtherClients {
    go_informer: GoInformer,
    go_log: SharedLog,
    kube_log: SharedLog,
    kubectl: KubectlCount,
    tasks: Tasks,
    /// The tasks that write, which end first.
    writers: Tasks,
}

impl OtherClients {
    /// Starts the clients of the servers behind `balancer`; `client` returns the one with a number.
    ///
    /// # Errors
    /// A program cannot be started.
    pub(super) fn start(
        programs: &Programs,
        balancer: SocketAddr,
        client: impl Fn(u32) -> Client,
    ) -> io::Result<Self> {
        let url = format!("http://{balancer}");
        let tasks = Tasks::new();
        let (go_log, kube_log) = (SharedLog::new(client(310)), SharedLog::new(client(311)));
        let go_informer = GoInformer::start(&programs.go_informer, &url, go_log.clone(), &tasks)?;
        let watch = kube_watcher::watch(kube_watcher::client(&url)?, kube_log.clone());
        let token = tasks.token();
        drop(tasks.spawn("kube-watcher", token.run_until_cancelled_owned(watch)));
        let writers = Tasks::new();
        let kubectl = KubectlCount::default();
        let use_kubectl = kubectl::run(programs.kubectl.clone(), url, client(320), kubectl.clone());
        let token = writers.token();
        drop(writers.spawn("kubectl", token.run_until_cancelled_owned(use_kubectl)));
        Ok(Self {
            go_informer,
            go_log,
            kube_log,
            kubectl,
            tasks,
            writers,
        })
    }

    /// Ends the clients that write.
    ///
    /// # Errors
    /// A command does not end in time.
    pub(super) async fn end_writers(&self, grace: std::time::Duration) -> io::Result<()> {
        self.writers.drain(grace).await.map_err(io::Error::other)
    }

    /// Returns true if the informers have these objects, which are sorted by key.
    pub(super) fn have(&self, objects: &[Object]) -> bool {
        self.go_log.has(objects) && self.kube_log.has(objects)
    }

    /// Returns how often the informers listed all objects again, and the use of kubectl.
    pub(super) fn counts(&self) -> (usize, KubectlCount) {
        let relists = |log: &SharedLog| log.lists().saturating_sub(1);
        (
            relists(&self.go_log) + relists(&self.kube_log),
            self.kubectl.clone(),
        )
    }

    /// Ends the clients, and records what they know.
    ///
    /// # Errors
    /// The Go program failed.
    pub(super) async fn stop(self) -> io::Result<()> {
        self.go_informer.stop().await?;
        self.kube_log.record_store(self.kube_log.objects());
        self.tasks.cancel();
        Ok(())
    }
}

/// The log of an informer, and what follows from its notifications. Clones share it.
#[derive(Clone)]
struct SharedLog {
    client: Client,
    id: u64,
    state: std::sync::Arc<parking_lot::Mutex<LogState>>,
}

#[derive(Default)]
struct LogState {
    objects: BTreeMap<String, Object>,
    lists: usize,
}

impl SharedLog {
    fn new(client: Client) -> Self {
        let id = client.recorder.id();
        let log = InformerLog {
            id,
            client: client.number,
            selector: Selector::prefix(KEY_PREFIX),
            notifications: Vec::new(),
            store: None,
        };
        client
            .recorder
            .change(|history| history.informers.push(log));
        Self {
            client,
            id,
            state: std::sync::Arc::default(),
        }
    }

    /// Records that all objects are listed.
    fn listed(&self) {
        self.state.lock().lists += 1;
    }

    fn lists(&self) -> usize {
        self.state.lock().lists
    }

    fn notify(&self, kind: NotificationKind) {
        let object = kind.object().clone();
        let mut state = self.state.lock();
        match &kind {
            NotificationKind::Deleted { .. } => drop(state.objects.remove(&object.key)),
            _ => drop(state.objects.insert(object.key.clone(), object)),
        }
        let time = self.client.recorder.now();
        self.client.recorder.change_informer(self.id, |log| {
            log.notifications.push(Notification { time, kind });
        });
    }

    /// Returns the present state of the object at `key`.
    fn get(&self, key: &str) -> Option<Object> {
        self.state.lock().objects.get(key).cloned()
    }

    /// Returns the objects by key.
    fn objects(&self) -> Vec<Object> {
        self.state.lock().objects.values().cloned().collect()
    }

    fn has(&self, objects: &[Object]) -> bool {
        self.state.lock().objects.values().eq(objects)
    }

    fn record_store(&self, objects: Vec<Object>) {
        let recorder = &self.client.recorder;
        recorder.change_informer(self.id, |log| log.store = Some(objects));
    }
}
