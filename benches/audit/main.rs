//! What audit logging adds to a request: `cargo bench --bench audit`.
//!
//! A server without sockets serves GETs of one pod, in rounds without audit logging and with a policy of level
//! `Metadata` in turn. The events go to a file in a temporary directory in the mode `batch`, in two variants: with the stage
//! `RequestReceived` (two events per request) and without it (one event). The task that writes runs on the same
//! thread between the requests and is part of the time.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use watchet::api::UserInfo;
use watchet::audit::{Auditor, BatchOptions, LogFormat, LogOptions, Mode, Rotation};
use watchet::metrics::Metrics;
use watchet_bench_fixture::Server;
use watchet_bench_fixture::pods;

const ROUNDS: usize = 200;
const REQUESTS: u32 = 1_000;

const ONE_EVENT: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
                         rules: [{level: None, users: ['system:kube-proxy'], verbs: [watch]}, \
                         {level: Metadata}]";
const TWO_EVENTS: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n\
                          rules: [{level: None, users: ['system:kube-proxy'], verbs: [watch]}, \
                          {level: Metadata}]";

fn auditor(policy: &str, path: PathBuf, metrics: &Arc<Metrics>) -> Arc<Auditor> {
    let options = LogOptions {
        path,
        rotation: Rotation {
            backups_max: 1,
            ..Rotation::default()
        },
        format: LogFormat::Json,
        mode: Mode::Batch,
        batch: BatchOptions {
            buffer_size: 10_000,
            size_max: 5_000,
            wait_max: Duration::from_millis(100),
            throttle: None,
        },
        truncate: None,
    };
    let policy = policy.parse().expect("a policy");
    let auditor = Auditor::new(policy, Arc::clone(metrics)).with_log(&options);
    Arc::new(auditor.expect("it can be opened"))
}

/// Returns the time of a request in one round.
fn round(server: &Server, uri: &str, user: &Arc<UserInfo>) -> Duration {
    let begin = Instant::now();
    for _ in 0..REQUESTS {
        server.get_as(uri, user);
    }
    begin.elapsed() / REQUESTS
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    let metrics = Metrics::new();
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name);
    let servers = [
        ("no audit logging", None),
        (
            "one event",
            Some(auditor(ONE_EVENT, path("one.log"), &metrics)),
        ),
        (
            "two events",
            Some(auditor(TWO_EVENTS, path("two.log"), &metrics)),
        ),
    ];
    let servers = servers.map(|(name, auditor)| (name, Server::with_auditor(1_000, auditor)));
    let uri = format!("/api/v1/namespaces/default/pods/{}", pods::name(7));
    let user = Arc::new(UserInfo {
        name: "kubernetes-admin".to_owned(),
        groups: vec![
            "system:masters".to_owned(),
            "system:authenticated".to_owned(),
        ],
        ..UserInfo::default()
    });
    let mut times: [Vec<Duration>; 3] = Default::default();
    // In turn, so that a busy machine affects all of them.
    for _ in 0..ROUNDS {
        for ((_, server), times) in servers.iter().zip(&mut times) {
            times.push(round(server, &uri, &user));
        }
    }
    let mut base = None;
    for ((name, _), times) in servers.iter().zip(&mut times) {
        times.sort_unstable();
        let (min, p50) = (times[0], times[ROUNDS / 2]);
        let (base_min, base_p50) = *base.get_or_insert((min, p50));
        let (more_min, more_p50) = (min - base_min, p50.saturating_sub(base_p50));
        writeln!(
            out,
            "{name}: a GET in {p50:?} (fastest round {min:?}), {more_p50:?} ({more_min:?}) more"
        )?;
    }
    let (events, dropped) = (metrics.audit().events.get(), metrics.audit().dropped.get());
    writeln!(out, "{events} events, {dropped} of them dropped")
}
