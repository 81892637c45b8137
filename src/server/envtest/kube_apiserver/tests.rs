//! Tests of the conversion of kube-apiserver's flags, and of rejected ones.

use std::time::Duration;

use super::*;
use crate::audit::{LogFormat, Mode};

fn parsed(arguments: &[&str]) -> Result<Invocation, String> {
    let arguments = std::iter::once("kube-apiserver").chain(arguments.iter().copied());
    parse(arguments.map(OsString::from)).map_err(|error| error.to_string())
}

fn server(arguments: &[&str]) -> ApiServer {
    let etcd = ["--etcd-servers=http://127.0.0.1:2379"];
    match parsed(&[&etcd, arguments].concat()) {
        Ok(Invocation::Serve(server)) => *server,
        other => panic!("{other:?}"),
    }
}

#[test]
fn authorization_is_configured_by_modes_or_by_a_file() {
    let modes = |modes| AuthorizationConfig::Modes(modes, None);
    for (flags, expected) in [
        (
            &["--authorization-mode=Node,RBAC"][..],
            [AuthorizerType::Node, AuthorizerType::Rbac].as_slice(),
        ),
        (
            &[
                "--authorization-mode=ABAC,RBAC",
                "--authorization-policy-file=/x",
            ],
            &[AuthorizerType::Rbac],
        ),
    ] {
        assert_eq!(
            server(flags).config.authorization,
            modes(expected.to_vec()),
            "{flags:?}"
        );
    }
    let by_file = server(&["--authorization-config=/x"]).config.authorization;
    assert!(
        matches!(by_file, AuthorizationConfig::File(_)),
        "{by_file:?}"
    );
    let flags = [
        "--authorization-mode=Webhook",
        "--authorization-webhook-config-file=/x",
    ];
    let by_webhook = server(&flags).config.authorization;
    assert!(
        matches!(by_webhook, AuthorizationConfig::Modes(_, Some(_))),
        "{by_webhook:?}"
    );
}

#[test]
fn the_flags_of_envtest_are_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let cert_dir = format!("--cert-dir={}", dir.path().display());
    let server = server(&[
        "--allow-privileged=true",
        "--authorization-mode=RBAC",
        "--bind-address=127.0.0.1",
        &cert_dir,
        "--client-ca-file=/ca.crt",
        "--disable-admission-plugins=ServiceAccount",
        "--secure-port=4001",
        "--service-account-issuer=https://127.0.0.1:4001/",
        "--service-account-key-file=/sa.crt",
        "--service-account-signing-key-file=/sa.key",
        "--service-cluster-ip-range=10.0.0.0/24",
    ]);
    let config = &server.config;
    assert_eq!(config.listen.address.to_string(), "127.0.0.1");
    assert_eq!(config.listen.secure_port, 4001);
    assert_eq!(config.listen.insecure_port, None);
    assert_eq!(config.controllers, controllers::Selection::of_api_server());
    assert!(!config.console);
    assert_eq!(config.data_dir, dir.path());
    assert!(!config.registry.plugins.has("ServiceAccount"));
    assert!(config.registry.plugins.has("Priority"));
    assert_eq!(
        config.authorization,
        AuthorizationConfig::Modes(vec![AuthorizerType::Rbac], None)
    );
    let certificate = config.serving_certificate.as_ref().unwrap();
    assert_eq!(
        certificate.certificate.path,
        dir.path().join("apiserver.crt")
    );
    assert!(certificate.key.path.exists());
    assert!(server.ignored.contains(&"allow-privileged"));
    assert!(!server.ignored.contains(&"secure-port"));
}

#[test]
fn the_flags_of_audit_logging_have_an_effect() {
    let server = server(&[
        "--audit-policy-file=/policy.yaml",
        "--audit-log-path=/audit.log",
        "--audit-log-maxsize=7",
        "--audit-log-compress",
        "--audit-log-mode=blocking-strict",
        "--audit-log-format=legacy",
        "--audit-log-batch-max-size=3",
        "--audit-log-batch-throttle-enable",
        "--audit-webhook-config-file=/webhook.yaml",
        "--audit-webhook-batch-max-size=9",
        "--audit-webhook-batch-max-wait=2s",
        "--audit-webhook-batch-throttle-enable=0",
        "--audit-webhook-truncate-enabled=T",
    ]);
    let audit = server.config.audit.unwrap();
    let log = audit.log.unwrap().options;
    assert_eq!(log.rotation.size_max, 7);
    assert!(log.rotation.compress);
    assert_eq!(log.mode, Mode::BlockingStrict);
    assert_eq!(log.truncate, None);
    assert_eq!(log.format, LogFormat::Legacy);
    assert_eq!(log.batch.size_max, 3);
    assert!(log.batch.throttle.is_some());
    let webhook = audit.webhook.unwrap().options;
    assert_eq!(webhook.batch.size_max, 9);
    assert_eq!(webhook.batch.wait_max, Duration::from_secs(2));
    assert_eq!(webhook.batch.throttle, None);
    let truncate = webhook.truncate.unwrap();
    assert_eq!(truncate.event_bytes_max, 100 << 10);
    assert_eq!(truncate.batch_bytes_max, 10 << 20);
    assert!(server.ignored.is_empty(), "{:?}", server.ignored);
}

#[test]
fn defaults_are_those_of_kube_apiserver() {
    let config = server(&[]).config;
    assert_eq!(config.listen.address.to_string(), "0.0.0.0");
    assert_eq!(config.listen.secure_port, 6443);
    assert_eq!(
        config.registry.service_ranges,
        crate::services::ServiceRanges::parse("10.0.0.0/24").unwrap()
    );
    assert_eq!(config.data_dir, PathBuf::from(DEFAULT_CERT_DIR));
}

#[test]
fn an_existing_certificate_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let address = "127.0.0.1".parse().unwrap();
    let (certificate, key) = serving_certificate(dir.path(), address).unwrap();
    let made = std::fs::read(&certificate).unwrap();
    assert_eq!(
        serving_certificate(dir.path(), address).unwrap().0,
        certificate
    );
    assert_eq!(std::fs::read(&certificate).unwrap(), made);
    std::fs::remove_file(&key).unwrap();
    let error = serving_certificate(dir.path(), address)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("has apiserver.crt but no apiserver.key"),
        "{error}"
    );
}

#[test]
fn flags_are_unique_and_those_of_settings_have_an_effect() {
    let flags = kube_apiserver_flags::all();
    let specs = crate::server::config::flags::specs();
    for (index, flag) in flags.iter().enumerate() {
        let twice = flags[..index].iter().any(|other| other.name == flag.name);
        assert!(!twice, "{}", flag.name);
        let is_setting = specs.iter().any(|spec| spec.name == flag.name);
        assert!(!is_setting || !flag.is_ignored(), "{}", flag.name);
    }
}

#[test]
fn help_and_version_are_printed() {
    let Ok(Invocation::Print(text)) = parsed(&["--help"]) else {
        panic!("--help prints");
    };
    assert!(text.contains("\n      --secure-port int\n"), "{text}");
    // envtest would pass the flag if it were listed.
    assert!(!text.contains("--insecure-port"), "{text}");
    let Ok(Invocation::Print(text)) = parsed(&["--version"]) else {
        panic!("--version prints");
    };
    assert!(text.starts_with("Kubernetes v1.36.0"), "{text}");
}

#[test]
fn contradictory_flags_are_errors() {
    let etcd = "--etcd-servers=http://127.0.0.1:2379";
    for (arguments, expected) in [
        (&[][..], "--etcd-servers must be specified"),
        (
            &[etcd, "--insecure-port=0"],
            "unknown flag: --insecure-port",
        ),
        (&[etcd, "serve"], "unexpected argument \"serve\""),
        (
            &[etcd, "--secure-port=0"],
            "--secure-port 0 must be between 1 and 65535, inclusive",
        ),
        (
            &[etcd, "--tls-cert-file=/x"],
            "--tls-cert-file \"/x\": needs --tls-private-key-file too",
        ),
        (
            &[etcd, "--storage-backend=etcd2"],
            "--storage-backend \"etcd2\" invalid, allowed values: etcd3",
        ),
        (
            &[etcd, "--authorization-mode=RBAC,Magic"],
            "authorization-mode \"Magic\" is not a valid mode",
        ),
        (
            &[etcd, "--authorization-mode=Node,RBAC,Node"],
            "authorization-mode [\"Node\", \"RBAC\", \"Node\"] has mode specified more than once",
        ),
        (
            &[etcd, "--authorization-mode=Webhook"],
            "authorization-mode Webhook's authorization config file not passed",
        ),
        (
            &[etcd, "--authorization-policy-file=/x"],
            "cannot specify --authorization-policy-file without mode ABAC",
        ),
        (
            &[
                etcd,
                "--authorization-config=/x",
                "--authorization-mode=RBAC",
            ],
            "--authorization-config can not be specified when --authorization-mode",
        ),
        (
            &[etcd, "--authentication-config=/x", "--oidc-client-id=y"],
            "authentication-config file and oidc-* flags are mutually exclusive",
        ),
        (
            &[etcd, "--service-cluster-ip-range=many"],
            "--service-cluster-ip-range \"many\"",
        ),
        (
            &["--etcd-servers=ftp://x:1"],
            "--etcd-servers \"ftp://x:1\"",
        ),
    ] {
        let error = parsed(arguments).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}
