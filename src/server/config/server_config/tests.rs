//! Tests of the validated configuration: error messages, and that the documented default file
//! equals the built-in defaults.

use std::path::Path;

use super::*;
use crate::server::config::file as config_file;
use crate::server::config::flags::Spec;
use crate::server::config::setting_value::{Source, file_key_of, variable_of};
use crate::server::config::storage::DurabilityConfig;

/// Checks a configuration; flags are `--name=value`, environment variables `NAME=value`, other
/// lines are from the file.
fn check(lines: &[&str]) -> Result<Config, String> {
    let mut settings = Settings::default();
    for line in lines {
        let (flag, text, source) = parse(&settings, line);
        settings.give(&flag, text, source);
    }
    Config::check(&settings).map_err(|error| error.to_string())
}

fn parse<'a>(settings: &Settings, line: &'a str) -> (String, &'a str, Source) {
    let (key, text) = line.split_once('=').unwrap();
    let mut specs = settings.specs().iter();
    specs
        .find_map(|Spec { name, .. }| {
            let source = if key == format!("--{name}") {
                Source::Flag
            } else if key == variable_of(name) {
                Source::Environment
            } else if key == file_key_of(name) {
                Source::File("w.yaml".into())
            } else {
                return None;
            };
            Some((name.clone(), text, source))
        })
        .unwrap_or_else(|| panic!("{key} is not a setting"))
}

#[test]
fn the_documented_default_file_is_the_built_in_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/watchet.yaml");
    let mut settings = Settings::default();
    config_file::give(&mut settings, &path, "--config").unwrap();
    let built_in = Settings::default();
    let text = std::fs::read_to_string(&path).unwrap();
    for spec in built_in.specs() {
        let (given, source) = settings.value_of(&spec.name);
        assert_eq!(given, spec.default, "{}", spec.name);
        let live = source != Source::Default;
        assert_eq!(live, !spec.default.is_empty(), "{} in the file", spec.name);
        let line = format!(
            "{}{}:",
            if live { "\n" } else { "\n# " },
            file_key_of(&spec.name)
        );
        assert!(text.contains(&line), "the file documents {line:?}");
    }
    assert_eq!(Config::check(&settings), Config::check(&built_in));
}

#[test]
fn defaults() {
    let config = check(&[]).unwrap();
    assert_eq!(config.kubeconfig, Path::new("./.watchet/kubeconfig"));
    assert_eq!(
        config.listen,
        Listen {
            address: "127.0.0.1".parse().unwrap(),
            secure_port: 6443,
            insecure_port: None,
            connections_max: NonZeroUsize::new(100_000).unwrap(),
        }
    );
    let durability = DurabilityConfig::Fsync;
    assert_eq!(config.storage, StorageConfig::Embedded { durability });
    assert_eq!(config.registry, RegistryConfig::default());
}

#[test]
fn controllers_are_selected_by_name() {
    let chosen = |lines: &[&str]| check(lines).map(|config| config.controllers);
    let all = controllers::Selection::default();
    assert_eq!(chosen(&[]), Ok(all.clone()));
    assert_eq!(chosen(&["controllers=*"]), Ok(all));
    let none = Ok(controllers::Selection::none());
    assert_eq!(chosen(&["--controllers=-namespace"]), none);
    let wrong = chosen(&["WATCHET_CONTROLLERS=*,-cloud"]).unwrap_err();
    let expected = r#"WATCHET_CONTROLLERS "*,-cloud": "cloud" is not a controller: choose among "#;
    assert!(wrong.starts_with(expected), "{wrong}");
}

#[test]
fn paths_that_cannot_be_written_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(at("file"), "").unwrap();
    let error = check(&[&format!("--data-dir={}", at("file"))]).unwrap_err();
    assert!(error.ends_with("is a file: give a directory"), "{error}");
    let kubeconfig = |path: &str| {
        let data_dir = format!("--data-dir={}", at("new/data"));
        check(&[&data_dir, &format!("--write-kubeconfig={path}")])
    };
    for created in ["new/data/kubeconfig", "new/kubeconfig", "kubeconfig"] {
        kubeconfig(&at(created)).unwrap();
    }
    let missing = kubeconfig(&at("missing/kubeconfig")).unwrap_err();
    let expected = format!("the directory {} does not exist: create it", at("missing"));
    assert!(missing.starts_with("--write-kubeconfig"), "{missing}");
    assert!(missing.ends_with(&expected), "{missing}");
    let is_directory = kubeconfig(directory.path().to_str().unwrap()).unwrap_err();
    assert!(
        is_directory.ends_with("is a directory: give a file"),
        "{is_directory}"
    );
}

#[test]
fn admission_plugins_are_selected_by_name() {
    let chosen = |lines: &[&str]| check(lines).map(|config| config.registry.plugins);
    let expected = EnabledPlugins::default().without("ServiceAccount");
    let lines = [
        "enableAdmissionPlugins=Priority",
        "--disable-admission-plugins=ServiceAccount",
    ];
    assert_eq!(chosen(&lines), Ok(expected));
    for (line, expected) in [
        (
            "--enable-admission-plugins=Foo",
            r#"--enable-admission-plugins "Foo": plugin "Foo" is unknown: choose among "#,
        ),
        (
            "--disable-admission-plugins=Foo",
            r#"--disable-admission-plugins "Foo": plugin "Foo" is unknown: choose among "#,
        ),
        (
            "WATCHET_DISABLE_ADMISSION_PLUGINS=Priority",
            r#"WATCHET_DISABLE_ADMISSION_PLUGINS "Priority": [Priority] in enable-admission-plugins "#,
        ),
    ] {
        let wrong = chosen(&["enableAdmissionPlugins=Priority", line]).unwrap_err();
        assert!(wrong.starts_with(expected), "{wrong}");
    }
}

#[test]
fn valid_values() {
    let config = check(&[
        "--data-dir=/d",
        "--bind-address=::1",
        "--insecure-port=auto",
        "WATCHET_STORAGE=etcd",
        "etcdServers=http://a:1, b:2",
        "--etcd-prefix=x/y/",
        "--etcd-compaction-interval=0",
        "--watch-history-window=250ms",
        "watchHistoryBytesMax=1Gi",
        "WATCHET_WATCH_CACHE_CONSISTENCY_CHECK_INTERVAL=5m",
        "--memory-limit=512Mi",
        "--log-level=4",
        "--log-format=json",
        "--shutdown-grace-period=1m30s",
    ])
    .unwrap();
    assert_eq!(config.kubeconfig, Path::new("/d/kubeconfig"));
    assert_eq!(config.listen.insecure_port, Some(0));
    assert_eq!(config.lifetime.shutdown_grace, Duration::from_secs(90));
    assert_eq!(
        log_filter(&config.log.level).unwrap().to_string(),
        EnvFilter::new("warn,h2=error,watchet=debug").to_string()
    );
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.compaction_interval, Duration::ZERO);
    assert_eq!(config.memory, MemoryLimit::Bytes(512 << 20));
    let watch_cache = CacherConfig {
        history_window: Duration::from_millis(250),
        history_bytes_max: 1 << 30,
        consistency_check_period: Some(Duration::from_secs(300)),
        ..CacherConfig::default()
    };
    assert_eq!(config.registry.caches, watch_cache);
    let StorageConfig::Etcd(etcd) = config.storage else {
        panic!("{config:?}");
    };
    assert_eq!(etcd.servers, ["http://a:1", "b:2"]);
    assert_eq!(etcd.prefix, "/x/y");
    for filter in ["warn", "3", "info,watchet_cacher=debug", "watchet=trace"] {
        assert!(
            check(&[&format!("--log-level={filter}")]).is_ok(),
            "{filter}"
        );
    }
}

#[test]
fn a_stronger_layer_may_override_etcd() {
    let file = ["storage=etcd", "etcdServers=http://a:1"];
    let config = check(&[file[0], file[1], "--storage=memory"]).unwrap();
    assert_eq!(config.storage, StorageConfig::Memory);
    let config = check(&[file[1], "WATCHET_STORAGE=embedded"]);
    assert!(config.is_ok(), "{config:?}");
}

#[test]
fn errors_name_the_key_and_the_remedy() {
    for (lines, expected) in [
        (
            &["--bind-address=localhost"][..],
            r#"--bind-address "localhost": must be an IP address such as 127.0.0.1, ::1 or 0.0.0.0, without a port"#,
        ),
        (
            &["WATCHET_BIND_ADDRESS=127.0.0.1:80"],
            r#"WATCHET_BIND_ADDRESS "127.0.0.1:80": must be an IP address such as 127.0.0.1, ::1 or 0.0.0.0, without a port"#,
        ),
        (
            &["memoryLimit=12Mi"],
            r#"memoryLimit in w.yaml "12Mi": must be `auto` (the limit of the control group), 0 (no limit) or an amount such as 512Mi or 2Gi, at least 64Mi"#,
        ),
        (
            &["securePort=65536"],
            r#"securePort in w.yaml "65536": must be a port number, 0 to 65535 (0 takes a free one)"#,
        ),
        (
            &["--secure-port=-1"],
            r#"--secure-port "-1": must be a port number, 0 to 65535 (0 takes a free one)"#,
        ),
        (
            &["--insecure-port=http"],
            r#"--insecure-port "http": must be a port number, 1 to 65535, 0 for off or `auto`"#,
        ),
        (
            &["--insecure-port=8080", "--bind-address=0.0.0.0"],
            r#"--insecure-port "8080": serves without authentication, so it is refused unless --bind-address is a loopback address, and that is 0.0.0.0: remove one of the two"#,
        ),
        (
            &["--insecure-port=6443"],
            r#"--insecure-port "6443": is the HTTPS port too (--secure-port): choose another"#,
        ),
        (
            &["--max-connections=0"],
            r#"--max-connections "0": must be a number of connections, 1 or more"#,
        ),
        (
            &["maxRequestsInflight=many"],
            r#"maxRequestsInflight in w.yaml "many": must be a number of requests; 0 is no limit"#,
        ),
        (
            &["--max-mutating-requests-inflight=-1"],
            r#"--max-mutating-requests-inflight "-1": must be a number of requests; 0 is no limit"#,
        ),
        (
            &["--request-timeout=0s"],
            r#"--request-timeout "0s": must be longer than 0: the default is 1m0s"#,
        ),
        (
            &["--tls-min-version=VersionTLS11"],
            r#"--tls-min-version "VersionTLS11": is deprecated (RFC 8996) and not supported: use VersionTLS12 or VersionTLS13"#,
        ),
        (
            &["--tls-min-version=1.3"],
            r#"--tls-min-version "1.3": must be VersionTLS12 or VersionTLS13"#,
        ),
        (
            &["--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA"],
            r#"--tls-cipher-suites "TLS_RSA_WITH_RC4_128_SHA": has "TLS_RSA_WITH_RC4_128_SHA", which is not supported: choose among TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"#,
        ),
        (
            &["--tls-cipher-suites=TLS_AES_128_GCM_SHA256"],
            r#"--tls-cipher-suites "TLS_AES_128_GCM_SHA256": has no cipher suite of TLS 1.2, which --tls-min-version allows: add one, or set that to VersionTLS13"#,
        ),
        (
            &["--tls-cert-file=c"],
            r#"--tls-cert-file "c": needs --tls-private-key-file too"#,
        ),
        (
            &["WATCHET_TLS_PRIVATE_KEY_FILE=k"],
            r#"WATCHET_TLS_PRIVATE_KEY_FILE "k": needs --tls-cert-file too"#,
        ),
        (
            &["--write-kubeconfig=/tmp"],
            r#"--write-kubeconfig "/tmp": /tmp is a directory: give a file"#,
        ),
        (
            &["storage=redis"],
            r#"storage in w.yaml "redis": must be embedded, memory or etcd"#,
        ),
        (
            &["--durability=always"],
            r#"--durability "always": must be fsync, interval or none"#,
        ),
        (
            &["--storage=etcd"],
            r#"--storage "etcd": needs --etcd-servers, e.g. --etcd-servers http://127.0.0.1:2379"#,
        ),
        (
            &["--etcd-servers=http://a:1"],
            r#"--etcd-servers "http://a:1": is for --storage etcd, but storage is embedded: add `--storage etcd` or remove it"#,
        ),
        (
            &["--storage=memory", "--etcd-cafile=ca"],
            r#"--etcd-cafile "ca": is for --storage etcd, but storage is memory: add `--storage etcd` or remove it"#,
        ),
        (
            &["--storage=etcd", "--etcd-servers=http://a:1,b"],
            r#"--etcd-servers "http://a:1,b": "b" is not an endpoint: write http://HOST:PORT or https://HOST:PORT"#,
        ),
        (
            &["--storage=etcd", "--etcd-servers=http://a"],
            r#"--etcd-servers "http://a": "http://a" is not an endpoint: write http://HOST:PORT or https://HOST:PORT"#,
        ),
        (
            &[
                "--storage=etcd",
                "--etcd-servers=http://a:1",
                "--etcd-cafile=ca",
            ],
            r#"--etcd-cafile "ca": is for TLS, but --etcd-servers has "http://a:1": write https:// or remove the file"#,
        ),
        (
            &["--etcd-certfile=c"],
            r#"--etcd-certfile "c": needs --etcd-keyfile too"#,
        ),
        (
            &["--etcd-prefix=/a//b"],
            r#"--etcd-prefix "/a//b": must be a path such as /registry, without empty or dot segments"#,
        ),
        (
            &["--etcd-prefix=/"],
            r#"--etcd-prefix "/": must be a path such as /registry, without empty or dot segments"#,
        ),
        (
            &["--etcd-compaction-interval=5"],
            r#"--etcd-compaction-interval "5": must be a duration such as 30s, 5m0s or 1h30m"#,
        ),
        (
            &["--watch-history-window=0s"],
            r#"--watch-history-window "0s": must be longer than 0"#,
        ),
        (
            &["--watch-history-window=-1s"],
            r#"--watch-history-window "-1s": must be a duration such as 30s, 5m0s or 1h30m"#,
        ),
        (
            &["watchHistoryBytesMax=256MB"],
            r#"watchHistoryBytesMax in w.yaml "256MB": must be an amount such as 256Mi or 1Gi, at least 16Mi"#,
        ),
        (
            &["--watch-history-bytes-max=1Mi"],
            r#"--watch-history-bytes-max "1Mi": must be an amount such as 256Mi or 1Gi, at least 16Mi"#,
        ),
        (
            &["--encoding-cache-bytes-max=lots"],
            r#"--encoding-cache-bytes-max "lots": must be an amount such as 256Mi or 1Gi, or 0"#,
        ),
        (
            &["--watch-cache-consistency-check-interval=never"],
            r#"--watch-cache-consistency-check-interval "never": must be a duration such as 30s, 5m0s or 1h30m"#,
        ),
        (
            &["WATCHET_SHUTDOWN_GRACE_PERIOD=soon"],
            r#"WATCHET_SHUTDOWN_GRACE_PERIOD "soon": must be a duration such as 30s, 5m0s or 1h30m"#,
        ),
        (
            &["--log-level=loud"],
            r#"--log-level "loud": must be error, warn, info, debug, trace, a number, or a filter of at most 4096 bytes such as info,watchet_cacher=debug"#,
        ),
        (
            &["--log-format=xml"],
            r#"--log-format "xml": must be text or json"#,
        ),
    ] {
        assert_eq!(check(lines).unwrap_err(), expected, "{lines:?}");
    }
}
