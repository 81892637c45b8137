//! Finds out which commit is built, for `/version`: what the builder says in `WATCHET_GIT_COMMIT`, else what a
//! package of the crate or git says. A build of neither has an empty one. Also compiles the configuration of jemalloc.
#![allow(
    clippy::print_stdout,
    reason = "cargo reads what a build script prints"
)]

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WATCHET_GIT_COMMIT");
    // A debug build keeps the commit of its first build: its authors would compile all again after each.
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        for path in git(&["rev-parse", "--git-path", "HEAD", "--git-path", "logs/HEAD"])
            .unwrap_or_default()
            .lines()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let given = env::var("WATCHET_GIT_COMMIT").ok();
    let commit = given
        .or_else(packaged)
        .or_else(|| git(&["rev-parse", "HEAD"]))
        .filter(|commit| is_commit(commit))
        .unwrap_or_default();
    // Not WATCHET_GIT_COMMIT: `cargo run` also passes the variable to the program, which takes WATCHET_* as its settings.
    println!("cargo::rustc-env=BUILD_GIT_COMMIT={commit}");
    #[cfg(feature = "jemalloc")]
    link_malloc_conf();
}

/// Links the configuration of jemalloc into the program. The build script of jemalloc would read it from the environment, which
/// `cargo install` does not set.
#[cfg(feature = "jemalloc")]
fn link_malloc_conf() {
    const SOURCE: &str = "src/malloc_conf.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    // An object and not a library: the linker would not search a library for a symbol that jemalloc defines weakly.
    for object in cc::Build::new().file(SOURCE).compile_intermediates() {
        println!("cargo::rustc-link-arg-bins={}", object.display());
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The commit that `cargo package` wrote down.
fn packaged() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    let commit = rest.split('"').nth(1)?;
    Some(commit.to_owned())
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit())
}
