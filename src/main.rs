//! The program `watchet`. All of it is in the library; this passes on the arguments.

use std::process::ExitCode;

fn main() -> ExitCode {
    watchet::server::main(std::env::args_os())
}
