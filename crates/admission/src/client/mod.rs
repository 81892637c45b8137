//! The client of webhooks: one POST of JSON over HTTPS to the address of a [`ClientConfig`], on a reused connection
//! if there is one. It follows no redirects, uses no proxy, and supports only HTTP/1.1.
//!
//! # Definitions
//!
//! - *Destination*: one [`ClientConfig`], with its TLS settings and its idle connections.
//!
//! # Invariants
//!
//! 1. A call ends by its timeout and leaves no task running.
//! 2. A response has at most [`RESPONSE_BYTES_MAX`] and takes at most [`RESPONSE_MEMORY_MAX`] of memory when it is decoded.
//! 3. A connection is reused only after the complete response of the previous call was read.

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
pub use response::{RESPONSE_BYTES_MAX, RESPONSE_MEMORY_MAX};

use pool::Destination;
use trust::SystemRoots;
use watchet_tasks::Tasks;
use watchet_telemetry::{ChildSpan, KeyValue, text_attribute};

/// The maximum number of destinations with idle connections. Clusters have fewer webhooks.
const DESTINATIONS_MAX: usize = 256;

/// Resolves Services.
#[async_trait]
pub trait ServiceResolver: Send + Sync + std::fmt::Debug {
    /// Returns the host (a name or an address) and the port that serve `port` of the Service.
    ///
    /// # Errors
    /// The Service has no such address; the text is for users.
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
    /// Creates a client whose connections are tasks of `tasks`. `services` resolves Services.
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
    #[must_use]
    pub fn with_credentials(&self, credentials: WebhookCredentials) -> Self {
        Self {
            shared: self.shared.clone(),
            credentials,
            destinations: Arc::default(),
        }
    }

    /// Posts `body`, which is JSON, and returns the body of a 2xx response. Waits at most `timeout`, which it also
    /// sends as the parameter `timeout`, as upstream. Sends the current trace context. Cancel safe: a dropped call closes its
    /// connection.
    ///
    /// # Errors
    /// The call failed, or its status is not 2xx; with upstream's message.
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
        let span = client_span(&url);
        // Boxed: it is several kilobytes large, and the future of every write would reserve that space.
        let exchange = Box::pin(async {
            let mut request = request(&destination, &url, body).map_err(&failed)?;
            span.inject(request.headers_mut());
            let exchange = self.exchange(&destination, request);
            let exchanged = tokio::time::timeout(timeout, exchange).await;
            let exchanged =
                exchanged.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
            let (status, body) = exchanged.map_err(&failed)?;
            span.set_attribute(|| {
                KeyValue::new("http.response.status_code", i64::from(status.as_u16()))
            });
            response::accepted(status, body)
        });
        span.run_fallible(exchange).await
    }

    async fn exchange(
        &self,
        destination: &Arc<Destination>,
        request: Request<Full<Bytes>>,
    ) -> Result<(http::StatusCode, Bytes), String> {
        let mut request = request;
        // If the webhook has closed the connection, the error contains the unsent request.
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
            // Deleted configurations leave unused destinations here. The next call of a webhook that is still
            // configured creates its destination again.
            destinations.clear();
        }
        Ok(destinations.entry(config.clone()).or_insert(made).clone())
    }
}

/// Starts the span of a POST to `url`, with upstream's name.
fn client_span(url: &str) -> ChildSpan {
    ChildSpan::start_client(|| {
        let attributes = vec![
            KeyValue::new("http.request.method", "POST"),
            text_attribute("url.full", url),
        ];
        ("HTTP POST".into(), attributes)
    })
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
