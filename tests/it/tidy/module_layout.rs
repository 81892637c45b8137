//! Checks that all modules, including those of the integration tests, have the same layout: a module with submodules is
//! `name/mod.rs` with their files beside it, one without is `name.rs`, and no directory has a single file.

use std::path::{Path, PathBuf};

use super::source_directories;

/// Returns what is wrong with the layout below `directory`, which is not itself a module.
fn offences_below(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(directory).expect("the directory was found");
    for entry in entries {
        let path = entry.expect("the directory is readable").path();
        if path.is_dir() {
            found.extend(offences(&path));
            found.extend(offences_below(&path));
        }
    }
    found
}

fn offences(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let shown = directory.display();
    if directory.with_extension("rs").is_file() {
        found.push(format!(
            "{shown}.rs is beside {shown}: move it to {shown}/mod.rs"
        ));
    }
    let entries = std::fs::read_dir(directory).expect("the directory was found");
    let files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the directory is readable").path())
        .collect();
    if let [only] = &files[..] {
        let only = only.display();
        found.push(format!("{only} is alone in its directory: move it up"));
    }
    found
}

#[test]
fn modules_have_one_layout() {
    let mut found = Vec::new();
    for (_, directory) in source_directories() {
        found.extend(offences_below(&directory));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    found.extend(offences_below(&root.join("tests/it")));
    found.sort();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_file_beside_its_directory_and_a_single_file_are_found() {
    let root = tempfile::tempdir().unwrap();
    let create = |path: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    };
    create("good/mod.rs");
    create("good/part.rs");
    create("good.d/text.txt");
    create("beside/mod.rs");
    create("beside/part.rs");
    create("beside.rs");
    let mut found = offences_below(root.path());
    found.sort();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("beside/mod.rs"), "{found:?}");
    assert!(found[1].contains("good.d/text.txt is alone"), "{found:?}");
}
