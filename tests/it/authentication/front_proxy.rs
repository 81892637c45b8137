//! Front proxies: the users in their headers, and the config map for other servers.

use std::time::Duration;

use http::Method;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use serde_json::{Value, json};

use super::{WHO_AM_I, write};
use crate::harness::{Identity, Kubectl, PATIENCE, Protocol, Server, Wire};

struct Ca(rcgen::Issuer<'static, KeyPair>, String);

fn ca() -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Ca(rcgen::Issuer::new(params, key), pem)
}

fn identity(ca: &Ca, name: &str) -> Identity {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &ca.0).unwrap().pem();
    Identity::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes())
}

const SENT: &[(&str, &str)] = &[
    ("x-remote-user", "jane"),
    ("x-remote-uid", "7"),
    ("x-remote-group", "dev"),
    ("x-remote-extra-acme.com%2fscope", "a"),
    ("content-type", "application/json"),
];

/// Returns the status of a request with the headers, and its user.
async fn who(server: &Server, identity: Option<&Identity>) -> (u16, Value) {
    let config = server.kubeconfig_value();
    let mut wire = Wire::secure(server.secure(), &config, identity, Protocol::Http2).await;
    let response = wire.send(Method::POST, WHO_AM_I, SENT, "{}").await;
    let user = response.json()["status"]["userInfo"].clone();
    (response.status.as_u16(), user)
}

#[tokio::test]
async fn only_front_proxies_send_users() {
    let directory = tempfile::tempdir().unwrap();
    let (proxies, clients) = (ca(), ca());
    let proxy_file = write(directory.path(), "proxy-ca.crt", &proxies.1);
    let client_file = write(directory.path(), "client-ca.crt", &clients.1);
    let server = Server::start(&[
        &format!("--requestheader-client-ca-file={}", proxy_file.display()),
        &format!("--client-ca-file={}", client_file.display()),
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-uid-headers=X-Remote-Uid",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--controllers=cluster-authentication-trust",
    ])
    .await;
    let proxy = identity(&proxies, "front-proxy");
    let user = json!({
        "username": "jane", "uid": "7", "groups": ["dev", "system:authenticated"],
        "extra": {"acme.com/scope": ["a"]},
    });
    assert_eq!(who(&server, Some(&proxy)).await, (201, user));
    // Other certificates of the CA, and clients, send no users.
    let other = identity(&proxies, "other");
    assert_eq!(who(&server, Some(&other)).await.0, 401);
    let client = identity(&clients, "front-proxy");
    let (status, user) = who(&server, Some(&client)).await;
    assert_eq!((status, &user["username"]), (201, &json!("front-proxy")));
    assert_eq!(user["extra"]["acme.com/scope"], Value::Null);
    assert_eq!(who(&server, None).await.0, 401);
    // A proxy that names no user is no user.
    let config = server.kubeconfig_value();
    let mut wire = Wire::secure(server.secure(), &config, Some(&proxy), Protocol::Http1).await;
    assert_eq!(wire.get("/api").await.status, 401);

    let kubectl = Kubectl::new(&server.kubeconfig());
    let map = [
        "get",
        "configmap",
        "extension-apiserver-authentication",
        "-n",
        "kube-system",
        "-o",
        "json",
    ];
    let published = async {
        loop {
            let found = kubectl.try_run(&map).await.unwrap_or_default();
            let found: Value = serde_json::from_str(&found).unwrap_or_default();
            if found["data"]["requestheader-client-ca-file"].is_string() {
                return found["data"].clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let data = tokio::time::timeout(PATIENCE, published)
        .await
        .expect("it is published");
    let text = |member: &str| data[member].as_str().unwrap_or_default().replace('\r', "");
    assert_eq!(
        text("requestheader-client-ca-file").trim(),
        proxies.1.replace('\r', "").trim()
    );
    assert_eq!(text("requestheader-allowed-names"), r#"["front-proxy"]"#);
    assert_eq!(
        text("requestheader-username-headers"),
        r#"["X-Remote-User"]"#
    );
    assert_eq!(
        text("requestheader-extra-headers-prefix"),
        r#"["X-Remote-Extra-"]"#
    );

    // A CA that is replaced is no longer accepted, also on open connections.
    assert_eq!(
        wire.send(Method::POST, WHO_AM_I, SENT, "{}").await.status,
        201
    );
    write(directory.path(), "proxy-ca.crt", &ca().1);
    let refused = async {
        while wire.send(Method::POST, WHO_AM_I, SENT, "{}").await.status != 401 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused)
        .await
        .expect("the new CA takes effect");
    server.stop().await;
}
