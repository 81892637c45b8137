//! The program `watchet`, a thin wrapper around the library.

use std::process::ExitCode;

/// Unlike the allocator of the C library, it returns the memory of large requests to the operating system: their work moves
/// between threads. `malloc_conf.c` configures it.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    watchet::server::main(std::env::args_os())
}
