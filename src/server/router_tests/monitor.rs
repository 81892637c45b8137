//! Tests of `/metrics` and of request metrics.

use super::*;
use crate::metrics::Format;
use watchet_test_util::scrape::Scrape;

impl Server {
    async fn scrape(&self) -> Scrape {
        let received = self.get("/metrics").await;
        assert_eq!(received.code, 200);
        let expected = Format::Prometheus.content_type();
        assert_eq!(received.headers["content-type"], expected);
        Scrape::parse(std::str::from_utf8(&received.body).unwrap())
    }

    /// Checks the number of requests by labels.
    async fn check_requests(&self, expect: &[(&[&str], f64)]) {
        let actual = self.scrape().await;
        for (labels, expect) in expect {
            let labels: Vec<String> = labels
                .iter()
                .map(|label| label.replace('\'', "\""))
                .collect();
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            let count = actual.sum("apiserver_request_total", &labels);
            assert_eq!(count, *expect, "{labels:?} in {actual:#?}");
            let code = labels.iter().any(|label| label.starts_with("code"));
            if !code {
                let count = actual.sum("apiserver_request_duration_seconds_count", &labels);
                assert_eq!(count, *expect, "{labels:?}");
            }
        }
    }
}

#[tokio::test]
async fn requests_have_the_labels_of_their_path() {
    let server = Server::new().await;
    server.put_config_map("a", "1").await;
    server.post(CONFIG_MAPS, &config_map("a", "1")).await;
    let tried = format!("{CONFIG_MAPS}?dryRun=All");
    server.post(&tried, &config_map("b", "1")).await;
    for uri in [CONFIG_MAPS, "/api/v1/configmaps", "/api/v1/configmaps/"] {
        server.get(uri).await;
    }
    server.get(&format!("{CONFIG_MAPS}/a")).await;
    let head = format!("HEAD {CONFIG_MAPS}/a");
    server.call(&head, &[], "").await;
    server.get(&format!("{CONFIG_MAPS}/absent")).await;
    let delete = format!("DELETE {CONFIG_MAPS}/a");
    server.call(&delete, &[], "").await;
    server.get("/api/v1/namespaces/default/status").await;
    server.get("/readyz/ping").await;
    server.get("/livez").await;
    server.get("/version").await;
    server
        .check_requests(&[
            (&["resource='configmaps'"], 10.0),
            (
                &[
                    "verb='POST'",
                    "scope='resource'",
                    "code='201'",
                    "dry_run=''",
                ],
                1.0,
            ),
            (&["verb='POST'", "code='409'"], 1.0),
            (&["verb='POST'", "dry_run='All'", "code='201'"], 1.0),
            (&["verb='LIST'", "scope='namespace'"], 1.0),
            (
                &["verb='LIST'", "scope='cluster'", "group=''", "version='v1'"],
                2.0,
            ),
            (&["verb='GET'", "resource='configmaps'", "code='200'"], 2.0),
            (&["verb='GET'", "resource='configmaps'", "code='404'"], 1.0),
            (&["verb='DELETE'", "scope='resource'"], 1.0),
            (&["resource='namespaces'", "subresource='status'"], 1.0),
            (&["subresource='/readyz'", "component=''"], 1.0),
            (&["subresource='/livez'", "resource=''"], 1.0),
            (&["subresource='/version'"], 1.0),
        ])
        .await;
    server.stop().await;
}

/// If unknown paths created series, clients could exhaust the memory.
#[tokio::test]
async fn unknown_paths_create_no_labels() {
    let server = Server::new().await;
    for n in 0..20 {
        server.get(&format!("/api/v1/nothing{n}")).await;
        server.get(&format!("/apis/group{n}/v1/things")).await;
        server.get(&format!("/nothing{n}")).await;
        let subresource = format!("/api/v1/namespaces/default/pods/a/sub{n}");
        server.get(&subresource).await;
        let dry = format!("POST {CONFIG_MAPS}?dryRun=what{n}");
        server.call(&dry, &[], "").await;
    }
    let actual = server.scrape().await;
    let named = ["resource=\"\"", "subresource=\"\"", "code=\"404\""];
    assert_eq!(actual.sum("apiserver_request_total", &named), 60.0);
    let pods = ["resource=\"pods\"", "subresource=\"\""];
    assert_eq!(actual.sum("apiserver_request_total", &pods), 20.0);
    let dry = ["dry_run=\"invalid\""];
    assert_eq!(actual.sum("apiserver_request_total", &dry), 20.0);
    let text = server.get("/metrics").await;
    assert!(!String::from_utf8_lossy(&text.body).contains("nothing1"));
    server.stop().await;
}

#[tokio::test]
async fn a_watch_counts_as_long_running_until_its_body_is_dropped() {
    let server = Server::new().await;
    let watch = request(&format!("GET {CONFIG_MAPS}?watch=1"), &[], "");
    let response = server.send(watch).await;
    let actual = server.scrape().await;
    let running = "apiserver_longrunning_requests";
    let labels = ["resource=\"configmaps\"", "scope=\"namespace\""];
    assert_eq!(actual.sum(running, &labels), 1.0);
    let ended = ["verb=\"WATCH\"", "code=\"200\""];
    assert_eq!(actual.sum("apiserver_request_total", &ended), 0.0);
    drop(response);
    let actual = server.scrape().await;
    assert_eq!(actual.sum(running, &labels), 0.0);
    assert_eq!(actual.sum("apiserver_request_total", &ended), 1.0);
    server.stop().await;
}

#[tokio::test]
async fn in_flight_and_aborted_requests_are_counted() {
    let server = Server::new().await;
    let list = server
        .send(request(&format!("GET {CONFIG_MAPS}"), &[], ""))
        .await;
    let in_flight = "apiserver_current_inflight_requests";
    let actual = server.scrape().await;
    assert_eq!(actual.sum(in_flight, &["request_kind=\"readOnly\""]), 1.0);
    assert_eq!(actual.sum(in_flight, &["request_kind=\"mutating\""]), 0.0);
    drop(list);
    let actual = server.scrape().await;
    assert_eq!(actual.sum(in_flight, &["request_kind=\"readOnly\""]), 0.0);

    // The body never arrives and the client disconnects.
    let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
    let headers = ["content-type: application/json"];
    let create = server.send(request(&format!("POST {CONFIG_MAPS}"), &headers, body));
    let cancelled = tokio::time::timeout(Duration::from_millis(50), create).await;
    assert!(cancelled.is_err());
    let actual = server.scrape().await;
    let aborted = ["verb=\"POST\"", "resource=\"configmaps\""];
    assert_eq!(actual.sum("apiserver_request_aborts_total", &aborted), 1.0);
    assert_eq!(actual.sum("apiserver_request_total", &aborted), 0.0);
    server.stop().await;
}

/// Some metrics have no dry_run label; a duplicate series would invalidate the whole scrape.
#[tokio::test]
async fn dry_runs_count_with_others_in_metrics_without_the_label() {
    let server = Server::new().await;
    server.get(&format!("{CONFIG_MAPS}?dryRun=All")).await;
    server.get(CONFIG_MAPS).await;
    let watch = |query: &str| request(&format!("GET {CONFIG_MAPS}?watch=1{query}"), &[], "");
    let one = server.send(watch("")).await;
    let other = server.send(watch("&dryRun=All")).await;
    let actual = server.scrape().await;
    let running = "apiserver_longrunning_requests";
    assert_eq!(actual.sum(running, &["resource=\"configmaps\""]), 2.0);
    let taken = "apiserver_request_sli_duration_seconds_count";
    assert_eq!(actual.sum(taken, &["resource=\"configmaps\""]), 2.0);
    let taken = "apiserver_request_duration_seconds_count";
    assert_eq!(actual.sum(taken, &["dry_run=\"All\""]), 1.0);
    drop((one, other));
    server.stop().await;
}

#[tokio::test]
async fn the_format_is_negotiated() {
    let server = Server::new().await;
    let check = async |accept: &str, expect: Format| {
        let accept = format!("accept: {accept}");
        let received = server.call("GET /metrics", &[&accept], "").await;
        let actual = received.headers["content-type"].to_str().unwrap();
        assert_eq!(
            (received.code, actual),
            (200, expect.content_type()),
            "{accept}"
        );
        let ended = received.body.ends_with(b"# EOF\n");
        assert_eq!(ended, expect == Format::OpenMetrics);
    };
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2";
    check(prometheus, Format::OpenMetrics).await;
    check(
        "text/plain;version=0.0.4,application/openmetrics-text;q=0.5",
        Format::Prometheus,
    )
    .await;
    check("*/*", Format::Prometheus).await;
    check("application/json", Format::Prometheus).await;
    let received = server.call("POST /metrics", &[], "").await;
    received.failure(405, "MethodNotAllowed");
    let paths = server.get("/").await.json()["paths"].to_string();
    assert!(paths.contains("\"/metrics\""), "{paths}");
    server.stop().await;
}
