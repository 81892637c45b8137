//! Tests of the program `fuzz` with targets that have planted failures.

use std::process::{Command, Output};

fn fuzz(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fuzz"))
        .args(arguments)
        .output()
        .expect("the program runs")
}

/// Runs a target, and returns the output and the failing input that was saved.
fn failure_of(target: &str, seconds: &str) -> (String, Vec<u8>) {
    let output = fuzz(&[seconds, target, "--seed", "1"]);
    let text = String::from_utf8(output.stdout).expect("the output is text");
    assert_eq!(output.status.code(), Some(1), "{text}");
    let replay = format!("scripts/fuzz --replay {target} ");
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(&replay));
    let path = line.unwrap_or_else(|| panic!("no file: {text}"));
    let replayed = fuzz(&["--replay", target, path]);
    assert!(
        !replayed.status.success(),
        "{target}: the saved input passes"
    );
    let input = std::fs::read(path).expect("the input was saved");
    (text, input)
}

#[test]
fn a_target_without_failures_succeeds() {
    let output = fuzz(&["1", "self-test-clean", "--seed", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("1 targets") && text.contains(" 0 failures"),
        "{text}"
    );
}

#[test]
fn a_panic_is_found_and_its_input_minimized() {
    let (text, input) = failure_of("self-test-panic", "10");
    assert!(
        text.contains("panic at") && text.contains("planted"),
        "{text}"
    );
    assert_eq!(input, b"bug");
    assert!(text.contains("input of 3 bytes: bug\n"), "{text}");
}

/// The program may catch a panic and report an error; the panic is a bug nevertheless.
#[test]
fn a_caught_panic_is_found() {
    let (_, input) = failure_of("self-test-caught", "10");
    assert_eq!(input, b"!");
}

#[test]
fn a_large_allocation_is_found() {
    let (text, input) = failure_of("self-test-memory", "5");
    assert!(text.contains("memory at"), "{text}");
    assert_eq!(input.len(), 9, "half as much is allowed");
}

#[test]
fn a_stack_overflow_is_found() {
    let (text, input) = failure_of("self-test-stack", "5");
    assert!(text.contains("signal-6 at"), "{text}");
    assert_eq!(input.len(), 1);
}

#[test]
fn a_hang_is_found() {
    let (text, input) = failure_of("self-test-hang", "5");
    assert!(text.contains("hang at"), "{text}");
    assert!(input.len() > 2);
}
