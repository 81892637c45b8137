//! Tests of resyncs.

use std::time::Duration;

use tokio::time::sleep;

use super::{A_WHILE, Host, Log, run_until_idle};
use crate::HandlerRegistration;

impl Host {
    fn listen_with_resync(&self, seconds: u64) -> (Log, HandlerRegistration) {
        let heard = Log::default();
        let period = Duration::from_secs(seconds);
        let registration = self
            .informer
            .add_event_handler_with_resync_period(heard.clone(), period);
        (heard, registration.unwrap())
    }
}

/// Returns in which of the next seconds each handler was resynced.
async fn resyncs<const N: usize>(seconds: usize, heard: [&Log; N]) -> [Vec<usize>; N] {
    let mut seconds_of = [const { Vec::new() }; N];
    for second in 1..=seconds {
        sleep(Duration::from_secs(1)).await;
        for (heard, seconds_of) in heard.iter().zip(&mut seconds_of) {
            let book = heard.take();
            assert!(book.iter().all(|line| line == "update a@1 a@1"), "{book:?}");
            seconds_of.extend(book.iter().map(|_| second));
        }
    }
    seconds_of
}

/// Resyncs are checked each 10 s, the smallest period: a handler with a period of 15 s is resynced
/// at the next check after it.
#[tokio::test(start_paused = true)]
async fn each_handler_is_resynced_with_its_own_period() {
    let host = Host::new(&["a"]);
    let (ten, _) = host.listen_with_resync(10);
    let (fifteen, _) = host.listen_with_resync(15);
    let (never, _) = host.listen();
    host.start();
    run_until_idle().await;
    for heard in [&ten, &fifteen, &never] {
        assert_eq!(heard.take(), ["add a@1 initially"]);
    }
    let seconds_of = resyncs(62, [&ten, &fifteen, &never]).await;
    assert_eq!(seconds_of[0], [10, 20, 30, 40, 50, 60]);
    assert_eq!(seconds_of[1], [20, 40, 60]);
    assert!(seconds_of[2].is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_period_may_overflow_the_clock() {
    let host = Host::new(&["a"]);
    host.start();
    let (heard, _) = host.listen_with_resync(u64::MAX);
    sleep(Duration::from_secs(86_400)).await;
    assert_eq!(heard.take(), ["add a@1 initially"]);
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_with_a_smaller_period_gets_it() {
    let host = Host::new(&["a"]);
    let (ten, _) = host.listen_with_resync(10);
    host.start();
    sleep(Duration::from_millis(4500)).await;
    let (two, registration) = host.listen_with_resync(2);
    run_until_idle().await;
    ten.take();
    two.take();
    // Seconds counted from 4.5; the first handler is due at 10.
    let seconds_of = resyncs(12, [&ten, &two]).await;
    assert_eq!(seconds_of[0], [6]);
    assert_eq!(seconds_of[1], [2, 4, 6, 8, 10, 12]);
    // Removing the handler also removes its period.
    host.informer.remove_event_handler(&registration);
    let seconds_of = resyncs(20, [&ten, &two]).await;
    assert_eq!(seconds_of[0].len(), 2);
    assert!(seconds_of[1].is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_minimum_period_is_a_second() {
    let host = Host::new(&["a"]);
    let heard = Log::default();
    let often = Duration::from_millis(1);
    let added = host
        .informer
        .add_event_handler_with_resync_period(heard.clone(), often);
    added.unwrap();
    host.start();
    run_until_idle().await;
    heard.take();
    assert_eq!(resyncs(5, [&heard]).await[0], [1, 2, 3, 4, 5]);
}

/// As in client-go, an unchanged object in a new list is delivered only to handlers that are due a
/// resync.
#[tokio::test(start_paused = true)]
async fn unchanged_objects_are_delivered_only_to_due_handlers() {
    let host = Host::new(&["a"]);
    let (hour, _) = host.listen_with_resync(3600);
    let (never, _) = host.listen();
    host.start();
    run_until_idle().await;
    for heard in [&hour, &never] {
        assert_eq!(heard.take(), ["add a@1 initially"]);
    }
    host.collection.lose(|_| {});
    sleep(A_WHILE).await;
    assert_eq!(host.collection.lists(), 2);
    assert_eq!((hour.take().len(), never.take().len()), (0, 0));
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(hour.take(), ["update a@1 a@1"]);
    host.collection.lose(|_| {});
    sleep(A_WHILE).await;
    assert_eq!(hour.take(), ["update a@1 a@1"]);
    assert_eq!(never.take().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_is_delivered_to_handlers_that_are_not_due() {
    let host = Host::new(&["a"]);
    let (one, _) = host.listen_with_resync(1);
    let (never, _) = host.listen();
    host.start();
    sleep(Duration::from_millis(1500)).await;
    host.collection.put("a");
    run_until_idle().await;
    let changed = "update a@1 a@2";
    assert_eq!(one.take(), ["add a@1 initially", "update a@1 a@1", changed]);
    assert_eq!(never.take(), ["add a@1 initially", changed]);
}
