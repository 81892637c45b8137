//! Makes random bytes and clocks of the system deterministic in threads that run a simulation: replaces `getrandom` and
//! `clock_gettime` of the C library in the whole program. Other threads get the system's.
//!
//! The standard library seeds its hash maps with `getrandom` once per thread, and `uuid` makes UIDs with it. So each
//! simulation runs in a new thread.

use std::cell::Cell;

use rustix::rand::GetRandomFlags;
use rustix::time::ClockId;

/// The system time at the start of each simulation, in seconds after 1970.
const START_SECONDS: u64 = 1_800_000_000;
const NANOS: u64 = 1_000_000_000;

/// The state of a thread that runs a simulation. It has no destructor and no initialization, because threads request
/// random bytes and the time before they start and after they end.
struct ThreadState {
    is_simulated: Cell<bool>,
    random: Cell<u64>,
    /// The virtual time in nanoseconds when it was last determined.
    elapsed: Cell<u64>,
    /// The system time's difference to virtual time in seconds: steps of the clock.
    offset_seconds: Cell<i64>,
    /// True while the virtual time is being determined.
    is_determining: Cell<bool>,
    start: Cell<Option<tokio::time::Instant>>,
}

thread_local! {
    static STATE: ThreadState = const {
        ThreadState {
            is_simulated: Cell::new(false),
            random: Cell::new(0),
            elapsed: Cell::new(0),
            offset_seconds: Cell::new(0),
            is_determining: Cell::new(false),
            start: Cell::new(None),
        }
    };
}

/// Makes random bytes and clocks of this thread deterministic.
pub(crate) fn enter(seed: u64) {
    STATE.with(|state| {
        state.random.set(seed);
        state.is_simulated.set(true);
    });
    fastrand::seed(seed);
    watchet_tasks::run_blocking_work_inline();
}

/// Makes the clocks follow Tokio's virtual time, from its present value on. Must be called in the runtime.
pub(crate) fn follow_virtual_time() {
    let now = tokio::time::Instant::now();
    STATE.with(|state| state.start.set(Some(now)));
}

/// Steps the system time of this thread, as an administrator or NTP does. Monotonic clocks do not change.
pub(crate) fn step_clock(seconds: i64) {
    STATE.with(|state| {
        let offset = state.offset_seconds.get();
        state.offset_seconds.set(offset + seconds);
    });
}

impl ThreadState {
    /// Returns the next random number (SplitMix64).
    fn next(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns the virtual time in nanoseconds.
    fn elapsed(&self) -> u64 {
        // Tokio may request the system's time for its own.
        if let Some(start) = self.start.get()
            && !self.is_determining.replace(true)
        {
            let elapsed = tokio::time::Instant::now().saturating_duration_since(start);
            let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
            // Between two runtimes it does not go back.
            self.elapsed.set(elapsed.max(self.elapsed.get()));
            self.is_determining.set(false);
        }
        self.elapsed.get()
    }
}

/// Fills `out` with random bytes and returns their number.
fn random_bytes(out: &mut [u8], flags: u32) -> isize {
    let simulated = STATE.try_with(|state| {
        let is_simulated = state.is_simulated.get();
        if is_simulated {
            for chunk in out.chunks_mut(8) {
                let bytes = state.next().to_le_bytes();
                chunk.copy_from_slice(&bytes[..chunk.len()]);
            }
        }
        is_simulated
    });
    if simulated == Ok(true) {
        return isize::try_from(out.len()).unwrap_or(isize::MAX);
    }
    let flags = GetRandomFlags::from_bits_retain(flags);
    let filled = rustix::rand::getrandom(&mut *out, flags);
    filled.map_or(-1, |count| isize::try_from(count).unwrap_or(isize::MAX))
}

/// Returns the seconds and nanoseconds of a clock.
fn time_of(clock: i32) -> Option<(i64, i64)> {
    let simulated = STATE.try_with(|state| {
        state.is_simulated.get().then(|| {
            let nanos = START_SECONDS * NANOS + state.elapsed();
            let seconds = i64::try_from(nanos / NANOS).unwrap_or(i64::MAX);
            let offset = match clock {
                REALTIME | REALTIME_COARSE => state.offset_seconds.get(),
                _ => 0,
            };
            let nanos = i64::try_from(nanos % NANOS).unwrap_or_default();
            (seconds.saturating_add(offset), nanos)
        })
    });
    if let Ok(Some(simulated)) = simulated {
        return Some(simulated);
    }
    let clock = match clock {
        REALTIME => ClockId::Realtime,
        1 => ClockId::Monotonic,
        2 => ClockId::ProcessCPUTime,
        3 => ClockId::ThreadCPUTime,
        REALTIME_COARSE => ClockId::RealtimeCoarse,
        6 => ClockId::MonotonicCoarse,
        7 => ClockId::Boottime,
        _ => return None,
    };
    let time = rustix::time::clock_gettime(clock);
    Some((time.tv_sec, time.tv_nsec))
}

const REALTIME: i32 = 0;
const REALTIME_COARSE: i32 = 5;

#[expect(unsafe_code, reason = "replaces functions of the C library")]
mod replaced {
    /// `struct timespec` of 64-bit Linux.
    #[repr(C)]
    struct Timespec {
        seconds: i64,
        nanoseconds: i64,
    }

    /// `getrandom(2)`.
    ///
    /// # Safety
    /// `buffer` must be valid for writes of `length` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, flags: u32) -> isize {
        if length == 0 {
            return 0;
        }
        // SAFETY: the caller guarantees it, and zeros initialize bytes.
        let out = unsafe {
            buffer.write_bytes(0, length);
            std::slice::from_raw_parts_mut(buffer, length)
        };
        super::random_bytes(out, flags)
    }

    /// `clock_gettime(2)`.
    ///
    /// # Safety
    /// `time` must be valid for a write.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn clock_gettime(clock: i32, time: *mut Timespec) -> i32 {
        let Some((seconds, nanoseconds)) = super::time_of(clock) else {
            return -1;
        };
        // SAFETY: the caller guarantees it.
        unsafe {
            time.write(Timespec {
                seconds,
                nanoseconds,
            });
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, RandomState};
    use std::thread;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::*;

    fn sample(seed: u64) -> (u128, u64, u64, Duration) {
        let thread = thread::spawn(move || {
            enter(seed);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                follow_virtual_time();
                #[allow(clippy::disallowed_types, reason = "this tests the system's clock")]
                let before = std::time::Instant::now();
                tokio::time::sleep(Duration::from_secs(7)).await;
                assert_eq!(before.elapsed(), Duration::from_secs(7));
                let uid: [u8; 16] = *uuid::Uuid::new_v4().as_bytes();
                (
                    u128::from_le_bytes(uid),
                    RandomState::new().hash_one(1),
                    fastrand::u64(..),
                    SystemTime::now().duration_since(UNIX_EPOCH).unwrap(),
                )
            })
        });
        thread.join().unwrap()
    }

    #[test]
    fn randomness_and_time_follow_the_seed() {
        let first = sample(1);
        assert_eq!(first, sample(1));
        let second = sample(2);
        assert!(first.0 != second.0 && first.1 != second.1 && first.2 != second.2);
        assert_eq!(first.3, Duration::from_secs(START_SECONDS + 7));
        // Other threads have the system's.
        let hash = || RandomState::new().hash_one(1);
        let hashes = [thread::spawn(hash), thread::spawn(hash)].map(|t| t.join().unwrap());
        assert_ne!(hashes[0], hashes[1]);
        assert!(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_secs()
                != START_SECONDS
        );
    }
}
