//! `simulate --bug`: runs seeds with a planted bug until one finds it, and prints a table in Markdown.

use std::process::ExitCode;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use watchet_simulation::bugs::{KNOWN_BUGS, KnownBug};

use crate::{Seeds, first_line, has_failed};

/// The argument of `--bug`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BugChoice {
    /// Each bug.
    All,
    /// This one.
    One(&'static KnownBug),
}

impl ValueEnum for BugChoice {
    fn value_variants<'a>() -> &'a [Self] {
        static CHOICES: std::sync::LazyLock<Vec<BugChoice>> = std::sync::LazyLock::new(|| {
            let bugs = KNOWN_BUGS.iter().map(BugChoice::One);
            bugs.chain([BugChoice::All]).collect()
        });
        &CHOICES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::All => PossibleValue::new("all").help("Each of them"),
            Self::One(bug) => PossibleValue::new(bug.name).help(bug.symptom),
        })
    }
}

/// Finds the bugs and prints a row for each.
pub(crate) fn print(choice: BugChoice, seeds: &Seeds) -> ExitCode {
    let bugs = match choice {
        BugChoice::All => KNOWN_BUGS.iter().collect(),
        BugChoice::One(bug) => vec![bug],
    };
    println!("| bug | source | seeds until found | seed | violation |\n|---|---|---|---|---|");
    let mut has_missed = false;
    for bug in bugs {
        let outcomes = seeds.run(Some(bug));
        let ran = outcomes.len();
        let found = outcomes.iter().find(|(_, outcome)| has_failed(outcome));
        has_missed |= found.is_none();
        let (name, link) = (bug.name, bug.link);
        match found {
            Some((seed, outcome)) => {
                let (number, violation) = (seed.wrapping_sub(seeds.first) + 1, first_line(outcome));
                println!("| {name} | {link} | {number} | {seed} | {violation} |");
            }
            None => println!("| {name} | {link} | more than {ran} | - | - |"),
        }
    }
    ExitCode::from(u8::from(has_missed))
}
