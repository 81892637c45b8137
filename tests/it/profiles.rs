//! Tests of `/debug/pprof/`: CPU and heap profiles of the running server, who may read them, and when recordings end.

use std::io::Read as _;
use std::time::Duration;

use flate2::read::GzDecoder;
use futures::future::join_all;
use http::{Method, StatusCode};
use prost::Message as _;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::harness::{Kubectl, PATIENCE, PROTOCOLS, Protocol, Response, Server, Wire};

const CPU: &str = "/debug/pprof/profile";
const HEAP: &str = "/debug/pprof/heap";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The fields of pprof's `Profile` that the tests read.
#[derive(Clone, PartialEq, prost::Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    name: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Sample {
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Function {
    #[prost(int64, tag = "2")]
    name: i64,
}

impl Profile {
    fn decode_response(response: &Response) -> Self {
        assert_eq!(response.status, StatusCode::OK, "{}", response.text());
        assert_eq!(response.headers["content-type"], "application/octet-stream");
        let mut protobuf = Vec::new();
        let mut gzip = GzDecoder::new(&response.body[..]);
        gzip.read_to_end(&mut protobuf).unwrap();
        Self::decode(&protobuf[..]).unwrap()
    }

    fn text(&self, index: i64) -> &str {
        &self.string_table[usize::try_from(index).unwrap()]
    }

    fn sample_types(&self) -> Vec<&str> {
        let types = self.sample_type.iter();
        types.map(|value| self.text(value.name)).collect()
    }

    fn functions(&self) -> Vec<&str> {
        let functions = self.function.iter();
        functions.map(|function| self.text(function.name)).collect()
    }

    /// Returns the sum of a value of all samples.
    fn sum(&self, value: usize) -> i64 {
        self.sample.iter().map(|sample| sample.value[value]).sum()
    }

    fn seconds(&self) -> i64 {
        self.duration_nanos / 1_000_000_000
    }
}

/// Lists config maps until it is dropped.
async fn list_forever(server: &Server) {
    let one = async || {
        let mut wire = Wire::plain(server.insecure(), Protocol::Http2).await;
        loop {
            let list = wire.get(MAPS).await;
            assert_eq!(list.status, StatusCode::OK, "{}", list.text());
        }
    };
    join_all((0..4).map(|_| one())).await;
}

async fn create_map(wire: &mut Wire, name: &str, bytes: usize) {
    let map = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(bytes)}});
    let created = wire.post(MAPS, &map).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
}

#[tokio::test]
async fn a_cpu_profile_has_the_functions_of_the_server() {
    let server = Server::start(&[]).await;
    let mut wire = Wire::plain(server.insecure(), Protocol::Http1).await;
    for number in 0..20 {
        create_map(&mut wire, &format!("map-{number}"), 20_000).await;
    }
    // The second recording shows that the profiler can start again after it has stopped.
    for protocol in PROTOCOLS {
        let mut wire = Wire::plain(server.insecure(), protocol).await;
        let path = format!("{CPU}?seconds=3");
        let response = tokio::select! {
            response = wire.get(&path) => response,
            () = list_forever(&server) => unreachable!("it does not end"),
        };
        let profile = Profile::decode_response(&response);
        assert_eq!(profile.sample_types(), ["samples", "cpu"]);
        assert!((3..10).contains(&profile.seconds()), "{profile:?}");
        let functions = profile.functions();
        let is_known = |name: &&str| name.contains("watchet_http::serve");
        assert!(functions.iter().any(is_known), "{functions:?}");
        let is_handler = |name: &&str| name.contains("perf_signal_handler");
        assert!(!functions.iter().any(is_handler), "{functions:?}");
        // 10 ms per sample.
        let (samples, nanoseconds) = (profile.sum(0), profile.sum(1));
        assert!(samples >= 10, "{samples}");
        assert_eq!(nanoseconds, samples * 10_000_000);
    }
}

#[tokio::test]
async fn a_heap_profile_has_the_allocations_during_the_recording() {
    /// Bytes that the first recording must contain, and later ones must not.
    const RETAINED: i64 = 2_000_000;
    let server = Server::start(&[]).await;
    let mut wire = Wire::plain(server.insecure(), Protocol::Http1).await;
    let mut writer = Wire::plain(server.insecure(), Protocol::Http1).await;
    let path = format!("{HEAP}?seconds=5");
    let write = async {
        // The recording must have begun.
        sleep(Duration::from_secs(1)).await;
        for number in 0..30 {
            create_map(&mut writer, &format!("map-{number}"), 500_000).await;
        }
        std::future::pending::<()>().await;
    };
    let response = tokio::select! {
        response = wire.get(&path) => response,
        () = write => unreachable!("it does not end"),
    };
    let profile = Profile::decode_response(&response);
    assert_eq!(profile.sample_types(), ["inuse_objects", "inuse_space"]);
    let functions = profile.functions();
    let is_known = |name: &&str| name.contains("watchet_");
    assert!(functions.iter().any(is_known), "{functions:?}");
    // The watch cache retains the objects, 15 MB in total. A slow machine creates fewer of them during the recording.
    assert!(profile.sum(1) > RETAINED, "{}", profile.sum(1));

    // Later recordings contain no samples of this one, whose objects are still in memory. The last create, a checkpoint of the
    // store or a check of the cache can take as much for a while.
    let begun = Instant::now();
    loop {
        let response = wire.get(&format!("{HEAP}?seconds=1")).await;
        let sum = Profile::decode_response(&response).sum(1);
        if sum < RETAINED {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{sum}");
    }
}

#[tokio::test]
async fn only_authorized_users_read_profiles() {
    let server = Server::start(&["--authorization-mode=RBAC"]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    let index = kubectl.run(&["get", "--raw", "/debug/pprof/"]).await;
    assert!(
        index.contains("profile") && index.contains("heap"),
        "{index}"
    );
    let line = kubectl.run(&["get", "--raw", "/debug/pprof/cmdline"]).await;
    assert!(line.contains("\0--authorization-mode=RBAC"), "{line:?}");
    for path in ["/debug/pprof/", CPU, HEAP, "/debug/pprof/cmdline"] {
        let args = ["get", "--raw", path, "--as=ann"];
        let error = kubectl.run_failing(&args).await;
        assert!(error.contains("Forbidden"), "{path}: {error}");
    }
    for path in [CPU, HEAP] {
        for (seconds, problem) in [
            ("0", "between 1 and 3600"),
            ("-1", "between 1 and 3600"),
            ("3601", "between 1 and 3600"),
            ("2s", "not a whole number"),
            ("", "not a whole number"),
        ] {
            let path = format!("{path}?seconds={seconds}");
            let error = kubectl.run_failing(&["get", "--raw", &path]).await;
            assert!(error.contains("BadRequest"), "{path}: {error}");
            assert!(error.contains(problem), "{path}: {error}");
            assert!(error.contains(seconds), "{path}: {error}");
        }
    }
    let unknown = ["get", "--raw", "/debug/pprof/goroutine"];
    let error = kubectl.run_failing(&unknown).await;
    assert!(error.contains("NotFound"), "{error}");
}

#[tokio::test]
async fn without_profiling_there_are_no_profiles() {
    let server = Server::start(&["--profiling=false"]).await;
    let mut wire = Wire::plain(server.insecure(), Protocol::Http1).await;
    for path in [
        "/debug/pprof",
        "/debug/pprof/",
        CPU,
        HEAP,
        "/debug/pprof/cmdline",
    ] {
        let response = wire.get(path).await;
        assert_eq!(response.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn one_profile_is_recorded_at_a_time() {
    let mut server = Server::start(&[]).await;
    let mut second = Wire::plain(server.insecure(), Protocol::Http1).await;
    for (path, kind) in [(CPU, "CPU"), (HEAP, "heap")] {
        let recording = async {
            let mut first = Wire::plain(server.insecure(), Protocol::Http2).await;
            let path = format!("{path}?seconds=3600");
            // The other recording may have begun first.
            while first.get(&path).await.status == StatusCode::CONFLICT {
                sleep(Duration::from_millis(50)).await;
            }
        };
        let refused = async {
            let deadline = Instant::now() + PATIENCE;
            loop {
                // The other recording may not have begun yet.
                let post = second.send(Method::POST, path, &[], "").await;
                assert_eq!(post.status, StatusCode::METHOD_NOT_ALLOWED);
                sleep(Duration::from_millis(500)).await;
                let response = second.get(&format!("{CPU}?seconds=1")).await;
                if response.status == StatusCode::CONFLICT {
                    // The server refuses a heap profile too: it must not mistake the sampling of this recording for sampling
                    // since its start.
                    let heap = second.get(&format!("{HEAP}?seconds=1")).await;
                    assert_eq!(heap.status, StatusCode::CONFLICT, "{}", heap.text());
                    return response;
                }
                assert!(Instant::now() < deadline, "{}", response.text());
            }
        };
        let refused = tokio::select! {
            refused = refused => refused,
            () = recording => unreachable!("it takes an hour"),
        };
        let message = refused.json()["message"].to_string();
        assert!(message.contains(&format!("a {kind} profile")), "{message}");
        // Closing the connection ends the recording.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let response = second.get(&format!("{CPU}?seconds=1")).await;
            if response.status == StatusCode::OK {
                break;
            }
            assert_eq!(response.status, StatusCode::CONFLICT);
            assert!(Instant::now() < deadline, "{}", response.text());
            sleep(Duration::from_millis(100)).await;
        }
    }

    // The shutdown of the server ends the recording too, and the client receives the profile.
    let mut first = Wire::plain(server.insecure(), Protocol::Http1).await;
    let path = format!("{CPU}?seconds=3600");
    let recording = async {
        loop {
            let response = first.get(&path).await;
            // The other recording may have begun first.
            if response.status != StatusCode::CONFLICT {
                return response;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let end = async {
        // The recording has begun when another one is refused.
        let other = format!("{CPU}?seconds=1");
        let deadline = Instant::now() + PATIENCE;
        while second.get(&other).await.status != StatusCode::CONFLICT {
            assert!(Instant::now() < deadline, "the recording does not begin");
            sleep(Duration::from_millis(500)).await;
        }
        server.signal("TERM");
        server.wait().await
    };
    let (response, status) = tokio::join!(recording, end);
    assert!(status.success(), "{status:?}");
    assert!(Profile::decode_response(&response).seconds() < 60);
}
