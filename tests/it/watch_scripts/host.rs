//! The servers that scripts run against: one in the process of the test, over any back end, or the program as a process.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use watchet_test_util::watch_script::WriteRequest;

use crate::conformance::site::{Site, version};
use crate::conformance::watching::Watching;
use crate::harness::{Protocol, Response, Server, Wire, full, request};

/// A server that can be replaced by another one over the same storage.
pub(super) enum Host {
    InProcess {
        site: Site,
        /// The servers before restarts. The first one has the back end.
        stopped: Vec<Site>,
        is_connected: bool,
    },
    Program {
        /// Absent only during a restart.
        server: Option<Server>,
        directory: tempfile::TempDir,
    },
}

impl Host {
    pub(super) fn over(site: Site) -> Self {
        Self::InProcess {
            site,
            stopped: Vec::new(),
            is_connected: true,
        }
    }

    /// Starts the program with an embedded store.
    pub(super) async fn program() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self::Program {
            server: Some(start(&directory).await),
            directory,
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::InProcess { site, .. } => {
                format!("HTTP server over {}", site.storage.inner().name())
            }
            Self::Program { .. } => "process of the program".to_owned(),
        }
    }

    /// The address of the port without authentication.
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Self::InProcess { site, .. } => site.address,
            Self::Program { server, .. } => {
                let server = server.as_ref().expect("it is not restarting");
                server.insecure()
            }
        }
    }

    pub(super) async fn connect(&self) -> Wire {
        Wire::plain(self.address(), Protocol::Http1).await
    }

    /// Sends a request with a body, which must succeed; returns the response.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Value {
        let headers = [("content-type", content_type)];
        let mut wire = self.connect().await;
        let response: Response = wire.send(method, path, &headers, &body.to_string()).await;
        let body = response.json();
        assert!(response.status.is_success(), "{path}: {body}");
        body
    }

    /// Deletes an object and returns the version of the deletion.
    pub(super) async fn delete(&self, collection: &str, name: &str) -> u64 {
        let before = self.revision().await;
        let path = format!("{collection}/{name}");
        let options = json!({"gracePeriodSeconds": 0});
        let (method, content_type) = (Method::DELETE, "application/json");
        self.send(method, &path, content_type, &options).await;
        match self {
            // There is no other writer.
            Self::InProcess { site, .. } => site.revision().await,
            // The program can have other writers, so the current revision can be a later one.
            Self::Program { .. } => {
                let path = format!(
                    "{collection}?watch=1&resourceVersion={before}&fieldSelector=metadata.name%3D{name}"
                );
                let mut wire = self.connect().await;
                let get = request(Method::GET, &path, &[], full(""));
                let response = wire.open(get).await.expect("a response");
                let mut watching = Watching::new(wire, response.into_body());
                let frame = watching.next().await.expect("the deletion");
                assert_eq!(frame["type"], "DELETED", "{frame}");
                version(&frame["object"])
            }
        }
    }

    /// Returns the revision of storage.
    pub(super) async fn revision(&self) -> u64 {
        let list = "/api/v1/nodes";
        let response = self.connect().await.get(list).await;
        assert!(response.status.is_success(), "{response:?}");
        version(&response.json())
    }

    /// The server in the process of the test, whose storage is accessible.
    pub(super) fn site(&self) -> &Site {
        match self {
            Self::InProcess { site, .. } => site,
            Self::Program { .. } => {
                unimplemented!("the storage of a process is not accessible: `needs: storage`")
            }
        }
    }

    /// Writes to storage, past the server.
    pub(super) async fn store(&self, write: &WriteRequest) -> u64 {
        let key = write.object.storage_key();
        let version = match &write.next {
            Some(next) => self.site().store(&key, &next.value(&write.object)).await,
            None => self.site().unstore(&key).await,
        };
        version.get()
    }

    /// Returns true unless the server is disconnected from storage.
    pub(super) fn is_connected(&self) -> bool {
        match self {
            Self::InProcess { is_connected, .. } => *is_connected,
            Self::Program { .. } => true,
        }
    }

    pub(super) fn set_connected(&mut self, connected: bool) {
        let Self::InProcess {
            site, is_connected, ..
        } = self
        else {
            unimplemented!("the storage of a process is not accessible: `needs: cut`")
        };
        *is_connected = connected;
        site.storage.set_down(!connected);
        if !connected {
            site.storage.cut_watches();
        }
    }

    /// Replaces the server by a new one over the same storage.
    pub(super) async fn restart(&mut self) {
        match self {
            Self::InProcess { site, stopped, .. } => {
                let replica = site.replica().await;
                let old = std::mem::replace(site, replica);
                old.drain();
                old.stop_caches();
                stopped.push(old);
            }
            Self::Program { server, directory } => {
                let old = server.take().expect("it is not restarting");
                old.stop().await;
                *server = Some(start(directory).await);
            }
        }
    }
}

async fn start(directory: &tempfile::TempDir) -> Server {
    // Without what would also write during a script: controllers, default roles and default flow schemas.
    let args = [
        "--secure-port=0",
        "--insecure-port=auto",
        "--authorization-mode=AlwaysAllow",
        "--enable-priority-and-fairness=false",
        "--watch-cache-consistency-check-interval=2s",
        "--controllers=-garbage-collector-controller",
        "--disable-admission-plugins=ServiceAccount",
    ];
    let server = Server::start_exactly(directory.path(), &args).await;
    // Written last, after the server is ready.
    let service = "/api/v1/namespaces/default/services/kubernetes";
    let mut wire = Wire::plain(server.insecure(), Protocol::Http1).await;
    while wire.get(service).await.status == StatusCode::NOT_FOUND {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server
}
