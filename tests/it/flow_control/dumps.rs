//! The tables of `/debug/api_priority_and_fairness/`, while requests run and wait.

use super::*;

const DEBUG: &str = "/debug/api_priority_and_fairness";

/// Returns the cells of each line, by the first line's columns.
async fn dump(server: &Server, path: &str) -> Vec<Vec<(String, String)>> {
    let response = server
        .plain(Protocol::Http1)
        .await
        .get(&format!("{DEBUG}/{path}"))
        .await;
    assert_eq!(response.status, StatusCode::OK, "{}", response.text());
    assert_eq!(
        header(&response, "content-type"),
        "text/plain; charset=utf-8"
    );
    let text = response.text();
    let mut lines = text.lines().map(|line| {
        let cells = line.split(',').map(|cell| cell.trim().to_owned());
        cells.collect::<Vec<_>>()
    });
    let columns = lines.next().expect("a header");
    let rows = lines.map(|cells| {
        assert_eq!(cells.len(), columns.len(), "{cells:?}");
        columns.iter().cloned().zip(cells).collect()
    });
    rows.collect()
}

/// Returns these columns of the rows of a level.
fn of_level<'a>(
    rows: &'a [Vec<(String, String)>],
    level: &str,
    columns: &[&str],
) -> Vec<Vec<&'a str>> {
    let rows = rows.iter().filter(|row| row[0].1 == level);
    let cell = |row: &'a [(String, String)], column: &str| {
        let cell = row.iter().find(|(name, _)| name == column);
        &*cell.unwrap_or_else(|| panic!("no column {column}")).1
    };
    rows.map(|row| columns.iter().map(|column| cell(row, column)).collect())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dumps_show_requests_that_run_and_wait() {
    let slow = Slow::start(&[]).await;
    let server = &slow.server;
    slow.configure("team", &queues(50), &["ann"]).await;
    let levels = dump(server, "dump_priority_levels").await;
    let names: Vec<_> = levels.iter().map(|row| &*row[0].1).collect();
    assert!(names.is_sorted() && names.contains(&"exempt"), "{names:?}");
    let columns = [
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ];
    let idle = ["0", "true", "false", "0", "0", "0", "0", "0"];
    assert_eq!(of_level(&levels, "team", &columns), [idle]);
    let creates = join_all((0..3).map(|number| slow.create_slowly("ann", number)));
    let meanwhile = async {
        until_metric(server, WAITING, "team", 2.0).await;
        until_metric(server, EXECUTING, "team", 1.0).await;
        let levels = dump(server, "dump_priority_levels").await;
        let busy = ["1", "false", "false", "2", "1", "0", "0", "0"];
        assert_eq!(of_level(&levels, "team", &columns), [busy]);

        let all = dump(server, "dump_queues").await;
        let columns = [
            "PendingRequests",
            "ExecutingRequests",
            "SeatsInUse",
            "InitialSeatsSum",
            "MaxSeatsSum",
        ];
        assert_eq!(
            of_level(&all, "team", &columns),
            [["2", "1", "1", "2", "2"]]
        );
        let queue = of_level(&all, "team", &["Index", "NextDispatchR", "TotalWorkSum"]).remove(0);
        assert!(queue[1].ends_with("ss"), "{queue:?}");
        assert!(queue[2].starts_with("0.006"), "{queue:?}");

        let short = dump(server, "dump_requests").await;
        assert_eq!(short[0].len(), 10);
        let all = dump(server, "dump_requests?includeRequestDetails=1").await;
        let columns = [
            "FlowSchemaName",
            "QueueIndex",
            "RequestIndexInQueue",
            "FlowDistingsher",
            "InitialSeats",
            "UserName",
            "Verb",
            "APIPath",
            "Namespace",
            "Name",
            "APIVersion",
            "Resource",
            "SubResource",
        ];
        let expected = |at| {
            let flow = ["team", queue[0], at, "ann", "1", "ann", "create", MAPS];
            [&flow[..], &["default", "", "v1", "configmaps", ""]].concat()
        };
        assert_eq!(
            of_level(&all, "team", &columns),
            [expected("0"), expected("1"), expected("-1")]
        );
        let times = of_level(&all, "team", &["ArriveTime", "StartTime"]);
        let not_started = "0001-01-01T00:00:00Z";
        assert_eq!((times[0][1], times[1][1]), (not_started, not_started));
        assert!(times[2][0] <= times[2][1], "{times:?}");
        // The dump itself, which is exempt.
        let columns = ["FlowSchemaName", "QueueIndex", "Verb", "APIPath"];
        let path = format!("{DEBUG}/dump_requests");
        let own = of_level(&all, "exempt", &columns);
        assert!(own.contains(&vec!["exempt", "-1", "get", &path]), "{own:?}");
        slow.passes.add_permits(3);
    };
    let (created, ()) = tokio::join!(creates, meanwhile);
    assert!(created.iter().all(|status| *status == StatusCode::CREATED));
    // A seat is returned just after the response.
    let returned = async {
        loop {
            let all = dump(server, "dump_requests").await;
            if of_level(&all, "team", &[]).is_empty() {
                return;
            }
        }
    };
    timeout(PATIENCE, returned).await.expect("no request");
    assert!(of_level(&dump(server, "dump_queues").await, "team", &[]).is_empty());
    slow.server.stop().await;
}

#[tokio::test]
async fn dumps_need_permission_and_flow_control() {
    let server = Server::start(&["--storage=memory"]).await;
    let path = format!("{DEBUG}/dump_queues");
    let refused = get(&server, "ann", &path).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(
        refused.json()["message"],
        format!("forbidden: User \"ann\" cannot get path \"{path}\"")
    );
    let mut admin = server.plain(Protocol::Http1).await;
    let posted = admin.send(Method::POST, &path, &[], "").await;
    assert_eq!(posted.status, StatusCode::METHOD_NOT_ALLOWED);
    for unknown in [DEBUG, &format!("{DEBUG}/dump_flows")] {
        assert_eq!(admin.get(unknown).await.status, StatusCode::NOT_FOUND);
    }
    server.stop().await;
    let flags = ["--storage=memory", "--enable-priority-and-fairness=false"];
    let server = Server::start(&flags).await;
    let mut admin = server.plain(Protocol::Http1).await;
    assert_eq!(admin.get(&path).await.status, StatusCode::NOT_FOUND);
    server.stop().await;
}

/// A write is charged for the watchers of its event; a token request has no event.
#[tokio::test(flavor = "multi_thread")]
async fn token_requests_are_not_charged_for_watchers() {
    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
    let slow = Slow::start(&[]).await;
    let server = &slow.server;
    slow.configure("team", &queues(50), &["ann", "bob"]).await;
    let account = json!({"metadata": {"name": "slow-account"}});
    Cluster(server).post(ACCOUNTS, &account).await.ok(201);
    let mut watches = Vec::new();
    for path in [MAPS, ACCOUNTS] {
        let mut wire = server.plain(Protocol::Http1).await;
        let watch = request(Method::GET, &format!("{path}?watch=1"), &[], full(""));
        let response = wire.open(watch).await.expect("a response");
        assert_eq!(response.status(), StatusCode::OK);
        watches.push((wire, response));
    }
    let token = json!({"spec": {}});
    let path = format!("{ACCOUNTS}/slow-account/token");
    let requested = send(server, "ann", Method::POST, &path, &token);
    let meanwhile = async {
        until_metric(server, EXECUTING, "team", 1.0).await;
        let created = slow.create_slowly("bob", 1);
        let dumped = async {
            until_metric(server, WAITING, "team", 1.0).await;
            let all = dump(server, "dump_requests?includeRequestDetails=1").await;
            let columns = ["Resource", "SubResource", "AdditionalLatency"];
            let rows = of_level(&all, "team", &columns);
            assert_eq!(rows[0][..2], ["configmaps", ""]);
            assert!(rows[0][2].ends_with("\u{b5}s"), "{rows:?}");
            assert_eq!(rows[1], ["serviceaccounts", "token", "0s"]);
            slow.passes.add_permits(2);
        };
        tokio::join!(created, dumped).0
    };
    let (token, created) = tokio::join!(requested, meanwhile);
    assert_eq!(
        (token.status, created),
        (StatusCode::CREATED, StatusCode::CREATED)
    );
    slow.server.stop().await;
}
