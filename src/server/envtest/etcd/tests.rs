//! Tests of etcd's flags and of unsupported ones.

use super::*;

fn parsed(arguments: &[&str]) -> Result<Invocation, String> {
    let arguments = std::iter::once("etcd").chain(arguments.iter().copied());
    parse(arguments.map(OsString::from)).map_err(|error| error.to_string())
}

fn etcd(arguments: &[&str]) -> Etcd {
    match parsed(arguments) {
        Ok(Invocation::Serve(etcd)) => etcd,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_flags_of_envtest_are_accepted() {
    let etcd = etcd(&[
        "--advertise-client-urls=http://127.0.0.1:4001",
        "--data-dir=/tmp/etcd",
        "--listen-client-urls=http://127.0.0.1:4001",
        "--listen-peer-urls=http://127.0.0.1:4002",
        "--unsafe-no-fsync=true",
    ]);
    assert_eq!(etcd.data_dir, PathBuf::from("/tmp/etcd"));
    assert_eq!(etcd.listen, ["127.0.0.1:4001".parse().unwrap()]);
    assert!(!etcd.fsync);
    assert_eq!(etcd.ignored, ["advertise-client-urls", "listen-peer-urls"]);
}

#[test]
fn defaults_are_those_of_etcd() {
    let etcd = etcd(&["--name=infra0"]);
    assert_eq!(etcd.data_dir, PathBuf::from("infra0.etcd"));
    assert!(etcd.listen.iter().all(|address| address.port() == 2379));
    assert!(etcd.fsync);
}

/// envtest searches the help for a line that begins with --unsafe-no-fsync.
#[test]
fn the_help_lists_every_flag() {
    let Ok(Invocation::Print(text)) = parsed(&["--help"]) else {
        panic!("--help prints");
    };
    for flag in etcd_flags::all() {
        let short = flag.short.map(|c| format!("-{c}, ")).unwrap_or_default();
        let head = format!("{short}--{}", flag.name);
        let lists = |line: &str| {
            line.trim_start()
                .split(' ')
                .collect::<Vec<_>>()
                .join(" ")
                .starts_with(&head)
        };
        assert!(text.lines().any(lists), "{head}");
    }
}

#[test]
fn flags_are_unique() {
    let mut names: Vec<&str> = etcd_flags::all().iter().map(|flag| flag.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn unsupported_flags_are_errors() {
    for (arguments, expected) in [
        (&["--data-dirs=x"][..], "unknown flag: --data-dirs"),
        (&["gateway", "start"], "unexpected argument \"gateway\""),
        (
            &["--cert-file=x"],
            "--cert-file is not supported: only plain HTTP",
        ),
        (&["--auto-tls"], "--auto-tls is not supported"),
        (&["--config-file=x"], "--config-file is not supported"),
        (
            &["--initial-cluster-state=existing"],
            "--initial-cluster-state \"existing\" is not supported",
        ),
        (
            &["--listen-client-urls=https://127.0.0.1:1"],
            "--listen-client-urls \"https://127.0.0.1:1\": must be http://HOST:PORT",
        ),
        (
            &["--listen-client-urls=http://192.0.2.1:1"],
            "--listen-client-urls \"http://192.0.2.1:1\": must be a loopback address",
        ),
        (&["--log-level=loud"], "--log-level \"loud\": must be debug"),
    ] {
        let error = parsed(arguments).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}
