//! Tests of slow handlers: they delay no others, their memory is bounded, and they reach the final
//! state without losing a deletion.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{A_WHILE, Host, Log, run_until_idle};
use crate::shared::pending::EXACT_MAX;
use crate::{HandlerRegistration, ResourceEventHandler};

impl Host {
    fn listen_slowly(&self, pause: Duration) -> (Log, HandlerRegistration) {
        let heard = Log {
            pause,
            ..Log::default()
        };
        let registration = self.informer.add_event_handler(heard.clone());
        (heard, registration.unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_does_not_delay_others() {
    let host = Host::new(&["a"]);
    let hour = Duration::from_secs(3600);
    let (slow, registration) = host.listen_slowly(hour);
    let (quick, _) = host.listen();
    host.start();
    run_until_idle().await;
    let began = Instant::now();
    for _ in 0..100 {
        host.collection.put("a");
        run_until_idle().await;
        assert!(host.is_equal());
        assert!(quick.take().len() == 1 || began.elapsed() < Duration::from_millis(10));
    }
    assert!(began.elapsed() < Duration::from_secs(1));
    // It receives each of a few notifications, at its own speed.
    assert_eq!(registration.metrics().pending.get(), 100);
    sleep(hour * 101).await;
    let book = slow.take();
    assert_eq!(book.len(), 101);
    assert_eq!(book[100], "update a@100 a@101");
    assert_eq!(registration.metrics().pending.get(), 0);
}

/// For each object that the handler received and that was deleted it receives the deletion; for
/// objects that were created and deleted meanwhile, nothing; for all others, the last state.
#[tokio::test(start_paused = true)]
async fn merged_notifications_lose_no_deletion() {
    const KEYS: usize = 5;
    let host = Host::new(&["a", "b", "c", "d", "e"]);
    let day = Duration::from_secs(24 * 3600);
    let (slow, registration) = host.listen_slowly(day);
    let (quick, _) = host.listen();
    host.start();
    run_until_idle().await;
    // It is now in the call for `a`.
    for round in 0..2000 {
        host.collection.put("a");
        host.collection.put(&format!("job-{round}"));
        host.collection.delete(&format!("job-{round}"));
        run_until_idle().await;
        let pending = registration.metrics().pending.get();
        assert!(pending <= (EXACT_MAX + KEYS) as i64, "{pending}");
    }
    assert_eq!(quick.take().len(), KEYS + 3 * 2000);
    assert!(registration.metrics().pending.get() <= KEYS as i64 + 1);
    host.collection.delete("a");
    host.collection.delete("b");
    host.collection.put("a");
    host.collection.put("c");
    run_until_idle().await;
    let version = host.collection.version();
    sleep(day * 20).await;
    let mut book = slow.take();
    assert_eq!(book.remove(0), "add a@1 initially");
    let expected = [
        // `b` was deleted before the handler received it.
        format!("add c@{version} initially"),
        "add d@4 initially".to_owned(),
        "add e@5 initially".to_owned(),
        format!("delete a@{}", version - 3),
        format!("add a@{}", version - 1),
    ];
    for line in &expected {
        assert!(book.contains(line), "{line}: {book:?}");
    }
    assert_eq!(book.len(), expected.len(), "{book:?}");
    let metrics = registration.metrics();
    assert_eq!(metrics.received.get(), (KEYS + 3 * 2000 + 4) as u64);
    assert_eq!(metrics.delivered.get(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_waits_for_a_slow_handler() {
    let host = Host::new(&["a"]);
    let (slow, _) = host.listen_slowly(A_WHILE * 3);
    host.start();
    run_until_idle().await;
    host.collection.lose(|meanwhile| meanwhile.delete("a"));
    sleep(A_WHILE).await;
    for _ in 0..EXACT_MAX {
        host.collection.put("b");
        run_until_idle().await;
        host.collection.delete("b");
        run_until_idle().await;
    }
    sleep(A_WHILE * 9).await;
    assert_eq!(slow.take(), ["add a@1 initially", "tombstone a@1"]);
}

/// A handler whose calls never wait yields to others on its thread.
#[tokio::test(start_paused = true)]
async fn a_busy_handler_yields() {
    struct Busy;
    impl ResourceEventHandler<k8s_openapi::api::core::v1::ConfigMap> for Busy {}
    let names: Vec<_> = (0..5000).map(|n| format!("a{n}")).collect();
    let host = Host::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let registration = host.informer.add_event_handler(Busy).unwrap();
    host.start();
    let mut turns = 0;
    while !registration.has_synced() {
        tokio::task::yield_now().await;
        turns += 1;
    }
    assert!(turns > 5000 / 256, "{turns}");
    assert_eq!(registration.metrics().delivered.get(), 5000);
}
