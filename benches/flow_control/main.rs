//! The cost of API Priority and Fairness for a request that need not wait: `cargo bench --bench flow_control`.
//!
//! The default objects, and 400 users whose requests match the last schema, `global-default`, after all others were
//! compared. Each number is the time of a classification and an admission, with the return of the seat, on one thread and
//! on as many threads as there are processors; and of a level with 1,000 waiting requests the time of an end that
//! dispatches the next one.

use std::borrow::Cow;
use std::hint::black_box;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use watchet::flowcontrol::{
    DefaultObject, DigestTarget, FlowControl, FlowSchema, PriorityLevelConfiguration,
    RequestDigest, Seat, Work, default_levels, default_schemas,
};

const USERS: usize = 400;
const REQUESTS: usize = 1_000_000;
const QUEUED: usize = 1_000;
const WAIT: Duration = Duration::from_secs(15);

fn object(default: DefaultObject) -> Vec<u8> {
    let uid = format!("00000000-0000-0000-0000-{:0>12}", default.name.len());
    json!({"metadata": {"name": default.name, "uid": uid}, "spec": default.spec})
        .to_string()
        .into_bytes()
}

fn control(seats: usize) -> Arc<FlowControl> {
    let control = FlowControl::new(seats, Arc::default());
    let schemas = default_schemas().into_iter();
    let schemas: Vec<_> = schemas
        .map(|schema| FlowSchema::parse(&object(schema)).expect("a schema"))
        .collect();
    let levels = default_levels().into_iter();
    let levels: Vec<_> = levels
        .map(|level| PriorityLevelConfiguration::parse(&object(level)).expect("a level"))
        .collect();
    control.configure(&schemas, &levels);
    control
}

fn digest<'a>(user: &'a str, groups: &'a [String]) -> RequestDigest<'a> {
    RequestDigest {
        user,
        groups,
        verb: Cow::Borrowed("get"),
        target: DigestTarget::Resource {
            api_group: "",
            resource: "configmaps",
            subresource: "",
            namespace: "default",
        },
    }
}

/// Admits a request that need not wait.
fn admit(control: &FlowControl, user: &str, groups: &[String]) -> Seat {
    let flow = control.classify(&digest(user, groups));
    let admission = std::pin::pin!(flow.admit(Work::SINGLE, false, WAIT));
    match poll(admission) {
        Poll::Ready(Ok(seat)) => seat,
        _ => unreachable!("there are free seats"),
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the nanoseconds of a request with `threads` threads.
fn free(threads: usize) -> f64 {
    let control = control(1 << 20);
    let users: Vec<String> = (0..USERS).map(|number| format!("user-{number}")).collect();
    let groups = ["developers".to_owned(), "system:authenticated".to_owned()];
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (control, users, groups) = (&control, &users, &groups);
            scope.spawn(move || {
                for number in 0..REQUESTS {
                    let user = &users[(number + thread) % USERS];
                    drop(black_box(admit(control, user, groups)));
                }
            });
        }
    });
    started.elapsed().as_nanos() as f64 / REQUESTS as f64
}

/// Returns the nanoseconds of a classification.
fn classification() -> f64 {
    let control = control(1 << 20);
    let groups = ["developers".to_owned(), "system:authenticated".to_owned()];
    let started = Instant::now();
    for _ in 0..REQUESTS {
        black_box(control.classify(&digest("ann", &groups)));
    }
    started.elapsed().as_nanos() as f64 / REQUESTS as f64
}

/// Returns the nanoseconds of an end that dispatches a waiting request, with [`QUEUED`] of them.
fn dispatch() -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let _entered = runtime.enter();
    let control = control(600);
    let users: Vec<String> = (0..USERS).map(|number| format!("user-{number}")).collect();
    let groups = ["system:authenticated".to_owned()];
    let flows: Vec<_> = users
        .iter()
        .map(|user| control.classify(&digest(user, &groups)))
        .collect();
    let mut waiting: Vec<_> = (0..QUEUED)
        .map(|number| {
            let flow = &flows[number % USERS];
            Box::pin(flow.admit(Work::SINGLE, false, WAIT))
        })
        .collect();
    let mut running: Vec<Seat> = Vec::new();
    waiting.retain_mut(|admission| match poll(admission.as_mut()) {
        Poll::Ready(seat) => {
            running.extend(seat);
            false
        }
        Poll::Pending => true,
    });
    let (mut elapsed, mut count) = (Duration::ZERO, 0_u32);
    while !waiting.is_empty() {
        let started = Instant::now();
        drop(running.pop());
        elapsed += started.elapsed();
        count += 1;
        waiting.retain_mut(|admission| match poll(admission.as_mut()) {
            Poll::Ready(seat) => {
                running.extend(seat);
                false
            }
            Poll::Pending => true,
        });
    }
    elapsed.as_nanos() as f64 / f64::from(count)
}

fn main() {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut out = std::io::stdout().lock();
    let mut print = |what: &str, nanoseconds: f64| {
        writeln!(out, "{what}: {nanoseconds:.0} ns").expect("stdout is open");
    };
    print("classification", classification());
    print("classification, admission and end, 1 thread", free(1));
    print(&format!("the same, {threads} threads"), free(threads));
    print(&format!("end with {QUEUED} waiting requests"), dispatch());
}
