//! Tests of the queue's rules, in paused time.

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::time::timeout;

use super::*;

const LIMITER: Exponential = Exponential {
    first: Duration::from_millis(10),
    max: Duration::from_millis(35),
};

type Queue = WorkQueue<&'static str>;

fn queue() -> Queue {
    WorkQueue::new(LIMITER, Arc::new(WorkQueueMetrics::new("test")))
}

/// Returns true if no key is queued, delayed or being processed.
fn is_idle(queue: &Queue) -> bool {
    let keys = queue.keys.lock();
    assert_eq!(keys.later.len(), keys.positions.len());
    keys.ready.is_empty()
        && keys.processing.is_empty()
        && keys.dirty.is_empty()
        && keys.later.is_empty()
}

async fn get(queue: &Queue) -> &'static str {
    queue.get().await.expect("the queue is not shut down")
}

/// Processes the next key; returns after how many milliseconds it was ready.
async fn process(queue: &Queue, expected: &str) -> u128 {
    let before = Instant::now();
    let key = get(queue).await;
    assert_eq!(key, expected);
    queue.done(&key);
    before.elapsed().as_millis()
}

async fn nothing_comes(queue: &Queue) {
    let early = timeout(Duration::from_millis(1), queue.get()).await;
    early.expect_err("no key is ready");
}

#[tokio::test(start_paused = true)]
async fn duplicate_keys_are_returned_once() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    queue.add("a");
    assert_eq!((queue.len(), queue.metrics.depth.get()), (2, 2));
    assert_eq!((get(&queue).await, get(&queue).await), ("a", "b"));
    queue.done(&"a");
    queue.done(&"b");
    assert!(is_idle(&queue) && queue.is_empty());
    assert_eq!(queue.metrics.adds.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_processing_is_ready_again_when_done() {
    let queue = queue();
    queue.add("a");
    assert_eq!(get(&queue).await, "a");
    queue.add("a");
    queue.add("a");
    nothing_comes(&queue).await;
    assert_eq!(queue.len(), 0, "the key is not ready");
    queue.done(&"a");
    assert_eq!(process(&queue, "a").await, 0);
    assert!(is_idle(&queue));
}

/// A second `done` of a key must not return it twice.
#[tokio::test(start_paused = true)]
async fn a_second_done_has_no_effect() {
    let queue = queue();
    queue.add("a");
    queue.done(&"a");
    assert_eq!(process(&queue, "a").await, 0);
    assert!(is_idle(&queue));
}

#[tokio::test(start_paused = true)]
async fn delays_increase_until_forget() {
    let queue = queue();
    queue.add("a");
    for (failures, wait) in [0, 10, 20, 35, 35].into_iter().enumerate() {
        assert_eq!(queue.num_requeues(&"a"), failures as u32);
        assert_eq!(process(&queue, "a").await, wait);
        queue.add_rate_limited("a");
    }
    assert_eq!(queue.metrics.retries.get(), 5);
    process(&queue, "a").await;
    queue.forget(&"a");
    assert_eq!(queue.num_requeues(&"a"), 0);
    queue.add_rate_limited("a");
    assert_eq!(process(&queue, "a").await, 10);
    queue.forget(&"a");
    assert!(is_idle(&queue) && queue.keys.lock().requeues.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_earliest_delay_counts() {
    let queue = queue();
    queue.add_after("a", Duration::from_secs(5));
    queue.add_after("a", Duration::from_secs(2));
    queue.add_after("a", Duration::from_secs(9));
    queue.add_after("b", Duration::from_secs(1));
    queue.add_after("c", Duration::ZERO);
    let waits = [
        process(&queue, "c").await,
        process(&queue, "b").await,
        process(&queue, "a").await,
    ];
    assert_eq!(waits, [0, 1_000, 1_000]);
    assert!(is_idle(&queue));
}

/// An immediate addition does not cancel a delayed one, as in client-go: the key may be delayed for
/// another reason.
#[tokio::test(start_paused = true)]
async fn an_immediate_add_does_not_cancel_a_delayed_one() {
    let queue = queue();
    queue.add("a");
    queue.add_after("a", Duration::from_secs(3));
    assert_eq!(process(&queue, "a").await, 0);
    assert_eq!(process(&queue, "a").await, 3_000);
    assert!(is_idle(&queue));
}

#[tokio::test(start_paused = true)]
async fn every_worker_gets_due_keys_in_time() {
    let queue = queue();
    let worker = async || {
        let started = Instant::now();
        let mut looks = Vec::new();
        while let Some(key) = queue.get().await {
            looks.push((started.elapsed().as_secs(), key));
            tokio::time::sleep(Duration::from_secs(10)).await;
            queue.done(&key);
        }
        looks
    };
    let adding = async {
        tokio::task::yield_now().await;
        for (key, wait) in [("d", 7), ("c", 3), ("b", 2), ("a", 1)] {
            queue.add_after(key, Duration::from_secs(wait));
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
        queue.shut_down();
    };
    let (looks, ()) = tokio::join!(join_all((0..4).map(|_| worker())), adding);
    let mut looks = looks.concat();
    looks.sort_unstable();
    assert_eq!(looks, [(1, "a"), (2, "b"), (3, "c"), (7, "d")]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_returns_ready_keys_and_rejects_new_ones() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    queue.add_after("c", Duration::from_secs(1));
    assert_eq!(get(&queue).await, "a");
    queue.add("a");
    queue.shut_down();
    assert!(queue.is_shutting_down());
    queue.add("d");
    queue.add_after("e", Duration::from_secs(1));
    queue.add_rate_limited("f");
    assert_eq!(process(&queue, "b").await, 0);
    queue.done(&"a");
    assert_eq!(process(&queue, "a").await, 0, "added before the shutdown");
    assert_eq!(queue.get().await, None);
    assert!(is_idle(&queue));
}

/// A delay that overflows the clock used to panic.
#[tokio::test(start_paused = true)]
async fn a_delay_may_overflow_the_clock() {
    let queue = queue();
    queue.add_after("a", Duration::MAX);
    let week = Duration::from_secs(7 * 86_400);
    assert!(timeout(week, queue.get()).await.is_err());
    queue.add_after("a", Duration::from_secs(1));
    assert_eq!(get(&queue).await, "a");
}

#[tokio::test(start_paused = true)]
async fn shutdown_wakes_every_worker() {
    let queue = queue();
    let ending = async {
        tokio::task::yield_now().await;
        queue.shut_down();
    };
    let (got, ()) = tokio::join!(join_all((0..3).map(|_| queue.get())), ending);
    assert_eq!(got, [None; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_until_all_keys_are_done() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    let started = Instant::now();
    let working = async {
        while let Some(key) = queue.get().await {
            tokio::time::sleep(Duration::from_secs(2)).await;
            queue.done(&key);
        }
    };
    let draining = async {
        queue.shut_down_with_drain().await;
        started.elapsed().as_secs()
    };
    let ((), drained) = tokio::join!(working, draining);
    assert_eq!(drained, 4);
    assert!(
        queue.shut_down_with_drain().now_or_never().is_some(),
        "all keys are done"
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_a_drain() {
    let queue = queue();
    queue.add("a");
    get(&queue).await;
    let draining = timeout(Duration::from_secs(9), queue.shut_down_with_drain());
    let ending = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.shut_down();
    };
    let (drained, ()) = tokio::join!(draining, ending);
    drained.expect("the drain was ended");
}
