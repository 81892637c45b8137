//! Helpers of watchet's tests: seeds of randomized tests that can be repeated, and a parser of scraped metrics.

pub mod scrape;
pub mod seeds;
