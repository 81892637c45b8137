//! Helpers of watchet's tests: seeds of randomized tests that can be repeated, a parser of scraped metrics, free ports, watch
//! scripts, and a KMS plugin.

#![allow(
    clippy::print_stdout,
    reason = "a test prints its seed so that its run can be repeated"
)]

#[cfg(feature = "kms")]
pub mod kms_plugin;
pub mod ports;
pub mod scrape;
pub mod seeds;
pub mod watch_script;
