//! The client of webhooks: one POST of JSON over HTTPS, on a connection that is kept for the next. Who
//! is called is said by a [`ClientConfig`]; what is sent and what the answer means is the caller's
//! business. It follows no redirect, asks no proxy and speaks HTTP/1.1 only.
//!
//! # Definitions
//!
//! - *Destination*: one [`ClientConfig`], with its TLS settings and its idle connections.
//!
//! # Invariants
//!
//! 1. A call ends by its timeout, whatever the other side does, and leaves nothing running.
//! 2. An answer takes [`RESPONSE_BYTES_MAX`] of memory at most.
//! 3. A connection is used again only when the whole of the answer before was read.

mod config;
mod connect;
mod credentials;
mod error;
mod pool;
mod response;
mod trust;
mod url_path;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;

use config::HTTPS_PORT;
pub use config::{Address, ClientConfig};
pub use credentials::WebhookCredentials;
pub use error::WebhookError;
pub use response::RESPONSE_BYTES_MAX;

use pool::Destination;
use trust::SystemRoots;
use watchet_tasks::Tasks;

/// How many destinations keep connections; more than clusters have webhooks.
const DESTINATIONS_MAX: usize = 256;

/// What can tell where a Service is.
#[async_trait]
pub trait ServiceResolver: Send + Sync + std::fmt::Debug {
    /// The host (a name or an address) and the port that serve `port` of the Service.
    ///
    /// # Errors
    /// Why there is none, for people.
    async fn resolve(
        &self,
        namespace: &str,
        name: &str,
        port: u16,
    ) -> Result<(String, u16), String>;
}

/// Calls webhooks. Clones share their connections.
#[derive(Debug, Clone)]
pub struct WebhookClient {
    shared: Arc<Shared>,
    credentials: WebhookCredentials,
    /// At most [`DESTINATIONS_MAX`].
    destinations: Arc<Mutex<HashMap<ClientConfig, Arc<Destination>>>>,
}

#[derive(Debug)]
struct Shared {
    tasks: Tasks,
    services: Arc<dyn ServiceResolver>,
    system_roots: SystemRoots,
}

impl WebhookClient {
    /// A client whose connections are tasks of `tasks`, and that finds Services by `services`.
    pub fn new(tasks: &Tasks, services: Arc<dyn ServiceResolver>) -> Self {
        Self {
            shared: Arc::new(Shared {
                tasks: tasks.clone(),
                services,
                system_roots: SystemRoots::default(),
            }),
            credentials: WebhookCredentials::default(),
            destinations: Arc::default(),
        }
    }

    /// Returns a client that presents `credentials` to webhooks, on connections of its own.
    pub fn with_credentials(&self, credentials: WebhookCredentials) -> Self {
        Self {
            shared: self.shared.clone(),
            credentials,
            destinations: Arc::default(),
        }
    }

    /// Posts `body`, which is JSON, and returns the body of the answer, which is a 2xx. Waits `timeout` at most, and
    /// tells the webhook that number by the parameter `timeout`, as upstream does. Cancel safe: a call that is
    /// dropped closes its connection.
    ///
    /// # Errors
    /// The webhook could not be asked, or did not answer with a success; in upstream's words.
    pub async fn call(
        &self,
        config: &ClientConfig,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, WebhookError> {
        let url = config.url(timeout);
        let failed = |why: String| WebhookError::Post {
            url: url.clone(),
            why,
        };
        let destination = self.destination(config).await?;
        let exchange = async {
            let request = request(&destination, &url, body).map_err(&failed)?;
            self.exchange(&destination, request).await.map_err(&failed)
        };
        let (status, body) = tokio::time::timeout(timeout, exchange)
            .await
            .map_err(|_| failed("context deadline exceeded".to_owned()))??;
        response::accepted(status, body)
    }

    async fn exchange(
        &self,
        destination: &Arc<Destination>,
        request: Request<Full<Bytes>>,
    ) -> Result<(http::StatusCode, Bytes), String> {
        let mut request = request;
        // A connection that the other side has closed in the meantime gives the request back.
        while let Some(mut sender) = destination.idle() {
            match sender.try_send_request(request).await {
                Ok(response) => return self.finish(destination, sender, response).await,
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error::of_hyper(&error.into_error())),
                },
            }
        }
        let mut sender = self.connect(destination).await?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| error::of_hyper(&error))?;
        self.finish(destination, sender, response).await
    }

    async fn finish(
        &self,
        destination: &Arc<Destination>,
        sender: SendRequest<Full<Bytes>>,
        response: http::Response<hyper::body::Incoming>,
    ) -> Result<(http::StatusCode, Bytes), String> {
        let (parts, body) = response.into_parts();
        let body = response::read(body).await?;
        destination.keep(sender);
        Ok((parts.status, body))
    }

    async fn connect(
        &self,
        destination: &Arc<Destination>,
    ) -> Result<SendRequest<Full<Bytes>>, String> {
        let (host, port) = match &destination.address {
            Address::Url { host, port, .. } => (host.clone(), *port),
            Address::Service {
                namespace,
                name,
                port,
                ..
            } => {
                let services = &self.shared.services;
                services.resolve(namespace, name, *port).await?
            }
        };
        connect::connect(&self.shared.tasks, destination, &host, port).await
    }

    async fn destination(&self, config: &ClientConfig) -> Result<Arc<Destination>, WebhookError> {
        if let Some(known) = self.destinations.lock().get(config) {
            return Ok(known.clone());
        }
        let credential = self.credentials.of(&config.address).unwrap_or_default();
        let certificate = credential.certificate.clone();
        let shared = &self.shared;
        let tls = trust::client_config(config, certificate, &shared.system_roots, &shared.tasks);
        let tls = tls.await.map_err(WebhookError::Config)?;
        let server_name = config.server_name().map_err(WebhookError::Config)?;
        let made = Arc::new(Destination::new(
            config.address.clone(),
            server_name,
            tls,
            credential,
        ));
        let mut destinations = self.destinations.lock();
        if destinations.len() >= DESTINATIONS_MAX {
            // Configurations that are gone leave theirs behind; who is still called makes a new one.
            destinations.clear();
        }
        Ok(destinations.entry(config.clone()).or_insert(made).clone())
    }
}

fn request(
    destination: &Destination,
    url: &str,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, String> {
    let uri: http::Uri = url
        .parse()
        .map_err(|e: http::uri::InvalidUri| e.to_string())?;
    let authorization = destination.credential.authorization()?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::HOST, destination.address.authority())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
        .header(
            header::USER_AGENT,
            concat!("watchet/", env!("CARGO_PKG_VERSION")),
        )
        .body(Full::new(body))
        .map_err(|error| error.to_string())?;
    if let Some(authorization) = authorization {
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, authorization);
    }
    Ok(request)
}
