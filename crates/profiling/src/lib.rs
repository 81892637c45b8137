//! Profiles of the running process in the format of pprof: CPU time, and memory that was allocated and is still in use.
//! Serving them is not here: `http` does.
//!
//! ```text
//! recording   one profile at a time: start, wait, finish, encode
//!   cpu       samples of the stacks of running threads (SIGPROF)
//!   heap      samples of allocations, by jemalloc; dump parses its text
//! encode      samples ─▶ symbols ─▶ pprof protobuf ─▶ gzip
//! ```
//!
//! # CPU profiles
//!
//! The crate `pprof` starts a timer of the CPU time of the process. At each expiry the kernel sends SIGPROF to a running thread, whose
//! signal handler stores the stack of the thread. Neither the handler nor the unwinder of the C++ runtime (`_Unwind_Backtrace` of
//! libgcc), which finds the callers in the unwind tables of the program, allocates memory. Frame pointers would be cheaper to
//! follow, but the program is compiled without them, because they cost CPU time all the time.
//!
//! The unwinder is not specified as safe in signal handlers. These rules keep it safe:
//!
//! - The handler does not unwind a thread that it has interrupted in libgcc (another unwinding), in the dynamic linker (which has a lock
//!   of the list of libraries) or in the vDSO (whose unwind tables can be wrong). Samples in libc are recorded: most system calls
//!   are there. With glibc 2.35 or later, the unwinder finds the tables without a lock.
//! - `pprof` unwinds once before it starts the timer, so that the unwinder is initialized.
//! - Only one profile is recorded at a time, so jemalloc does not unwind, and no symbols are read, while the timer runs.
//!
//! `pprof` does not return the memory of its table of stacks, see [`CPU_PROFILE_BYTES`].
//!
//! # Heap profiles
//!
//! jemalloc samples an allocation about each 512 KiB, but only while a profile is recorded: the program starts with
//! `prof:true,prof_active:false` (`src/malloc_conf.c`). At the end of the recording, the profile has those sampled allocations that
//! have not been freed.

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
