//! Resyncs: who is told of everything anew, and when.

use std::time::Duration;

use tokio::time::sleep;

use super::{A_WHILE, Heard, Host, settle};
use crate::informer::HandlerRegistration;

impl Host {
    fn listen_with_resync(&self, seconds: u64) -> (Heard, HandlerRegistration) {
        let heard = Heard::default();
        let period = Duration::from_secs(seconds);
        let registration = self
            .informer
            .add_event_handler_with_resync_period(heard.clone(), period);
        (heard, registration.unwrap())
    }
}

/// In which of the next seconds each of the handlers was told of `a` anew.
async fn resyncs<const N: usize>(seconds: usize, heard: [&Heard; N]) -> [Vec<usize>; N] {
    let mut told = [const { Vec::new() }; N];
    for second in 1..=seconds {
        sleep(Duration::from_secs(1)).await;
        for (heard, told) in heard.iter().zip(&mut told) {
            let book = heard.take();
            assert!(book.iter().all(|line| line == "update a@1 a@1"), "{book:?}");
            told.extend(book.iter().map(|_| second));
        }
    }
    told
}

/// Whether somebody is due is looked at each 10 s, the smallest period: one that wants to be told each
/// 15 s is told when those have passed.
#[tokio::test(start_paused = true)]
async fn each_handler_is_told_anew_by_its_own_period() {
    let host = Host::new(&["a"]);
    let (ten, _) = host.listen_with_resync(10);
    let (fifteen, _) = host.listen_with_resync(15);
    let (never, _) = host.listen();
    host.start();
    settle().await;
    for heard in [&ten, &fifteen, &never] {
        assert_eq!(heard.take(), ["add a@1 initially"]);
    }
    let told = resyncs(62, [&ten, &fifteen, &never]).await;
    assert_eq!(told[0], [10, 20, 30, 40, 50, 60]);
    assert_eq!(told[1], [20, 40, 60]);
    assert!(told[2].is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_period_may_be_longer_than_any_clock() {
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
    settle().await;
    ten.take();
    two.take();
    // Seconds from 4.5 on; those of the first are due at 10.
    let told = resyncs(12, [&ten, &two]).await;
    assert_eq!(told[0], [6]);
    assert_eq!(told[1], [2, 4, 6, 8, 10, 12]);
    // When it is gone so is its period.
    host.informer.remove_event_handler(&registration);
    let told = resyncs(20, [&ten, &two]).await;
    assert_eq!(told[0].len(), 2);
    assert!(told[1].is_empty());
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_anew_more_often_than_each_second() {
    let host = Host::new(&["a"]);
    let heard = Heard::default();
    let often = Duration::from_millis(1);
    let added = host
        .informer
        .add_event_handler_with_resync_period(heard.clone(), often);
    added.unwrap();
    host.start();
    settle().await;
    heard.take();
    assert_eq!(resyncs(5, [&heard]).await[0], [1, 2, 3, 4, 5]);
}

/// Client-go's processor does the same: what a list repeats is news to nobody, but those who are due a
/// resync get it as that.
#[tokio::test(start_paused = true)]
async fn what_a_new_list_repeats_is_told_to_those_who_are_due() {
    let host = Host::new(&["a"]);
    let (hour, _) = host.listen_with_resync(3600);
    let (never, _) = host.listen();
    host.start();
    settle().await;
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
async fn a_change_reaches_those_too_who_are_not_due() {
    let host = Host::new(&["a"]);
    let (one, _) = host.listen_with_resync(1);
    let (never, _) = host.listen();
    host.start();
    sleep(Duration::from_millis(1500)).await;
    host.collection.put("a");
    settle().await;
    let changed = "update a@1 a@2";
    assert_eq!(one.take(), ["add a@1 initially", "update a@1 a@1", changed]);
    assert_eq!(never.take(), ["add a@1 initially", changed]);
}
