//! Checks that the suite is complete: each line of `docs/conformance.md` has a test with its number in its name, in
//! this directory or beside the code, or a watch script with its number in its first comment; and each such number is
//! that of a line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const DOCUMENT: &str = include_str!("../../../docs/conformance.md");

/// Returns the lines of the document, and for each whether it applies to watchet.
fn lines() -> BTreeMap<u32, bool> {
    let rows = DOCUMENT.lines().filter_map(|row| row.strip_prefix("| WC-"));
    rows.map(|row| {
        let (number, rest) = row.split_once(" | ").expect("a row");
        let here = rest
            .trim_end_matches('|')
            .rsplit('|')
            .next()
            .expect("three columns");
        let number = number.parse().unwrap_or_else(|_| panic!("{row}"));
        (number, here.trim().starts_with("not "))
    })
    .collect()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the lines in the name of a test: `wc_083_084_states` and `wc_092_to_096_options`.
fn borne(name: &str) -> BTreeSet<u32> {
    let mut lines = BTreeSet::new();
    let mut range = None;
    for part in name.split('_').skip(1) {
        if part == "to" {
            range = lines.last().copied();
        } else if part.len() == 3
            && let Ok(number) = part.parse()
        {
            lines.extend(range.take().unwrap_or(number)..=number);
        } else {
            break;
        }
    }
    lines
}

/// Returns the lines in the first comment of a watch script: `WC-083 to WC-085, WC-087: the rule`.
fn lines_of_script(text: &str) -> BTreeSet<u32> {
    let comment = text.lines().take_while(|line| line.starts_with('#'));
    let comment: Vec<&str> = comment.collect();
    let comment = comment.join(" ").replace("WC-", "");
    let (numbers, _) = comment.split_once(": ").unwrap_or_default();
    let numbers = numbers.trim_start_matches("# ").replace(", ", "_");
    borne(&format!("wc_{}", numbers.replace(' ', "_")))
}

/// Returns the names of the tests of each line.
fn tests() -> BTreeMap<u32, Vec<String>> {
    let mut files = Vec::new();
    for root in ["src", "crates", "tests"] {
        sources(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(root),
            &mut files,
        );
    }
    let mut tests: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source");
        for rest in text.split("fn wc_").skip(1) {
            let name = rest.split('(').next().expect("a name");
            for line in borne(&format!("wc_{name}")) {
                tests.entry(line).or_default().push(name.to_owned());
            }
        }
    }
    for script in watchet_test_util::watch_script::Corpus::load().scripts() {
        for line in lines_of_script(&script.lines.join("\n")) {
            tests.entry(line).or_default().push(script.name.clone());
        }
    }
    tests
}

#[test]
fn every_checklist_line_has_a_test_and_every_test_a_line() {
    let (lines, tests) = (lines(), tests());
    assert!(lines.len() > 150, "the document is read: {}", lines.len());
    for (line, later) in &lines {
        let shown = tests.contains_key(line);
        assert!(shown || *later, "WC-{line:03} has no test");
        assert!(
            !(shown && *later),
            "WC-{line:03} has a test: {:?}",
            tests[line]
        );
    }
    for (line, names) in &tests {
        assert!(lines.contains_key(line), "{names:?} are of no line");
    }
}

#[test]
fn checklist_lines_are_parsed_from_test_names() {
    let numbers = |name| borne(name).into_iter().collect::<Vec<_>>();
    assert_eq!(numbers("wc_083_084_it"), [83, 84]);
    assert_eq!(
        numbers("wc_092_to_096_098_it_is_500"),
        [92, 93, 94, 95, 96, 98]
    );
    assert!(numbers("wc_it").is_empty());
}

#[test]
fn checklist_lines_are_parsed_from_scripts() {
    let lines = |text| lines_of_script(text).into_iter().collect::<Vec<_>>();
    assert_eq!(
        lines("# WC-083 to WC-085, WC-087: the rule\nput"),
        [83, 84, 85, 87]
    );
    assert!(lines("# A rule without a line.\nput").is_empty());
}
