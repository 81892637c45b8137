//! `run_on_blocking_threads`: runs a future whose polls take long on the threads for blocking work, so that the async
//! workers stay free for other tasks.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::{Notify, Semaphore};

use super::Tasks;

/// Wakes the loop that polls the future.
#[derive(Default)]
struct PollNotify(Notify);

impl Wake for PollNotify {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// The future after a poll on a blocking thread, and the result of that poll or its panic.
type Polled<F> = (
    Pin<Box<F>>,
    Result<Poll<<F as Future>::Output>, Box<dyn Any + Send>>,
);

impl Tasks {
    /// Runs `future`, with each of its polls on a thread for blocking work. A poll holds one of `permits`, which limit the
    /// number of processors that such work uses; a future that waits holds none. A panic of the future is propagated to the
    /// caller and does not count as a failure of the group.
    ///
    /// If the returned future is dropped, `future` is dropped after its current poll.
    pub async fn run_on_blocking_threads<F>(
        &self,
        name: &'static str,
        permits: &Arc<Semaphore>,
        mut future: Pin<Box<F>>,
    ) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let notify = Arc::new(PollNotify::default());
        loop {
            let permit = Arc::clone(permits).acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            let (waker, span) = (Waker::from(Arc::clone(&notify)), tracing::Span::current());
            let poll = move || -> Polled<F> {
                let _entered = span.enter();
                let mut cx = Context::from_waker(&waker);
                // Unwind safety: a future that panicked is not polled again.
                let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx)));
                drop(permit);
                (future, polled)
            };
            let polled = match self.spawn_blocking(name, poll).await {
                Ok(polled) => polled,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => resume_unwind(panic),
                    // The runtime is shutting down and drops this task as well.
                    Err(_) => std::future::pending().await,
                },
            };
            future = polled.0;
            match polled.1 {
                Ok(Poll::Ready(output)) => return output,
                Ok(Poll::Pending) => notify.0.notified().await,
                Err(panic) => resume_unwind(panic),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn polls_leave_the_worker_and_release_the_permit_while_waiting() {
        let (tasks, permits) = (Tasks::new(), Arc::new(Semaphore::new(1)));
        let worker = thread::current().id();
        let (send, receive) = oneshot::channel::<u32>();
        let waits = async move {
            let first = thread::current().id();
            let received = receive.await.unwrap();
            (first, thread::current().id(), received)
        };
        let waits = tasks.run_on_blocking_threads("waits", &permits, Box::pin(waits));
        let sends = async {
            // It has the only permit in turn with the future that waits.
            let send = async move { send.send(7).unwrap() };
            tasks
                .run_on_blocking_threads("sends", &permits, Box::pin(send))
                .await;
        };
        let ((first, second, received), ()) = tokio::join!(waits, sends);
        assert_eq!(received, 7);
        assert!(first != worker && second != worker);
        assert_eq!(permits.available_permits(), 1);
        tasks.drain(Duration::from_secs(9)).await.unwrap();
    }

    #[tokio::test]
    async fn panic_reaches_the_caller_only() {
        let (tasks, permits) = (Tasks::new(), Arc::new(Semaphore::new(1)));
        let panics = Box::pin(async { panic!("of the request") });
        let run = tasks.run_on_blocking_threads::<Pin<Box<dyn Future<Output = ()> + Send>>>(
            "panics",
            &permits,
            Box::pin(panics),
        );
        assert!(AssertUnwindSafe(run).catch_unwind().await.is_err());
        assert!(tasks.failed().now_or_never().is_none());
        assert_eq!(permits.available_permits(), 1);
        tasks.drain(Duration::from_secs(9)).await.unwrap();
    }
}
