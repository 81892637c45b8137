//! The simulation finds each planted bug with its recorded seed, or another one, which is clean without the bug.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use watchet_simulation::bugs::{KNOWN_BUGS, KnownBug, PlantedBug};

fn simulate(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_simulate");
    Command::new(program)
        .args(arguments)
        .output()
        .expect("the program runs")
}

/// Returns the violation that a seed finds with a bug, or without; none if it is clean.
fn run(seed: u64, bug: Option<&str>) -> Option<String> {
    let seed = seed.to_string();
    let mut arguments = vec!["--seed", &seed];
    arguments.extend(bug.iter().flat_map(|bug| ["--bug", bug]));
    let output = simulate(&arguments);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    match output.status.code() {
        Some(0) => None,
        // A violation, or a panic of a server.
        Some(1 | 3) => Some(text),
        code => panic!("seed {seed} with {bug:?} ends with {code:?}: {text}"),
    }
}

/// The seeds that are searched if the recorded one no longer finds the bug: every change of the code changes all runs.
const SEARCHED: std::ops::RangeInclusive<u64> = 1..=1000;

fn check(known: &KnownBug) {
    let KnownBug { name, seed, .. } = known;
    let mut seeds = std::iter::once(*seed).chain(SEARCHED);
    let found = seeds.find(|seed| run(*seed, Some(name)).is_some() && run(*seed, None).is_none());
    assert!(found.is_some(), "no seed in {SEARCHED:?} finds {name}");
    println!("{name}: seed {found:?}");
}

#[test]
fn bugs_are_found() {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(known) = KNOWN_BUGS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(known);
                }
            });
        }
    });
}

#[test]
fn bugs_and_names_are_distinct() {
    let bugs = KNOWN_BUGS.iter().map(|known| known.bug);
    let bugs: std::collections::BTreeSet<PlantedBug> = bugs.collect();
    let names: std::collections::BTreeSet<&str> =
        KNOWN_BUGS.iter().map(|known| known.name).collect();
    assert_eq!((bugs.len(), names.len()), (15, 15));
}

#[test]
fn help_lists_each_bug() {
    let help = String::from_utf8(simulate(&["--help"]).stdout).unwrap();
    for KnownBug { name, .. } in KNOWN_BUGS {
        assert!(help.contains(name), "{name} is not in the help: {help}");
    }
}
