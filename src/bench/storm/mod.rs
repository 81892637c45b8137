//! `bench storm`: many clients that open the same resource at the same moment, as all informers of a
//! server do when it comes back. Each is told of every object, or the run has failed.

mod items;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http::Method;
use http_body_util::BodyExt as _;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::args::{Encoding, Opening, SelectionArgs, StormArgs};
use super::client::{self, ClientError, Connection, OPENING_MAX};
use super::decode::{List, Malformed};
use super::frames::{Frame, Frames, Kind};
use super::latency::Latencies;
use super::process::{Process, Usage};
use super::progress::Progress;
use super::read;
use super::report::Report;
use super::run::BenchError;
use super::target::Target;
use crate::tasks::Tasks;
use items::Items;

/// How often the run looks whether it is over.
const LOOK: Duration = Duration::from_millis(5);

/// What all clients do.
#[derive(Debug)]
struct Plan {
    path: String,
    by: Opening,
    accept: Encoding,
    patience: Duration,
    finished: AtomicU32,
}

/// What one client was told.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Told {
    objects: u64,
    /// The sum of their versions, as far as they were looked at: two sets of as many objects that have
    /// the same are the same, but for malice.
    versions: u64,
}

/// An answer that came to its end.
#[derive(Debug)]
struct Answer {
    told: Told,
    bytes: u64,
    /// Until it began, and until it was complete.
    first: Duration,
    complete: Duration,
}

/// All of them.
#[derive(Debug, Default)]
struct Outcome {
    answers: Vec<Answer>,
    failed: u64,
    first_failure: Option<ClientError>,
    elapsed: Duration,
    usage: Option<(Usage, Usage)>,
    throughput: Vec<(f64, f64)>,
}

/// Runs the load.
///
/// # Errors
/// The target does not let it begin.
pub(super) async fn run(args: StormArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let load = &args.load;
    let patience = Duration::try_from_secs_f64(load.patience)
        .map_err(|error| BenchError::Usage(format!("--patience: {error}")))?;
    let accept = args.answers.accept;
    let list = read::path(&args.selection, None);
    let list = read::one_list(target, &list, accept).await?;
    let plan = Arc::new(Plan {
        path: path(&args.selection, load.by),
        by: load.by,
        accept,
        patience,
        finished: AtomicU32::new(0),
    });
    let tasks = Tasks::new();
    let clients = load.clients.get();
    let process = args.report.pid.map(Process::new);
    let outcome = storm(&plan, target, clients, &tasks, process).await;
    tasks.cancel();
    let mut report = Report::default();
    report.text("load", "storm");
    report.text("target", &target.url);
    report.text("path", &plan.path);
    report.text("accept", accept.name());
    report.count("clients", clients);
    tell(&mut report, expected(&list, load.by), &outcome?);
    Ok(report)
}

fn path(selection: &SelectionArgs, by: Opening) -> String {
    let watch_list = [
        ("watch", "true"),
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
        ("allowWatchBookmarks", "true"),
    ];
    let more = watch_list.into_iter().filter(|_| by == Opening::WatchList);
    read::path(
        selection,
        more.map(|(name, value)| (name, value.to_owned())),
    )
}

/// What each client has to be told.
fn expected(list: &List, by: Opening) -> Told {
    let versions = list.items.iter().map(|item| item.version);
    Told {
        objects: list.items.len() as u64,
        versions: match by {
            Opening::WatchList => versions.fold(0, u64::wrapping_add),
            Opening::List => 0,
        },
    }
}

async fn storm(
    plan: &Arc<Plan>,
    target: &Arc<Target>,
    clients: u32,
    tasks: &Tasks,
    process: Option<Process>,
) -> Result<Outcome, BenchError> {
    // All are connected before any asks: how fast connections are made is not what is measured.
    let connections: Vec<_> = stream::iter(0..clients)
        .map(|_| client::connect(target, tasks))
        .buffer_unordered(OPENING_MAX)
        .try_collect()
        .await?;
    let before = process.map(Process::usage).transpose()?;
    let mut progress = Progress::begin("clients", clients.into());
    let begin = Instant::now();
    let ask = |(connection, driver): (Connection, client::Driver)| {
        let client = Arc::clone(plan).client(connection.accepting(plan.accept));
        tasks.spawn("client", driver.run(client))
    };
    let asking: Vec<JoinHandle<_>> = connections.into_iter().map(ask).collect();
    while !asking.iter().all(JoinHandle::is_finished) {
        progress.set(plan.finished.load(Ordering::Relaxed).into());
        sleep(LOOK).await;
    }
    let after = process.map(Process::usage);
    let mut outcome = Outcome {
        throughput: progress.end(),
        ..Outcome::default()
    };
    for client in asking {
        match client.await? {
            Ok(answer) => outcome.answers.push(answer),
            Err(error) => {
                outcome.failed += 1;
                outcome.first_failure.get_or_insert(error);
            }
        }
    }
    // A server that is gone has no usage; that it is gone is a failure already.
    let after = match outcome.failed {
        0 => after.transpose()?,
        _ => after.and_then(Result::ok),
    };
    outcome.usage = before.zip(after);
    let completed = outcome.answers.iter().map(|answer| answer.complete);
    outcome.elapsed = completed.max().unwrap_or_else(|| begin.elapsed());
    Ok(outcome)
}

impl Plan {
    /// What one client does.
    async fn client(self: Arc<Self>, mut connection: Connection) -> Result<Answer, ClientError> {
        let answer = timeout(self.patience, self.ask(&mut connection)).await;
        self.finished.fetch_add(1, Ordering::Relaxed);
        answer.map_err(|_| ClientError::Timeout(self.patience))?
    }

    async fn ask(&self, connection: &mut Connection) -> Result<Answer, ClientError> {
        let begin = Instant::now();
        let response = connection.open(Method::GET, &self.path, Bytes::new());
        let mut body = response.await?.into_body();
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
        let told = reader.told().map_err(|problem| ClientError::Answer {
            path: self.path.clone(),
            problem,
        })?;
        Ok(Answer {
            told,
            bytes,
            first,
            complete,
        })
    }
}

/// Reads an answer while it comes.
#[derive(Debug)]
enum Reader {
    WatchList {
        frames: Frames,
        told: Told,
        ended: bool,
        /// What else a frame said.
        problem: Option<String>,
    },
    List(Items),
}

impl Reader {
    fn new(by: Opening, accept: Encoding) -> Self {
        match by {
            Opening::WatchList => Self::WatchList {
                frames: Frames::new(accept),
                told: Told::default(),
                ended: false,
                problem: None,
            },
            Opening::List => Self::List(Items::new(accept)),
        }
    }

    fn push(&mut self, data: &[u8]) {
        match self {
            Self::List(items) => items.push(data),
            Self::WatchList {
                frames,
                told,
                ended,
                problem,
            } => frames.push(data, |frame| {
                // What comes behind the bookmark is not asked for.
                if *ended {
                    return;
                }
                match take(told, frame) {
                    Ok(end) => *ended = end,
                    Err(error) => {
                        problem.get_or_insert(error);
                    }
                }
            }),
        }
    }

    /// Whether nothing more is waited for.
    fn ended(&self) -> bool {
        match self {
            Self::WatchList { ended, problem, .. } => *ended || problem.is_some(),
            // It is over when the body is.
            Self::List(_) => false,
        }
    }

    fn told(self) -> Result<Told, String> {
        match self {
            Self::List(items) => Ok(Told {
                objects: items.count().ok_or("it is no whole list")?,
                versions: 0,
            }),
            Self::WatchList {
                problem: Some(problem),
                ..
            } => Err(problem),
            Self::WatchList { ended: false, .. } => {
                Err("it ended before the initial events did".to_owned())
            }
            Self::WatchList { told, .. } => Ok(told),
        }
    }
}

/// Takes in a frame of a watch-list; whether it is the one behind the initial events.
fn take(told: &mut Told, frame: Result<Frame<'_>, Malformed>) -> Result<bool, String> {
    let frame = frame.map_err(|malformed| malformed.to_string())?;
    match frame.kind {
        Kind::Added => {
            let version = frame.object.version();
            let version = version.ok_or_else(|| format!("no version in {}", frame.text()))?;
            told.objects += 1;
            told.versions = told.versions.wrapping_add(version);
            Ok(false)
        }
        Kind::Bookmark => Ok(frame.object.ends_initial_events()),
        Kind::Modified | Kind::Deleted | Kind::Error => Err(format!("it is told {}", frame.text())),
    }
}

fn tell(report: &mut Report, expected: Told, outcome: &Outcome) {
    let mut first = Latencies::default();
    let mut complete = Latencies::default();
    let (mut bytes, mut wrong) = (0, 0_u64);
    let mut example = expected.objects;
    for answer in &outcome.answers {
        first.record(answer.first);
        complete.record(answer.complete);
        bytes += answer.bytes;
        if answer.told != expected {
            wrong += 1;
            example = answer.told.objects;
        }
    }
    let megabytes = bytes as f64 / 1e6;
    let seconds = outcome.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    report.count("items", expected.objects);
    report.count("answers_complete", outcome.answers.len() as u64);
    report.count("answers_wrong", wrong);
    report.count("answers_failed", outcome.failed);
    report.count("bytes", bytes);
    report.number("elapsed_ms", seconds * 1e3);
    report.number("megabytes_per_s", megabytes / seconds);
    report.latency("latency_us_first", &first);
    report.latency("latency_us_complete", &complete);
    report.throughput = outcome.throughput.clone();
    if let Some((before, after)) = outcome.usage {
        report.usage(before, after);
        let cpu_ms = after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3;
        report.number(
            "cpu_ms_per_client",
            cpu_ms / outcome.answers.len().max(1) as f64,
        );
        if bytes > 0 {
            report.number("cpu_ms_per_megabyte", cpu_ms / megabytes);
        }
    }
    let Told { objects, .. } = expected;
    report.fault(
        wrong,
        format_args!(
            "clients were told of {example} objects, not exactly of the {objects} that a list has"
        ),
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

    fn read(body: &str) -> (bool, Result<Told, String>) {
        let mut reader = Reader::new(Opening::WatchList, Encoding::Json);
        reader.push(body.as_bytes());
        (reader.ended(), reader.told())
    }

    #[test]
    fn initial_events_are_counted_up_to_their_end() {
        let told = Told {
            objects: 2,
            versions: 7,
        };
        let bookmark = event("BOOKMARK", 3);
        let body = [&event("ADDED", 3), &bookmark, &event("ADDED", 4), END].concat();
        assert_eq!(read(&body), (true, Ok(told)));
        let more = body + &event("MODIFIED", 5) + &event("ADDED", 6);
        assert_eq!(read(&more), (true, Ok(told)));
        let same_number = [&event("ADDED", 3), &event("ADDED", 3), END].concat();
        assert_ne!(read(&same_number).1, Ok(told), "one of them twice");
    }

    #[test]
    fn what_is_no_state_is_a_failure() {
        let (ended, told) = read(&event("ADDED", 3));
        assert!(!ended);
        assert!(told.unwrap_err().contains("before the initial events did"));
        for kind in ["MODIFIED", "DELETED", "ERROR"] {
            let (ended, told) = read(&[&event(kind, 3), END].concat());
            assert!(ended);
            assert!(told.unwrap_err().contains(kind));
        }
        assert!(read("nonsense\n").1.is_err());
        assert!(read("{\"type\":\"ADDED\",\"object\":{}}\n").1.is_err());
    }
}
