//! The closed loop: each connection sends a request, waits for its response and sends the next,
//! immediately or at its scheduled time, until the number of requests is reached. The loads provide
//! the requests.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::args::Encoding;
use super::client::{self, ClientError, Connection};
use super::error::BenchError;
use super::latency::Latencies;
use super::latency_timeline::LatencyTimeline;
use super::meter::{Consumption, Meter};
use super::pace::Pace;
use super::progress::Progress;
use super::report::Report;
use super::target::Target;
use watchet_tasks::Tasks;

/// How often the progress is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A kind of request.
pub(super) trait RequestLoad: Send + Sync + 'static {
    /// Sends request `number` and returns the number of bytes to count for it.
    fn send(
        &self,
        connection: &mut Connection,
        number: u32,
    ) -> impl Future<Output = Result<u64, ClientError>> + Send;
}

/// The number of requests and connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Volume {
    pub requests: u32,
    /// Requests per second of all connections together; 0 is as fast as they are answered.
    pub rate: f64,
    pub connections: usize,
    pub accept: Encoding,
}

/// The results of one connection, or of all.
#[derive(Debug, Default)]
struct RequestResults {
    latencies: Latencies,
    timeline: LatencyTimeline,
    bytes: u64,
    failed: u64,
    first_failure: Option<ClientError>,
    /// When the last response arrived or failed.
    ended: Option<Instant>,
}

impl RequestResults {
    fn add(&mut self, other: Self) {
        self.latencies.merge(&other.latencies);
        self.timeline.merge(other.timeline);
        self.bytes += other.bytes;
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.ended = self.ended.max(other.ended);
    }
}

/// Sends all requests and adds the results to the report. The connections are opened before the
/// clock starts.
///
/// # Errors
/// A connection cannot be opened, or the process cannot be measured. Failed requests are faults.
pub(super) async fn run<A: RequestLoad>(
    report: &mut Report,
    target: &Arc<Target>,
    volume: Volume,
    meter: &Meter,
    load: Arc<A>,
) -> Result<(), BenchError> {
    let tasks = Tasks::new();
    let connections = (0..volume.connections).map(|_| client::connect(target, &tasks));
    let connections = try_join_all(connections).await?;
    let before = meter.read()?;
    let begin = Instant::now();
    let mut progress = Progress::begin("requests", volume.requests.into());
    let pace = Arc::new(Pace::start(volume.requests, volume.rate));
    let mut workers = Vec::new();
    for (connection, driver) in connections {
        let work = work(
            connection.accepting(volume.accept),
            Arc::clone(&load),
            Arc::clone(&pace),
            begin,
        );
        workers.push(tasks.spawn("requests", driver.run(work)));
    }
    while !workers.iter().all(JoinHandle::is_finished) {
        progress.set(pace.taken().into());
        sleep(POLL_INTERVAL).await;
    }
    let consumption = meter.between(&before, &meter.read()?);
    report.throughput = progress.end();
    let mut done = RequestResults::default();
    for worker in workers {
        done.add(worker.await?);
    }
    tasks.cancel();
    // The time of the last response, not of the last poll.
    let elapsed = done.ended.map_or(Duration::ZERO, |ended| ended - begin);
    add_results(report, volume, &done, elapsed, &consumption);
    Ok(())
}

async fn work<A: RequestLoad>(
    mut connection: Connection,
    load: Arc<A>,
    pace: Arc<Pace>,
    run_begin: Instant,
) -> RequestResults {
    let mut done = RequestResults::default();
    while let Some(turn) = pace.turn().await {
        let begin = Instant::now();
        let result = load.send(&mut connection, turn.number).await;
        let end = Instant::now();
        done.ended = Some(end);
        match result {
            Ok(bytes) => {
                done.latencies.record(end - begin);
                done.timeline.record(end - run_begin, end - begin);
                done.bytes += bytes;
            }
            Err(error) => {
                let connection_lives = error.connection_lives();
                done.failed += 1;
                done.first_failure.get_or_insert(error);
                if !connection_lives {
                    break;
                }
            }
        }
    }
    done
}

fn add_results(
    report: &mut Report,
    volume: Volume,
    done: &RequestResults,
    elapsed: Duration,
    consumption: &Consumption,
) {
    let answered = done.latencies.summary().count;
    let seconds = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let megabytes = done.bytes as f64 / 1e6;
    report.count("connections", volume.connections as u64);
    report.count("requests", volume.requests);
    report.count("requests_answered", answered);
    report.count("requests_failed", done.failed);
    report.count("bytes", done.bytes);
    report.number("elapsed_ms", seconds * 1e3);
    report.number("requests_per_s", answered as f64 / seconds);
    report.number("megabytes_per_s", megabytes / seconds);
    report.latency("latency_us", &done.latencies);
    report.timeline("latency_us", &done.timeline);
    report.consumption(consumption);
    if let Some(server) = &consumption.server {
        let cpu_ms = server.cpu.as_secs_f64() * 1e3;
        if answered > 0 {
            report.number("cpu_ms_per_request", cpu_ms / answered as f64);
        }
        if done.bytes > 0 {
            report.number("cpu_ms_per_megabyte", cpu_ms / megabytes);
        }
    }
    let first = done.first_failure.as_ref().map(ToString::to_string);
    report.fault(
        done.failed,
        format_args!("requests failed, the first: {}", first.unwrap_or_default()),
    );
    let unsent = u64::from(volume.requests).saturating_sub(answered + done.failed);
    report.fault(unsent, "requests were not sent: no connection was left");
}
