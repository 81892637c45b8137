//! The tidy test: reads `src/` and fails where the house is not as it was drawn: an arrow between
//! rooms that nobody decided on, a file that does not say what it is, one that is too long, a task
//! or a queue without an owner. It understands tokens, not Rust: names hidden by macros escape it.

mod retired_words;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The rooms and what each may name. Adding to this list is a decision; see `src/ARCHITECTURE.md`.
const ROOMS: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("schema", &["api"]),
    ("reflector", &["api"]),
    ("storage", &["api"]),
    ("cacher", &["reflector", "storage", "api"]),
    ("admission", &["schema", "api"]),
    ("managed", &["schema"]),
    // The arrows from `registry` to the next three, and from `apiextensions` to `builtin`, are
    // temporary: strategies replace them.
    (
        "registry",
        &[
            "builtin",
            "apiextensions",
            "services",
            "admission",
            "managed",
            "cacher",
            "storage",
            "schema",
            "api",
        ],
    ),
    ("services", &["registry", "storage", "api"]),
    (
        "apiextensions",
        &[
            "builtin",
            "registry",
            "admission",
            "cacher",
            "storage",
            "schema",
            "api",
        ],
    ),
    (
        "builtin",
        &[
            "apiextensions",
            "services",
            "registry",
            "admission",
            "cacher",
            "storage",
            "schema",
            "api",
        ],
    ),
    (
        "controllers",
        &["builtin", "registry", "informer", "reflector", "api"],
    ),
    ("http", &["builtin", "registry", "schema", "api"]),
    (
        "server",
        &[
            "bench",
            "tail",
            "informer",
            "http",
            "controllers",
            "builtin",
            "apiextensions",
            "services",
            "registry",
            "admission",
            "managed",
            "cacher",
            "storage",
            "reflector",
            "schema",
            "api",
        ],
    ),
    ("testing", &["server", "api"]),
    ("informer", &["reflector", "api"]),
    ("tail", &["informer", "reflector", "api"]),
    ("bench", &["informer", "api"]),
    ("tasks", &[]),
    ("metrics", &[]),
    ("x509", &[]),
    ("seeds", &[]),
];

/// Helpers that every room may name.
const LEAVES: &[&str] = &["tasks", "metrics", "x509", "seeds"];

/// Lines of a file. Longer ones hold more than one thing.
const LINES_MAX: usize = 500;

/// Words that only some places may use: the word, where, and why.
const WORDS: &[(&str, &[&str], &str)] = &[
    (
        "etcd_client",
        &["storage/etcd3/"],
        "etcd is known to its back end only",
    ),
    (
        "etcd3",
        &["storage/", "server/"],
        "above storage nobody knows which back end it is; the server chooses one",
    ),
    ("unbounded_channel", &[], "every queue is bounded"),
    ("UnboundedSender", &[], "every queue is bounded"),
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Mark(char),
}

/// The words and marks of a source text, without comments, strings, characters and lifetimes.
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

/// The length of the raw string that `text` begins with, if it does: `r"…"`, `br#"…"#`.
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

/// The length of the string that `text` begins with.
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

/// The length of the character literal that `text` begins with, or of a lifetime's mark.
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

/// The rooms that a text names by `crate::`, and whether it leaves its own by `super::`. `depth` is
/// how many `super` lead from the file's top to the crate's root.
fn named_rooms(tokens: &[Token], depth: usize) -> (Vec<String>, bool) {
    let word = |at: usize| match tokens.get(at) {
        Some(Token::Word(word)) => Some(word.as_str()),
        _ => None,
    };
    let mark = |at: usize, wanted: char| tokens.get(at) == Some(&Token::Mark(wanted));
    let path = |at: usize| mark(at, ':') && mark(at + 1, ':');
    let mut rooms = Vec::new();
    let mut leaves = false;
    // For each open brace, whether it is an inline module's.
    let mut braces = Vec::new();
    for at in 0..tokens.len() {
        match &tokens[at] {
            Token::Mark('{') => braces.push(at >= 2 && word(at - 2) == Some("mod")),
            Token::Mark('}') => drop(braces.pop()),
            Token::Word(first) if first == "crate" && path(at + 1) => {
                if let Some(room) = word(at + 3) {
                    rooms.push(room.to_owned());
                } else if mark(at + 3, '{') {
                    rooms.extend(group(&tokens[at + 4..]));
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
    (rooms, leaves)
}

/// The first words of the items of a `{…}` group; the opening brace is already read.
fn group(tokens: &[Token]) -> Vec<String> {
    let mut rooms = Vec::new();
    let mut depth = 0;
    let mut begins = true;
    for token in tokens {
        match token {
            Token::Mark('{') => depth += 1,
            Token::Mark('}') if depth == 0 => break,
            Token::Mark('}') => depth -= 1,
            Token::Mark(',') if depth == 0 => begins = true,
            Token::Word(room) if begins && depth == 0 => {
                rooms.push(room.clone());
                begins = false;
            }
            _ => {}
        }
    }
    rooms
}

/// What is wrong with the file at `path` (relative to `src/`).
fn offences(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let tokens = tokens(text);
    let front_page = path == "lib.rs" && text.starts_with("#![doc = include_str!(");
    if !text.starts_with("//!") && !front_page {
        wrong.push("does not open with `//!`: say what it is and what it is not".to_owned());
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        wrong.push(format!(
            "has {lines} lines, more than {LINES_MAX}: split it"
        ));
    }
    let room = path
        .split('/')
        .next()
        .unwrap_or(path)
        .trim_end_matches(".rs");
    for (word, places, why) in WORDS {
        let used = tokens.contains(&Token::Word((*word).to_owned()));
        let room_file = format!("{room}/");
        let allowed = |place: &&str| path.starts_with(*place) || room_file == **place;
        if used && !places.iter().any(allowed) {
            wrong.push(format!("names `{word}`: {why}"));
        }
    }
    let spawns = tokens.windows(4).any(|four| {
        let is = |at: usize, text: &str| four[at] == Token::Word(text.to_owned());
        (is(0, "tokio") || is(0, "task")) && (is(3, "spawn") || is(3, "spawn_blocking"))
    });
    if spawns && room != "tasks" {
        wrong.push("spawns a task without an owner: use tasks::Tasks".to_owned());
    }
    if path.contains('/') || !matches!(room, "lib" | "main") {
        arrows(path, room, &tokens, &mut wrong);
    }
    wrong
}

/// Every room that arrows lead to from `room`.
fn below(room: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut open = vec![room];
    while let Some(room) = open.pop() {
        for (_, named) in ROOMS.iter().filter(|(name, _)| *name == room) {
            let fresh: Vec<_> = named
                .iter()
                .copied()
                .filter(|n| !found.contains(n))
                .collect();
            found.extend(&fresh);
            open.extend(fresh);
        }
    }
    found
}

/// Adds the arrows of a file that nobody decided on.
fn arrows(path: &str, room: &str, tokens: &[Token], wrong: &mut Vec<String>) {
    let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
        wrong.push(format!(
            "is in the room `{room}`, which tests/it/tidy.rs does not list"
        ));
        return;
    };
    let folders = path.matches('/').count();
    let depth = match path.rsplit('/').next() {
        Some("mod.rs") => folders,
        _ => folders + 1,
    };
    let (mut named, leaves) = named_rooms(tokens, depth);
    named.sort();
    named.dedup();
    // A test stands on all that its room stands on: it has to start what is further down.
    let test = path.ends_with("/tests.rs") || path.contains("/tests/");
    let reachable = if test { below(room) } else { allowed.to_vec() };
    for target in named {
        let own = target == room || LEAVES.contains(&target.as_str());
        if !own && !reachable.contains(&target.as_str()) {
            wrong.push(format!(
                "names `crate::{target}`: there is no arrow {room} -> {target}"
            ));
        }
    }
    if leaves {
        wrong.push("leaves its room by `super::`: write `crate::`".to_owned());
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn src_is_tidy() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    files.sort();
    assert!(files.len() > 10, "this looks at the wrong place: {src:?}");
    let mut report = String::new();
    for file in files {
        let path = file.strip_prefix(&src).expect("it is below src");
        let text = std::fs::read_to_string(&file).expect("source is UTF-8");
        for offence in offences(&path.to_string_lossy(), &text) {
            writeln!(report, "src/{}: {offence}", path.display()).expect("memory");
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn every_module_of_the_crate_is_a_room() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = tokens(&std::fs::read_to_string(src.join("lib.rs")).expect("lib.rs"));
    let mut modules = 0;
    for pair in lib.windows(2) {
        if let [Token::Word(keyword), Token::Word(module)] = pair
            && keyword == "mod"
        {
            assert!(
                ROOMS.iter().any(|(room, _)| room == module),
                "{module} is no room"
            );
            modules += 1;
        }
    }
    assert!(modules >= 5, "lib.rs declares the rooms");
    for (room, arrows) in ROOMS {
        for target in *arrows {
            assert!(
                ROOMS.iter().any(|(name, _)| name == target),
                "{room} -> {target}"
            );
        }
    }
}

/// The offences of a file that opens as it should.
fn check(path: &str, body: &str, expected: &[&str]) {
    let found = offences(path, &format!("//! It is.\n{body}"));
    assert_eq!(found.len(), expected.len(), "{path}: {body}: {found:?}");
    for (offence, words) in found.iter().zip(expected) {
        assert!(offence.contains(words), "{offence} does not say {words}");
    }
}

#[test]
fn arrows_are_found_however_they_are_written() {
    check("cacher/mod.rs", "use crate::storage::Storage;", &[]);
    check(
        "cacher/mod.rs",
        "use crate::tasks::Tasks; use crate::cacher::x;",
        &[],
    );
    check(
        "storage/mod.rs",
        "use crate::cacher::Cacher;",
        &["storage -> cacher"],
    );
    check(
        "http/a.rs",
        "fn f() { crate::storage::g() }",
        &["http -> storage"],
    );
    check(
        "http/a.rs",
        "use crate::{api::{self, storage}, registry::R};",
        &[],
    );
    check(
        "http/a.rs",
        "use crate::{api, storage::S};",
        &["http -> storage"],
    );
    check(
        "http/a.rs",
        "#[cfg(test)] mod tests { use crate::cacher::C; }",
        &["http -> cacher"],
    );
    check("http/a.rs", "pub(in crate::http) fn f() {}", &[]);
    check("api/a.rs", "// crate::storage\n/* crate::http */", &[]);
    check("api/a.rs", "const A: &str = \"crate::storage\";", &[]);
    check("api/a.rs", "const A: &str = r#\"a \" crate::http\"#;", &[]);
    check(
        "api/a.rs",
        "fn f<'a>(c: char) { c == '\"' || c == '\\'' } use crate::http;",
        &["api -> http"],
    );
    check("cellar/mod.rs", "", &["does not list"]);
}

#[test]
fn leaving_a_room_backwards_is_found() {
    check(
        "api/mod.rs",
        "use super::storage::Storage;",
        &["by `super::`"],
    );
    check("api/key.rs", "use super::object::Object;", &[]);
    check(
        "api/key.rs",
        "use super::super::storage::Storage;",
        &["by `super::`"],
    );
    check(
        "api/key.rs",
        "mod tests { use super::super::object::O; }",
        &[],
    );
    check(
        "storage/etcd3/mod.rs",
        "use super::super::KeyValue;",
        &["by `super::`"],
    );
    check("storage/etcd3/keys.rs", "use super::super::KeyValue;", &[]);
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
    check("tasks/mod.rs", "fn f() { tokio::spawn(g()); }", &[]);
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
        "registry/a.rs",
        "use crate::storage::etcd3::Etcd3;",
        &["which back end"],
    );
    check("server/a.rs", "use crate::storage::etcd3::Etcd3;", &[]);
}

#[test]
fn openings_and_lengths_are_looked_at() {
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

/// The table of rooms in the crate's front page: each room and what it may name; `None` for a helper.
fn drawn_rooms(page: &str) -> Vec<(String, Option<Vec<String>>)> {
    let mut rooms: Vec<(String, Option<Vec<String>>)> = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| [`")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let room = cells[1].trim_matches(|c: char| !c.is_alphanumeric());
        let named = match cells[3] {
            "(anyone may name it)" => None,
            "all above" => Some(rooms.iter().map(|(room, _)| room.clone()).collect()),
            words => Some(words.split_whitespace().map(str::to_owned).collect()),
        };
        rooms.push((room.to_owned(), named));
    }
    rooms
}

/// Who adds an arrow reads the page, and this test is what holds them to it.
#[test]
fn the_page_draws_the_rooms_that_there_are() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let page = std::fs::read_to_string(src.join("ARCHITECTURE.md")).expect("the page");
    let drawn = drawn_rooms(&page);
    for (room, allowed) in ROOMS.iter().filter(|(room, _)| src.join(room).is_dir()) {
        let found = drawn.iter().find(|(drawn, _)| drawn == room);
        let (_, named) = found.unwrap_or_else(|| panic!("{room} is not in the page"));
        match named {
            None => assert!(LEAVES.contains(room), "{room} is no helper"),
            Some(named) => {
                let mut named: Vec<&str> = named.iter().map(String::as_str).collect();
                let mut allowed = allowed.to_vec();
                named.sort_unstable();
                allowed.sort_unstable();
                assert_eq!(named, allowed, "{room}");
            }
        }
    }
    assert!(
        drawn.iter().all(|(room, _)| src.join(room).is_dir()),
        "{drawn:?}"
    );
}
