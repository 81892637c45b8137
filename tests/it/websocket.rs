//! Tests of watches over WebSockets, with the client of another implementation and the real program on both back ends:
//! the events, and the close of the connection by each side.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::future::join_all;
use futures::{SinkExt as _, StreamExt as _};
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::harness::{PATIENCE, Protocol, Server, on_both, tls};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

on_both!(|server| (server) => [
    websocket_sends_the_events_of_a_watch,
    errors_before_and_after_the_upgrade,
    client_and_server_can_close,
    a_client_that_does_not_read_misses_nothing,
    pings_without_reading_are_not_buffered,
    a_watch_ends_with_an_error_event_when_its_client_loses_access,
]);

pub(crate) type Refusal = Box<Response<Option<Vec<u8>>>>;

/// Opens a WebSocket over a connection; also returns the head of the response.
pub(crate) async fn open_over<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Result<(WebSocketStream<S>, Response<Option<Vec<u8>>>), Refusal> {
    let mut request = format!("ws://localhost{path}")
        .into_client_request()
        .unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    let opened = timeout(PATIENCE, client_async(request, stream)).await;
    match opened.expect("an answer in time") {
        Ok(opened) => Ok(opened),
        Err(Error::Http(refusal)) => Err(refusal),
        Err(other) => panic!("{other}"),
    }
}

async fn open(server: &Server, path: &str, accept: &str) -> WebSocketStream<TcpStream> {
    let stream = TcpStream::connect(server.insecure()).await.unwrap();
    let opened = open_over(stream, path, &[("accept", accept)]).await;
    opened.expect("it opens").0
}

async fn next<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) -> Message {
    let next = timeout(PATIENCE, socket.next()).await.expect("in time");
    next.expect("it goes on").expect("a message")
}

/// Returns the data of the messages up to the close and the close code; asserts that nothing follows.
async fn rest<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
) -> (Vec<Message>, CloseCode) {
    let mut messages = Vec::new();
    loop {
        match next(socket).await {
            Message::Close(frame) => {
                let end = timeout(PATIENCE, socket.next()).await.expect("in time");
                // The connection may end without a close_notify, or before this side has replied: the close frame
                // came before.
                let hung_up = matches!(&end, Some(Err(Error::Io(_))));
                assert!(end.is_none() || hung_up, "{end:?}");
                return (messages, frame.expect("a code").code);
            }
            message => messages.push(message),
        }
    }
}

async fn put(server: &Server, name: &str, text: &str) -> String {
    let mut wire = server.plain(Protocol::Http1).await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name}, "data": {"text": text},
    });
    let answer = wire.post(MAPS, &map).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let version = answer.json()["metadata"]["resourceVersion"].clone();
    version.as_str().unwrap().to_owned()
}

async fn websocket_sends_the_events_of_a_watch(server: &Server) {
    let begin = put(server, "a", "ä").await;
    put(server, "b", "x").await;
    put(server, "c", "x").await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let protobuf = "application/vnd.kubernetes.protobuf";
    // Long enough for the events on a busy machine.
    let path = &format!("{MAPS}?watch=true&timeoutSeconds=5&resourceVersion={begin}");
    let checks = ["*/*", table, metadata, protobuf].map(|accept| async move {
        let mut wire = server.plain(Protocol::Http1).await;
        let mut socket = open(server, path, accept).await;
        let accepts = [("accept", accept)];
        let watched = wire.send(Method::GET, path, &accepts, "");
        let (body, (messages, code)) = tokio::join!(watched, rest(&mut socket));
        assert_eq!(code, CloseCode::Normal);
        assert_eq!(messages.len(), 2, "{messages:?}");
        let messages: Vec<Bytes> = match accept == protobuf {
            true => length_prefixed(&messages),
            false => messages.iter().map(text).collect(),
        };
        // The ages in a Table may differ between the two reads.
        if accept != table {
            assert_eq!(Bytes::from(messages.concat()), body.body, "{accept}");
        }
    });
    join_all(checks).await;
    // Initial events come first here too, and bookmarks are sent.
    let path = format!(
        "{MAPS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
                        &resourceVersionMatch=NotOlderThan"
    );
    let mut socket = open(server, &path, "*/*").await;
    let mut types = Vec::new();
    while types.last() != Some(&json!("BOOKMARK")) {
        let event: Value = serde_json::from_slice(&text(&next(&mut socket).await)).unwrap();
        types.push(event["type"].clone());
    }
    assert!(types.len() >= 4 && types[0] == "ADDED", "{types:?}");
    put(server, "d", "x").await;
    let event: Value = serde_json::from_slice(&text(&next(&mut socket).await)).unwrap();
    assert_eq!(event["object"]["metadata"]["name"], "d");
}

async fn a_watch_ends_with_an_error_event_when_its_client_loses_access(server: &Server) {
    server.allow_everything("jane").await;
    let stream = TcpStream::connect(server.insecure()).await.unwrap();
    let path = format!("{MAPS}?watch=true");
    let opened = open_over(stream, &path, &[("impersonate-user", "jane")]).await;
    let (mut socket, _) = opened.expect("it opens");
    let mut admin = server.plain(Protocol::Http1).await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let all = admin.get(bindings).await.json();
    for binding in all["items"].as_array().unwrap() {
        let name = binding["metadata"]["name"].as_str().unwrap();
        if name.starts_with("allow-") {
            let path = format!("{bindings}/{name}");
            let deleted = admin.send(Method::DELETE, &path, &[], "").await;
            assert_eq!(deleted.status, StatusCode::OK);
        }
    }
    let (messages, code) = rest(&mut socket).await;
    assert_eq!(code, CloseCode::Normal);
    let last: Value = serde_json::from_slice(&text(messages.last().unwrap())).unwrap();
    assert_eq!(
        (&last["type"], &last["object"]["code"]),
        (&json!("ERROR"), &json!(403)),
        "{last}"
    );
}

fn text(message: &Message) -> Bytes {
    match message {
        Message::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
        other => panic!("{other:?} is no text"),
    }
}

fn length_prefixed(messages: &[Message]) -> Vec<Bytes> {
    let with_length = |message: &Message| match message {
        Message::Binary(data) => {
            let length = u32::try_from(data.len()).unwrap().to_be_bytes();
            Bytes::from([&length[..], data].concat())
        }
        other => panic!("{other:?} is not binary"),
    };
    messages.iter().map(with_length).collect()
}

async fn errors_before_and_after_the_upgrade(server: &Server) {
    let refused = async |path: &str, headers: &[(&'static str, &str)]| {
        let stream = TcpStream::connect(server.insecure()).await.unwrap();
        let refusal = open_over(stream, path, headers).await.expect_err("refused");
        let body = refusal.body().clone().unwrap_or_default();
        let status: Value = serde_saphyr::from_slice(&body).expect("a Status, JSON or YAML");
        assert_eq!(status["code"], refusal.status().as_u16(), "{status}");
        (refusal.status().as_u16(), status["message"].to_string())
    };
    assert_eq!(refused("/api/v1/sofas?watch=true", &[]).await.0, 404);
    let wrong = format!("{MAPS}?watch=true&resourceVersion=x");
    assert_eq!(refused(&wrong, &[]).await.0, 400);
    let path = format!("{MAPS}?watch=true");
    let yaml = [("accept", "application/yaml")];
    assert_eq!(refused(&path, &yaml).await.0, 406);
    let (code, message) = refused(&path, &[("sec-websocket-protocol", "a, b")]).await;
    assert!(
        code == 400 && message.contains("several"),
        "{code} {message}"
    );

    let future = format!(
        "{path}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                          &resourceVersion=99999999"
    );
    let (messages, code) = rest(&mut open(server, &future, "*/*").await).await;
    let event: Value = serde_json::from_slice(&text(&messages[0])).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(504))
    );
    assert_eq!((messages.len(), code), (1, CloseCode::Normal));
}

async fn client_and_server_can_close(server: &Server) {
    let path = format!("{MAPS}?watch=true");
    let stream = TcpStream::connect(server.insecure()).await.unwrap();
    let named = [("sec-websocket-protocol", "mine")];
    let (mut socket, head) = open_over(stream, &path, &named).await.expect("it opens");
    assert_eq!(head.headers()["sec-websocket-protocol"], "mine");
    socket.send(Message::text("whatever")).await.unwrap();
    socket
        .send(Message::Ping(Bytes::from_static(b"there?")))
        .await
        .unwrap();
    assert_eq!(
        next(&mut socket).await,
        Message::Pong(Bytes::from_static(b"there?"))
    );
    put(server, "e", "x").await;
    assert!(matches!(next(&mut socket).await, Message::Text(_)));
    socket.close(None).await.unwrap();
    let answer = next(&mut socket).await;
    assert!(matches!(answer, Message::Close(_)), "{answer:?}");
    let end = timeout(PATIENCE, socket.next()).await.expect("in time");
    assert!(end.is_none(), "{end:?}");
    // The server disconnects a client that sends more than the limit.
    let mut talker = open(server, &path, "*/*").await;
    let flood = Message::Binary(Bytes::from(vec![0; 64 << 10]));
    let sent = talker.send(flood).await;
    let mut ended = sent.is_err();
    while !ended {
        let next = timeout(PATIENCE, talker.next()).await.expect("in time");
        ended = !matches!(next, Some(Ok(Message::Text(_))));
    }
}

/// More data than socket buffers hold: the watch is parked and continues when the client reads.
async fn a_client_that_does_not_read_misses_nothing(server: &Server) {
    const WRITES: usize = 60;
    let path = format!(
        "{MAPS}?watch=true&resourceVersion=0&sendInitialEvents=false\
                        &resourceVersionMatch=NotOlderThan"
    );
    let mut slow = open(server, &path, "*/*").await;
    let text_of_one = "x".repeat(256 << 10);
    for number in 0..WRITES {
        put(server, &format!("slow-{number:03}"), &text_of_one).await;
    }
    for number in 0..WRITES {
        let event: Value = serde_json::from_slice(&text(&next(&mut slow).await)).unwrap();
        assert_eq!(
            event["object"]["metadata"]["name"],
            format!("slow-{number:03}")
        );
    }
}

/// The replies to pings of a client that did not read filled the server's memory, some 300 MB a second.
async fn pings_without_reading_are_not_buffered(server: &Server) {
    const PINGS: usize = 250_000;
    let path = format!("{MAPS}?watch=true&timeoutSeconds=3600");
    let socket = open(server, &path, "*/*").await;
    let mut stream = socket.into_inner();
    // A masked ping with the maximum payload: 32 MB in all, more than the buffers of both sockets.
    let ping = [&b"\x89\xfd\0\0\0\0"[..], &[b'x'; 125]].concat();
    let (mut reader, mut writer) = stream.split();
    let send = async {
        for _ in 0..PINGS / 1000 {
            writer
                .write_all(&ping.repeat(1000))
                .await
                .expect("it reads");
        }
    };
    let mut send = std::pin::pin!(send);
    let sent = timeout(Duration::from_secs(3), &mut send).await;
    sent.expect_err("the server does not read on while its replies are not read");
    // When the client reads, every ping has its reply.
    let replies = async {
        let mut all = vec![0; PINGS * (2 + 125)];
        reader.read_exact(&mut all).await.expect("all replies");
        all
    };
    // The server sends each reply with a system call of its own.
    let (all, ()) = timeout(4 * PATIENCE, async { tokio::join!(replies, send) })
        .await
        .expect("in time");
    assert!(all.chunks(127).all(|pong| pong.starts_with(b"\x8a\x7dxx")));
}

#[tokio::test]
async fn shutdown_closes_without_waiting_for_the_client() {
    // A grace period longer than the time limit of the test.
    let mut server = Server::start(&["--storage=memory", "--shutdown-grace-period=1h"]).await;
    let path = format!("{MAPS}?watch=true");
    let mut reads = open(&server, &path, "*/*").await;
    let _does_not_read = open(&server, &path, "*/*").await;
    let text_of_one = "x".repeat(512 << 10);
    for number in 0..30 {
        put(&server, &format!("stop-{number:03}"), &text_of_one).await;
        assert!(matches!(next(&mut reads).await, Message::Text(_)));
    }
    server.signal("TERM");
    let (_, code) = rest(&mut reads).await;
    assert_eq!(code, CloseCode::Away);
    let ended = server.wait().await;
    assert!(ended.success(), "{ended}:\n{}", server.log());
}

/// As dashboards in a browser do.
#[tokio::test]
async fn a_token_may_be_a_subprotocol() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.csv");
    std::fs::write(&tokens, "s3cret,jane,u1\n").unwrap();
    let tokens = format!("--token-auth-file={}", tokens.display());
    let server = Server::start(&["--storage=memory", &tokens]).await;
    server.allow_everything("jane").await;
    let ask = async |protocols: &str| {
        let config = server.kubeconfig_value();
        let stream = tls(server.secure(), &config, None, Protocol::Http1).await;
        let path = format!("{MAPS}?watch=true&timeoutSeconds=1");
        let headers = [
            ("sec-websocket-protocol", protocols),
            ("origin", "https://a.example"),
        ];
        match open_over(stream, &path, &headers).await {
            Ok((mut socket, head)) => {
                assert_eq!(rest(&mut socket).await.1, CloseCode::Normal);
                Ok(head.headers()["sec-websocket-protocol"].clone())
            }
            Err(refusal) => Err(refusal.status().as_u16()),
        }
    };
    let token = |token: &str| {
        let encoded = BASE64_URL_SAFE_NO_PAD.encode(token);
        format!("base64url.bearer.authorization.k8s.io.{encoded}")
    };
    let received = ask(&format!("{}, mine", token("s3cret"))).await;
    assert_eq!(received.unwrap(), "mine");
    assert_eq!(ask(&format!("mine,{}", token("wrong"))).await, Err(401));
    assert_eq!(ask(&token("s3cret")).await, Err(401));
    assert_eq!(ask("mine").await, Err(401));
    server.stop().await;
}
