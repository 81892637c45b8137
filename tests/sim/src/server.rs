//! A simulated server process: the registry, the caches and the HTTP API of watchet over a storage, and connections of the
//! simulated network. Authentication, TLS and the controllers are not part of it.

use std::future::Future;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tower_service::Service as _;
use watchet_api::UserInfo;
use watchet_auth::TokenAuthenticator;
use watchet_cacher::CacherConfig;
use watchet_http::HttpConfig;
use watchet_metrics::Metrics;
use watchet_storage::Storage;
use watchet_tasks::Tasks;

use crate::network::{Listener, Network, Node};

/// The time between attempts to create the initial objects while storage is unavailable.
const BOOTSTRAP_RETRY: Duration = Duration::from_millis(200);

/// The least that hyper accepts: more waits in the queues of watches whose clients read slowly.
const HTTP_BUFFER_BYTES: usize = 8 << 10;

/// Making the key of an authenticator takes some milliseconds, and no request has a token.
static TOKENS: LazyLock<Arc<TokenAuthenticator>> = LazyLock::new(Arc::default);

/// A running server.
pub(crate) struct Server {
    node: Node,
    network: Network,
    storage: Arc<OnceLock<Arc<dyn Storage>>>,
    tasks: Tasks,
}

impl Server {
    /// Starts a server at `node`, whose storage is `opening`.
    pub(crate) fn start(
        network: &Network,
        node: &Node,
        opening: impl Future<Output = Arc<dyn Storage>> + Send + 'static,
        caches: CacherConfig,
    ) -> Self {
        let server = Self {
            node: node.clone(),
            network: network.clone(),
            storage: Arc::default(),
            tasks: Tasks::new(),
        };
        let (network, node) = (network.clone(), node.clone());
        let (opened, tasks) = (Arc::clone(&server.storage), server.tasks.clone());
        let run = async move {
            let storage = opening.await;
            // It is set once.
            drop(opened.set(Arc::clone(&storage)));
            let router = start_api(storage, caches, &tasks).await;
            serve(network.listen(&node), router, &tasks).await;
        };
        let token = server.tasks.token();
        drop(
            server
                .tasks
                .spawn("server", token.run_until_cancelled_owned(run)),
        );
        server
    }

    /// Returns the storage; `None` if it is not open yet.
    pub(crate) fn storage(&self) -> Option<Arc<dyn Storage>> {
        self.storage.get().cloned()
    }

    /// Kills the process: its connections break, and it can do nothing any more. The caller ends its access to a disk first.
    pub(crate) fn kill(self) {
        self.network.kill(&self.node);
        self.tasks.cancel();
    }

    /// Stops the server in the order of a shutdown: watches end, requests complete, storage is flushed.
    pub(crate) async fn stop(self, grace: Duration) {
        // Tasks that are still running are as good as killed.
        drop(self.tasks.drain(grace).await);
        self.network.kill(&self.node);
    }
}

/// Returns the API over `storage`, once it has the objects that every server has.
async fn start_api(storage: Arc<dyn Storage>, caches: CacherConfig, tasks: &Tasks) -> axum::Router {
    let metrics = Metrics::new();
    let maintained = Arc::clone(&storage);
    let token = tasks.token();
    let maintain = async move { maintained.maintain(token).await };
    drop(tasks.spawn("maintain", maintain));
    let registry = watchet_builtin::new_registry(storage, tasks, caches, Arc::clone(&metrics));
    let config = HttpConfig {
        connections: tasks.child(),
        ..HttpConfig::new(Arc::clone(&TOKENS), metrics)
    };
    while registry.bootstrap().await.is_err() {
        tokio::time::sleep(BOOTSTRAP_RETRY).await;
    }
    watchet_http::router(registry, config)
}

/// Serves the connections that `listener` accepts.
async fn serve(mut listener: Listener, router: axum::Router, tasks: &Tasks) {
    let user = UserInfo::authenticated(
        "simulation".to_owned(),
        String::new(),
        vec!["system:masters".to_owned()],
    );
    let user = Arc::new(user);
    while let Some(stream) = listener.accept().await {
        let (router, user) = (router.clone(), Arc::clone(&user));
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(Arc::clone(&user));
            router.clone().call(request.map(Body::new))
        });
        let token = tasks.token();
        let connection = async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .max_buf_size(HTTP_BUFFER_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            // The client sees that a connection broke.
            drop(token.run_until_cancelled(served).await);
        };
        drop(tasks.spawn("connection", connection));
    }
}
