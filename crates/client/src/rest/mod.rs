//! `RestClient`: sends requests to a Kubernetes server over a shared pool of connections. It caches
//! nothing and does not retry.

mod api_resource;
mod call;
mod config;
mod config_sources;
mod connect;
mod credentials;
mod dial;
mod discovery;
mod error;
mod exec;
mod exec_plugin;
#[cfg(test)]
pub(crate) mod fake;
mod invalid_config;
mod issued_credentials;
mod kubeconfig;
mod kubeconfig_exec;
mod material;
mod path;
mod pem;
mod resource_client;
mod review_retry;
mod tls;
mod tls_error;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::DropGuard;

use super::FOREVER;
use watchet_tasks::Tasks;

pub use api_resource::{ApiResource, ObjectScope};
pub(crate) use call::Call;
pub use config::{Impersonate, RestConfig, Token};
pub use config_sources::RestConfigError;
pub use dial::{ByteStream, Dialer};
pub use discovery::{Discovery, UnknownResource};
pub use error::RestError;
pub use exec_plugin::ExecPlugin;
pub use invalid_config::InvalidRestConfig;
pub use kubeconfig::{Kubeconfig, KubeconfigError};
pub(crate) use path::Path;
pub use pem::{ClientCertificate, Pem};
pub use resource_client::{ListParams, ObjectList, Patch, ResourceClient};
pub use review_retry::retry_review;
pub use tls_error::connection_error_message;

use connect::{Pools, StreamPermit};
use credentials::{Credentials, UsedCredentials};

/// The maximum size of a response. A list of 100,000 pods has some hundred MB; larger lists need
/// pages. A larger response is considered an attack on this process' memory.
const RESPONSE_BYTES_MAX: usize = 1 << 30;

/// The maximum number of bytes read of a failure's body.
const FAILURE_BYTES_MAX: usize = 1 << 20;

/// The maximum size of a review: the user of a token, or a decision. Reviews are cached.
const REVIEW_BYTES_MAX: usize = 1 << 20;

/// A client of one server. Clones share its connections, which end with the last clone and the last
/// watch.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchet_client::{ApiResource, Kubeconfig, RestClient, RestConfig};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let kubeconfig = Kubeconfig::load(&["kubeconfig"])?;
/// let client = RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None)?)?;
///
/// let maps = client.resource::<ConfigMap>(ApiResource::of::<ConfigMap>()).namespace("default");
/// let mut map = ConfigMap::default();
/// map.metadata.name = Some("colours".into());
/// map.data = Some([("watchet".into(), "#7cafc2".into())].into());
/// let made = maps.create(&map).await?;
/// assert!(made.metadata.uid.is_some());
/// assert!(maps.create(&map).await.unwrap_err().is_already_exists());
/// assert!(maps.get("shapes").await.unwrap_err().is_not_found());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RestClient {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pools: Pools,
    /// The prefix of all request URLs: `https://10.0.0.1:6443`.
    server: String,
    namespace: String,
    credentials: Credentials,
    user_agent: HeaderValue,
    timeout: Duration,
    _connections: DropGuard,
}

/// The body of a streaming response. It keeps the client's connections open.
pub(crate) struct Body {
    incoming: Incoming,
    client: RestClient,
    _permit: StreamPermit,
}

impl Body {
    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, RestError> {
        while let Some(frame) = self.incoming.frame().await {
            let frame =
                frame.map_err(|error| RestError::from_body(&self.client.shared.server, &error))?;
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Creates the error of a failed connection.
    pub(crate) fn lost(&self, detail: &str) -> RestError {
        RestError::Connection {
            server: self.client.shared.server.clone(),
            detail: detail.to_owned(),
        }
    }

    /// See [`RestClient::unreadable`].
    pub(crate) fn unreadable(&self, error: &dyn std::fmt::Display) -> RestError {
        self.client.unreadable(error)
    }

    /// Reads the complete body.
    async fn whole(mut self, bytes_max: usize) -> Result<Bytes, RestError> {
        let Some(first) = self.next().await? else {
            return Ok(Bytes::new());
        };
        // Most bodies are a single piece, which need not be copied.
        let Some(second) = self.next().await? else {
            return Ok(first);
        };
        let mut whole = BytesMut::from(first);
        let mut next = Some(second);
        while let Some(piece) = next {
            if whole.len() + piece.len() > bytes_max {
                return Err(RestError::InvalidResponse {
                    server: self.client.shared.server.clone(),
                    detail: format!(
                        "the response is larger than {bytes_max} bytes (a list can be requested in pages)"
                    ),
                });
            }
            whole.extend_from_slice(&piece);
            next = self.next().await?;
        }
        Ok(whole.freeze())
    }
}

impl RestClient {
    /// Creates a client. It connects on the first request.
    ///
    /// # Errors
    /// The URL, a certificate, a key, the token or the proxy is invalid.
    pub fn new(config: &RestConfig) -> Result<Self, InvalidRestConfig> {
        let invalid = |detail: String| InvalidRestConfig {
            server: config.server.clone(),
            detail,
        };
        let server = config.server.trim_end_matches('/').to_owned();
        let uri: Uri = server
            .parse()
            .map_err(|_| invalid("it is not a URL".to_owned()))?;
        if !matches!(uri.scheme_str(), Some("https" | "http")) || uri.host().is_none() {
            let detail = "it must start with https:// or http:// and have a host";
            return Err(invalid(detail.to_owned()));
        }
        let user_agent = HeaderValue::try_from(&config.user_agent)
            .map_err(|_| invalid("the user agent is not a valid header value".to_owned()))?;
        let tasks = Tasks::new();
        let connections = tasks.token().drop_guard();
        Ok(Self {
            shared: Arc::new(Shared {
                pools: Pools::new(config, tasks).map_err(&invalid)?,
                server,
                namespace: config.namespace.clone(),
                credentials: Credentials::new(config).map_err(&invalid)?,
                user_agent,
                timeout: config.timeout.min(FOREVER),
                _connections: connections,
            }),
        })
    }

    /// Returns the server's URL.
    pub fn server(&self) -> &str {
        &self.shared.server
    }

    /// Returns the default namespace.
    pub fn default_namespace(&self) -> &str {
        &self.shared.namespace
    }

    /// Posts a JSON `body` to the URL of the server itself, which is a webhook, and waits for a 2xx response, whose body is
    /// discarded. As client-go, the request has the parameter `timeout`.
    ///
    /// # Errors
    /// The server was not reached, did not respond within the timeout, or responded with a failure.
    pub async fn post(&self, body: Bytes) -> Result<(), RestError> {
        let deadline = Instant::now() + self.shared.timeout;
        let path = self.webhook_path();
        let response = self.open_until(Self::webhook_call(&path, body), deadline);
        let body = timeout_at(deadline, response.await?.whole(FAILURE_BYTES_MAX)).await;
        body.map_err(|_| self.late())?.map(drop)
    }

    /// As [`Self::post`], and decodes the JSON of the response.
    ///
    /// # Errors
    /// As [`Self::post`], or the response is no such JSON or is larger than 1 MiB.
    pub async fn post_json<T: DeserializeOwned>(&self, body: Bytes) -> Result<T, RestError> {
        self.post_json_with_headers(body, HeaderMap::new()).await
    }

    /// As [`Self::post_json`], with additional `headers`, such as those of the trace context.
    ///
    /// # Errors
    /// As [`Self::post_json`].
    pub async fn post_json_with_headers<T: DeserializeOwned>(
        &self,
        body: Bytes,
        headers: HeaderMap,
    ) -> Result<T, RestError> {
        let path = self.webhook_path();
        let call = Call {
            headers,
            ..Self::webhook_call(&path, body)
        };
        let body = self.fetch_at_most(call, REVIEW_BYTES_MAX).await?;
        serde_json::from_slice(&body).map_err(|error| self.unreadable(&error))
    }

    /// Posts a JSON `body` to `path`, which is not about objects, and decodes the JSON of the response.
    ///
    /// # Errors
    /// As [`Self::post_json`].
    pub async fn post_to<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Bytes,
    ) -> Result<T, RestError> {
        let path = Path::new(path);
        let body = self.fetch_at_most(Self::webhook_call(&path, body), REVIEW_BYTES_MAX);
        serde_json::from_slice(&body.await?).map_err(|error| self.unreadable(&error))
    }

    /// Requests `path`, which must be escaped, with the parameters `query`, and returns the body of the response in pieces.
    /// Only the head of the response has a timeout.
    ///
    /// # Errors
    /// The server was not reached, or responded with a failure. The stream ends with an error if the connection fails.
    pub async fn get_stream(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<impl Stream<Item = Result<Bytes, RestError>> + Send + use<>, RestError> {
        let body = self.open(Call::get(&with_query(path, query))).await?;
        let next = |mut body: Body| async move {
            let piece = body.next().await?;
            Ok(piece.map(|piece| (piece, body)))
        };
        Ok(futures_util::stream::try_unfold(body, next))
    }

    /// Requests `path`, which must be escaped, with the parameters `query`, and returns the body of the response.
    /// `accept` is the media type.
    ///
    /// # Errors
    /// The server was not reached, did not respond within the timeout, or responded with a failure.
    pub async fn get_document(
        &self,
        path: &str,
        query: &[(&str, &str)],
        accept: &'static str,
    ) -> Result<Bytes, RestError> {
        let path = with_query(path, query);
        let call = Call {
            accept,
            ..Call::get(&path)
        };
        self.fetch(call).await
    }

    /// As [`Self::get_document`], and decodes the JSON of the response.
    ///
    /// # Errors
    /// As [`Self::get_document`], or the response is no such JSON.
    pub async fn get_json<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, RestError> {
        self.fetch_json(Call::get(&with_query(path, query))).await
    }

    fn webhook_path(&self) -> Path {
        let authority = self.shared.server.split_once("://");
        let has_path = authority.is_some_and(|(_, rest)| rest.contains('/'));
        let path = Path::new(if has_path { "" } else { "/" });
        let seconds = self.shared.timeout.as_secs_f64().ceil();
        path.query("timeout", format_args!("{seconds}s"))
    }

    fn webhook_call(path: &Path, body: Bytes) -> Call<'_> {
        Call {
            method: Method::POST,
            body,
            ..Call::get(path)
        }
    }

    /// Sends a request and returns the response's body as a stream; only the head has a timeout.
    pub(crate) async fn open(&self, call: Call<'_>) -> Result<Body, RestError> {
        let deadline = Instant::now() + self.shared.timeout;
        self.open_until(call, deadline).await
    }

    /// Sends a request and returns the complete body.
    pub(crate) async fn fetch(&self, call: Call<'_>) -> Result<Bytes, RestError> {
        self.fetch_at_most(call, RESPONSE_BYTES_MAX).await
    }

    async fn fetch_at_most(&self, call: Call<'_>, bytes_max: usize) -> Result<Bytes, RestError> {
        let deadline = Instant::now() + self.shared.timeout;
        let body = self.open_until(call, deadline).await?;
        let whole = timeout_at(deadline, body.whole(bytes_max)).await;
        whole.map_err(|_| self.late())?
    }

    /// Sends a request and decodes the body as JSON.
    pub(crate) async fn fetch_json<T: DeserializeOwned>(
        &self,
        call: Call<'_>,
    ) -> Result<T, RestError> {
        let body = self.fetch(call).await?;
        serde_json::from_slice(&body).map_err(|error| self.unreadable(&error))
    }

    async fn open_until(&self, call: Call<'_>, deadline: Instant) -> Result<Body, RestError> {
        let method = call.method.clone();
        // A credential plugin may hang, too.
        let request = timeout_at(deadline, self.request(call)).await;
        let (request, shown) = request.map_err(|_| self.late())??;
        let (pool, permit) = self.shared.pools.acquire();
        let response = timeout_at(deadline, pool.request(request)).await;
        let response = response.map_err(|_| self.late())?.map_err(|error| {
            self.shared.pools.force_read();
            RestError::from_client(&self.shared.server, &error)
        })?;
        let (status, headers, body) = self.opened(response, permit);
        if status.is_success() {
            return Ok(body);
        }
        if status == StatusCode::UNAUTHORIZED {
            self.shared.credentials.discard(&shown);
            self.shared.pools.force_read();
        }
        let body = timeout_at(deadline, body.whole(FAILURE_BYTES_MAX)).await;
        let body = body.map_err(|_| self.late())??;
        Err(RestError::from_response(&method, status, &headers, &body))
    }

    async fn request(
        &self,
        call: Call<'_>,
    ) -> Result<(Request<Full<Bytes>>, UsedCredentials), RestError> {
        let sent = !call.body.is_empty();
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("{}{}", self.shared.server, call.path.as_str()))
            .body(Full::new(call.body))
            .map_err(|error| RestError::Request(format!("{}: {error}", call.path.as_str())))?;
        let headers = request.headers_mut();
        *headers = call.headers;
        headers.insert(ACCEPT, HeaderValue::from_static(call.accept));
        headers.insert(USER_AGENT, self.shared.user_agent.clone());
        if sent {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type));
        }
        let shown = self.shared.credentials.add(headers).await?;
        let refreshed = self.shared.pools.refresh(shown.identity()).await;
        refreshed.map_err(RestError::Credentials)?;
        Ok((request, shown))
    }

    fn opened(
        &self,
        response: Response<Incoming>,
        permit: StreamPermit,
    ) -> (StatusCode, HeaderMap, Body) {
        let (head, incoming) = response.into_parts();
        let body = Body {
            incoming,
            client: self.clone(),
            _permit: permit,
        };
        (head.status, head.headers, body)
    }

    fn late(&self) -> RestError {
        RestError::Timeout {
            server: self.shared.server.clone(),
            timeout: self.shared.timeout,
        }
    }

    /// Creates the error of a response that cannot be decoded.
    pub(crate) fn unreadable(&self, error: &dyn std::fmt::Display) -> RestError {
        RestError::InvalidResponse {
            server: self.shared.server.clone(),
            detail: error.to_string(),
        }
    }
}

fn with_query(path: &str, query: &[(&str, &str)]) -> Path {
    let parameters = query.iter();
    parameters.fold(Path::new(path), |path, (name, value)| {
        path.query(name, value)
    })
}

#[cfg(test)]
mod tests;
