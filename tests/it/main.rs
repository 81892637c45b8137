//! The test suite.

fn main() {}
