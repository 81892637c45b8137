//! Tests of the client with scripted servers on real sockets: TLS, credentials, failures.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivatePkcs8KeyDer;
use serde_json::json;

use super::fake::{End, Fake, Reply};
use super::*;
use crate::DynamicObject;

/// A CA that signs certificates.
struct Authority {
    pem: String,
    der: rustls_pki_types::CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Returns the TLS configuration of a server with a certificate for `name`, which requires
    /// client certificates of `clients`.
    fn server(&self, name: &str, clients: Option<&Self>) -> Arc<rustls::ServerConfig> {
        let (certificate, key) = self.sign(name);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(clients.der.clone()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let chain = vec![certificate.der().clone()];
        Arc::new(builder.with_single_cert(chain, key.into()).unwrap())
    }

    fn client(&self, name: &str) -> ClientCertificate {
        let (certificate, key) = self.sign(name);
        ClientCertificate {
            certificate: certificate.pem().into(),
            key: key.serialize_pem().into(),
        }
    }
}

fn maps(config: &RestConfig) -> ResourceClient<DynamicObject> {
    let maps = ApiResource::namespaced("", "v1", "configmaps", "ConfigMap");
    RestClient::new(config)
        .unwrap()
        .resource(maps)
        .namespace("n")
}

fn found() -> Reply {
    Reply::new(
        200,
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#,
    )
}

#[tokio::test]
async fn a_server_is_verified_by_ca_and_name() {
    let (ours, other) = (Authority::new(), Authority::new());
    let fake = Fake::start_with(
        [found(), found(), found()],
        Some(ours.server("api.example", None)),
    )
    .await;
    let config = |ca: &Authority, name: Option<&str>, insecure: bool| RestConfig {
        certificate_authority: (!insecure).then(|| ca.pem.clone().into()),
        tls_server_name: name.map(str::to_owned),
        insecure_skip_tls_verify: insecure,
        ..RestConfig::new(format!("https://{}", fake.address))
    };
    maps(&config(&ours, Some("api.example"), false))
        .get("a")
        .await
        .unwrap();
    maps(&config(&ours, None, true)).get("a").await.unwrap();
    for (wrong, expected) in [
        (
            config(&other, Some("api.example"), false),
            "the certificate of the server is signed by an unknown authority: ",
        ),
        (
            config(&ours, None, false),
            "the certificate of the server is not accepted: certificate not valid for name \"127.0.0.1\"",
        ),
    ] {
        connect_fails(&wrong, expected).await;
    }
    assert_eq!(fake.lines().len(), 2);
}

async fn connect_fails(config: &RestConfig, expected: &str) {
    match maps(config).get("a").await.unwrap_err() {
        RestError::Connect { detail, .. } => assert!(detail.starts_with(expected), "{detail}"),
        other => panic!("{other:?}"),
    }
}

/// A server that offers both speaks HTTP/1.1 with a client that does not offer HTTP/2.
#[tokio::test]
async fn http2_can_be_switched_off() {
    let ours = Authority::new();
    let mut tls = ours.server("127.0.0.1", None);
    let alpn = ["h2", "http/1.1"].map(|name| name.as_bytes().to_vec());
    Arc::make_mut(&mut tls).alpn_protocols = alpn.to_vec();
    let fake = Fake::start_with([found()], Some(tls)).await;
    maps(&RestConfig {
        certificate_authority: Some(ours.pem.clone().into()),
        http2: false,
        ..RestConfig::new(format!("https://{}", fake.address))
    })
    .get("a")
    .await
    .unwrap();
    assert_eq!(fake.lines().len(), 1);
}

#[tokio::test]
async fn a_client_sends_its_certificate() {
    let (ours, clients) = (Authority::new(), Authority::new());
    let fake = Fake::start_with([found()], Some(ours.server("127.0.0.1", Some(&clients)))).await;
    let config = |certificate| RestConfig {
        certificate_authority: Some(ours.pem.clone().into()),
        client_certificate: certificate,
        ..RestConfig::new(format!("https://{}", fake.address))
    };
    maps(&config(Some(clients.client("jane"))))
        .get("a")
        .await
        .unwrap();
    for stranger in [None, Some(ours.client("jane"))] {
        let error = maps(&config(stranger)).get("a").await.unwrap_err();
        assert!(error.status().is_none(), "{error:?}");
    }
}

/// Certificate files used to be read only when the client was created.
#[tokio::test]
async fn certificates_in_files_follow_their_rotation() {
    let (old, new, clients) = (Authority::new(), Authority::new(), Authority::new());
    let settings = new.server("127.0.0.1", Some(&clients));
    let fake = Fake::start_with([found(), found()], Some(settings)).await;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let write = |authority: &Authority, client: &ClientCertificate| {
        std::fs::write(file("ca"), &authority.pem).unwrap();
        std::fs::write(file("crt"), client.certificate.read().unwrap()).unwrap();
        std::fs::write(file("key"), client.key.read().unwrap()).unwrap();
    };
    let jane = clients.client("jane");
    write(&old, &jane);
    let maps = maps(&RestConfig {
        certificate_authority: Some(Pem::File(file("ca"))),
        client_certificate: Some(ClientCertificate {
            certificate: Pem::File(file("crt")),
            key: Pem::File(file("key")),
        }),
        ..RestConfig::new(format!("https://{}", fake.address))
    });
    maps.get("a").await.unwrap_err();
    write(&new, &old.client("jane"));
    maps.get("a").await.unwrap_err();
    // In the middle of the rotation the key does not match the certificate, and the previous pair
    // is kept.
    std::fs::write(file("crt"), jane.certificate.read().unwrap()).unwrap();
    maps.get("a").await.unwrap_err();
    write(&new, &jane);
    maps.get("a").await.unwrap();
    std::fs::remove_file(file("key")).unwrap();
    maps.get("a").await.unwrap();
    assert_eq!(fake.lines().len(), 2);
}

#[tokio::test]
async fn a_plugin_may_return_a_certificate() {
    let (ours, clients) = (Authority::new(), Authority::new());
    let settings = ours.server("127.0.0.1", Some(&clients));
    let fake = Fake::start_with([found(), found(), found()], Some(settings)).await;
    let directory = tempfile::tempdir().unwrap();
    let (answer, runs) = (
        directory.path().join("answer"),
        directory.path().join("runs"),
    );
    let give = |client: &ClientCertificate, until: &str| {
        let text = |pem: &Pem| String::from_utf8(pem.read().unwrap()).unwrap();
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {
                "clientCertificateData": text(&client.certificate),
                "clientKeyData": text(&client.key),
                "expirationTimestamp": until,
            },
        });
        std::fs::write(&answer, credential.to_string()).unwrap();
    };
    let script = format!("echo x >> {}; cat {}", runs.display(), answer.display());
    let ran = || std::fs::read_to_string(&runs).unwrap().lines().count();
    let maps = maps(&RestConfig {
        certificate_authority: Some(ours.pem.clone().into()),
        token: Some(Token::Exec(ExecPlugin {
            command: "sh".into(),
            args: vec!["-c".into(), script],
            env: Vec::new(),
            api_version: "client.authentication.k8s.io/v1".into(),
            install_hint: String::new(),
            cluster: None,
        })),
        ..RestConfig::new(format!("https://{}", fake.address))
    });
    // An expired certificate is not used again, whatever the server's response.
    give(&ours.client("stranger"), "2020-01-01T00:00:00Z");
    maps.get("a").await.unwrap_err();
    give(&clients.client("jane"), "2999-01-01T00:00:00Z");
    for _ in 0..3 {
        maps.get("a").await.unwrap();
        assert_eq!(ran(), 2);
    }
    assert_eq!(fake.requests()[0].header("authorization"), "");
}

#[tokio::test]
async fn an_invalid_certificate_of_a_plugin_is_reported() {
    let answer = r#"{"apiVersion":"client.authentication.k8s.io/v1","status":{"clientCertificateData":"x","clientKeyData":"y"}}"#;
    let maps = maps(&RestConfig {
        token: Some(Token::Exec(ExecPlugin {
            command: "echo".into(),
            args: vec![answer.into()],
            env: Vec::new(),
            api_version: "client.authentication.k8s.io/v1".into(),
            install_hint: String::new(),
            cluster: None,
        })),
        ..RestConfig::new("https://127.0.0.1:1")
    });
    let error = maps.get("a").await.unwrap_err();
    assert!(matches!(error, RestError::Credentials(_)), "{error:?}");
    assert!(
        error.to_string().contains("client key is not PEM"),
        "{error}"
    );
}

#[tokio::test]
async fn a_token_in_a_file_follows_its_rotation() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "one\n").unwrap();
    let unauthorized = Reply::failure(401, "Unauthorized");
    let fake = Fake::start([found(), unauthorized, found()]).await;
    let maps = maps(&RestConfig {
        token: Some(Token::File(path.clone())),
        ..RestConfig::new(format!("http://{}", fake.address))
    });
    maps.get("a").await.unwrap();
    std::fs::write(&path, "two\n").unwrap();
    assert_eq!(maps.get("a").await.unwrap_err().code(), Some(401));
    maps.get("a").await.unwrap();
    let tokens: Vec<String> = fake
        .requests()
        .iter()
        .map(|request| request.header("authorization").to_owned())
        .collect();
    assert_eq!(tokens, ["Bearer one", "Bearer one", "Bearer two"]);
}

#[tokio::test]
async fn request_lines_and_bodies() {
    let fake = Fake::start(std::iter::repeat_with(found).take(9)).await;
    let maps = maps(&RestConfig {
        user_agent: "tests/1".into(),
        token: Some(Token::Fixed("t".into())),
        // The path prefix of a proxy for several clusters.
        ..RestConfig::new(format!("http://{}/clusters/c/", fake.address))
    });
    let map: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    maps.create(&map).await.unwrap();
    maps.update(&map).await.unwrap();
    maps.update_status(&map).await.unwrap();
    let apply = Patch::Apply {
        object: json!({"apiVersion": "v1"}),
        manager: "m&m".into(),
        force: true,
    };
    maps.patch("a", &apply).await.unwrap();
    maps.patch("a", &Patch::Json(json!([]))).await.unwrap();
    maps.patch("a", &Patch::Strategic(json!({}))).await.unwrap();
    maps.patch_status("a", &Patch::Merge(json!({})))
        .await
        .unwrap();
    maps.delete("a:b", &Default::default()).await.unwrap();
    let params = ListParams {
        resource_version: Some("7".into()),
        exact: true,
        ..ListParams::default()
    };
    assert!(maps.list(&params).await.unwrap().items.is_empty());
    let requests = fake.requests();
    let lines: Vec<String> = requests
        .iter()
        .map(|request| {
            assert_eq!(request.header("user-agent"), "tests/1");
            assert_eq!(request.header("authorization"), "Bearer t");
            let root = "/clusters/c/api/v1/namespaces/n/configmaps";
            let line = request.line.replace(root, "");
            format!("{line} {}", request.header("content-type"))
                .trim()
                .to_owned()
        })
        .collect();
    assert_eq!(
        lines,
        [
            "POST  application/json",
            "PUT /a application/json",
            "PUT /a/status application/json",
            "PATCH /a?fieldManager=m%26m&force=true application/apply-patch+yaml",
            "PATCH /a application/json-patch+json",
            "PATCH /a application/strategic-merge-patch+json",
            "PATCH /a/status application/merge-patch+json",
            "DELETE /a:b application/json",
            "GET ?resourceVersion=7&resourceVersionMatch=Exact",
        ]
    );
    let created: serde_json::Value = serde_json::from_slice(&requests[0].body).unwrap();
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    assert_eq!(created, expected, "kind and apiVersion are added");
}

#[tokio::test]
async fn invalid_names_are_errors() {
    let fake = Fake::start([]).await;
    let maps = maps(&RestConfig::new(format!("http://{}", fake.address)));
    for name in ["", ".", "..", "a/b"] {
        let error = maps.get(name).await.unwrap_err();
        assert!(
            matches!(error, RestError::Request(_)),
            "{name:?}: {error:?}"
        );
    }
    let everywhere = fake
        .client()
        .resource::<DynamicObject>(maps.resource().clone());
    let error = everywhere.get("a").await.unwrap_err();
    assert!(
        error.to_string().contains("no namespace is given"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_response_times_out() {
    let late = Reply::pieces(200, vec![b"{".to_vec()], End::Never);
    let fake = Fake::start([late]).await;
    let maps = maps(&RestConfig {
        timeout: Duration::from_millis(50),
        ..RestConfig::new(format!("http://{}", fake.address))
    });
    let error = maps.get("a").await.unwrap_err();
    assert!(matches!(error, RestError::Timeout { .. }), "{error:?}");
}

#[tokio::test]
async fn a_truncated_response_is_an_error() {
    let cut = || Reply::pieces(200, vec![b"{\"kind\":".to_vec()], End::Cut);
    let fake = Fake::start([cut(), Reply::new(200, "[]"), Reply::new(502, "<html>")]).await;
    let maps = maps(&RestConfig::new(format!("http://{}", fake.address)));
    let error = maps.get("a").await.unwrap_err();
    assert!(matches!(error, RestError::Connection { .. }), "{error:?}");
    let error = maps.get("a").await.unwrap_err();
    assert!(
        matches!(error, RestError::InvalidResponse { .. }),
        "{error:?}"
    );
    let error = maps.get("a").await.unwrap_err();
    assert_eq!((error.code(), error.reason()), (Some(502), "InternalError"));
}

#[tokio::test]
async fn requests_go_through_a_proxy() {
    let proxy = Fake::start([]).await;
    let maps = maps(&RestConfig {
        proxy_url: Some(format!("http://u:p@{}", proxy.address)),
        ..RestConfig::new("http://api.example:6443")
    });
    proxy.then(Reply::new(407, ""));
    let error = maps.get("a").await.unwrap_err();
    assert!(matches!(error, RestError::Connect { .. }), "{error:?}");
    let requests = proxy.requests();
    assert_eq!(requests[0].line, "CONNECT api.example:6443");
    assert_eq!(requests[0].header("proxy-authorization"), "Basic dTpw");
}

#[test]
fn urls_are_checked() {
    for (server, problem) in [
        ("ftp://a", "must start with https://"),
        ("localhost:8080", "must start with https://"),
        ("https://", "must start with https://"),
        ("", "is not a URL"),
    ] {
        let error = RestClient::new(&RestConfig::new(server)).unwrap_err();
        assert!(error.to_string().contains(problem), "{server}: {error}");
    }
}

#[tokio::test]
async fn legacy_discovery() {
    let fake = Fake::start([
        Reply::new(200, r#"{"kind":"APIVersions","versions":["v1"]}"#),
        Reply::new(
            200,
            r#"{"kind":"APIResourceList","resources":[
                {"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["list","watch"],"shortNames":["po"]},
                {"name":"pods/log","singularName":"","namespaced":true,"kind":"Pod","verbs":["get"]}]}"#,
        ),
        Reply::new(
            200,
            r#"{"kind":"APIGroupList","groups":[{"name":"ex.io","versions":[{"version":"v1"}],"preferredVersion":{"version":"v1"}}]}"#,
        ),
        Reply::new(503, "away"),
    ])
    .await;
    let discovery = fake.client().discover().await.unwrap();
    let pods = discovery.resolve("po").unwrap();
    assert_eq!(pods, ApiResource::namespaced("", "v1", "pods", "Pod"));
    assert_eq!(discovery.resources().count(), 1);
    let expected = ["GET /api", "GET /api/v1", "GET /apis", "GET /apis/ex.io/v1"];
    assert_eq!(fake.lines(), expected);
}

#[tokio::test]
async fn a_post_is_sent_to_the_url_of_the_server() {
    let accepted = || Reply::new(200, "ignored");
    let fake = Fake::start([accepted(), accepted(), Reply::failure(503, "x")]).await;
    let url = fake.client().server().to_owned();
    let client = |path: &str| {
        RestClient::new(&RestConfig {
            timeout: Duration::from_millis(29_500),
            ..RestConfig::new(format!("{url}{path}"))
        })
        .unwrap()
    };
    client("").post(Bytes::from("{}")).await.unwrap();
    client("/hook/").post(Bytes::from("{}")).await.unwrap();
    let error = client("/hook").post(Bytes::from("{}")).await.unwrap_err();
    assert_eq!(error.code(), Some(503));
    let lines = [
        "POST /?timeout=30s",
        "POST /hook?timeout=30s",
        "POST /hook?timeout=30s",
    ];
    assert_eq!(fake.lines(), lines);
    assert_eq!(
        fake.requests()[1].header("content-type"),
        "application/json"
    );
}

#[tokio::test]
async fn a_review_of_more_than_a_mebibyte_is_an_error() {
    let review = |bytes: usize| Reply::new(200, format!("{:?}", "x".repeat(bytes - 2)));
    let fake = Fake::start([review(1 << 20), review((1 << 20) + 1)]).await;
    let client = fake.client();
    let largest: String = client.post_json(Bytes::from("{}")).await.unwrap();
    assert_eq!(largest.len(), (1 << 20) - 2);
    let error = client.post_json::<String>(Bytes::from("{}")).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("1048576"), "{error}");
}
