//! Targets with planted failures, for the tests of the driver.

use std::hint::black_box;

use super::Target;

/// The targets.
pub(super) static TARGETS: &[Target] = &[
    Target::new("self-test-clean", "does not fail", |_| {}),
    Target::new(
        "self-test-panic",
        "panics if an input has three bytes in order",
        panics,
    )
    .with_words(&["bug", "b", "u"]),
    Target::new("self-test-caught", "catches a panic", catches),
    Target::new("self-test-memory", "allocates too much", allocates),
    Target::new("self-test-stack", "recurses too deeply", overflows),
    Target::new("self-test-hang", "does not end", hangs),
];

fn panics(input: &[u8]) {
    if let [b'b', b'u', b'g', ..] = input {
        panic!("planted");
    }
}

fn catches(input: &[u8]) {
    let caught = std::panic::catch_unwind(|| assert!(!input.contains(&b'!'), "planted"));
    black_box(caught.is_ok());
}

fn allocates(input: &[u8]) {
    let size = 1 << (20 + input.len().min(10));
    black_box(vec![1_u8; size]);
}

fn overflows(input: &[u8]) {
    black_box(depth(input.len() as u64 * 1_000_000));
}

#[allow(clippy::only_used_in_recursion, reason = "it must use the stack")]
fn depth(levels: u64) -> u64 {
    let frame = black_box([levels; 64]);
    match levels {
        0 => 0,
        _ => 1 + depth(frame[0] - 1),
    }
}

fn hangs(input: &[u8]) {
    while input.len() > 2 {
        black_box(input);
    }
}
