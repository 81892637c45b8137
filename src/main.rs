//! The program `watchet`, a thin wrapper around the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    watchet::server::main(std::env::args_os())
}
