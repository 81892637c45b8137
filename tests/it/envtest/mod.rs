//! Tests of the programs of envtest: `watchet envtest-assets`, and the program called as `etcd` and as `kube-apiserver`
//! with their flags. The Go tests run them with controller-runtime.

mod outage;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use http::{Method, StatusCode};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::harness::{Identity, PATIENCE, Protocol, Response, Wire, command, free_port, signal};
use crate::storage::etcd::EtcdProcess;

/// A directory with the links, and other files of a test.
struct Assets {
    directory: tempfile::TempDir,
}

/// A running program of the directory, killed when dropped.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Assets {
    /// Creates the links with `watchet envtest-assets`.
    async fn make() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("assets");
        let made = command().arg("envtest-assets").arg(&path).output().await;
        let made = made.expect("the binary starts");
        let printed = String::from_utf8_lossy(&made.stdout);
        let expected = format!("export KUBEBUILDER_ASSETS={}\n", path.display());
        assert_eq!(printed, expected, "{made:?}");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path("assets").join(program));
        command.kill_on_drop(true).stdin(Stdio::null());
        command.current_dir(self.directory.path());
        command
    }

    /// Runs a program to its end.
    async fn run(&self, program: &str, args: &[&str]) -> Output {
        let output = timeout(PATIENCE, self.command(program).args(args).output()).await;
        output.expect("it ends").expect("it starts")
    }

    fn start(&self, program: &str, args: &[String]) -> Process {
        let log = self.path(&format!("{program}.log"));
        let mut options = std::fs::File::options();
        let file = options.create(true).append(true).open(&log);
        let mut command = self.command(program);
        command.args(args).stdout(Stdio::null());
        let child = command.stderr(file.expect("a log file")).spawn();
        Process {
            child: child.expect("it starts"),
            log,
        }
    }

    /// Starts an etcd on `port` with the flags of envtest and waits until it is healthy.
    async fn etcd(&self, port: u16) -> Process {
        self.etcd_in("etcd", port).await
    }

    /// As [`Self::etcd`], with a data directory of this name.
    async fn etcd_in(&self, name: &str, port: u16) -> Process {
        let url = format!("http://127.0.0.1:{port}");
        let etcd = self.start(
            "etcd",
            &[
                format!("--advertise-client-urls={url}"),
                format!("--data-dir={}", self.path(name).display()),
                format!("--listen-client-urls={url}"),
                format!("--listen-peer-urls=http://127.0.0.1:{}", free_port()),
                "--unsafe-no-fsync=true".to_owned(),
            ],
        );
        listening(port, &etcd).await;
        let mut wire = plain(port, Protocol::Http1).await;
        let health = wire.get("/health").await;
        assert_eq!(health.status, StatusCode::OK);
        assert_eq!(health.json(), json!({"health": "true", "reason": ""}));
        etcd
    }

    /// Starts a kube-apiserver on `port` with the flags of envtest and waits until it is healthy.
    async fn api_server(&self, etcd: &str, port: u16) -> Process {
        self.api_server_of_prefix(etcd, port, "/registry").await
    }

    /// As [`Self::api_server`], with --etcd-prefix.
    async fn api_server_of_prefix(&self, etcd: &str, port: u16, prefix: &str) -> Process {
        let dir = self.path("certs");
        let server = self.start(
            "kube-apiserver",
            &[
                format!("--etcd-prefix={prefix}"),
                "--allow-privileged=true".to_owned(),
                "--authorization-mode=RBAC".to_owned(),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--cert-dir={}", dir.display()),
                format!("--client-ca-file={}", dir.join("ca.crt").display()),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                format!("--etcd-servers={etcd}"),
                format!("--secure-port={port}"),
                format!("--service-account-issuer=https://127.0.0.1:{port}/"),
                format!(
                    "--service-account-key-file={}",
                    dir.join("sa.crt").display()
                ),
                format!(
                    "--service-account-signing-key-file={}",
                    dir.join("sa.key").display()
                ),
                "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            ],
        );
        listening(port, &server).await;
        let ready = async {
            while self.get(port, None, "/healthz").await.status != StatusCode::OK {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let ready = timeout(PATIENCE, ready).await;
        assert!(ready.is_ok(), "{}", server.log());
        server
    }

    /// Creates the files of envtest in --cert-dir, except the serving certificate; returns a client's identity.
    fn certificates(&self) -> Identity {
        let dir = self.path("certs");
        std::fs::create_dir(&dir).expect("a new directory");
        let write = |name: &str, text: &str| {
            std::fs::write(dir.join(name), text).expect("it can be written");
        };
        let authority = |name: &str| {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().expect("a key");
            let pem = params.self_signed(&key).expect("a CA").pem();
            let key_pem = key.serialize_pem();
            (Issuer::new(params, key), pem, key_pem)
        };
        let (issuer, ca, _) = authority("client CA");
        write("ca.crt", &ca);
        let (_, certificate, key) = authority("service accounts");
        write("sa.crt", &certificate);
        write("sa.key", &key);
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "admin");
        let masters = "system:masters";
        params
            .distinguished_name
            .push(DnType::OrganizationName, masters);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        Identity::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())
    }

    /// Returns a connection that trusts the certificate that the server made in --cert-dir.
    async fn wire(&self, port: u16, identity: Option<&Identity>) -> Wire {
        use base64::Engine as _;
        let chain = std::fs::read_to_string(self.path("certs/apiserver.crt"));
        let chain = chain.expect("a certificate in --cert-dir");
        let (_, ca) = chain.rsplit_once("-----BEGIN").expect("a chain");
        let ca = base64::prelude::BASE64_STANDARD.encode(format!("-----BEGIN{ca}"));
        let cluster = json!({"cluster": {"certificate-authority-data": ca}});
        let config = json!({"clusters": [cluster]});
        Wire::secure(local(port), &config, identity, Protocol::Http2).await
    }

    async fn get(&self, port: u16, identity: Option<&Identity>, path: &str) -> Response {
        self.wire(port, identity).await.get(path).await
    }

    async fn make_config_map(&self, port: u16, identity: &Identity, name: &str) -> Value {
        let mut wire = self.wire(port, Some(identity)).await;
        let body = json!({"metadata": {"name": name}});
        let path = "/api/v1/namespaces/default/configmaps";
        // The server creates the system namespaces after it is ready.
        for _ in 0..500 {
            let answer = wire.post(path, &body).await;
            if answer.status == StatusCode::CREATED {
                return answer.json();
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("the config map is not created");
    }
}

impl Process {
    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    async fn wait(&mut self) -> ExitStatus {
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let Ok(ended) = ended else {
            panic!("it does not end:\n{}", self.log());
        };
        ended.expect("its own child")
    }

    /// Ends the program with SIGKILL.
    async fn kill(mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Ends the program as envtest does.
    async fn stop(mut self) {
        signal(self.child.id().expect("it runs"), "TERM");
        let ended = self.wait().await;
        assert!(ended.success(), "{ended}:\n{}", self.log());
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

async fn plain(port: u16, protocol: Protocol) -> Wire {
    Wire::plain(local(port), protocol).await
}

async fn listening(port: u16, process: &Process) {
    let connected = async {
        while tokio::net::TcpStream::connect(local(port)).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let connected = timeout(PATIENCE, connected).await;
    assert!(connected.is_ok(), "no server listens:\n{}", process.log());
}

fn config_map(name: &str) -> String {
    format!("/api/v1/namespaces/default/configmaps/{name}")
}

#[tokio::test]
async fn assets_are_links_and_are_recreated() {
    let assets = Assets::make().await;
    let directory = assets.path("assets");
    let target = |name: &str| std::fs::read_link(directory.join(name)).ok();
    let binary = Path::new(env!("CARGO_BIN_EXE_watchet"));
    for name in ["kube-apiserver", "etcd"] {
        assert_eq!(target(name).as_deref(), Some(binary), "{name}");
    }
    let tools = assets.path("tools");
    std::fs::create_dir(&tools).expect("a new directory");
    let kubectl = tools.join("kubectl");
    std::fs::copy("/bin/sh", &kubectl).expect("a program");
    for (path, expected) in [(&tools, Some(&kubectl)), (&directory, Some(&kubectl))] {
        let made = command()
            .arg("envtest-assets")
            .arg(&directory)
            .env("PATH", path)
            .output();
        let made = made.await.expect("the binary starts");
        assert!(made.status.success(), "{made:?}");
        assert_eq!(target("kubectl").as_ref(), expected);
        let text = String::from_utf8_lossy(&made.stderr).contains("there is no kubectl in PATH");
        assert_eq!(text, path == &directory);
    }
    let home = assets.path("home");
    let made = command()
        .arg("envtest-assets")
        .env("XDG_CACHE_HOME", &home)
        .output();
    let printed = made.await.expect("the binary starts").stdout;
    let expected = format!(
        "export KUBEBUILDER_ASSETS={}/watchet/envtest\n",
        home.display()
    );
    assert_eq!(String::from_utf8_lossy(&printed), expected);
}

#[tokio::test]
async fn data_outlives_both_programs() {
    let assets = Assets::make().await;
    let admin = assets.certificates();
    let (etcd_port, port) = (free_port(), free_port());
    let url = format!("http://127.0.0.1:{etcd_port}");

    let etcd = assets.etcd(etcd_port).await;
    let server = assets.api_server(&url, port).await;
    let made = assets.make_config_map(port, &admin, "kept").await;
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(
            assets.get(port, None, path).await.status,
            StatusCode::OK,
            "{path}"
        );
    }
    assert_eq!(
        assets.get(port, None, "/api").await.status,
        StatusCode::UNAUTHORIZED
    );
    let log = server.log();
    let ignored = log.matches("flag=--allow-privileged").count();
    assert_eq!(ignored, 1, "{log}");
    assert!(!log.contains("flag=--authorization-mode"), "{log}");
    server.stop().await;
    etcd.stop().await;

    let etcd = assets.etcd(etcd_port).await;
    let server = assets.api_server(&url, port).await;
    let kept = assets
        .get(port, Some(&admin), &config_map("kept"))
        .await
        .json();
    assert_eq!(kept["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(
        kept["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );

    // Only one API server at a time can use the store.
    let servers = format!("--etcd-servers={url}");
    let other_port = format!("--secure-port={}", free_port());
    let second = assets.run("kube-apiserver", &[&servers, &other_port]).await;
    let error = String::from_utf8_lossy(&second.stderr);
    assert!(
        !second.status.success() && error.contains("is in use by another"),
        "{error}"
    );

    // An API server with another prefix has its own store.
    let other_port = free_port();
    let other = assets
        .api_server_of_prefix(&url, other_port, "/other/keys")
        .await;
    assets.make_config_map(other_port, &admin, "other").await;
    let path = config_map("kept");
    let answer = assets.get(other_port, Some(&admin), &path).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(assets.path("etcd/other%2Fkeys/store").exists());
    other.stop().await;
    server.stop().await;
    etcd.stop().await;
}

#[tokio::test]
async fn etcd_api_requests_are_not_implemented() {
    let assets = Assets::make().await;
    let port = free_port();
    let etcd = assets.etcd(port).await;
    let expected = "does not serve the etcd API";
    let answer = plain(port, Protocol::Http1)
        .await
        .post("/v3/kv/range", &json!({}))
        .await;
    assert_eq!(answer.status, StatusCode::NOT_IMPLEMENTED);
    let message = answer.json()["message"].clone();
    assert!(message.as_str().unwrap().contains(expected), "{message}");
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    let mut wire = plain(port, Protocol::Http2).await;
    let answer = wire
        .send(Method::POST, "/etcdserverpb.KV/Range", &headers, "")
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["grpc-status"], "12");
    assert!(
        answer.headers["grpc-message"]
            .to_str()
            .unwrap()
            .contains(expected)
    );
    // A second etcd cannot lock the directory.
    let data_dir = format!("--data-dir={}", assets.path("etcd").display());
    let second = assets
        .run(
            "etcd",
            &[&data_dir, "--listen-client-urls=http://127.0.0.1:0"],
        )
        .await;
    let error = String::from_utf8_lossy(&second.stderr);
    assert!(
        !second.status.success() && error.contains("is in use by another"),
        "{error}"
    );
    etcd.stop().await;
}

#[tokio::test]
async fn a_real_etcd_is_the_storage() {
    let assets = Assets::make().await;
    let admin = assets.certificates();
    let etcd = EtcdProcess::start(&[]).await;
    let port = free_port();
    let server = assets.api_server(etcd.url(), port).await;
    let made = assets.make_config_map(port, &admin, "kept").await;
    server.stop().await;
    assert!(
        !assets.path("certs/store").exists(),
        "there is an embedded store"
    );
    let server = assets.api_server(etcd.url(), port).await;
    let kept = assets
        .get(port, Some(&admin), &config_map("kept"))
        .await
        .json();
    assert_eq!(kept["metadata"]["uid"], made["metadata"]["uid"]);
    server.stop().await;
}

#[tokio::test]
async fn wrong_flags_end_the_programs_with_one_line() {
    let assets = Assets::make().await;
    let real = assets.path("real/member");
    std::fs::create_dir_all(&real).expect("a directory");
    for (program, args, expected) in [
        (
            "kube-apiserver",
            &["--etcd-servers=http://127.0.0.1:1", "--insecure-port=0"][..],
            "kube-apiserver: unknown flag: --insecure-port\n",
        ),
        (
            "kube-apiserver",
            &["--etcd-servers=http://127.0.0.1:1", "--secure-port=0"],
            "kube-apiserver: --secure-port 0 must be between 1 and 65535",
        ),
        (
            "etcd",
            &["--data-directory=x"],
            "etcd: unknown flag: --data-directory\n",
        ),
        ("etcd", &["--auto-tls"], "etcd: --auto-tls is not supported"),
        (
            "etcd",
            &["--data-dir=real", "--log-level=error"],
            "etcd: --data-dir \"real\": has the data of a real etcd",
        ),
    ] {
        let ended = assets.run(program, args).await;
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(error.starts_with(expected), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert_eq!(ended.status.code(), Some(2), "{args:?}");
    }
    for program in ["kube-apiserver", "etcd"] {
        let help = assets.run(program, &["--help"]).await;
        assert!(help.status.success() && help.stderr.is_empty(), "{help:?}");
    }
}
