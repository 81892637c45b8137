//! Texts of clients and webhooks in the log of the program: they can neither add a line nor send a sequence to a terminal.

use http::Method;
use serde_json::{Value, json};

use super::cluster::{Cluster, MAPS, allow, hook, map, respond};
use crate::harness::{Protocol, Reply, Server, Webhook};

/// The C0 controls, DEL and a C1 control (CSI), with a line like one of the server's own.
const HOSTILE: &str = "before\n2026-01-01T00:00:00Z  INFO watchet: forged\r\n\u{1b}[31mred\u{7}\u{8}\0\u{7f}\u{9b}2Jafter";

/// A webhook's error text used to add lines to the log, and to color the terminal of its reader.
#[tokio::test(flavor = "multi_thread")]
async fn control_characters_do_not_reach_the_log() {
    for format in ["text", "json"] {
        let flags = [&format!("--log-format={format}"), "--log-level=debug"];
        let server = Server::start(&flags.map(AsRef::as_ref)).await;
        let webhook = Webhook::answering(|call| match call.path.split('?').next() {
            Some("/fails") => Reply::other(500, HOSTILE),
            Some("/breaks") => Reply::other(200, HOSTILE),
            Some("/annotates") => respond(
                call,
                json!({"allowed": true, "auditAnnotations": {"note": HOSTILE}, "warnings": [HOSTILE]}),
            ),
            Some("/denies") => respond(call, json!({"allowed": false, "status": {"message": HOSTILE}})),
            _ => allow(call),
        })
        .await;
        let ignored = json!({"failurePolicy": "Ignore"});
        let hooks = ["/fails", "/breaks", "/annotates"];
        let hooks = hooks.map(|path| hook(&webhook, path, ignored.clone()));
        let cluster = Cluster(&server);
        cluster.configure("Validating", "ignored", &hooks).await;
        cluster.post(MAPS, &map("one")).await.ok(201);
        let denies = hook(&webhook, "/denies", ignored);
        cluster.configure("Validating", "denies", &[denies]).await;
        let denied = cluster.post(MAPS, &map("two")).await;
        assert_eq!(denied.code, 400);

        // Everything that a client may choose: path, query, header, token, user, name of an object.
        let mut wire = server.plain(Protocol::Http1).await;
        let path = format!("{MAPS}/%1b%5b31m%0aforged%c2%9b?labelSelector=%0a%1b&fieldManager=%1b");
        let user = "a\u{9b}2J";
        for (header, value) in [
            ("user-agent", user),
            ("impersonate-user", user),
            ("audit-id", user),
        ] {
            for method in [Method::GET, Method::PATCH, Method::DELETE] {
                wire.send(method, &path, &[(header, value)], "\u{1b}[31m\n")
                    .await;
            }
        }
        let mut stranger = server.stranger(Protocol::Http1).await;
        let token = [("authorization", "Bearer a\u{9b}2J")];
        stranger.send(Method::GET, &path, &token, "").await;
        let log = server.log();
        server.stop().await;
        check(&log, format);
    }
}

fn check(log: &str, format: &str) {
    assert!(log.contains("forged"), "the error is logged: {log}");
    for line in log.lines() {
        let control = line.chars().find(|c| c.is_control());
        assert_eq!(control, None, "{line}");
        match format {
            "json" => assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}"),
            _ => assert!(!line.starts_with("2026-01-01T00:00:00Z"), "{line}"),
        }
    }
}
