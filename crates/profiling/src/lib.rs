//! Records CPU profiles and heap profiles of the running process in the format of pprof. The crate `watchet-http` serves them.
//!
//! ```text
//! recording   one profile at a time: start, wait, finish, encode
//!   cpu       samples of the stacks of running threads (SIGPROF)
//!   heap      samples of allocations by jemalloc; heap_dump parses its dump
//! encode      samples ─▶ symbols ─▶ pprof protobuf ─▶ gzip
//! ```
//!
//! # CPU profiles
//!
//! The crate `pprof` starts a timer of the CPU time of the process. At each expiry the kernel sends SIGPROF to a running thread, whose
//! signal handler stores the stack of the thread. Neither the handler nor the unwinder of the C++ runtime (`_Unwind_Backtrace` of
//! libgcc), which finds the callers in the unwind tables of the program, allocates memory. Unwinding by frame pointers would be
//! cheaper, but the program is compiled without them, because they cost CPU time even when no profile is recorded.
//!
//! The unwinder is not specified as async-signal-safe. These rules make its use safe:
//!
//! - The handler does not unwind a thread that it has interrupted in libgcc (the thread may be unwinding), in the dynamic linker (the
//!   thread may hold the lock of the list of libraries) or in the vDSO (whose unwind tables can be wrong). It does unwind threads in
//!   libc, where most system calls are. With glibc 2.35 or later, the unwinder finds the tables without a lock.
//! - `pprof` unwinds once before it starts the timer, so that the unwinder is initialized.
//! - Only one profile is recorded at a time, so jemalloc does not unwind, and no task resolves symbols, while the timer runs.
//!
//! `pprof` does not free its table of stacks after a profile, see [`CPU_PROFILE_BYTES`].
//!
//! # Heap profiles
//!
//! jemalloc samples one allocation per 512 KiB of allocated memory on average, but only while a profile is recorded: the program starts
//! with `prof:true,prof_active:false` (`src/malloc_conf.c`). The profile contains the sampled allocations that are not freed by the end
//! of the recording.

#[cfg(all(feature = "jemalloc", target_env = "gnu"))]
mod allocator;
mod cpu;
mod encode;
mod error;
mod heap;
#[cfg(all(feature = "jemalloc", target_env = "gnu"))]
mod heap_dump;
#[cfg(all(feature = "jemalloc", target_env = "gnu"))]
mod heap_recording;
mod heap_sampling;
mod pprof_messages;
mod recording;
mod symbols;
#[cfg(test)]
mod tests;

pub use cpu::{CPU_PROFILE_BYTES, record_cpu_profile};
pub use error::ProfileError;
pub use heap::{heap_sampling, record_heap_profile};
pub use heap_sampling::HeapSampling;
