//! A scripted HTTP server for tests, over a real socket, optionally with TLS.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{RestClient, RestConfig};
use watchet_tasks::Tasks;

/// How the body of a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Normally.
    Complete,
    /// The connection is closed.
    Cut,
    /// Never.
    Never,
}

/// A scripted response.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    code: u16,
    headers: String,
    /// Each is written separately.
    pieces: Vec<Vec<u8>>,
    end: End,
}

impl Reply {
    /// Creates a complete response.
    pub(crate) fn new(code: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::pieces(code, vec![body.into()], End::Complete)
    }

    /// Creates a response that is sent in pieces.
    pub(crate) fn pieces(code: u16, pieces: Vec<Vec<u8>>, end: End) -> Self {
        Self {
            code,
            headers: String::new(),
            pieces,
            end,
        }
    }

    /// Creates a failure with a `Status`.
    pub(crate) fn failure(code: u16, reason: &str) -> Self {
        let status = watchet_api::Status::failure(code, reason, format!("message of {reason}"));
        Self::new(code, serde_json::to_vec(&status).unwrap())
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers += &format!("{name}: {value}\r\n");
        self
    }
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    /// `GET /api/v1/pods?limit=1`
    pub(crate) line: String,
    /// Lower-case name, and value.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl ReceivedRequest {
    /// Returns the value of a header; empty if absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }
}

#[derive(Debug, Default)]
struct Script {
    replies: VecDeque<Reply>,
    requests: Vec<ReceivedRequest>,
}

/// A running server, stopped when dropped.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    script: Arc<Mutex<Script>>,
    tasks: Tasks,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl Fake {
    /// Starts a server that sends these replies in turn, whatever the requests.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::start_with(replies, None).await
    }

    /// Starts a server with TLS.
    pub(crate) async fn start_with(
        replies: impl IntoIterator<Item = Reply>,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let script = Arc::new(Mutex::new(Script {
            replies: replies.into_iter().collect(),
            requests: Vec::new(),
        }));
        let fake = Self {
            address: listener.local_addr().unwrap(),
            script: script.clone(),
            tasks: Tasks::new(),
        };
        let tasks = fake.tasks.clone();
        let accept = async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (script, tls, token) = (script.clone(), tls.clone(), tasks.token());
                let serving = async move {
                    match tls {
                        None => serve(socket, &script).await,
                        // A client that is rejected here sends no request.
                        Some(tls) => match TlsAcceptor::from(tls).accept(socket).await {
                            Ok(socket) => serve(socket, &script).await,
                            Err(error) => println!("handshake: {error}"),
                        },
                    }
                };
                drop(tasks.spawn("fake-connection", token.run_until_cancelled_owned(serving)));
            }
        };
        let token = fake.tasks.token();
        drop(
            fake.tasks
                .spawn("fake-server", token.run_until_cancelled_owned(accept)),
        );
        fake
    }

    /// Appends a reply.
    pub(crate) fn then(&self, reply: Reply) {
        self.script.lock().replies.push_back(reply);
    }

    /// Returns the requests received so far.
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.script.lock().requests.clone()
    }

    /// Returns the request lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.requests()
            .into_iter()
            .map(|request| request.line)
            .collect()
    }

    /// Returns a client of the server.
    pub(crate) fn client(&self) -> RestClient {
        RestClient::new(&RestConfig::new(format!("http://{}", self.address))).unwrap()
    }
}

/// Serves the requests of a connection until it ends.
async fn serve(mut socket: impl AsyncRead + AsyncWrite + Unpin, script: &Mutex<Script>) {
    while let Some(request) = read(&mut socket).await {
        let reply = {
            let mut script = script.lock();
            let line = request.line.clone();
            script.requests.push(request);
            let reply = script.replies.pop_front();
            reply.unwrap_or_else(|| panic!("no reply for {line}"))
        };
        let head = format!(
            "HTTP/1.1 {} X\r\ncontent-type: application/json\r\n{}transfer-encoding: chunked\r\n\r\n",
            reply.code, reply.headers
        );
        let mut sent = socket.write_all(head.as_bytes()).await;
        for piece in &reply.pieces {
            let length = format!("{:x}\r\n", piece.len());
            let chunk = [length.as_bytes(), piece, b"\r\n"].concat();
            sent = sent.and(socket.write_all(&chunk).await);
            sent = sent.and(socket.flush().await);
        }
        match reply.end {
            End::Complete => sent = sent.and(socket.write_all(b"0\r\n\r\n").await),
            End::Cut => return,
            End::Never => std::future::pending().await,
        }
        if sent.and(socket.flush().await).is_err() {
            return;
        }
    }
}

/// Reads the next request; `None` at the end of the connection.
async fn read(socket: &mut (impl AsyncRead + Unpin)) -> Option<ReceivedRequest> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_lowercase(), value.trim().to_owned()))
    };
    let mut request = ReceivedRequest {
        line,
        headers: lines.filter_map(header).collect(),
        body: Vec::new(),
    };
    request.body = vec![0; request.header("content-length").parse().unwrap_or(0)];
    socket.read_exact(&mut request.body).await.ok()?;
    Some(request)
}
