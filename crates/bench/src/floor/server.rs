//! The bare write loop: an HTTP/1.1 server for the load generator's requests only. A thread reads
//! each connection until it becomes a watch, which is then a socket in a list; a change is written
//! to each of them with one call. It has no cache, queue, encoding or TLS, and validates nothing.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memmem;
use parking_lot::Mutex;

use crate::args::Resource;
use crate::objects::{self, Spec};

/// State shared by all connections.
struct Floor {
    version: AtomicU64,
    /// Sockets by the selector of their watch.
    watches: Mutex<HashMap<String, Vec<TcpStream>>>,
    list: Vec<u8>,
}

/// The needed parts of a request.
struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
}

/// Prints the address and serves until stdin closes.
pub(super) fn serve(count: u32, size: usize) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let floor = Floor {
        version: AtomicU64::new(1),
        watches: Mutex::new(HashMap::new()),
        list: list(count, size),
    };
    let mut out = io::stdout().lock();
    writeln!(out, "http://{}", listener.local_addr()?)?;
    out.flush()?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for stream in listener.incoming() {
                let floor = &floor;
                scope.spawn(move || stream.and_then(|stream| floor.connection(stream)));
            }
        });
        io::copy(&mut io::stdin().lock(), &mut io::sink())?;
        // The threads of open connections never end by themselves.
        std::process::exit(0)
    })
}

fn list(count: u32, size: usize) -> Vec<u8> {
    let mut list =
        br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#
            .to_vec();
    for number in 0..count {
        let name = format!("bench-{number}");
        let spec = Spec {
            name: &name,
            namespace: "bench",
            size,
            ..Spec::default()
        };
        if number > 0 {
            list.push(b',');
        }
        let object = objects::render(Resource::Configmaps, &spec);
        list.extend_from_slice(&stored_object(&object, u64::from(number) + 1));
    }
    list.extend_from_slice(b"]}");
    list
}

impl Floor {
    /// Serves a connection until the client disconnects or starts a watch.
    fn connection(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(request) = Request::read(&mut reader)? {
            match request.method.as_str() {
                "GET" if request.path.contains("watch=true") => {
                    return self.watch(stream, &request.path);
                }
                "GET" => respond(&mut stream, "200 OK", &self.list)?,
                "PUT" => self.change(&mut stream, &request.body)?,
                "POST" => respond(&mut stream, "201 Created", b"{}")?,
                _ => respond(&mut stream, "200 OK", b"{}")?,
            }
        }
        Ok(())
    }

    fn watch(&self, mut stream: TcpStream, path: &str) -> io::Result<()> {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        // Locked before the head is sent, so that a client that has the head receives every later
        // change.
        let mut watches = self.watches.lock();
        stream.write_all(head.as_bytes())?;
        let selector = path
            .split_once("fieldSelector=")
            .map_or("", |(_, rest)| rest);
        watches.entry(selector.to_owned()).or_default().push(stream);
        Ok(())
    }

    /// Acknowledges a change and writes it to all matching watches.
    fn change(&self, stream: &mut TcpStream, object: &[u8]) -> io::Result<()> {
        // Locked before a version is assigned, so that all watches receive versions in order.
        let mut watches = self.watches.lock();
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        let frame = frame(object, version);
        respond(stream, "200 OK", b"{}")?;
        let receivers = watches.get_mut(&selector(object)).into_iter();
        for sockets in receivers {
            // A write to a closed socket fails; the reader counts the loss.
            sockets.retain_mut(|socket| socket.write_all(&frame).is_ok());
        }
        Ok(())
    }
}

/// Returns the selector of watches that receive this object.
fn selector(object: &[u8]) -> String {
    const NODE: &[u8] = br#""nodeName":""#;
    let Some(at) = memmem::find(object, NODE) else {
        return String::new();
    };
    let name = object[at + NODE.len()..].split(|byte| *byte == b'"').next();
    let name = String::from_utf8_lossy(name.unwrap_or_default());
    format!("spec.nodeName%3D{name}")
}

/// Returns an object with the metadata that every server adds, so that its size is that of a real
/// server's object.
fn stored_object(object: &[u8], version: u64) -> Vec<u8> {
    const METADATA: &[u8] = br#""metadata":{"#;
    let at = memmem::find(object, METADATA).map_or(1, |at| at + METADATA.len());
    let (head, tail) = object.split_at(at);
    let added = format!(
        r#""creationTimestamp":"2025-01-01T00:00:00Z","resourceVersion":"{version}","uid":"{version:036}","#
    );
    [head, added.as_bytes(), tail].concat()
}

/// Returns the HTTP/1.1 chunk with the watch frame of an object.
fn frame(object: &[u8], version: u64) -> Vec<u8> {
    let object = stored_object(object, version);
    let pieces: [&[u8]; 3] = [br#"{"type":"MODIFIED","object":"#, &object, b"}\n"];
    let event = pieces.concat();
    let length = format!("{:x}\r\n", event.len());
    [length.as_bytes(), &event, b"\r\n"].concat()
}

fn respond(stream: &mut TcpStream, status: &str, body: &[u8]) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    if length < 4096 {
        return stream.write_all(&[head.as_bytes(), body].concat());
    }
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

impl Request {
    /// Reads the next request; `None` if the client has disconnected.
    fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split(' ').map(str::to_owned);
        let (method, path) = (words.next(), words.next());
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok(Some(Self {
            method: method.unwrap_or_default(),
            path: path.unwrap_or_default(),
            body,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_frame_is_the_object_at_its_version_in_one_chunk() {
        let text = frame(br#"{"metadata":{"name":"a"}}"#, 7);
        let text = String::from_utf8(text).unwrap();
        let (length, rest) = text.split_once("\r\n").unwrap();
        let event = rest.strip_suffix("\r\n").unwrap();
        assert_eq!(usize::from_str_radix(length, 16), Ok(event.len()));
        assert!(event.ends_with('\n'));
        let event: serde_json::Value = serde_json::from_str(event).unwrap();
        assert_eq!(event["type"], "MODIFIED");
        assert_eq!(event["object"]["metadata"]["name"], "a");
        assert_eq!(event["object"]["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn a_pod_selects_watches_of_its_node() {
        assert_eq!(
            selector(br#"{"spec":{"nodeName":"n-1"}}"#),
            "spec.nodeName%3Dn-1"
        );
        assert_eq!(selector(br#"{"data":{}}"#), "");
    }

    #[test]
    fn lists_have_their_objects() {
        for count in [0, 1, 3] {
            let list: serde_json::Value = serde_json::from_slice(&list(count, 500)).unwrap();
            let items = list["items"].as_array().unwrap();
            assert_eq!(items.len(), count as usize);
            let names: HashSet<_> = items.iter().map(|item| &item["metadata"]["name"]).collect();
            assert_eq!(names.len(), items.len(), "{list}");
            for item in items {
                // The size is the client's; the server adds metadata.
                assert!((500..=1000).contains(&item.to_string().len()), "{item}");
            }
        }
    }
}
