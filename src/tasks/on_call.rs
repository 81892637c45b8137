//! `OnCall`: a future that is asked only when it has called. A task that is polled for every event
//! and also waits for what happens once, a stop or a timer, would otherwise ask that each time, which
//! for a stop means the lock that all tasks share. It decides nothing about what it waits for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// A future with a bell of its own. Asking it while it has not called costs one atomic load.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::future::poll_fn;
/// use std::time::Duration;
/// use watchet::tasks::OnCall;
/// let mut timer = OnCall::new(tokio::time::sleep(Duration::from_millis(1)));
/// poll_fn(|cx| timer.poll(cx)).await;
/// # }
/// ```
#[derive(Debug)]
pub struct OnCall<F> {
    future: Pin<Box<F>>,
    bell: Arc<Rung>,
    /// Whom the bell wakes.
    asker: Option<Waker>,
}

/// The bell of an [`OnCall`], for who changes what its future looks at.
#[derive(Debug, Clone)]
pub struct Bell(Arc<Rung>);

impl Bell {
    /// Has the future asked the next time, without waking who asks.
    pub fn mark(&self) {
        self.0.rung.store(true, Ordering::Release);
    }
}

#[derive(Debug)]
struct Rung {
    rung: AtomicBool,
    /// It stays when it is woken: who asks does not come back to register for nothing.
    asker: Mutex<Option<Waker>>,
}

impl Rung {
    fn ring(&self) {
        // In this order: who is woken finds it rung.
        self.rung.store(true, Ordering::Release);
        let asker = self.asker.lock().clone();
        if let Some(asker) = asker {
            asker.wake();
        }
    }
}

impl Wake for Rung {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

impl<F: Future> OnCall<F> {
    /// `future`, which is asked for the first time when this is.
    pub fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            bell: Arc::new(Rung {
                rung: AtomicBool::new(true),
                asker: Mutex::new(None),
            }),
            asker: None,
        }
    }

    /// The future.
    pub fn get(&self) -> &F {
        &self.future
    }

    /// Its bell.
    pub fn bell(&self) -> Bell {
        Bell(self.bell.clone())
    }

    /// Changes the future, which is asked anew after that.
    pub fn change(&mut self, change: impl FnOnce(Pin<&mut F>)) {
        change(self.future.as_mut());
        self.bell.ring();
    }

    /// As [`Future::poll`]. The present task is woken when the future calls. Once ready, the future is
    /// asked again each time, so it should be one that can be.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        let same = |asker: &Waker| asker.will_wake(cx.waker());
        if !self.asker.as_ref().is_some_and(same) {
            *self.bell.asker.lock() = Some(cx.waker().clone());
            self.asker = Some(cx.waker().clone());
        }
        // After the registration: a call from before it is seen here, a later one wakes.
        if !self.bell.rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Before the question: a call from now on is another one.
        self.bell.rung.store(false, Ordering::Release);
        let bell = Waker::from(self.bell.clone());
        let polled = self.future.as_mut().poll(&mut Context::from_waker(&bell));
        if polled.is_ready() {
            self.bell.rung.store(true, Ordering::Release);
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
    async fn it_is_asked_once_until_it_calls() {
        let asked = AtomicUsize::new(0);
        let mut timer = Box::pin(sleep(Duration::from_secs(5)));
        let mut on_call = OnCall::new(poll_fn(|cx| {
            asked.fetch_add(1, Ordering::Relaxed);
            timer.as_mut().poll(cx)
        }));
        let mut next = std::pin::pin!(poll_fn(|cx| on_call.poll(cx)));
        for _ in 0..100 {
            assert!(poll!(next.as_mut()).is_pending());
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let begun = Instant::now();
        next.await;
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_timer_is_asked_anew() {
        let begun = Instant::now();
        let mut timer = OnCall::new(sleep(Duration::from_secs(500)));
        assert!(poll!(poll_fn(|cx| timer.poll(cx))).is_pending());
        let sooner = begun + Duration::from_secs(7);
        timer.change(|timer| timer.reset(sooner));
        assert_eq!(timer.get().deadline(), sooner);
        poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(7));
        // It stays what it is.
        assert!(poll!(poll_fn(|cx| timer.poll(cx))).is_ready());
    }

    /// A timer that is set again each time calls each time.
    #[tokio::test(start_paused = true)]
    async fn it_calls_more_than_once() {
        let mut timer = OnCall::new(sleep(Duration::from_secs(1)));
        let begun = Instant::now();
        for round in 1..=5 {
            poll_fn(|cx| timer.poll(cx)).await;
            assert_eq!(begun.elapsed(), Duration::from_secs(round));
            timer.change(|timer| timer.reset(begun + Duration::from_secs(round + 1)));
            assert!(poll!(poll_fn(|cx| timer.poll(cx))).is_pending());
        }
    }

    /// Who asks last is woken, also when another task asked before.
    #[tokio::test(start_paused = true)]
    async fn it_wakes_who_asked_last() {
        let stop = CancellationToken::new();
        let mut stopped = OnCall::new(stop.clone().cancelled_owned());
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

    /// Calls from another thread while the future is asked are not lost.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_call_is_lost_between_threads() {
        for _ in 0..2000 {
            let stop = CancellationToken::new();
            let mut stopped = OnCall::new(stop.clone().cancelled_owned());
            let canceller = std::thread::spawn(move || stop.cancel());
            let waited = tokio::time::timeout(Duration::from_secs(20), async {
                poll_fn(|cx| stopped.poll(cx)).await;
            });
            waited.await.expect("the stop is noticed");
            canceller.join().unwrap();
        }
    }
}
