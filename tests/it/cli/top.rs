//! `watchet top`, in a terminal and as text.

use super::screen::Terminal;
use super::watchet;
use crate::harness::{Kubectl, Server};

#[tokio::test]
async fn a_watch_is_shown_and_ended_in_a_terminal() {
    let server = Server::start(&[]).await;
    let kubeconfig = server.kubeconfig();
    let kubectl = Kubectl::newest(&kubeconfig);
    let mut watch = kubectl.start(&["get", "configmaps", "-n", "observed", "-w", "-o", "name"]);
    let mut terminal = Terminal::start(&kubeconfig, "top --sort name");
    let is_watch = |line: &String| line.contains(" configmaps ") && line.contains(" observed ");
    terminal
        .until("the watch is shown", |lines| {
            lines[0].starts_with("watchet top: ")
                && lines[1].starts_with("NAME^")
                && lines.iter().any(is_watch)
        })
        .await;
    assert!(terminal.is_alternate);

    // The events that the watch sends are counted while the view is open.
    kubectl.run(&["create", "namespace", "observed"]).await;
    kubectl
        .run(&["create", "configmap", "a", "-n", "observed"])
        .await;
    assert_eq!(watch.line().await, "configmap/a");
    terminal.press("/observed\r").await;
    let rows = |lines: &[String]| -> Vec<String> {
        let rows = lines[2..lines.len() - 1].iter();
        rows.filter(|line| !line.is_empty()).cloned().collect()
    };
    terminal
        .until("only this watch remains, with its event", |lines| {
            let rows = rows(lines);
            let events = |row: &String| row.split_whitespace().nth(8) != Some("0");
            rows.len() == 1 && is_watch(&rows[0]) && events(&rows[0])
        })
        .await;

    terminal.press("d").await;
    terminal
        .until("a confirmation is needed", |lines| {
            lines
                .iter()
                .any(|line| line.starts_with("End the watch w-"))
        })
        .await;
    terminal.press("n").await;
    terminal
        .until("it was not ended", |lines| {
            lines.iter().any(|line| line.ends_with(" was not ended"))
        })
        .await;
    terminal.press("dy").await;
    terminal
        .until("it was ended", |lines| {
            lines.iter().any(|line| line.ends_with(" was ended"))
        })
        .await;
    watch.ended().await;

    terminal.press("\u{1b}").await;
    terminal
        .until("the filter is cleared", |lines| {
            !lines[0].contains("observed")
        })
        .await;
    terminal.press("\t").await;
    terminal
        .until("the caches are shown", |lines| {
            lines[0].contains(" watch caches of ")
                && lines.iter().any(|line| line.starts_with("configmaps "))
        })
        .await;
    terminal.press("?").await;
    terminal
        .until("the help is shown", |lines| lines[0] == "Keys")
        .await;
    terminal.press(" q").await;
    terminal
        .until("the terminal is restored", |lines| {
            lines.iter().any(|line| line.contains("exit code 0"))
        })
        .await;
    assert!(!terminal.is_alternate);
    terminal.ended().await;
    server.stop().await;
}

#[tokio::test]
async fn watchers_and_caches_are_printed_once() {
    let server = Server::start(&[]).await;
    let kubeconfig = server.kubeconfig();
    let ran = watchet(
        Some(&kubeconfig),
        &["top", "--once", "--caches", "--sort", "objects"],
    )
    .await
    .text();
    let mut lines = ran.lines();
    assert!(lines.next().unwrap().contains("OBJECTSv"), "{ran}");
    assert!(
        lines.any(|line| line.starts_with("namespaces ") && line.contains(" yes ")),
        "{ran}"
    );
    let ran = watchet(Some(&kubeconfig), &["top", "--once"]).await.text();
    assert!(ran.starts_with("NAME "), "{ran}");
    let ran = watchet(Some(&kubeconfig), &["top"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("is not a terminal"), "{ran:?}");
    let ran = watchet(Some(&kubeconfig), &["top", "--once", "--sort", "x"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.err
            .contains(r#"--sort: "x" is not one of name, user, "#),
        "{ran:?}"
    );
    server.stop().await;
}
