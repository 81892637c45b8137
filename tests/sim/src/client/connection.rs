//! HTTP over a connection.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use watchet_tasks::Tasks;

use super::Client;
use super::object::Document;

/// How long a client waits for a response. Servers answer writes within their own, shorter time limit.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Why a request has no response. It may have been executed.
pub(super) type NoResponse = io::Error;

/// A connection to a server.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Ends the connection when it is dropped.
    _tasks: tokio_util::sync::DropGuard,
    pub(super) server: u32,
}

/// A response: its code, and its body or its Status.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) code: StatusCode,
    pub(super) document: Document,
}

impl Client {
    /// Opens a connection to a server that `random` decides.
    pub(super) async fn connect(
        &self,
        random: &mut fastrand::Rng,
    ) -> Result<Connection, NoResponse> {
        let server = random.usize(..self.servers.len());
        let to = &self.servers[server];
        let stream = self.transport.connect(&self.node, to).await?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        let tasks = Tasks::new();
        let token = tasks.token();
        let run = async move {
            // Requests report why it broke.
            drop(token.run_until_cancelled(connection).await);
        };
        drop(tasks.spawn("client-connection", run));
        Ok(Connection {
            sender,
            _tasks: tasks.token().drop_guard(),
            server: u32::try_from(server).unwrap_or(u32::MAX),
        })
    }
}

impl Connection {
    /// Sends a request and returns the response, whose body has not been read.
    ///
    /// # Errors
    /// The connection broke, or the response does not begin in time.
    pub(super) async fn open(
        &mut self,
        method: Method,
        uri: &str,
        body: String,
    ) -> Result<http::Response<Incoming>, NoResponse> {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("host", "localhost")
            .header("accept", "application/json")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(io::Error::other)?;
        let sent = async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        };
        let response = timeout(TIMEOUT, sent).await?;
        response.map_err(io::Error::other)
    }

    /// Sends a request and returns the complete response.
    ///
    /// # Errors
    /// The connection broke, or the response is not complete in time.
    pub(super) async fn send(
        &mut self,
        method: Method,
        uri: &str,
        body: String,
    ) -> Result<Response, NoResponse> {
        let response = self.open(method, uri, body).await?;
        Response::read(response).await
    }
}

impl Response {
    /// Reads the body.
    pub(super) async fn read(response: http::Response<Incoming>) -> Result<Self, NoResponse> {
        let code = response.status();
        let body = timeout(TIMEOUT, response.into_body().collect()).await?;
        let body = body.map_err(io::Error::other)?.to_bytes();
        let document = serde_json::from_slice(&body)?;
        Ok(Self { code, document })
    }
}
