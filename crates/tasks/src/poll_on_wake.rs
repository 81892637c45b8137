//! `PollOnWake`: polls a future only after it was woken. A task that is polled for every event and
//! also waits for a rare one, such as cancellation or a timer, would otherwise poll that future
//! each time, which for cancellation takes a shared lock.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// A future with its own waker. Polling it before it was woken costs one atomic load.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::future::poll_fn;
/// use std::time::Duration;
/// use watchet_tasks::PollOnWake;
/// let mut timer = PollOnWake::new(tokio::time::sleep(Duration::from_millis(1)));
/// poll_fn(|cx| timer.poll(cx)).await;
/// # }
/// ```
#[derive(Debug)]
pub struct PollOnWake<F> {
    future: Pin<Box<F>>,
    state: Arc<WakeState>,
    /// The waker registered in `state`.
    waker: Option<Waker>,
}

/// Marks a [`PollOnWake`] as woken after a change of state that its future depends on.
#[derive(Debug, Clone)]
pub struct WakeFlag(Arc<WakeState>);

impl WakeFlag {
    /// Makes the next poll reach the future, without waking the task.
    pub fn mark(&self) {
        self.0.woken.store(true, Ordering::Release);
    }
}

#[derive(Debug)]
struct WakeState {
    woken: AtomicBool,
    /// Retained after a wake, so that the task need not register again.
    waker: Mutex<Option<Waker>>,
}

impl WakeState {
    fn wake_task(&self) {
        // Set the flag before the wake, so that the woken task finds it set.
        self.woken.store(true, Ordering::Release);
        let waker = self.waker.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Wake for WakeState {
    fn wake(self: Arc<Self>) {
        self.wake_task();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_task();
    }
}

impl<F: Future> PollOnWake<F> {
    /// Wraps `future`. The first poll always reaches it.
    pub fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            state: Arc::new(WakeState {
                woken: AtomicBool::new(true),
                waker: Mutex::new(None),
            }),
            waker: None,
        }
    }

    /// Returns the future.
    pub fn get(&self) -> &F {
        &self.future
    }

    /// Returns the flag that forces the next poll.
    pub fn wake_flag(&self) -> WakeFlag {
        WakeFlag(self.state.clone())
    }

    /// Changes the future; the next poll reaches it.
    pub fn change(&mut self, change: impl FnOnce(Pin<&mut F>)) {
        change(self.future.as_mut());
        self.state.wake_task();
    }

    /// Polls the future if it was woken, as [`Future::poll`] does; otherwise returns `Pending`. A
    /// wake of the future wakes the current task. Calls after completion poll the future again, so
    /// it must support that.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        let same = |waker: &Waker| waker.will_wake(cx.waker());
        if !self.waker.as_ref().is_some_and(same) {
            *self.state.waker.lock() = Some(cx.waker().clone());
            self.waker = Some(cx.waker().clone());
        }
        // After the registration: an earlier wake is seen here, a later one wakes the task.
        if !self.state.woken.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Before the poll: a wake from now on requires another poll.
        self.state.woken.store(false, Ordering::Release);
        let state = Waker::from(self.state.clone());
        let polled = self.future.as_mut().poll(&mut Context::from_waker(&state));
        if polled.is_ready() {
            self.state.woken.store(true, Ordering::Release);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use futures::poll;
    use tokio::time::{Instant, sleep, sleep_until};
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn future_is_polled_once_until_woken() {
        let polls = AtomicUsize::new(0);
        let mut timer = Box::pin(sleep(Duration::from_secs(5)));
        let mut counted = PollOnWake::new(poll_fn(|cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            timer.as_mut().poll(cx)
        }));
        let mut next = std::pin::pin!(poll_fn(|cx| counted.poll(cx)));
        for _ in 0..100 {
            assert!(poll!(next.as_mut()).is_pending());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        let begun = Instant::now();
        next.await;
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn changed_timer_is_polled_again() {
        let begun = Instant::now();
        let mut timer = PollOnWake::new(sleep(Duration::from_secs(500)));
        assert!(poll!(poll_fn(|cx| timer.poll(cx))).is_pending());
        let sooner = begun + Duration::from_secs(7);
        timer.change(|timer| timer.reset(sooner));
        assert_eq!(timer.get().deadline(), sooner);
        poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(7));
        // The result stays the same.
        assert!(poll!(poll_fn(|cx| timer.poll(cx))).is_ready());
    }

    /// A timer that is reset after each wake wakes its task again.
    #[tokio::test(start_paused = true)]
    async fn timer_wakes_after_each_reset() {
        let mut timer = PollOnWake::new(sleep(Duration::from_secs(1)));
        let begun = Instant::now();
        for round in 1..=5 {
            poll_fn(|cx| timer.poll(cx)).await;
            assert_eq!(begun.elapsed(), Duration::from_secs(round));
            timer.change(|timer| timer.reset(begun + Duration::from_secs(round + 1)));
            assert!(poll!(poll_fn(|cx| timer.poll(cx))).is_pending());
        }
    }

    /// The waker of the last poll is woken, even if another task polled before.
    #[tokio::test(start_paused = true)]
    async fn the_waker_of_the_last_poll_is_woken() {
        let stop = CancellationToken::new();
        let mut stopped = PollOnWake::new(stop.clone().cancelled_owned());
        assert!(
            stopped
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        tokio::join!(poll_fn(|cx| stopped.poll(cx)), async {
            sleep_until(Instant::now() + Duration::from_secs(1)).await;
            stop.cancel();
        });
    }

    /// A wake from another thread is not lost while the future is being polled.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn wake_from_another_thread_is_not_lost() {
        for _ in 0..2000 {
            let stop = CancellationToken::new();
            let mut stopped = PollOnWake::new(stop.clone().cancelled_owned());
            let canceller = std::thread::spawn(move || stop.cancel());
            let waited = tokio::time::timeout(Duration::from_secs(20), async {
                poll_fn(|cx| stopped.poll(cx)).await;
            });
            waited.await.expect("the stop is noticed");
            canceller.join().unwrap();
        }
    }
}
