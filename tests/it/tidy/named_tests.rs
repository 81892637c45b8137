//! The tests that `docs/security.md` names exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns the names in backticks that are paths of tests or of modules with tests, as in `` `nesting::protobuf` ``.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |part: &str| {
        let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        !part.is_empty() && part.chars().all(is_valid)
    };
    let quoted = text.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|name| name.contains("::") && name.split("::").all(is_part));
    paths.map(str::to_owned).collect()
}

/// Returns the functions and modules of the sources below `directory`.
fn defined(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).expect("a readable directory") {
        let path = entry.expect("a readable directory").path();
        if path.is_dir() {
            found.extend(stem(&path));
            defined(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(stem(&path));
            let text = std::fs::read_to_string(&path).expect("a readable file");
            for line in text.lines() {
                let mut words = line
                    .trim_start()
                    .split(|c: char| !c.is_alphanumeric() && c != '_');
                while let Some(word) = words.next() {
                    if matches!(word, "fn" | "mod") {
                        found.extend(words.next().map(str::to_owned));
                    }
                }
            }
        }
    }
}

fn stem(path: &Path) -> Option<String> {
    Some(path.file_stem()?.to_str()?.to_owned())
}

#[test]
fn tests_that_the_security_page_names_exist() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/security.md")).expect("the page");
    let mut all = BTreeSet::new();
    for directory in ["src", "tests/it", "crates"] {
        defined(&root.join(directory), &mut all);
    }
    let named = named(&page);
    assert!(named.len() > 40, "{named:?}");
    let missing: Vec<_> = named
        .iter()
        .filter(|path| path.split("::").any(|part| !all.contains(part)))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/security.md names what does not exist: {missing:#?}"
    );
}

#[test]
fn paths_in_backticks_are_found() {
    let found = named("the test `a::b_1` of `watchet-auth`, `x` and `A::b` in `c::d::e`");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a::b_1", "c::d::e"]);
}
