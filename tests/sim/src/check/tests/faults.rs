//! Each fault is found as the violation of its property, and the violation remains in a small history.

use std::collections::BTreeSet;

use fastrand::Rng;
use watchet_test_util::seeds::{seed, seeds};

use crate::check::{History, check, render, shrink_violation};

use super::model_server::{Size, generate};
use super::mutations::FAULTS;

fn history(rng: &mut Rng) -> History {
    let size = Size {
        operations: 200,
        clients: 6,
        keys: 6,
        unknown_percent: 5,
        watches: 6,
        has_complete_watch: true,
    };
    generate(rng, size)
}

/// The number of histories with each fault.
const RUNS: usize = 20;

#[test]
fn each_fault_breaks_its_property() {
    let mut wrong = Vec::new();
    for &(fault, property, change) in FAULTS {
        let mut found = 0;
        let mut rng = Rng::with_seed(seed());
        for _ in 0..50 * RUNS {
            let mut history = history(&mut rng);
            if change(&mut rng, &mut history).is_none() {
                continue;
            }
            found += 1;
            match check(&history) {
                Ok(statistics) => wrong.push(format!("{fault} is not found: {statistics:?}")),
                Err(violation) if violation.name() != property => {
                    wrong.push(format!("{fault} is found as {violation}"));
                }
                Err(_) => {}
            }
            if found == RUNS {
                break;
            }
        }
        assert!(
            found >= RUNS,
            "{fault} was possible in {found} histories only"
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn shrinking_keeps_the_violation() {
    let mut small = 0;
    for seed in seeds(4) {
        let mut rng = Rng::with_seed(seed);
        for &(fault, _, change) in FAULTS {
            let mut history = history(&mut rng);
            if change(&mut rng, &mut history).is_none() {
                continue;
            }
            let violation = check(&history).expect_err(fault);
            let shrunk = shrink_violation(&history, &violation);
            let remaining = check(&shrunk).expect_err(fault);
            assert!(remaining.is_same_kind(&violation), "{fault}: {remaining}");
            let text = render(&shrunk, &remaining);
            let lines = text.lines().count();
            assert!(
                lines < render(&history, &violation).lines().count(),
                "{fault}: {text}"
            );
            small += usize::from(lines < 60);
            let marked: BTreeSet<&str> =
                text.lines().filter(|line| line.starts_with(">>")).collect();
            assert!(!marked.is_empty(), "{fault}: {text}");
        }
    }
    assert!(small > 40, "only {small} histories are small");
}

#[test]
fn histories_can_be_stored() {
    let mut rng = Rng::with_seed(seed());
    let history = history(&mut rng);
    let text = serde_json::to_string(&history).expect("serializable");
    let restored: History = serde_json::from_str(&text).expect("what was stored");
    assert_eq!(restored, history);
}
