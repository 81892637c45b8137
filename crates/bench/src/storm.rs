//! `bench storm`: many clients open the same resource at the same moment, as informers do after a
//! server restart. The run fails unless each client receives every object.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http_body_util::BodyExt as _;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::args::{Encoding, OpenRequest, SelectionArgs, StormArgs};
use super::client::{self, CONNECTING_MAX, Call, ClientError, Connection};
use super::decode::{List, Malformed};
use super::error::BenchError;
use super::frames::{Frame, Frames, Kind};
use super::items::Items;
use super::latency::Latencies;
use super::meter::{Consumption, Meter};
use super::progress::Progress;
use super::read;
use super::report::Report;
use super::target::Target;
use watchet_tasks::Tasks;

/// How often the run checks for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The request of all clients.
#[derive(Debug)]
struct Plan {
    path: String,
    by: OpenRequest,
    accept: Encoding,
    timeout: Duration,
    finished: AtomicU32,
}

/// The objects that one client received.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct ReceivedObjects {
    objects: u64,
    /// The sum of the versions, where they are decoded: sets of the same size and sum are
    /// practically always equal.
    versions: u64,
}

/// A complete response.
#[derive(Debug)]
struct ClientResult {
    received: ReceivedObjects,
    bytes: u64,
    /// Time to the first byte.
    first: Duration,
    complete: Duration,
}

/// The results of all clients.
#[derive(Debug, Default)]
struct Outcome {
    responses: Vec<ClientResult>,
    failed: u64,
    first_failure: Option<ClientError>,
    elapsed: Duration,
    consumption: Option<Consumption>,
    throughput: Vec<(f64, f64)>,
}

/// Runs the load.
///
/// # Errors
/// The target rejects the setup.
pub(super) async fn run(args: StormArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let load = &args.load;
    let timeout = Duration::try_from_secs_f64(load.timeout)
        .map_err(|error| BenchError::Usage(format!("--timeout: {error}")))?;
    let accept = args.responses.accept;
    let list = read::path(&args.selection, None);
    let list = read::one_list(target, &list, accept).await?;
    let plan = Arc::new(Plan {
        path: path(&args.selection, load.by),
        by: load.by,
        accept,
        timeout,
        finished: AtomicU32::new(0),
    });
    let tasks = Tasks::new();
    let clients = load.clients.get();
    let meter = Meter::new(&args.report, 0);
    let outcome = storm(&plan, target, clients, &tasks, &meter).await;
    tasks.cancel();
    let mut report = Report::default();
    report.text("load", "storm");
    report.text("target", &target.url);
    report.text("path", &plan.path);
    report.text("accept", accept.name());
    report.count("clients", clients);
    add_results(&mut report, expected(&list, load.by), &outcome?);
    Ok(report)
}

fn path(selection: &SelectionArgs, by: OpenRequest) -> String {
    let watch_list = [
        ("watch", "true"),
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
        ("allowWatchBookmarks", "true"),
    ];
    let more = watch_list
        .into_iter()
        .filter(|_| by == OpenRequest::WatchList);
    read::path(
        selection,
        more.map(|(name, value)| (name, value.to_owned())),
    )
}

/// Returns what each client must receive.
fn expected(list: &List, by: OpenRequest) -> ReceivedObjects {
    let versions = list.items.iter().map(|item| item.version);
    ReceivedObjects {
        objects: list.items.len() as u64,
        versions: match by {
            OpenRequest::WatchList => versions.fold(0, u64::wrapping_add),
            OpenRequest::List => 0,
        },
    }
}

async fn storm(
    plan: &Arc<Plan>,
    target: &Arc<Target>,
    clients: u32,
    tasks: &Tasks,
    meter: &Meter,
) -> Result<Outcome, BenchError> {
    // All connect before any sends a request: connecting is not measured.
    let connections: Vec<_> = stream::iter(0..clients)
        .map(|_| client::connect(target, tasks))
        .buffer_unordered(CONNECTING_MAX)
        .try_collect()
        .await?;
    let before = meter.read()?;
    let mut progress = Progress::begin("clients", clients.into());
    let begin = Instant::now();
    let start = |(connection, driver): (Connection, client::Driver)| {
        let client = Arc::clone(plan).client(connection.accepting(plan.accept));
        tasks.spawn("client", driver.run(client))
    };
    let clients: Vec<JoinHandle<_>> = connections.into_iter().map(start).collect();
    while !clients.iter().all(JoinHandle::is_finished) {
        progress.set(plan.finished.load(Ordering::Relaxed).into());
        sleep(POLL_INTERVAL).await;
    }
    let after = meter.read();
    let mut outcome = Outcome {
        throughput: progress.end(),
        ..Outcome::default()
    };
    for client in clients {
        match client.await? {
            Ok(response) => outcome.responses.push(response),
            Err(error) => {
                outcome.failed += 1;
                outcome.first_failure.get_or_insert(error);
            }
        }
    }
    // A server that has exited has no usage; its exit is already a failure.
    let after = match outcome.failed {
        0 => Some(after?),
        _ => after.ok(),
    };
    outcome.consumption = after.map(|after| meter.between(&before, &after));
    let completed = outcome.responses.iter().map(|response| response.complete);
    outcome.elapsed = completed.max().unwrap_or_else(|| begin.elapsed());
    Ok(outcome)
}

impl Plan {
    /// Runs one client.
    async fn client(
        self: Arc<Self>,
        mut connection: Connection,
    ) -> Result<ClientResult, ClientError> {
        let result = timeout(self.timeout, self.send_request(&mut connection)).await;
        self.finished.fetch_add(1, Ordering::Relaxed);
        result.map_err(|_| ClientError::Timeout(self.timeout))?
    }

    async fn send_request(&self, connection: &mut Connection) -> Result<ClientResult, ClientError> {
        let begin = Instant::now();
        let call = match self.by {
            OpenRequest::WatchList => Call::get(&self.path),
            OpenRequest::List => Call::list(&self.path),
        };
        let mut body = connection.open(call).await?.into_body();
        let first = begin.elapsed();
        let mut reader = Reader::new(self.by, self.accept);
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            bytes += data.len() as u64;
            reader.push(data);
            if reader.ended() {
                break;
            }
        }
        let complete = begin.elapsed();
        let received = reader.received().map_err(|problem| ClientError::Response {
            path: self.path.clone(),
            problem,
        })?;
        Ok(ClientResult {
            received,
            bytes,
            first,
            complete,
        })
    }
}

/// Reads a response as it arrives.
#[derive(Debug)]
enum Reader {
    WatchList {
        frames: Frames,
        received: ReceivedObjects,
        ended: bool,
        /// The first unexpected frame.
        problem: Option<String>,
    },
    List(Items),
}

impl Reader {
    fn new(by: OpenRequest, accept: Encoding) -> Self {
        match by {
            OpenRequest::WatchList => Self::WatchList {
                frames: Frames::new(accept),
                received: ReceivedObjects::default(),
                ended: false,
                problem: None,
            },
            OpenRequest::List => Self::List(Items::new(accept)),
        }
    }

    fn push(&mut self, data: &[u8]) {
        match self {
            Self::List(items) => items.push(data),
            Self::WatchList {
                frames,
                received,
                ended,
                problem,
            } => frames.push(data, |frame| {
                // Events after the bookmark are ignored.
                if *ended {
                    return;
                }
                match process(received, frame) {
                    Ok(end) => *ended = end,
                    Err(error) => {
                        problem.get_or_insert(error);
                    }
                }
            }),
        }
    }

    /// Returns true if the client needs no more data.
    fn ended(&self) -> bool {
        match self {
            Self::WatchList { ended, problem, .. } => *ended || problem.is_some(),
            // A list ends with its body.
            Self::List(_) => false,
        }
    }

    fn received(self) -> Result<ReceivedObjects, String> {
        match self {
            Self::List(items) => Ok(ReceivedObjects {
                objects: items.count().ok_or("the list is incomplete")?,
                versions: 0,
            }),
            Self::WatchList {
                problem: Some(problem),
                ..
            } => Err(problem),
            Self::WatchList { ended: false, .. } => {
                Err("the watch ended before the initial events did".to_owned())
            }
            Self::WatchList { received, .. } => Ok(received),
        }
    }
}

/// Processes a frame of a watch list; returns true for the bookmark that ends the initial events.
fn process(
    received: &mut ReceivedObjects,
    frame: Result<Frame<'_>, Malformed>,
) -> Result<bool, String> {
    let frame = frame.map_err(|malformed| malformed.to_string())?;
    match frame.kind {
        Kind::Added => {
            let version = frame.object.version();
            let version = version.ok_or_else(|| format!("no version in {}", frame.text()))?;
            received.objects += 1;
            received.versions = received.versions.wrapping_add(version);
            Ok(false)
        }
        Kind::Bookmark => Ok(frame.object.ends_initial_events()),
        Kind::Modified | Kind::Deleted | Kind::Error => {
            Err(format!("unexpected event {}", frame.text()))
        }
    }
}

fn add_results(report: &mut Report, expected: ReceivedObjects, outcome: &Outcome) {
    let mut first = Latencies::default();
    let mut complete = Latencies::default();
    let (mut bytes, mut wrong) = (0, 0_u64);
    let mut example = expected.objects;
    for response in &outcome.responses {
        first.record(response.first);
        complete.record(response.complete);
        bytes += response.bytes;
        if response.received != expected {
            wrong += 1;
            example = response.received.objects;
        }
    }
    let megabytes = bytes as f64 / 1e6;
    let seconds = outcome.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    report.count("items", expected.objects);
    report.count("answers_complete", outcome.responses.len() as u64);
    report.count("answers_wrong", wrong);
    report.count("answers_failed", outcome.failed);
    report.count("bytes", bytes);
    report.number("elapsed_ms", seconds * 1e3);
    report.number("megabytes_per_s", megabytes / seconds);
    report.latency("latency_us_first", &first);
    report.latency("latency_us_complete", &complete);
    report.throughput = outcome.throughput.clone();
    if let Some(consumption) = &outcome.consumption {
        report.consumption(consumption);
    }
    if let Some(server) = outcome
        .consumption
        .and_then(|consumption| consumption.server)
    {
        let cpu_ms = server.cpu.as_secs_f64() * 1e3;
        report.number(
            "cpu_ms_per_client",
            cpu_ms / outcome.responses.len().max(1) as f64,
        );
        if bytes > 0 {
            report.number("cpu_ms_per_megabyte", cpu_ms / megabytes);
        }
    }
    let ReceivedObjects { objects, .. } = expected;
    report.fault(
        wrong,
        format_args!("clients received {example} objects, not exactly the {objects} of a list"),
    );
    let failure = outcome.first_failure.as_ref().map(ToString::to_string);
    report.fault(
        outcome.failed,
        format_args!("clients failed, the first: {}", failure.unwrap_or_default()),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, version: u32) -> String {
        format!(
            "{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}}}\n"
        )
    }

    const END: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\",\
                       \"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n";

    fn read(body: &str) -> (bool, Result<ReceivedObjects, String>) {
        let mut reader = Reader::new(OpenRequest::WatchList, Encoding::Json);
        reader.push(body.as_bytes());
        (reader.ended(), reader.received())
    }

    #[test]
    fn initial_events_are_counted_up_to_their_end() {
        let received = ReceivedObjects {
            objects: 2,
            versions: 7,
        };
        let bookmark = event("BOOKMARK", 3);
        let body = [&event("ADDED", 3), &bookmark, &event("ADDED", 4), END].concat();
        assert_eq!(read(&body), (true, Ok(received)));
        let more = body + &event("MODIFIED", 5) + &event("ADDED", 6);
        assert_eq!(read(&more), (true, Ok(received)));
        let same_number = [&event("ADDED", 3), &event("ADDED", 3), END].concat();
        assert_ne!(read(&same_number).1, Ok(received), "one object twice");
    }

    #[test]
    fn unexpected_events_are_failures() {
        let (ended, received) = read(&event("ADDED", 3));
        assert!(!ended);
        assert!(
            received
                .unwrap_err()
                .contains("before the initial events did")
        );
        for kind in ["MODIFIED", "DELETED", "ERROR"] {
            let (ended, received) = read(&[&event(kind, 3), END].concat());
            assert!(ended);
            assert!(received.unwrap_err().contains(kind));
        }
        assert!(read("nonsense\n").1.is_err());
        assert!(read("{\"type\":\"ADDED\",\"object\":{}}\n").1.is_err());
    }
}
