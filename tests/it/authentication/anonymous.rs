//! Anonymous requests: the flag and the member of the configuration.

use super::write;
use crate::harness::{Protocol, Server, command};

async fn statuses(flags: &[&str]) -> [u16; 3] {
    let server = Server::start(flags).await;
    let mut wire = server.stranger(Protocol::Http1).await;
    let mut statuses = [0; 3];
    for (status, path) in statuses
        .iter_mut()
        .zip(["/livez", "/readyz", "/api/v1/pods"])
    {
        *status = wire.get(path).await.status.as_u16();
    }
    server.stop().await;
    statuses
}

#[tokio::test]
async fn anonymous_requests_are_allowed_by_configuration() {
    assert_eq!(statuses(&[]).await, [200, 200, 401]);
    assert_eq!(statuses(&["--anonymous-auth=true"]).await, [200, 200, 403]);
    assert_eq!(statuses(&["--anonymous-auth=false"]).await, [401, 401, 401]);
    let directory = tempfile::tempdir().unwrap();
    let text = "
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions: [{path: /livez}]
";
    let file = write(directory.path(), "authentication.yaml", text);
    let flag = format!("--authentication-config={}", file.display());
    assert_eq!(statuses(&[&flag]).await, [200, 401, 401]);

    let both = command()
        .args(["--data-dir", directory.path().to_str().unwrap(), &flag])
        .arg("--anonymous-auth=true")
        .output();
    let both = both.await.unwrap();
    let error = String::from_utf8_lossy(&both.stderr);
    assert!(
        !both.status.success() && error.contains("excludes --anonymous-auth"),
        "{error}"
    );
}
