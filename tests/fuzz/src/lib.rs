//! Fuzzing of all parsers of untrusted input. A target is a function of bytes that panics if the program
//! breaks a rule with them. The program `fuzz` runs targets with stable Rust: it mutates the inputs of a corpus, prefers
//! those that execute new code, and reports panics, crashes, hangs and large allocations with the smallest input that it
//! finds. See `scripts/fuzz` and `docs/reliability.md`; `fuzz/` has the same targets for cargo-fuzz.

pub mod corpus;
pub mod coverage;
pub mod execute;
pub mod minimize;
pub mod mutate;
pub mod targets;
pub mod worker;

pub use targets::{Target, target};

/// Executes an input, for drivers other than the program `fuzz`.
///
/// # Panics
/// Panics if the input fails, or if there is no target of this name.
pub fn run(name: &str, input: &[u8]) {
    let target = target(name).expect("a target of this name");
    (target.run)(input);
}
