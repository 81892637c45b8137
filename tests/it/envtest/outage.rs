//! Tests of the kube-apiserver of envtest without its etcd: it has no storage until etcd runs again.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{Assets, Process, config_map};
use crate::harness::{PATIENCE, free_port};

/// Waits until `/readyz` responds with this status, and returns its body.
async fn await_readyz(assets: &Assets, port: u16, status: StatusCode, server: &Process) -> String {
    let answered = async {
        loop {
            let answer = assets.get(port, None, "/readyz").await;
            if answer.status == status {
                return String::from_utf8_lossy(&answer.body).into_owned();
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    let answered = timeout(PATIENCE, answered).await;
    answered.unwrap_or_else(|_| panic!("/readyz is not {status}:\n{}", server.log()))
}

/// Waits until the log of the API server contains `text` `count` times.
async fn await_log(server: &Process, text: &str, count: usize) {
    let logged = async {
        while server.log().matches(text).count() < count {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let logged = timeout(PATIENCE, logged).await;
    logged.unwrap_or_else(|_| panic!("{text:?} is not logged:\n{}", server.log()));
}

/// Regression test: the API server continued to use its store after the etcd process had ended, so stopping etcd had
/// no effect on a controller under test.
#[tokio::test]
async fn the_api_server_has_no_storage_without_its_etcd() {
    let assets = Assets::make().await;
    let admin = assets.certificates();
    let (etcd_port, port) = (free_port(), free_port());
    let mut etcd = assets.etcd(etcd_port).await;
    let url = format!("http://127.0.0.1:{etcd_port}");
    let server = assets.api_server(&url, port).await;
    let kept = assets.make_config_map(port, &admin, "kept").await;
    for (round, is_killed) in [true, false].into_iter().enumerate() {
        await_readyz(&assets, port, StatusCode::OK, &server).await;
        match is_killed {
            true => etcd.kill().await,
            false => etcd.stop().await,
        }
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        let text = await_readyz(&assets, port, status, &server).await;
        assert!(text.contains("[-]etcd failed: reason withheld\n"), "{text}");
        assert!(text.ends_with("readyz check failed\n"), "{text}");
        let live = assets.get(port, None, "/livez").await;
        assert_eq!(live.status, StatusCode::OK);

        let mut wire = assets.wire(port, Some(&admin)).await;
        let configmaps = "/api/v1/namespaces/default/configmaps";
        let body = json!({"metadata": {"name": "refused"}});
        let refused = wire.post(configmaps, &body).await;
        let listed = wire.get(configmaps).await;
        for (answer, verb) in [(refused, "create"), (listed, "list")] {
            assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
            let status = answer.json();
            assert_eq!(status["reason"], "ServerTimeout", "{status}");
            let message = format!(
                "the {verb} operation against configmaps could not be completed at this time, \
                 please try again"
            );
            assert_eq!(status["message"], message);
        }
        // The watch cache still has the objects.
        let cached = format!("{configmaps}?resourceVersion=0");
        let cached = wire.get(&cached).await.json();
        let names = cached["items"].as_array().expect("items");
        assert!(names.iter().any(|one| one["metadata"]["name"] == "kept"));

        // The API server rejects an etcd with another data directory.
        let other = assets.etcd_in("other", etcd_port).await;
        await_log(&server, "does not have the data directory", round + 1).await;
        let answer = assets.get(port, None, "/readyz").await;
        assert_eq!(answer.status, status);
        other.stop().await;

        etcd = assets.etcd(etcd_port).await;
        await_readyz(&assets, port, StatusCode::OK, &server).await;
        let read = wire.get(&config_map("kept")).await.json();
        assert_eq!(read["metadata"]["uid"], kept["metadata"]["uid"]);
        let name = format!("after-kill-{is_killed}");
        assets.make_config_map(port, &admin, &name).await;
    }
    server.stop().await;
    etcd.stop().await;
}
