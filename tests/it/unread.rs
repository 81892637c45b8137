//! Tests of requests that are rejected before their bodies are read: the client receives the response even if it is
//! still sending, over HTTP/1.1 and HTTP/2, with and without TLS.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use http::Method;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::harness::{Identity, PATIENCE, PROTOCOLS, Protocol, Server, Wire, tls};

/// A path that does not allow POST.
const NO_POST: &str = "/version";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A body that fits into the 256 KiB that the server discards before it responds.
const SMALL: usize = 64 << 10;
/// A body that does not fit.
const LARGE: usize = 2 << 20;

/// A body that is larger than the limit of bodies.
const HUGE: usize = 4 << 20;

/// The maximum number of incomplete bodies of one user.
const INCOMPLETE_MAX: usize = 200;

/// The interval at which an incomplete body continues, so that it does not time out.
const DRIP: Duration = Duration::from_secs(1);

/// The number of attempts: a race fails only now and then.
const ROUNDS: usize = 24;

/// A response of HTTP/1.1, read to its end by its Content-Length.
struct Raw {
    code: u16,
    head: String,
    body: String,
}

/// Sends a whole POST before it reads the response.
async fn post<S>(stream: &mut S, path: &str, headers: &str, body: &[u8]) -> Raw
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("it reads");
    stream.write_all(body).await.expect("it reads on");
    stream.flush().await.expect("it reads on");
    timeout(PATIENCE, read(stream)).await.expect("in time")
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Raw {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        let read = stream.read_buf(&mut bytes).await.expect("a response");
        assert!(read > 0, "no response: {bytes:?}");
    };
    let head = String::from_utf8(bytes[..end].to_vec()).expect("a head");
    let head = head.to_lowercase();
    let value = |name: &str| head.split(name).nth(1).and_then(|rest| rest.lines().next());
    let length: usize = value("content-length: ").unwrap_or("0").parse().unwrap();
    while bytes.len() < end + length {
        let read = stream.read_buf(&mut bytes).await.expect("a response");
        assert!(read > 0, "half a response: {bytes:?}");
    }
    Raw {
        code: head[9..12].parse().expect("a code"),
        body: String::from_utf8(bytes[end..].to_vec()).expect("a Status"),
        head,
    }
}

/// Asserts that the connection ends without a reset and, with TLS, with a close_notify.
async fn ends<S: AsyncRead + Unpin>(stream: &mut S) {
    let mut rest = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    assert_eq!(read.expect("an end").expect("an orderly end"), 0);
}

async fn plain(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.insecure()).await;
    stream.expect("a connection")
}

async fn secured(
    server: &Server,
    identity: Option<&Identity>,
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let config = server.kubeconfig_value();
    tls(server.secure(), &config, identity, Protocol::Http1).await
}

async fn refused<S>(stream: &mut S, path: &str, headers: &str, length: usize, code: u16) -> Raw
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let raw = post(stream, path, headers, &vec![b'x'; length]).await;
    assert_eq!(raw.code, code, "{path} {}", raw.body);
    assert!(raw.body.contains(r#""kind":"Status""#), "{}", raw.body);
    // A larger body may have been read before the rejection.
    let closes = raw.head.contains("connection: close");
    assert!(!closes || length > 256 << 10, "{}", raw.head);
    match closes {
        true => ends(stream).await,
        false => {
            // The connection can be used again.
            let raw = post(stream, NO_POST, "", b"").await;
            assert_eq!(raw.code, 405);
        }
    }
    raw
}

/// A rejected POST of 64 KiB ended in a broken pipe, or in the end of the TLS stream, without a response.
#[tokio::test]
async fn over_http1_the_response_arrives() {
    let server = Server::start(&[]).await;
    let admin = Identity::from_kubeconfig(&server.kubeconfig_value());
    for length in [SMALL, LARGE] {
        for _ in 0..ROUNDS {
            let raw = refused(&mut plain(&server).await, NO_POST, "", length, 405).await;
            let closes = raw.head.contains("connection: close");
            assert_eq!(closes, length == LARGE, "{}", raw.head);
        }
        for _ in 0..ROUNDS {
            let mut stream = secured(&server, Some(&admin)).await;
            refused(&mut stream, NO_POST, "", length, 405).await;
        }
    }
    server.stop().await;
}

/// Each way to reject a request before its body is read.
#[tokio::test]
async fn every_early_rejection_is_received() {
    let server = Server::start(&[]).await;
    for length in [SMALL, LARGE] {
        let mut stranger = secured(&server, None).await;
        let raw = post(&mut stranger, MAPS, "", &vec![b'x'; length]).await;
        assert_eq!(raw.code, 401, "{}", raw.body);
        for (path, headers, code) in [
            ("/apis/none.example.com/v1/things", "", 404),
            ("/nowhere", "", 404),
            (NO_POST, "", 405),
            (MAPS, "Accept: text/html\r\n", 406),
            (MAPS, "Content-Type: text/plain\r\n", 415),
            (&format!("{MAPS}?dryRun=Some"), "", 422),
            (&format!("{MAPS}?timeout=never"), "", 400),
        ] {
            refused(&mut plain(&server).await, path, headers, length, code).await;
        }
    }
    // Too large: rejected by its Content-Length, or after the first part of the body.
    refused(&mut plain(&server).await, MAPS, "", HUGE, 413).await;
    server.stop().await;
}

/// A client that waits for `100 Continue` gets the error response instead, and need not send the body.
#[tokio::test]
async fn an_early_response_does_not_wait_for_the_body() {
    let server = Server::start(&[]).await;
    let mut stream = plain(&server).await;
    let head = format!(
        "POST {NO_POST} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {SMALL}\r\n\
         Expect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let raw = timeout(PATIENCE, read(&mut stream)).await.expect("in time");
    assert_eq!(raw.code, 405);
    assert!(raw.head.contains("connection: close"), "{}", raw.head);
    // A client that never sends the announced body still gets the response.
    let begun = Instant::now();
    let mut stream = plain(&server).await;
    let head =
        format!("POST {NO_POST} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {SMALL}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let raw = timeout(PATIENCE, read(&mut stream)).await.expect("in time");
    assert_eq!(raw.code, 405);
    ends(&mut stream).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    server.stop().await;
}

#[tokio::test]
async fn over_http2_the_response_arrives() {
    let server = Server::start(&[]).await;
    for length in [SMALL, LARGE] {
        let body = "x".repeat(length);
        for secure in [false, true] {
            let mut wire: Wire = match secure {
                false => server.plain(Protocol::Http2).await,
                true => server.admin(Protocol::Http2).await,
            };
            for _ in 0..ROUNDS {
                let answer = wire.send(Method::POST, NO_POST, &[], &body).await;
                assert_eq!(answer.status, 405, "{length} {secure}");
                assert_eq!(answer.json()["kind"], "Status");
            }
        }
    }
    server.stop().await;
}

/// curl over HTTP/2 failed 9 of 24 times ("stream error").
#[tokio::test]
async fn curl_receives_every_response() {
    let server = Server::start(&[]).await;
    let directory = tempfile::tempdir().unwrap();
    for length in [SMALL, LARGE] {
        let file = directory.path().join(length.to_string());
        std::fs::write(&file, vec![b'x'; length]).unwrap();
        for protocol in PROTOCOLS {
            for client in [Client::Plain, Client::Admin] {
                let request = (client, NO_POST, &[][..]);
                for _ in 0..ROUNDS {
                    let output = curl(&server, protocol, request, &file).await;
                    let text = String::from_utf8_lossy(&output.stderr);
                    assert!(
                        output.status.success(),
                        "{length} {protocol:?} {client:?}: {text}"
                    );
                    assert_eq!(String::from_utf8_lossy(&output.stdout), "405");
                }
            }
        }
    }
    server.stop().await;
}

/// Rejections because of the user, the number of other requests, missing support in the server, and the size.
#[tokio::test]
async fn curl_receives_rejections_of_every_kind() {
    const PROXY: &str = "/api/v1/namespaces/default/pods/p/proxy";
    let server = Server::start(&[]).await;
    let directory = tempfile::tempdir().unwrap();
    let file = |length: usize| {
        let file = directory.path().join(length.to_string());
        std::fs::write(&file, vec![b'x'; length]).unwrap();
        file
    };
    let (small, large, huge) = (file(SMALL), file(LARGE), file(HUGE));
    make_pod(&server).await;
    let as_anonymous: &[&str] = &["Impersonate-User: system:anonymous"];
    let of_a_page: &[&str] = &["Origin: http://page.test"];
    let refusals = [
        (Client::Plain, MAPS, of_a_page, &small, "403"),
        (Client::Plain, MAPS, of_a_page, &large, "403"),
        (Client::Admin, MAPS, as_anonymous, &small, "403"),
        (Client::Admin, MAPS, as_anonymous, &large, "403"),
        (Client::Plain, PROXY, &[][..], &small, "501"),
        (Client::Plain, PROXY, &[], &large, "501"),
        (Client::Admin, PROXY, &[], &small, "501"),
        (Client::Admin, PROXY, &[], &large, "501"),
        (Client::Plain, MAPS, &[], &huge, "413"),
        (Client::Admin, MAPS, &[], &huge, "413"),
    ];
    check_by_curl(&server, &refusals).await;
    let mut incomplete = JoinSet::new();
    begin_bodies(&server, Client::Plain, &mut incomplete).await;
    begin_bodies(&server, Client::Admin, &mut incomplete).await;
    let busy = [
        (Client::Plain, MAPS, &[][..], &small, "429"),
        (Client::Plain, MAPS, &[], &large, "429"),
        (Client::Admin, MAPS, &[], &small, "429"),
        (Client::Admin, MAPS, &[], &large, "429"),
    ];
    check_by_curl(&server, &busy).await;
    drop(incomplete);
    server.stop().await;
}

/// A request of curl, and the code of its response.
type Refusal<'a> = (Client, &'a str, &'a [&'a str], &'a PathBuf, &'a str);

async fn check_by_curl(server: &Server, refusals: &[Refusal<'_>]) {
    for &(client, path, headers, file, code) in refusals {
        for protocol in PROTOCOLS {
            for _ in 0..ROUNDS / 4 {
                let output = curl(server, protocol, (client, path, headers), file).await;
                let (text, shown) = (&output.stderr, &output.stdout);
                let text = String::from_utf8_lossy(text);
                let what = format!("{code} {protocol:?} {client:?} {file:?}: {text}");
                assert!(output.status.success(), "{what}");
                assert_eq!(String::from_utf8_lossy(shown), code, "{what}");
            }
        }
    }
}

/// Creates the pod `p`.
async fn make_pod(server: &Server) {
    let mut wire = server.plain(Protocol::Http1).await;
    let namespace = "/api/v1/namespaces/default";
    let account = format!("{namespace}/serviceaccounts/default");
    let made = async {
        while wire.get(&account).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, made).await.expect("an account");
    let pod =
        r#"{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}"#;
    let pods = format!("{namespace}/pods");
    let created = wire.send(Method::POST, &pods, &[], pod).await;
    assert_eq!(created.status, 201, "{}", created.json());
}

/// Requests whose bodies are incomplete, each of which a task continues.
type Incomplete = JoinSet<()>;

/// Starts as many bodies as the user of a client may have incomplete, and adds them to `all`.
///
/// The connections that a test has just dropped still count, so bodies are rejected for a while. Each probe that is not
/// rejected therefore adds a body.
async fn begin_bodies(server: &Server, client: Client, all: &mut Incomplete) {
    for _ in 0..INCOMPLETE_MAX {
        begin_body(server, client, all).await;
    }
    let full = async {
        while probe(server, client).await != 429 {
            begin_body(server, client, all).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, full)
        .await
        .expect("no more bodies may be incomplete");
}

/// Returns the code of a small write.
async fn probe(server: &Server, client: Client) -> u16 {
    match client {
        Client::Plain => post(&mut plain(server).await, MAPS, "", b"{}").await.code,
        Client::Admin => {
            let admin = Identity::from_kubeconfig(&server.kubeconfig_value());
            let mut stream = secured(server, Some(&admin)).await;
            post(&mut stream, MAPS, "", b"{}").await.code
        }
    }
}

/// Starts a write, and adds the task that sends another byte of its body every second to `all`.
async fn begin_body(server: &Server, client: Client, all: &mut Incomplete) {
    let head = format!("POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n");
    let mut stream: Box<dyn AsyncWrite + Send + Unpin> = match client {
        Client::Plain => Box::new(plain(server).await),
        Client::Admin => {
            let admin = Identity::from_kubeconfig(&server.kubeconfig_value());
            Box::new(secured(server, Some(&admin)).await)
        }
    };
    stream.write_all(head.as_bytes()).await.expect("it reads");
    stream.flush().await.expect("it reads");
    all.spawn(async move {
        // A write fails after the server has rejected the body.
        while stream.write_all(b" ").await.is_ok() && stream.flush().await.is_ok() {
            tokio::time::sleep(DRIP).await;
        }
    });
}

/// 205 incomplete bodies of one user took all permits of writes for 34 s.
#[tokio::test]
async fn incomplete_bodies_of_one_user_do_not_stop_the_writes_of_others() {
    let server = Server::start(&[]).await;
    let mut incomplete = JoinSet::new();
    for _ in 0..2 * INCOMPLETE_MAX {
        begin_body(&server, Client::Plain, &mut incomplete).await;
    }
    begin_bodies(&server, Client::Plain, &mut incomplete).await;
    let mut wire = server.admin(Protocol::Http2).await;
    for n in 0..100 {
        let map = format!(r#"{{"metadata": {{"name": "m{n}"}}}}"#);
        let created = wire.send(Method::POST, MAPS, &[], &map).await;
        assert_eq!(created.status, 201, "{}", created.json());
    }
    drop(incomplete);
    server.stop().await;
}

/// The connection that curl uses.
#[derive(Debug, Clone, Copy)]
enum Client {
    /// Without TLS.
    Plain,
    /// With the admin's certificate.
    Admin,
}

/// Posts `file` by curl to a path, with these headers.
async fn curl(
    server: &Server,
    protocol: Protocol,
    (client, path, headers): (Client, &str, &[&str]),
    file: &std::path::Path,
) -> Output {
    let binary = std::env::var_os("WATCHET_TEST_CURL").unwrap_or_else(|| "curl".into());
    let pki = server.data_dir().join("pki");
    let mut command = Command::new(binary);
    command.args(["--silent", "--show-error", "--max-time", "30"]);
    command.args(["--output", "/dev/null", "--write-out", "%{http_code}"]);
    command.arg(match (protocol, client) {
        (Protocol::Http1, _) => "--http1.1",
        (Protocol::Http2, Client::Plain) => "--http2-prior-knowledge",
        (Protocol::Http2, Client::Admin) => "--http2",
    });
    for header in headers {
        command.args(["--header", header]);
    }
    command
        .arg("--data-binary")
        .arg(format!("@{}", file.display()));
    match client {
        Client::Plain => drop(command.arg(format!("http://{}{path}", server.insecure()))),
        Client::Admin => {
            for (option, name) in [
                ("--cacert", "ca.crt"),
                ("--cert", "admin.crt"),
                ("--key", "admin.key"),
            ] {
                command.arg(option).arg(pki.join(name));
            }
            command.arg(format!("https://{}{path}", server.secure()));
        }
    }
    command
        .output()
        .await
        .expect("these tests need a curl: set WATCHET_TEST_CURL or run scripts/test")
}
