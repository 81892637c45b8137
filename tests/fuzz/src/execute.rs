//! Executes a target with one input, and reports what must not happen: a panic, also one that the program catches, and
//! too much memory. A watchdog ends the process if an input takes too long.

use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::targets::Target;

/// The limit of the CPU time of one input. The largest inputs have some ten kilobytes.
pub const CPU_TIME_MAX: Duration = Duration::from_secs(10);

/// The limit of the time of one input that waits for something.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The limit of the memory that one input needs, in bytes.
const MEMORY_MAX: usize = 256 << 20;

/// The exit code of a process that the watchdog has ended.
pub const HANG_CODE: i32 = 97;

/// Why an input fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What happened, for example `panic`.
    pub kind: String,
    /// Where. Failures of the same kind at the same place count as one.
    pub place: String,
    /// The message of a panic.
    pub message: String,
}

impl Failure {
    /// Returns true if both are likely to have one cause.
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.kind, &self.place) == (&other.kind, &other.place)
    }
}

/// The first panic since the last input began.
static PANIC: Mutex<Option<Failure>> = Mutex::new(None);

/// The CPU time of the process in nanoseconds when the current input began; zero between inputs.
static CPU_AT_START: AtomicU64 = AtomicU64::new(0);

/// Records panics in place of printing them.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(record));
}

fn record(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let message = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message");
    let place = panic
        .location()
        .map_or_else(String::new, ToString::to_string);
    let mut first = PANIC.lock();
    first.get_or_insert_with(|| Failure {
        kind: "panic".to_owned(),
        place,
        message: message.to_owned(),
    });
}

fn take_panic() -> Option<Failure> {
    PANIC.lock().take()
}

/// Executes `target` with `input`. Returns the time that it took.
///
/// # Errors
/// The input fails.
pub fn execute(target: &Target, input: &[u8]) -> Result<Duration, Failure> {
    let memory_before = PeakAlloc.current_usage();
    PeakAlloc.reset_peak_usage();
    let began = Instant::now();
    CPU_AT_START.store(cpu_time(), Ordering::SeqCst);
    // Unwind safety: targets have no state that inputs change, except for caches.
    let unwound = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    CPU_AT_START.store(0, Ordering::SeqCst);
    let elapsed = began.elapsed();
    let memory = PeakAlloc.peak_usage().saturating_sub(memory_before);
    let is_isolated = |place: &str| target.isolated.iter().any(|name| place.contains(name));
    if let Some(panic) = take_panic()
        && (unwound.is_err() || !is_isolated(&panic.place))
    {
        return Err(panic);
    }
    if memory > MEMORY_MAX {
        return Err(Failure {
            kind: "memory".to_owned(),
            place: String::new(),
            message: format!(
                "{} MiB are allocated, more than {}",
                memory >> 20,
                MEMORY_MAX >> 20
            ),
        });
    }
    Ok(elapsed)
}

/// Starts the thread that ends this process with [`HANG_CODE`] if an input takes longer than [`CPU_TIME_MAX`].
///
/// # Errors
/// The thread cannot be created.
pub fn start_watchdog() -> std::io::Result<()> {
    let watch = || {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            #[allow(
                clippy::disallowed_methods,
                reason = "a thread of its own, without a runtime"
            )]
            std::thread::sleep(Duration::from_millis(100));
            let start = CPU_AT_START.load(Ordering::SeqCst);
            if start != last {
                (last, since) = (start, Instant::now());
            }
            let used = Duration::from_nanos(cpu_time().saturating_sub(start));
            if start != 0 && (used > CPU_TIME_MAX || since.elapsed() > TIME_MAX) {
                std::process::exit(HANG_CODE);
            }
        }
    };
    std::thread::Builder::new()
        .name("watchdog".to_owned())
        .spawn(watch)
        .map(drop)
}

/// The CPU time of this process in nanoseconds.
fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // It counts from the start of the process, so it is not negative.
    (time.tv_sec as u64).saturating_mul(1_000_000_000) + time.tv_nsec as u64
}
