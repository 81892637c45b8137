//! Records CPU profiles with the crate `pprof`. The crate documentation of `watchet-profiling` explains why unwinding in its signal
//! handler is safe.

use std::time::{Duration, SystemTime};

use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use watchet_tasks::Tasks;

use crate::encode::{Description, Sample, encode};
use crate::error::ProfileError;
use crate::recording::{Recording, record};
use crate::symbols::Symbols;

/// The maximum memory of a CPU profile in bytes. `pprof` allocates about half of it for the first profile and does not free that.
pub const CPU_PROFILE_BYTES: usize = 200 << 20;

/// Samples per second of CPU time, as in Go.
const FREQUENCY: i32 = 100;

/// Parts of the paths of libraries. The signal handler does not unwind a thread that it interrupts in one of them.
const BLOCKLIST: [&str; 4] = ["libgcc_s", "ld-linux", "ld-musl", "vdso"];

/// False for static programs: [`BLOCKLIST`] does not find the unwinder in them, and with musl the unwinder does not pass the
/// frame of the signal handler, so that a profile had no functions.
pub(crate) const CAN_UNWIND: bool =
    cfg!(target_env = "gnu") && cfg!(not(target_feature = "crt-static"));

/// The symbol of `pprof`'s signal handler, whose stack frames precede those of the interrupted thread.
const SIGNAL_HANDLER: &[u8] = b"perf_signal_handler";

/// Records where the process spends CPU time for `duration`, or until the tasks are cancelled. Returns a pprof protobuf, compressed
/// with gzip. If the returned future is dropped, the recording stops.
///
/// # Errors
/// Another profile is being recorded, the program is static, or the profiler cannot start.
pub async fn record_cpu_profile(
    tasks: &Tasks,
    duration: Duration,
) -> Result<Vec<u8>, ProfileError> {
    record::<CpuRecording>(tasks, duration).await
}

struct CpuRecording {
    guard: ProfilerGuard<'static>,
    began: SystemTime,
}

impl Recording for CpuRecording {
    const PROFILE: &'static str = "CPU";

    fn start() -> Result<Self, ProfileError> {
        if !CAN_UNWIND {
            return Err(ProfileError::NoCpuProfiles);
        }
        check_temporary_directory()?;
        let began = SystemTime::now();
        let builder = ProfilerGuardBuilder::default().frequency(FREQUENCY);
        let guard = builder.blocklist(&BLOCKLIST).build().map_err(failed)?;
        Ok(Self { guard, began })
    }

    fn finish(self) -> Result<Vec<u8>, ProfileError> {
        let report = self.guard.report().build_unresolved().map_err(failed);
        // Stops the timer, so that no signal interrupts the reading of symbols.
        drop(self.guard);
        let report = report?;
        let period = i64::from(1_000_000_000 / FREQUENCY);
        let mut symbols = Symbols::new();
        let samples = report.data.iter().map(|(stack, count)| {
            let mut addresses: Vec<usize> = stack
                .frames
                .iter()
                .map(|frame| frame.ip() as usize)
                .collect();
            remove_signal_handler(&mut addresses, &mut symbols);
            let name = stack.thread_name.get(..stack.thread_name_length);
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            Sample {
                addresses,
                values: [count, count.saturating_mul(period)],
                thread: name.map(|name| String::from_utf8_lossy(name).into_owned()),
            }
        });
        let samples: Vec<Sample> = samples.collect();
        let description = Description {
            values: [("samples", "count"), ("cpu", "nanoseconds")],
            default_value: "cpu",
            period: (("cpu", "nanoseconds"), period),
            began: self.began,
            duration: report.timing.duration,
        };
        encode(&description, &samples, &mut symbols).map_err(failed)
    }

    fn abandon(self) {}
}

/// Removes the frames of the signal handler, and the frame that returns from the signal.
fn remove_signal_handler(addresses: &mut Vec<usize>, symbols: &mut Symbols) {
    let is_handler = |address: &usize| {
        let functions = symbols.functions(*address);
        functions
            .iter()
            .any(|function| function.symbol == SIGNAL_HANDLER)
    };
    if let Some(at) = addresses.iter().position(is_handler) {
        addresses.drain(..(at + 2).min(addresses.len()));
        // This is the address of the interrupted instruction; the others are return addresses. `Symbols` expects return
        // addresses and looks up the byte before.
        if let Some(interrupted) = addresses.first_mut() {
            *interrupted += 1;
        }
    }
}

/// Checks that `pprof` can create a temporary file, which it needs for stacks that do not fit its table. `pprof`'s own error does not
/// say what failed, and `pprof` would return it until the server is restarted.
fn check_temporary_directory() -> Result<(), ProfileError> {
    let created = tempfile::NamedTempFile::new();
    created.map(drop).map_err(|error| {
        failed(format_args!(
            "cannot create a temporary file: {error}: set TMPDIR to a directory that the server can write to"
        ))
    })
}

fn failed(error: impl std::fmt::Display) -> ProfileError {
    ProfileError::Failed {
        profile: CpuRecording::PROFILE,
        detail: error.to_string(),
    }
}
