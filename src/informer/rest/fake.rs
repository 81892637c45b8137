//! A server for tests that answers by a script, over a real socket, with TLS if need be. It knows no
//! Kubernetes: what it says is written in the test.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{RestClient, RestConfig};
use crate::tasks::Tasks;

/// How the body of a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::informer) enum End {
    /// As HTTP has it.
    Good,
    /// The connection is closed.
    Cut,
    /// Not at all.
    Never,
}

/// What is answered.
#[derive(Debug, Clone)]
pub(in crate::informer) struct Reply {
    code: u16,
    headers: String,
    /// Each is written by itself.
    pieces: Vec<Vec<u8>>,
    end: End,
}

impl Reply {
    /// A whole answer.
    pub(in crate::informer) fn new(code: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::pieces(code, vec![body.into()], End::Good)
    }

    /// One that comes in pieces.
    pub(in crate::informer) fn pieces(code: u16, pieces: Vec<Vec<u8>>, end: End) -> Self {
        Self {
            code,
            headers: String::new(),
            pieces,
            end,
        }
    }

    /// A failure as Kubernetes tells it.
    pub(in crate::informer) fn failure(code: u16, reason: &str) -> Self {
        let status = crate::api::Status::failure(code, reason, format!("told {reason}"));
        Self::new(code, serde_json::to_vec(&status).unwrap())
    }

    /// The same with a header.
    pub(in crate::informer) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers += &format!("{name}: {value}\r\n");
        self
    }
}

/// A request, as it came.
#[derive(Debug, Clone)]
pub(in crate::informer) struct Asked {
    /// `GET /api/v1/pods?limit=1`
    pub(in crate::informer) line: String,
    /// Name in small letters, and value.
    pub(in crate::informer) headers: Vec<(String, String)>,
    pub(in crate::informer) body: Vec<u8>,
}

impl Asked {
    /// The value of a header; empty if there is none.
    pub(in crate::informer) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }
}

#[derive(Debug, Default)]
struct Script {
    replies: VecDeque<Reply>,
    asked: Vec<Asked>,
}

/// A running server. It ends when this is dropped.
pub(in crate::informer) struct Fake {
    pub(in crate::informer) address: SocketAddr,
    script: Arc<Mutex<Script>>,
    tasks: Tasks,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl Fake {
    /// One that answers these in turn, whatever it is asked.
    pub(in crate::informer) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::start_with(replies, None).await
    }

    /// One with TLS.
    pub(in crate::informer) async fn start_with(
        replies: impl IntoIterator<Item = Reply>,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let script = Arc::new(Mutex::new(Script {
            replies: replies.into_iter().collect(),
            asked: Vec::new(),
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
                        // A client that is refused here never asks.
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

    /// Adds to what it answers.
    pub(in crate::informer) fn then(&self, reply: Reply) {
        self.script.lock().replies.push_back(reply);
    }

    /// What it was asked so far.
    pub(in crate::informer) fn asked(&self) -> Vec<Asked> {
        self.script.lock().asked.clone()
    }

    /// The same, without headers.
    pub(in crate::informer) fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }

    /// A client of it.
    pub(in crate::informer) fn client(&self) -> RestClient {
        RestClient::new(&RestConfig::new(format!("http://{}", self.address))).unwrap()
    }
}

/// Answers the requests of a connection until it ends.
async fn serve(mut socket: impl AsyncRead + AsyncWrite + Unpin, script: &Mutex<Script>) {
    while let Some(asked) = read(&mut socket).await {
        let reply = {
            let mut script = script.lock();
            let line = asked.line.clone();
            script.asked.push(asked);
            let reply = script.replies.pop_front();
            reply.unwrap_or_else(|| panic!("nothing is written for {line}"))
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
            End::Good => sent = sent.and(socket.write_all(b"0\r\n\r\n").await),
            End::Cut => return,
            End::Never => std::future::pending().await,
        }
        if sent.and(socket.flush().await).is_err() {
            return;
        }
    }
}

/// The next request; nothing at the end of the connection.
async fn read(socket: &mut (impl AsyncRead + Unpin)) -> Option<Asked> {
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
    let mut asked = Asked {
        line,
        headers: lines.filter_map(header).collect(),
        body: Vec::new(),
    };
    asked.body = vec![0; asked.header("content-length").parse().unwrap_or(0)];
    socket.read_exact(&mut asked.body).await.ok()?;
    Some(asked)
}
