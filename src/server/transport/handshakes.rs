//! Limits the TLS handshakes in progress. At the limit a slow handshake is aborted for each new connection, so that
//! clients that connect and send nothing cannot prevent others from connecting.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// The time after which a handshake may be aborted. Over a healthy network a handshake takes a fraction of it.
const ABORTABLE_AFTER: Duration = Duration::from_secs(1);

/// The handshakes in progress on one listener.
#[derive(Debug)]
pub(in crate::server) struct Handshakes {
    permits: Arc<Semaphore>,
    /// Notified when a connection waits for a permit; the oldest waiting handshake is woken.
    crowded: Notify,
}

/// The permit of one handshake.
#[derive(Debug)]
pub(in crate::server) struct HandshakePermit {
    handshakes: Arc<Handshakes>,
    _permit: OwnedSemaphorePermit,
}

impl Handshakes {
    pub(in crate::server) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(max)),
            crowded: Notify::new(),
        })
    }

    /// Waits for a permit. Only one caller at a time may wait.
    pub(in crate::server) async fn permit(self: &Arc<Self>) -> HandshakePermit {
        let permits = || Arc::clone(&self.permits);
        let permit = match permits().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.crowded.notify_one();
                let permit = permits().acquire_owned().await;
                // If a handshake has completed meanwhile, none has to be aborted.
                let _unused = self.crowded.notified().now_or_never();
                permit.expect("the semaphore is never closed")
            }
        };
        HandshakePermit {
            handshakes: Arc::clone(self),
            _permit: permit,
        }
    }
}

impl HandshakePermit {
    /// Waits until the handshake must be aborted for another connection.
    pub(in crate::server) async fn is_needed(&self) {
        sleep(ABORTABLE_AFTER).await;
        self.handshakes.crowded.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    /// A few hundred connections that sent nothing took all permits for ten seconds each, and no other client
    /// could connect.
    #[tokio::test(start_paused = true)]
    async fn the_oldest_handshake_ends_for_a_new_one() {
        let handshakes = Handshakes::new(2);
        let begun = Instant::now();
        let silent = |permit: HandshakePermit| async move {
            permit.is_needed().await;
            begun.elapsed()
        };
        let (first, second) = (handshakes.permit().await, handshakes.permit().await);
        let (first, second) = (silent(first), silent(second));
        let others = async {
            let third = handshakes.permit().await;
            let third_at = begun.elapsed();
            drop(handshakes.permit().await);
            (third, third_at, begun.elapsed())
        };
        let (first, second, (_third, third_at, fourth_at)) = tokio::join!(first, second, others);
        assert_eq!([first, second, third_at, fourth_at], [ABORTABLE_AFTER; 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_continues_if_no_connection_waits() {
        let handshakes = Handshakes::new(1);
        let slow = handshakes.permit().await;
        let waiting = timeout(ABORTABLE_AFTER * 9, slow.is_needed()).await;
        waiting.expect_err("a permit is free");
        // If the slow handshake completes while a connection waits, the next handshake is not aborted.
        let other = async {
            tokio::task::yield_now().await;
            drop(slow);
        };
        let (next, ()) = tokio::join!(handshakes.permit(), other);
        let waiting = timeout(ABORTABLE_AFTER * 9, next.is_needed()).await;
        waiting.expect_err("a permit is free");
    }
}
