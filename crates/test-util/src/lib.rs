//! Helpers of watchet's tests: seeds of randomized tests that can be repeated, a parser of scraped metrics, and watch
//! scripts.

#![allow(
    clippy::print_stdout,
    reason = "a test prints its seed so that its run can be repeated"
)]

pub mod scrape;
pub mod seeds;
pub mod watch_script;
