//! The one integration test binary: a module per room. It holds no test itself.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its seed; helpers are not marked as tests"
)]

mod storage;
