//! Open watches whose client loses access: they end with an ERROR event, 401 or 403.

use std::path::Path;
use std::time::{Duration, SystemTime};

use http::Method;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::harness::{
    Identity, Kubectl, OpenWatch, PROTOCOLS, Protocol, Scrape, Server, Wire, write_file,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A time limit far longer than an event takes.
const PATIENCE: Duration = Duration::from_secs(60);

async fn grant(kubectl: &Kubectl, subject: &str) {
    let role = [
        "create",
        "role",
        "reader",
        "--verb=get,list,watch",
        "--resource=configmaps",
    ];
    kubectl.run(&role).await;
    kubectl
        .run(&["create", "rolebinding", "readers", "--role=reader", subject])
        .await;
}

async fn wait_until_allowed(wire: &mut Wire, headers: &[(&str, &str)]) {
    let attempts = async {
        while wire.send(Method::GET, MAPS, headers, "").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, attempts)
        .await
        .expect("the binding takes effect");
}

/// Fails with kube-apiserver, where the watch continues until it times out.
#[tokio::test]
async fn watch_ends_when_its_role_binding_is_deleted() {
    let server = Server::start(&[]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    for protocol in PROTOCOLS {
        grant(&kubectl, "--user=jane").await;
        let as_jane = [("impersonate-user", "jane")];
        let mut jane = server.admin(protocol).await;
        wait_until_allowed(&mut jane, &as_jane).await;
        let mut watch = OpenWatch::start(jane, &as_jane).await;
        let mut admin = OpenWatch::start(server.admin(protocol).await, &[]).await;
        kubectl.run(&["create", "configmap", "seen"]).await;
        assert_eq!(
            watch.next().await.unwrap()["object"]["metadata"]["name"],
            "seen"
        );
        kubectl.run(&["delete", "rolebinding", "readers"]).await;
        let status = watch.error().await;
        assert_eq!(status["code"], 403);
        assert_eq!(
            status["message"],
            r#"configmaps is forbidden: User "jane" cannot watch resource "configmaps" in API group "" in the namespace "default""#
        );
        // The watches of other clients continue.
        kubectl
            .run(&["delete", "role/reader", "configmap/seen"])
            .await;
        assert_eq!(admin.next().await.unwrap()["type"], "ADDED");
        assert_eq!(admin.next().await.unwrap()["type"], "DELETED");
    }
    server.stop().await;
}

#[tokio::test]
async fn kubectl_prints_why_its_watch_ended() {
    let server = Server::start(&[]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    grant(&kubectl, "--user=jane").await;
    wait_until_allowed(
        &mut server.admin(Protocol::Http2).await,
        &[("impersonate-user", "jane")],
    )
    .await;
    let revoke = async {
        let mut admin = server.admin(Protocol::Http2).await;
        loop {
            let metrics = admin.get("/metrics").await;
            let metrics = Scrape::parse(std::str::from_utf8(&metrics.body).unwrap());
            let labels = [r#"verb="WATCH""#, r#"resource="configmaps""#];
            if metrics.sum("apiserver_longrunning_requests", &labels) > 0.0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        kubectl.run(&["delete", "rolebinding", "readers"]).await;
    };
    let watch = ["--as=jane", "get", "configmaps", "--watch"];
    let (rows, ()) = tokio::join!(kubectl.run(&watch), revoke);
    // kubectl prints the status of an ERROR event as it prints an object, and succeeds.
    assert!(rows.contains("configmaps is forbidden"), "{rows}");
    server.stop().await;
}

#[tokio::test]
async fn watch_ends_when_its_service_account_is_deleted() {
    let server = Server::start(&[]).await;
    let kubectl = Kubectl::new(&server.kubeconfig());
    kubectl.run(&["create", "serviceaccount", "robot"]).await;
    grant(&kubectl, "--serviceaccount=default:robot").await;
    let token = kubectl.run(&["create", "token", "robot"]).await;
    let bearer = format!("Bearer {}", token.trim());
    let headers = [("authorization", &*bearer)];
    let mut robot = server.stranger(Protocol::Http2).await;
    wait_until_allowed(&mut robot, &headers).await;
    let mut watch = OpenWatch::start(robot, &headers).await;
    kubectl.run(&["delete", "serviceaccount", "robot"]).await;
    let status = watch.error().await;
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&401.into(), &"Unauthorized".into())
    );
    server.stop().await;
}

#[tokio::test]
async fn watch_ends_when_its_token_leaves_the_file() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("tokens.csv");
    write_file(&path, "t1,ann,u1\nt2,bob,u2\n");
    let server = Server::start(&[&format!("--token-auth-file={}", path.display())]).await;
    for user in ["ann", "bob", "eve"] {
        server.allow_everything(user).await;
    }
    let (ann, bob) = (
        [("authorization", "Bearer t1")],
        [("authorization", "Bearer t2")],
    );
    let mut of_ann = OpenWatch::start(server.stranger(Protocol::Http1).await, &ann).await;
    let mut of_bob = OpenWatch::start(server.stranger(Protocol::Http1).await, &bob).await;
    // An invalid file has no effect.
    write_file(&path, "t1,ann,u1\nt2");
    wait_for_log(&server, "changed file ignored").await;
    let mut wire = server.stranger(Protocol::Http1).await;
    assert_eq!(wire.send(Method::GET, MAPS, &ann, "").await.status, 200);
    write_file(&path, "t2,bob,u2\nt3,eve,u3\n");
    assert_eq!(of_ann.error().await["code"], 401);
    assert_eq!(wire.send(Method::GET, MAPS, &ann, "").await.status, 401);
    let eve = [("authorization", "Bearer t3")];
    assert_eq!(wire.send(Method::GET, MAPS, &eve, "").await.status, 200);
    Kubectl::new(&server.kubeconfig())
        .run(&["create", "configmap", "later"])
        .await;
    assert_eq!(
        of_bob.next().await.unwrap()["object"]["metadata"]["name"],
        "later"
    );
    server.stop().await;
}

async fn wait_for_log(server: &Server, text: &str) {
    let attempts = async {
        while !server.log().contains(text) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let within = tokio::time::timeout(PATIENCE, attempts).await;
    assert!(within.is_ok(), "{text:?} is not logged");
}

struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Ca {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Returns the certificate of a client that expires after `validity`.
    fn client(&self, name: &str, validity: Duration) -> Identity {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_epoch.unwrap() + validity;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())
    }
}

async fn watch_as(server: &Server, identity: &Identity) -> OpenWatch {
    let config = server.kubeconfig_value();
    let wire = Wire::secure(server.secure(), &config, Some(identity), Protocol::Http2).await;
    OpenWatch::start(wire, &[]).await
}

#[tokio::test]
async fn watch_ends_when_its_certificate_expires_or_its_ca_is_removed() {
    let files = tempfile::tempdir().unwrap();
    let (first, second) = (Ca::new("first"), Ca::new("second"));
    let path = files.path().join("ca.crt");
    let write = |cas: &[&Ca], path: &Path| {
        let pem: String = cas.iter().map(|ca| &*ca.pem).collect();
        write_file(path, &pem);
    };
    write(&[&first, &second], &path);
    let server = Server::start(&[&format!("--client-ca-file={}", path.display())]).await;
    for user in ["ann", "bob", "eve"] {
        server.allow_everything(user).await;
    }
    let long = Duration::from_secs(3600);
    // Long enough for the initial state of the watch on a busy machine.
    let short = Duration::from_secs(15);
    let mut expires = watch_as(&server, &first.client("ann", short)).await;
    let mut removed = watch_as(&server, &first.client("bob", long)).await;
    let mut remains = watch_as(&server, &second.client("eve", long)).await;
    assert_eq!(expires.error().await["code"], 401);
    write(&[&second], &path);
    assert_eq!(removed.error().await["code"], 401);
    Kubectl::new(&server.kubeconfig())
        .run(&["create", "configmap", "later"])
        .await;
    assert_eq!(
        remains.next().await.unwrap()["object"]["metadata"]["name"],
        "later"
    );
    server.stop().await;
}
