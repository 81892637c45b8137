//! Tests of the source tree. They fail for a dependency between modules that is not in the list, a file without a
//! module comment, a file that is too long, and a task or queue without an owner. They read tokens, not syntax: they
//! miss names that macros build.

mod import_cycles;
mod module_layout;
mod named_tests;
mod retired_words;
mod strategies;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The modules of the root crate and the modules and crates that each may name. Discuss an addition first; see
/// `src/ARCHITECTURE.md`. The crates below `crates/` may name the dependencies in their `Cargo.toml`.
const MODULES: &[(&str, &[&str])] = &[
    (
        "server",
        &[
            "audit",
            "auth",
            "authenticators",
            "authorizers",
            "admission",
            "registry",
            "apiextensions",
            "builtin",
            "services",
            "controllers",
            "console",
            "http",
            "bench",
            "tail",
            "cli",
            "demo",
            "client",
            "cacher",
            "encryption",
            "flowcontrol",
            "protobuf",
            "storage",
            "reflector",
            "schema",
            "api",
        ],
    ),
    ("testing", &["server", "api"]),
];

/// The crates below `crates/` that every module and crate may name.
const HELPERS: &[&str] = &[
    "tasks",
    "metrics",
    "telemetry",
    "x509",
    "test-registry",
    "test-util",
];

/// The maximum number of lines of a file.
const LINES_MAX: usize = 500;

/// Words that only some files may use: the word, the files, and the reason.
const WORDS: &[(&str, &[&str], &str)] = &[
    (
        "etcd_client",
        &["storage/etcd3/", "simulation/etcd/"],
        "etcd is known to its back end only",
    ),
    (
        "etcd3",
        &["storage/", "server/"],
        "only `server`, which chooses the back end, may know which one it is",
    ),
    ("unbounded_channel", &[], "every queue is bounded"),
    ("UnboundedSender", &[], "every queue is bounded"),
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Mark(char),
}

/// Returns the words and marks of a source text, without comments, strings, characters and lifetimes.
fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_string(rest) {
            length
        } else if first == '"' {
            quoted(rest)
        } else if first == '\'' {
            character_or_lifetime(rest)
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            found.push(Token::Word(rest[..end].to_owned()));
            end
        } else {
            if !first.is_whitespace() {
                found.push(Token::Mark(first));
            }
            first.len_utf8()
        };
        rest = &rest[skipped..];
    }
    found
}

/// Returns the length of the raw string at the start of `text`, if any: `r"…"`, `br#"…"#`.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = if text.starts_with("br") { 2 } else { 1 };
    if !text.starts_with('r') && prefix == 1 {
        return None;
    }
    let hashes = text[prefix..].bytes().take_while(|b| *b == b'#').count();
    let body = prefix + hashes + 1;
    if text.as_bytes().get(body - 1) != Some(&b'"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let end = text[body..].find(&close)?;
    Some(body + end + close.len())
}

/// Returns the length of the string at the start of `text`.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of the character literal, or of the mark of a lifetime, at the start of `text`.
fn character_or_lifetime(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let after = at + escaped.len_utf8();
            text[after..].find('\'').map_or(1, |end| after + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// Returns the modules that a text names with `crate::`, and whether it leaves its own module with `super::`. `depth`
/// is the number of `super` from the file's top module to the root of the crate.
fn named_modules(tokens: &[Token], depth: usize) -> (Vec<String>, bool) {
    let word = |at: usize| match tokens.get(at) {
        Some(Token::Word(word)) => Some(word.as_str()),
        _ => None,
    };
    let mark = |at: usize, expected: char| tokens.get(at) == Some(&Token::Mark(expected));
    let path = |at: usize| mark(at, ':') && mark(at + 1, ':');
    let mut modules = Vec::new();
    let mut leaves = false;
    // For each open brace, whether it belongs to an inline module.
    let mut braces = Vec::new();
    for at in 0..tokens.len() {
        match &tokens[at] {
            Token::Mark('{') => braces.push(at >= 2 && word(at - 2) == Some("mod")),
            Token::Mark('}') => drop(braces.pop()),
            Token::Word(first) if first == "crate" && path(at + 1) => {
                if let Some(module) = word(at + 3) {
                    modules.push(module.to_owned());
                } else if mark(at + 3, '{') {
                    modules.extend(group(&tokens[at + 4..]));
                }
            }
            Token::Word(first)
                if first == "super" && !(at >= 3 && word(at - 3) == Some("super")) =>
            {
                let mut supers = 0;
                while word(at + 3 * supers) == Some("super") && path(at + 3 * supers + 1) {
                    supers += 1;
                }
                let inline = braces.iter().filter(|module| **module).count();
                leaves |= supers >= depth + inline;
            }
            _ => {}
        }
    }
    (modules, leaves)
}

/// Returns the first words of the items of a `{…}` group, whose opening brace was already read.
fn group(tokens: &[Token]) -> Vec<String> {
    let mut modules = Vec::new();
    let mut depth = 0;
    let mut begins = true;
    for token in tokens {
        match token {
            Token::Mark('{') => depth += 1,
            Token::Mark('}') if depth == 0 => break,
            Token::Mark('}') => depth -= 1,
            Token::Mark(',') if depth == 0 => begins = true,
            Token::Word(module) if begins && depth == 0 => {
                modules.push(module.clone());
                begins = false;
            }
            _ => {}
        }
    }
    modules
}

/// Returns the broken rules of the file at `path`, which begins with the name of its crate or, in the root crate, module.
fn offences(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let tokens = tokens(text);
    let front_page = path.ends_with("lib.rs") && text.starts_with("#![doc = include_str!(");
    if !text.starts_with("//!") && !front_page {
        wrong.push("does not open with `//!`: say what it is and what it is not".to_owned());
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        wrong.push(format!(
            "has {lines} lines, more than {LINES_MAX}: split it"
        ));
    }
    let module = path
        .split('/')
        .next()
        .unwrap_or(path)
        .trim_end_matches(".rs");
    for (word, places, why) in WORDS {
        let used = tokens.contains(&Token::Word((*word).to_owned()));
        let module_file = format!("{module}/");
        let allowed = |place: &&str| path.starts_with(*place) || module_file == **place;
        if used && !places.iter().any(allowed) {
            wrong.push(format!("names `{word}`: {why}"));
        }
    }
    let spawns = tokens.windows(4).any(|four| {
        let is = |at: usize, text: &str| four[at] == Token::Word(text.to_owned());
        (is(0, "tokio") || is(0, "task")) && (is(3, "spawn") || is(3, "spawn_blocking"))
    });
    if spawns && module != "tasks" {
        wrong.push("spawns a task without an owner: use tasks::Tasks".to_owned());
    }
    if MODULES.iter().any(|(name, _)| *name == module) {
        arrows(path, module, &tokens, &mut wrong);
    }
    wrong
}

/// Returns every module and crate that `module` depends on, directly or not.
fn below(module: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut open = vec![module.to_owned()];
    while let Some(module) = open.pop() {
        let named = match MODULES.iter().find(|(name, _)| *name == module) {
            Some((_, named)) => named.iter().map(|name| (*name).to_owned()).collect(),
            None => crate_dependencies(&module),
        };
        for name in named {
            if !found.contains(&name) {
                found.push(name.clone());
                open.push(name);
            }
        }
    }
    found
}

/// Adds the dependencies of a file that the list does not allow.
fn arrows(path: &str, module: &str, tokens: &[Token], wrong: &mut Vec<String>) {
    let (_, allowed) = MODULES
        .iter()
        .find(|(name, _)| *name == module)
        .expect("the caller looked");
    let directories = path.matches('/').count();
    let depth = match path.rsplit('/').next() {
        Some("mod.rs") => directories,
        _ => directories + 1,
    };
    let (mut named, leaves) = named_modules(tokens, depth);
    named.sort();
    named.dedup();
    // A test may name everything that its module depends on, directly or not, because it starts those modules.
    let test = path.ends_with("/tests.rs") || path.contains("/tests/");
    let reachable = if test {
        below(module)
    } else {
        allowed.iter().map(|name| (*name).to_owned()).collect()
    };
    for target in named {
        let own = target == module || HELPERS.contains(&target.as_str());
        if !own && !reachable.contains(&target) {
            wrong.push(format!(
                "names `crate::{target}`: there is no arrow {module} -> {target}"
            ));
        }
    }
    if leaves {
        wrong.push("leaves its module by `super::`: write `crate::`".to_owned());
    }
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    let entries =
        std::fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    for entry in entries {
        let path = entry.expect("a readable directory").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the directories with sources: the prefix of their paths in messages and rules, and the directory.
fn source_directories() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec![(String::new(), root.join("src"))];
    for entry in std::fs::read_dir(root.join("crates")).expect("crates/") {
        let directory = entry.expect("a readable directory").path();
        let name = directory.file_name().expect("a name").to_string_lossy();
        found.push((format!("{name}/"), directory.join("src")));
    }
    found
}

#[test]
fn src_is_tidy() {
    let mut report = String::new();
    let mut count = 0;
    for (prefix, directory) in source_directories() {
        let mut files = Vec::new();
        sources(&directory, &mut files);
        files.sort();
        count += files.len();
        for file in files {
            let path = file.strip_prefix(&directory).expect("it is below");
            let path = format!("{prefix}{}", path.display());
            let text = std::fs::read_to_string(&file).expect("source is UTF-8");
            for offence in offences(&path, &text) {
                writeln!(report, "{}: {offence}", file.display()).expect("memory");
            }
        }
    }
    assert!(count > 500, "only {count} files were found");
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn every_module_of_the_root_crate_is_listed() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = tokens(&std::fs::read_to_string(src.join("lib.rs")).expect("lib.rs"));
    let mut modules = 0;
    for pair in lib.windows(2) {
        if let [Token::Word(keyword), Token::Word(module)] = pair
            && keyword == "mod"
        {
            assert!(
                MODULES.iter().any(|(name, _)| name == module),
                "tests/it/tidy does not list the module {module}"
            );
            modules += 1;
        }
    }
    assert_eq!(modules, MODULES.len(), "a listed module does not exist");
}

/// A workspace profile in Cargo cannot apply to all members: a crate without its own line would have no debug
/// assertions.
#[test]
fn each_crate_has_the_profile_of_the_workspace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("Cargo.toml");
    for (prefix, _) in source_directories() {
        let name = format!("watchet-{prefix}");
        let name = name.trim_end_matches(['-', '/']);
        let line = format!(
            "\n{name} = {{ opt-level = 0, debug = \"line-tables-only\", debug-assertions = true,"
        );
        assert!(
            manifest.contains(&line),
            "Cargo.toml has no line for {name} in [profile.dev.package]"
        );
    }
}

/// Asserts the offences of a file that begins with a module comment.
fn check(path: &str, body: &str, expected: &[&str]) {
    let found = offences(path, &format!("//! It is.\n{body}"));
    assert_eq!(found.len(), expected.len(), "{path}: {body}: {found:?}");
    for (offence, words) in found.iter().zip(expected) {
        assert!(offence.contains(words), "{offence} does not say {words}");
    }
}

#[test]
fn dependencies_are_found_in_every_form_of_import() {
    check(
        "testing/mod.rs",
        "use crate::server::Server; use crate::tasks::Tasks; use crate::testing::x;",
        &[],
    );
    check(
        "testing/a.rs",
        "use crate::http::Error;",
        &["testing -> http"],
    );
    check(
        "testing/a.rs",
        "fn f() { crate::http::g() }",
        &["testing -> http"],
    );
    check(
        "testing/a.rs",
        "use crate::{api::{self, storage}, server::S};",
        &[],
    );
    check(
        "testing/a.rs",
        "use crate::{api, http::S};",
        &["testing -> http"],
    );
    check(
        "testing/a.rs",
        "#[cfg(test)] mod tests { use crate::cacher::C; }",
        &["testing -> cacher"],
    );
    check("testing/a.rs", "pub(in crate::testing) fn f() {}", &[]);
    check("testing/a.rs", "// crate::http\n/* crate::cacher */", &[]);
    check("testing/a.rs", "const A: &str = \"crate::http\";", &[]);
    check(
        "testing/a.rs",
        "const A: &str = r#\"a \" crate::cacher\"#;",
        &[],
    );
    check(
        "testing/a.rs",
        "fn f<'a>(c: char) { c == '\"' || c == '\\'' } use crate::http;",
        &["testing -> http"],
    );
}

#[test]
fn leaving_a_module_by_super_is_found() {
    check(
        "testing/mod.rs",
        "use super::registry::Registry;",
        &["by `super::`"],
    );
    check("testing/key.rs", "use super::object::Object;", &[]);
    check(
        "testing/key.rs",
        "use super::super::registry::Registry;",
        &["by `super::`"],
    );
    check(
        "testing/key.rs",
        "mod tests { use super::super::object::O; }",
        &[],
    );
    check(
        "testing/custom/mod.rs",
        "use super::super::KeyValue;",
        &["by `super::`"],
    );
    check("testing/custom/keys.rs", "use super::super::KeyValue;", &[]);
}

#[test]
fn forbidden_words_are_found() {
    check(
        "cacher/a.rs",
        "fn f() { tokio::spawn(g()); }",
        &["without an owner"],
    );
    check(
        "cacher/a.rs",
        "fn f() { tokio::task::spawn_blocking(g); }",
        &["without an owner"],
    );
    check(
        "cacher/a.rs",
        "fn f() { self.tasks.spawn(\"f\", g()); }",
        &[],
    );
    check("tasks/lib.rs", "fn f() { tokio::spawn(g()); }", &[]);
    check(
        "cacher/a.rs",
        "use tokio::sync::mpsc::unbounded_channel;",
        &["bounded"],
    );
    check(
        "cacher/a.rs",
        "use etcd_client::Client;",
        &["its back end only"],
    );
    check("storage/etcd3/a.rs", "use etcd_client::Client;", &[]);
    check(
        "builtin/a.rs",
        "use crate::storage::etcd3::Etcd3;",
        &["may know which one"],
    );
    check("server/a.rs", "use crate::storage::etcd3::Etcd3;", &[]);
}

#[test]
fn missing_module_docs_and_long_files_are_found() {
    assert_eq!(offences("api/a.rs", "use std::fmt;\n").len(), 1);
    assert_eq!(
        offences("api/a.rs", &"//! Long.\n".repeat(LINES_MAX)),
        [""; 0]
    );
    assert_eq!(
        offences("api/a.rs", &"//! Long.\n".repeat(LINES_MAX + 1)).len(),
        1
    );
    assert_eq!(
        offences("lib.rs", "#![doc = include_str!(\"A.md\")]\npub mod api;"),
        [""; 0]
    );
}

/// Returns the table of modules in `src/ARCHITECTURE.md`: each crate or module and what it may name; `None` for a helper.
fn documented_modules(page: &str) -> Vec<(String, Option<Vec<String>>)> {
    let mut modules: Vec<(String, Option<Vec<String>>)> = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| [`")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let module = cells[1].trim_matches(|c: char| !c.is_alphanumeric());
        let named = match cells[3] {
            "(any may name it)" => None,
            "all above" => Some(modules.iter().map(|(name, _)| name.clone()).collect()),
            words => Some(words.split_whitespace().map(str::to_owned).collect()),
        };
        modules.push((module.to_owned(), named));
    }
    modules
}

/// Returns the crates of this workspace that crate `name` depends on, except for helpers.
fn crate_dependencies(name: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("crates").join(name).join("Cargo.toml");
    let manifest =
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (_, rest) = manifest
        .split_once("[dependencies]\n")
        .expect("a list of dependencies");
    let listed = rest.lines().take_while(|line| !line.starts_with('['));
    listed
        .filter_map(|line| line.strip_prefix("watchet-")?.split(['.', ' ']).next())
        .filter(|name| !HELPERS.contains(name))
        .map(str::to_owned)
        .collect()
}

/// The page lists the dependencies; this test keeps the list correct.
#[test]
fn the_page_has_the_modules_and_their_dependencies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("src/ARCHITECTURE.md")).expect("the page");
    let mut actual: Vec<(String, Vec<String>)> = MODULES
        .iter()
        .map(|(module, named)| {
            let named = named.iter().map(|name| (*name).to_owned());
            ((*module).to_owned(), named.collect())
        })
        .collect();
    for (prefix, _) in source_directories() {
        // The helpers of tests are not listed as dependencies.
        if let Some(name) = prefix
            .strip_suffix('/')
            .filter(|name| !name.starts_with("test-"))
        {
            actual.push((name.to_owned(), crate_dependencies(name)));
        }
    }
    let documented = documented_modules(&page);
    assert_eq!(documented.len(), actual.len(), "{documented:?}\n{actual:?}");
    for (name, mut named) in actual {
        let found = documented.iter().find(|(module, _)| *module == name);
        let (_, in_page) = found.unwrap_or_else(|| panic!("{name} is not in the page"));
        match in_page {
            None => assert!(HELPERS.contains(&&*name), "{name} is no helper"),
            Some(in_page) => {
                let mut in_page = in_page.clone();
                in_page.sort();
                named.sort();
                assert_eq!(in_page, named, "{name}");
            }
        }
    }
}
