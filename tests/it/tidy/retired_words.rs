//! Checks that the code and the documentation do not use the words that `docs/glossary.md` retires.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Parts of upstream's messages that contain a retired word.
const UPSTREAM_MESSAGES: &[&str] = &["but wanted to match"];

/// Files that are not prose or code of this project, and the glossary itself.
const EXEMPT: &[&str] = &[
    ".git",
    "benches/stores/target",
    "docs/glossary.md",
    "target",
    "tests/it/tidy/retired_words.rs",
];

/// A word of a text: an identifier or a natural word.
struct Word<'a> {
    line: usize,
    whole: &'a str,
    /// `isTold` and `is_told` have the parts `is` and `told`, in lower case.
    part: String,
}

/// A retired word.
#[derive(Debug, PartialEq, Eq)]
enum Retired {
    /// The name of a type.
    Type(String),
    /// Consecutive words, or consecutive parts of one identifier, in lower case.
    Words(Vec<String>),
}

/// Returns the words of the first column of the table below "Retired words".
fn retired_words(glossary: &str) -> Vec<Retired> {
    let (_, section) = glossary
        .split_once("## Retired words")
        .expect("the glossary has the section");
    let (table, _) = section
        .split_once("A search cannot find")
        .expect("the table ends before the words that only a reviewer can find");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let entries = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    entries
        .map(|entry| match entry.starts_with(char::is_uppercase) {
            true => Retired::Type(entry.to_owned()),
            false => Retired::Words(entry.split(' ').map(str::to_owned).collect()),
        })
        .collect()
}

/// Splits an identifier at underscores and before capital letters.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut after_lower = false;
    for c in identifier.chars() {
        let begins = parts.is_empty() || c == '_' || (c.is_uppercase() && after_lower);
        if begins {
            parts.push(String::new());
        }
        if c != '_' {
            parts
                .last_mut()
                .expect("not empty")
                .extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn words(text: &str) -> Vec<Word<'_>> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        for whole in line.split(|c| !is_part(c)).filter(|word| !word.is_empty()) {
            found.extend(parts(whole).into_iter().map(|part| Word {
                line: index + 1,
                whole,
                part,
            }));
        }
    }
    found
}

fn is_sequence(words: &[Word<'_>], sequence: &[String]) -> bool {
    let is_one_identifier = || {
        words
            .iter()
            .all(|word| std::ptr::eq(word.whole, words[0].whole))
    };
    let are_whole = || {
        words
            .iter()
            .all(|word| word.whole.to_lowercase() == word.part)
    };
    words.iter().map(|word| &word.part).eq(sequence)
        && (sequence.len() == 1 || is_one_identifier() || are_whole())
}

/// Returns the retired words of `text` with their lines.
fn offences(text: &str, retired: &[Retired]) -> Vec<(usize, String)> {
    let words = words(text);
    let mut found = Vec::new();
    let before = |index: usize| index.checked_sub(1).map(|before| words[before].whole);
    for (index, word) in words.iter().enumerate() {
        let defines = matches!(before(index), Some("struct" | "enum" | "trait" | "type"));
        for entry in retired {
            let (is_used, name) = match entry {
                Retired::Type(name) => (defines && word.whole == name, name.clone()),
                Retired::Words(sequence) => {
                    let window = words.get(index..index + sequence.len()).unwrap_or_default();
                    (is_sequence(window, sequence), sequence.join(" "))
                }
            };
            if is_used {
                found.push((word.line, name));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Returns the files below `directory` that are checked: sources, documents, manifests and scripts.
fn checked_files(root: &Path, directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a readable directory") {
        let path = entry.expect("a readable directory").path();
        let relative = path.strip_prefix(root).expect("below the root");
        if EXEMPT.iter().any(|skipped| relative.starts_with(skipped)) {
            continue;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() {
            checked_files(root, &path, found);
        } else if matches!(extension, Some("rs" | "md" | "toml")) || relative.starts_with("scripts")
        {
            found.push(path);
        }
    }
}

#[test]
fn retired_words_are_not_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let glossary = std::fs::read_to_string(root.join("docs/glossary.md")).expect("the glossary");
    let retired = retired_words(&glossary);
    assert!(retired.len() > 50, "{retired:?}");
    let mut files = Vec::new();
    checked_files(root, root, &mut files);
    assert!(files.len() > 100, "{files:?}");
    files.sort();
    let mut report = String::new();
    for path in files {
        // Scripts may include binaries.
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        let text = UPSTREAM_MESSAGES
            .iter()
            .fold(text, |text, message| text.replace(message, ""));
        for (line, word) in offences(&text, &retired) {
            let path = path.strip_prefix(root).expect("below the root").display();
            writeln!(report, "{path}:{line}: {word}").expect("writing to a String");
        }
    }
    assert!(
        report.is_empty(),
        "docs/glossary.md has replacements\n{report}"
    );
}

#[test]
fn words_are_found_in_prose_and_identifiers() {
    let glossary = "## Retired words\n\n| instead of | write |\n|---|---|\n\
        | `told`, `at once` | other |\n| `Known` | other |\nA search cannot find";
    let retired = retired_words(glossary);
    assert_eq!(retired.len(), 3);
    let check = |text: &str, expected: &[&str]| {
        let found = offences(text, &retired);
        let found: Vec<&str> = found.iter().map(|(_, word)| &**word).collect();
        assert_eq!(found, expected, "{text}");
    };
    check("Told.", &["told"]);
    check("fn is_told() {}", &["told"]);
    check("struct LastTold;", &["told"]);
    check("ATOLD told_options", &["told"]);
    check("at_once", &["at once"]);
    check("// at\n// once", &["at once"]);
    check("untold at least once, known", &[]);
    check("fn starts_at_once() {}", &["at once"]);
    check("at once_more", &[]);
    check("struct Known {}", &["Known"]);
    check("struct KnownHosts; // Known hosts.", &[]);
}
