//! Runs the watch scripts (`docs/watch-scripts.md`) against the HTTP server over every back end, in JSON and in protobuf, and
//! against the program as a process. The informers of the scripts connect through a proxy, which can fail.

mod encoding;
mod host;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use watchet::client::{
    ApiResource, DynamicObject, HttpListerWatcher, ListWatchOptions, RestClient, RestConfig,
};
use watchet_test_util::watch_script::{
    ApiError, Corpus, DRIVERS, Driver, DriverInfo, InformerRequest, ListResponse, ReadRequest,
    ScriptInformer, Timing, WriteRequest,
};

use self::encoding::{Encoding, HttpWatch};
use self::host::Host;
use crate::conformance::site::{Site, version};
use crate::harness::{Mode, PATIENCE, Proxy, full, request};
use crate::storage::Backend;

const IN_JSON: &DriverInfo = &DRIVERS[2];
const IN_PROTOBUF: &DriverInfo = &DRIVERS[3];
const PROGRAM: &DriverInfo = &DRIVERS[4];

/// A server and its clients.
struct HttpDriver {
    host: Host,
    encoding: Encoding,
    /// The proxies between the informers and the server.
    proxies: Vec<Arc<Proxy>>,
}

impl HttpDriver {
    fn new(host: Host, encoding: Encoding) -> Self {
        Self {
            host,
            encoding,
            proxies: Vec::new(),
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let content_type = "application/json";
        self.host.send(Method::POST, path, content_type, body).await
    }

    /// Sends a write to the server.
    async fn request(&self, write: &WriteRequest) -> u64 {
        let object = &write.object;
        let plural = object.resource.plural();
        let collection = format!("/api/v1/namespaces/{}/{plural}", object.namespace);
        let path = format!("{collection}/{}", object.name);
        match (&write.previous, &write.next) {
            (_, None) => self.host.delete(&collection, &object.name).await,
            (None, Some(next)) => version(&self.post(&collection, &next.json(object)).await),
            (Some(previous), Some(next)) => {
                let mut labels = json!(next.content.labels);
                for key in previous.content.labels.keys() {
                    if !next.content.labels.contains_key(key) {
                        labels[key] = Value::Null;
                    }
                }
                let annotations = json!({"stamp": next.stamp});
                let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
                let (method, content_type) = (Method::PATCH, "application/merge-patch+json");
                version(&self.host.send(method, &path, content_type, &patch).await)
            }
        }
    }
}

impl Driver for HttpDriver {
    type Watch = HttpWatch;
    type Informer = ScriptInformer;

    fn name(&self) -> String {
        format!("{}, {:?}", self.host.name(), self.encoding)
    }

    fn timing(&self) -> Timing {
        Timing {
            patience: PATIENCE,
            silence: Duration::from_millis(200),
        }
    }

    async fn start(&mut self, namespaces: &BTreeSet<String>) -> u64 {
        for namespace in namespaces
            .iter()
            .filter(|namespace| *namespace != "default")
        {
            let body = json!({"metadata": {"name": namespace}});
            self.post("/api/v1/namespaces", &body).await;
        }
        self.host.revision().await
    }

    async fn write(&mut self, writes: &[WriteRequest]) -> u64 {
        let [write] = writes else {
            unimplemented!("the API has no transactions")
        };
        let (previous, next) = (write.previous.as_ref(), write.next.as_ref());
        let is_unreadable = previous.is_some_and(|object| object.is_unreadable)
            || next.is_some_and(|object| object.is_unreadable);
        // The server rejects a change of a pod's node, so the driver writes it to storage.
        let moves = previous
            .zip(next)
            .is_some_and(|(previous, next)| previous.content.node_name != next.content.node_name);
        if is_unreadable || moves || !self.host.is_connected() {
            self.host.store(write).await
        } else {
            self.request(write).await
        }
    }

    async fn list(&mut self, read: &ReadRequest) -> Result<ListResponse, ApiError> {
        let accept = [("accept", self.encoding.accept(false))];
        let mut wire = self.host.connect().await;
        let path = read.path(false);
        let response = wire.send(Method::GET, &path, &accept, "").await;
        let (headers, body) = (&response.headers, &response.body);
        match response.status.as_u16() {
            200 => Ok(self.encoding.list(headers, body)),
            _ => Err(self.encoding.error(headers, body)),
        }
    }

    async fn watch(&mut self, read: &ReadRequest) -> Result<HttpWatch, ApiError> {
        let accept = [("accept", self.encoding.accept(true))];
        let mut wire = self.host.connect().await;
        let get = request(Method::GET, &read.path(true), &accept, full(""));
        let (head, body) = wire.open(get).await.expect("a response").into_parts();
        if head.status == 200 {
            return Ok(self.encoding.watch(&head.headers, wire, body));
        }
        let body = body.collect().await.expect("a body").to_bytes();
        Err(self.encoding.error(&head.headers, &body))
    }

    async fn informer(&mut self, request: &InformerRequest) -> ScriptInformer {
        let proxy = Arc::new(Proxy::start(self.host.address(), 0).await);
        self.proxies.push(proxy.clone());
        let config = RestConfig::new(format!("http://{}", proxy.address));
        let client = RestClient::new(&config).expect("a client");
        let pods = ApiResource::namespaced("", "v1", "pods", "Pod");
        let mut pods = client.resource::<DynamicObject>(pods);
        if let Some(namespace) = &request.namespace {
            pods = pods.namespace(namespace);
        }
        let selector = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let options = ListWatchOptions {
            labels: selector(&request.labels),
            fields: selector(&request.fields),
            watch_list: request.watch_list,
            ..ListWatchOptions::default()
        };
        let source = HttpListerWatcher::new(pods, options);
        ScriptInformer::start(source, request, move |connected| {
            proxy.set(if connected { Mode::Open } else { Mode::Down });
        })
    }

    async fn compact(&mut self, at: u64) {
        self.host.site().compact(at).await;
    }

    async fn restart(&mut self) {
        self.host.restart().await;
        for proxy in &self.proxies {
            proxy.set_server(self.host.address());
        }
    }

    async fn cut(&mut self) {
        self.host.site().storage.cut_watches();
    }

    async fn set_connected(&mut self, connected: bool) {
        self.host.set_connected(connected);
    }
}

async fn scripts_pass_over<B: Backend + 'static>(concurrency: usize) {
    let drivers = [(IN_JSON, Encoding::Json), (IN_PROTOBUF, Encoding::Protobuf)];
    for (info, encoding) in drivers {
        let driver = async || HttpDriver::new(Host::over(Site::start::<B>().await), encoding);
        Corpus::load().run(info, concurrency, driver).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_pass_over_memory() {
    scripts_pass_over::<crate::storage::fixtures::MemoryStore>(8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_pass_over_the_embedded_store() {
    scripts_pass_over::<crate::storage::fixtures::EmbeddedStore>(8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_pass_over_etcd() {
    scripts_pass_over::<crate::storage::etcd::EtcdStore>(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_pass_over_the_program() {
    let driver = async || HttpDriver::new(Host::program().await, Encoding::Json);
    Corpus::load().run(PROGRAM, 4, driver).await;
}
