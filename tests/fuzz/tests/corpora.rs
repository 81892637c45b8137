//! Tests of the corpora: each input passes, and the targets for cargo-fuzz are the same.

use std::path::Path;

use watchet_fuzz::corpus;
use watchet_fuzz::execute::{execute, install_panic_hook};
use watchet_fuzz::targets::ALL;

/// The inputs include those that failed before, so this repeats the regression tests of all parsers.
#[test]
fn every_input_passes() {
    install_panic_hook();
    let mut failures = Vec::new();
    for target in ALL {
        let inputs = corpus::read(&corpus::directory(target.name)).unwrap();
        assert!(
            inputs.len() >= 3,
            "{} has {} inputs",
            target.name,
            inputs.len()
        );
        for (path, input) in inputs {
            if let Err(failure) = execute(target, &input) {
                failures.push(format!("{}: {failure:?}", path.display()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn cargo_fuzz_has_the_same_targets() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    for target in ALL {
        let file = format!("fuzz_targets/{}.rs", target.name.replace('-', "_"));
        let bin = format!("name = \"{}\"\npath = \"{file}\"", target.name);
        assert!(
            manifest.contains(&bin),
            "fuzz/Cargo.toml has no target {}",
            target.name
        );
        let text = std::fs::read_to_string(root.join(&file)).unwrap();
        assert!(
            text.contains(&format!("\"{}\"", target.name)),
            "{file} runs another target"
        );
    }
    assert_eq!(manifest.matches("[[bin]]").count(), ALL.len());
    for entry in std::fs::read_dir(root.join("corpus")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            ALL.iter().any(|target| target.name == name),
            "no target has the corpus {name}"
        );
    }
}
