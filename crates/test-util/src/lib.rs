//! Helpers of watchet's tests: seeds of randomized tests that can be repeated, and a parser of scraped metrics.

#![allow(
    clippy::print_stdout,
    reason = "a test prints its seed so that its run can be repeated"
)]

pub mod scrape;
pub mod seeds;
