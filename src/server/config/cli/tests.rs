//! Tests of the command line.

use super::*;

fn check(args: &[&str], expected: Result<(&str, &str), &str>) {
    let args = std::iter::once("watchet").chain(args.iter().copied());
    let result = parse(args.map(OsString::from));
    match (result, expected) {
        (Ok(Invocation::Serve { settings, .. }), Ok((flag, text))) => {
            assert_eq!(settings.text_of(flag), text);
        }
        (Err(error), Err(text)) => assert_eq!(error.to_string(), text),
        (other, expected) => panic!("{other:?} instead of {expected:?}"),
    }
}

#[test]
fn the_grammar_is_valid() {
    command().debug_assert();
}

#[test]
fn serve_is_the_default_command() {
    for prefix in [&[][..], &["serve"][..]] {
        let with = |args: &[&'static str]| [prefix, args].concat();
        check(&with(&[]), Ok(("storage", "embedded")));
        check(&with(&["--storage", "memory"]), Ok(("storage", "memory")));
        check(&with(&["--storage=etcd"]), Ok(("storage", "etcd")));
        check(&with(&["-v4"]), Ok(("log-level", "4")));
        check(&with(&["--v=2"]), Ok(("log-level", "2")));
        check(&with(&["--secure-port=-1"]), Ok(("secure-port", "-1")));
        check(
            &with(&["--storage", "etcd", "--storage", "memory"]),
            Ok(("storage", "memory")),
        );
        check(
            &with(&["--etcd-servers=a,b", "--etcd-servers", "c"]),
            Ok(("etcd-servers", "a,b,c")),
        );
    }
}

/// An empty value must not mean the default: a script whose variable is not set would run all controllers.
#[test]
fn an_empty_value_is_an_error() {
    for (args, expected) in [
        (
            &["--controllers", ""][..],
            r#"--controllers "": the value is empty: omit the flag for the default *"#,
        ),
        (
            &["serve", "--etcd-prefix="],
            r#"--etcd-prefix "": the value is empty: omit the flag for the default /registry"#,
        ),
        (
            &["--api-audiences="],
            r#"--api-audiences "": the value is empty: omit the flag, or give a value"#,
        ),
    ] {
        check(args, Err(expected));
    }
}

#[test]
fn errors_are_one_line() {
    check(
        &["--etcd-server=x"],
        Err(r#"unknown flag "--etcd-server": did you mean "--etcd-servers"?"#),
    );
    check(
        &["--qwerty"],
        Err(r#"unknown flag "--qwerty": see `watchet --help`"#),
    );
    check(
        &["sevre"],
        Err(r#"unknown command "sevre": did you mean "serve"?"#),
    );
    check(
        &["serve", "now"],
        Err(r#""now" is an unexpected argument: see `watchet serve --help`"#),
    );
    check(
        &["--data-dir"],
        Err("--data-dir <DIR>: a value is missing; see `watchet --help`"),
    );
    check(
        &["--storage", "memory", "serve"],
        Err(r#"command "serve": give flags after it, as in `watchet serve --storage memory`"#),
    );
    check(
        &["bench", "fill"],
        Err("<RESOURCE> is missing; see `watchet bench fill --help`"),
    );
    check(
        &["bench", "fill", "secrets"],
        Err(r#"<RESOURCE>: "secrets" is not one of configmaps, pods, widgets, gadgets"#),
    );
    check(
        &["bench", "watch", "--json", "--print", "load"],
        Err("the argument '--json' cannot be used with '--print <KEY>'"),
    );
    check(
        &["bench", "watch", "--watcher=1"],
        Err(r#"unknown flag "--watcher": did you mean "--watchers"?"#),
    );
    check(
        &["tail", "pods", "-A", "-n", "x"],
        Err("the argument '--all-namespaces' cannot be used with '--namespace <NAMESPACE>'"),
    );
    check(
        &["tail", "pods", "-o", "xml"],
        Err(r#"--output <FORMAT>: "xml" is not one of wide, json"#),
    );
    check(
        &["tail"],
        Err("<RESOURCE> is missing; see `watchet tail --help`"),
    );
    check(
        &["bench"],
        Err("'watchet bench' requires a subcommand but one was not provided"),
    );
}

#[test]
fn bench_takes_its_own_arguments() {
    let args = ["watchet", "bench", "watch", "--watchers", "3"].map(OsString::from);
    let Ok(Invocation::Bench(matches)) = parse(args.into_iter()) else {
        panic!("bench is a command");
    };
    assert_eq!(matches.subcommand_name(), Some("watch"));
}

#[test]
fn help_and_version_are_printed() {
    let printed = |args: &[&str]| {
        let args = args.iter().map(OsString::from);
        let Ok(Invocation::Print(text)) = parse(args) else {
            panic!("nothing to print");
        };
        text
    };
    let version = printed(&["watchet", "--version"]);
    assert_eq!(
        version,
        concat!("watchet ", env!("CARGO_PKG_VERSION"), "\n")
    );
    for (args, usage) in [
        (
            &["watchet", "--help"][..],
            "Usage: watchet [OPTIONS]\n       watchet <COMMAND>\n",
        ),
        (
            &["watchet", "serve", "-h"],
            "Usage: watchet serve [OPTIONS]",
        ),
        (&["watchet", "tail", "-h"], "Usage: watchet tail [OPTIONS]"),
        (&["watchet", "help", "--help"], "Usage: watchet [OPTIONS]"),
        (
            &["watchet", "help", "tail", "-h"],
            "Usage: watchet tail [OPTIONS]",
        ),
        (
            &["watchet", "bench", "help", "--help"],
            "Usage: watchet bench",
        ),
    ] {
        let text = printed(args);
        assert!(text.contains(usage), "{text}");
    }
}

#[test]
fn the_config_flag_overrides_the_environment() {
    let env = || Some(OsString::from("env.yaml"));
    let named = |flag: Option<&str>, env| config_file(flag.map(PathBuf::from), env);
    assert_eq!(
        named(Some("f.yaml"), env()),
        Some(("f.yaml".into(), "--config"))
    );
    assert_eq!(named(None, env()), Some(("env.yaml".into(), CONFIG_ENV)));
    assert_eq!(named(None, Some(OsString::new())), None);
    assert_eq!(named(None, None), None);
}
