//! Tests of invalid configurations, ports and directories in use, and the precedence of flags, environment and file,
//! with the real process.

use std::path::Path;
use std::process::Output;

use crate::harness::{Server, command};

/// Runs the program to its end in `directory`.
async fn run(directory: &Path, args: &[&str], environment: &[(&str, &str)]) -> Output {
    let output = command()
        .current_dir(directory)
        .args(args)
        .envs(environment.iter().copied())
        .output();
    tokio::time::timeout(crate::harness::PATIENCE, output)
        .await
        .unwrap_or_else(|_| panic!("watchet {args:?} does not end"))
        .expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const HEAD: &str = "apiVersion: config.watchet.dev/v1alpha1\nkind: ServerConfiguration\n";

#[tokio::test]
async fn invalid_configuration_prints_one_line_and_exits_with_2() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str, contents: &str| {
        std::fs::write(directory.path().join(name), contents).expect("it can be written");
    };
    file("unknown.yaml", &format!("{HEAD}dataDirectory: x\n"));
    file("value.yaml", &format!("{HEAD}securePort: many\n"));
    file(
        "version.yaml",
        "apiVersion: v1\nkind: ServerConfiguration\n",
    );
    file("broken.yaml", "a: [\n");
    file("tokens.csv", "t,jane,u\n\nnobody\n");
    file("junk.pem", "junk\n");
    let pair = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a pair");
        file(&format!("{name}.crt"), &made.cert.pem());
        file(&format!("{name}.key"), &made.signing_key.serialize_pem());
    };
    pair("a");
    pair("b");
    let plain: &[(&str, &str)] = &[];
    for (args, environment, expected) in [
        (
            &["--bind-addres=::1"][..],
            plain,
            r#"unknown flag "--bind-addres""#,
        ),
        (&["servant"], plain, r#"unknown command "servant""#),
        (
            &["--secure-port"],
            plain,
            "--secure-port <PORT>: a value is missing",
        ),
        (
            &["--secure-port=70000"],
            plain,
            r#"--secure-port "70000": must be a port"#,
        ),
        (
            &[],
            &[("WATCHET_SECURE_PORT", "70000")],
            r#"WATCHET_SECURE_PORT "70000": must be a port"#,
        ),
        (
            &["--controllers=*,-gardener"],
            plain,
            r#"--controllers "*,-gardener": "gardener" is not a controller: choose among namespace"#,
        ),
        (
            &["--enable-admission-plugins=Quota"],
            plain,
            r#"--enable-admission-plugins "Quota": plugin "Quota" is unknown: choose among AlwaysAdmit, "#,
        ),
        (
            &[
                "--enable-admission-plugins=Priority",
                "--disable-admission-plugins=ServiceAccount,Priority",
            ],
            plain,
            r#"--disable-admission-plugins "ServiceAccount,Priority": [Priority] in enable-admission-plugins and "#,
        ),
        (
            &["serve", "--storage=redis"],
            plain,
            r#"--storage "redis": must be embedded"#,
        ),
        (
            &["--storage=etcd"],
            plain,
            r#"--storage "etcd": needs --etcd-servers"#,
        ),
        (
            &["--insecure-port=8080", "--bind-address=0.0.0.0"],
            plain,
            r#"--insecure-port "8080": serves without authentication"#,
        ),
        (
            &["--config=nowhere.yaml"],
            plain,
            r#"--config "nowhere.yaml": No such file"#,
        ),
        (
            &[],
            &[("WATCHET_CONFIG", "nowhere.yaml")],
            r#"WATCHET_CONFIG "nowhere.yaml": No such file"#,
        ),
        (
            &["--config=unknown.yaml"],
            plain,
            r#"unknown.yaml: unknown key "dataDirectory""#,
        ),
        (
            &["--config=value.yaml"],
            plain,
            r#"securePort in value.yaml "many": must be a port"#,
        ),
        (
            &["--config=version.yaml"],
            plain,
            r#"version.yaml: apiVersion "v1": must be"#,
        ),
        (
            &["--config=broken.yaml"],
            plain,
            "broken.yaml: is not valid YAML",
        ),
        (
            &["--token-auth-file=nowhere.csv"],
            plain,
            r#"--token-auth-file "nowhere.csv": cannot be read"#,
        ),
        (
            &["--token-auth-file=tokens.csv"],
            plain,
            r#"--token-auth-file "tokens.csv": line 3: the user is missing"#,
        ),
        (
            &["--client-ca-file=junk.pem"],
            plain,
            r#"--client-ca-file "junk.pem": has no certificate"#,
        ),
        (
            &["--tls-cert-file=a.crt", "--tls-private-key-file=b.key"],
            plain,
            r#"--tls-private-key-file "b.key": is not the key of the certificate in "a.crt""#,
        ),
        (
            &["--tls-cert-file=a.crt", "--tls-private-key-file=junk.pem"],
            plain,
            r#"--tls-private-key-file "junk.pem": has no private key"#,
        ),
        (
            &[
                "--tls-cert-file=nowhere.crt",
                "--tls-private-key-file=a.key",
            ],
            plain,
            r#"--tls-cert-file "nowhere.crt": cannot be read"#,
        ),
        (
            &[
                "--storage=etcd",
                "--etcd-servers=https://127.0.0.1:1",
                "--etcd-cafile=junk.pem",
            ],
            plain,
            r#"--etcd-cafile "junk.pem""#,
        ),
        (
            &["--storage=etcd", "--etcd-servers=http://127.0.0.1"],
            plain,
            r#""http://127.0.0.1" is not an endpoint"#,
        ),
        (
            &["--log-level=loud"],
            plain,
            r#"--log-level "loud": must be"#,
        ),
    ] {
        let output = run(directory.path(), args, environment).await;
        let stderr = text(&output.stderr);
        let case = format!("{args:?} {environment:?}: {stderr}");
        assert_eq!(output.status.code(), Some(2), "{case}");
        assert_eq!(stderr.lines().count(), 1, "{case}");
        assert!(stderr.starts_with("watchet: "), "{case}");
        assert!(stderr.contains(expected), "{expected:?} in {case}");
        assert!(output.stdout.is_empty(), "{case}");
    }
}

#[tokio::test]
async fn an_invalid_setting_binds_no_port_and_creates_no_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port();
    // If the program tried to bind, the error would be about the port in use, with another exit code.
    let args = [
        &format!("--secure-port={port}"),
        "--token-auth-file=nowhere",
    ];
    let output = run(directory.path(), &args, &[]).await;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let left = std::fs::read_dir(directory.path())
        .expect("it exists")
        .count();
    assert_eq!(left, 0, "nothing was written");
}

#[tokio::test]
async fn port_in_use_is_an_error_with_the_port() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port();
    for (flag, other) in [
        ("--secure-port", "--insecure-port=0"),
        ("--insecure-port", "--secure-port=0"),
    ] {
        let args = ["--storage=memory", other, &format!("{flag}={port}")];
        let output = run(directory.path(), &args, &[]).await;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let expected = format!("watchet: {flag} {port}: 127.0.0.1:{port} is in use");
        assert!(stderr.starts_with(&expected), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[tokio::test]
async fn second_process_on_the_same_data_dir_exits_with_an_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for storage in ["embedded", "memory"] {
        let flag = format!("--storage={storage}");
        let first = Server::start_in(directory.path(), &[&flag]).await;
        let data_dir = format!("--data-dir={}", first.data_dir().display());
        let args = [&data_dir, "--secure-port=0", "--storage=embedded"];
        let output = run(directory.path(), &args, &[]).await;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains("is in use by another watchet (process "),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        first.stop().await;
    }
}

#[tokio::test]
async fn damaged_ca_is_an_error_and_is_not_replaced() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let first = Server::start_in(directory.path(), &["--storage=memory"]).await;
    let data_dir = format!("--data-dir={}", first.data_dir().display());
    let ca = first.data_dir().join("pki/ca.crt");
    first.stop().await;
    std::fs::write(&ca, "junk").expect("it can be written");
    let args = [&data_dir, "--secure-port=0", "--storage=memory"];
    let output = run(directory.path(), &args, &[]).await;
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("ca.crt"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&ca).expect("it is there"), "junk");
}

#[tokio::test]
async fn flags_override_the_environment_which_overrides_the_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    std::fs::write(
        path("w.yaml"),
        format!("{HEAD}storage: memory\ndataDir: from-file\nwriteKubeconfig: from-file.conf\nsecurePort: 0\n"),
    )
    .expect("it can be written");
    let mut child = command()
        .current_dir(directory.path())
        .args(["--config=w.yaml", "--write-kubeconfig=from-flag.conf"])
        .env("WATCHET_DATA_DIR", "from-env")
        .env("WATCHET_WRITE_KUBECONFIG", "from-env.conf")
        .env("WATCHET_NO_SUCH_THING", "1")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let deadline = tokio::time::Instant::now() + crate::harness::PATIENCE;
    while !path("from-flag.conf").exists() {
        assert!(tokio::time::Instant::now() < deadline, "no kubeconfig");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    crate::harness::signal(child.id().expect("it runs"), "INT");
    let ended = tokio::time::timeout(crate::harness::PATIENCE, child.wait()).await;
    assert!(ended.expect("in time").expect("its own child").success());
    let output = child.wait_with_output().await.expect("its own child");
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("WATCHET_NO_SUCH_THING"),
        "a warning names the ignored variable: {stderr}"
    );
    assert!(path("from-env/pki/ca.crt").exists());
    for name in ["from-file", "from-file.conf", "from-env.conf", ".watchet"] {
        assert!(!path(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn help_and_version_go_to_stdout() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (args, expected) in [
        (&["--help"][..], "--etcd-servers"),
        (&["serve", "--help"], "--etcd-servers"),
        (
            &["--version"],
            concat!("watchet ", env!("CARGO_PKG_VERSION")),
        ),
    ] {
        let output = run(directory.path(), args, &[]).await;
        assert!(output.status.success(), "{args:?}");
        assert!(text(&output.stdout).contains(expected), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}");
    }
}
