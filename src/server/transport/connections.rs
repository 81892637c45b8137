//! The open connections of all ports, and their maximum. At the maximum an idle connection is closed for each new one,
//! so that clients that connect and send nothing cannot shut out others. Without need, a connection is closed after it
//! was idle for 90 seconds, as in kube-apiserver.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::api::ServerMemory;
use crate::server::transport::WARNING_INTERVAL;
use watchet_metrics::{LogInterval, UnsentEvents};

/// The idle time after which a connection may be closed for a new one. A client that has just connected gets this time
/// for its handshake.
const EVICTABLE_AFTER: Duration = Duration::from_secs(1);

/// The estimated memory in bytes of a connection until its first request: TLS, buffers, tasks.
const CONNECTION_BYTES: usize = 64 << 10;

/// How long a new connection waits for memory at most: a client that deletes objects needs one.
const FULL_PAUSE_MAX: Duration = Duration::from_millis(100);

/// The idle time after which a connection that has had a request is closed if memory is scarce.
const IDLE_MAX_IF_SCARCE: Duration = Duration::from_secs(10);

/// The idle time after which a connection is closed.
const IDLE_MAX: Duration = Duration::from_secs(90);

/// How often idle connections are looked for.
const IDLE_CHECK_PERIOD: Duration = Duration::from_secs(10);

/// The part of the connections that is closed together at the maximum, because finding them reads the state of all.
const EVICTED_PART: usize = 256;

/// [`Connection::idle_since_ms`] of a connection with a request in progress.
const BUSY: u64 = u64::MAX;

/// The open connections.
#[derive(Debug)]
pub(in crate::server) struct Connections {
    max: usize,
    permits: Arc<Semaphore>,
    /// The connections that have not been evicted, by number.
    open: Mutex<Open>,
    created: Instant,
    memory: Arc<ServerMemory>,
    warnings: LogInterval,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_number: HashMap<u64, Arc<Connection>>,
}

/// The state of one connection.
#[derive(Debug)]
pub(in crate::server) struct Connection {
    /// The time since when it has had no request in progress, in milliseconds after `created`, or [`BUSY`].
    idle_since_ms: AtomicU64,
    /// Whether it has had a request. Connections that have not are closed first.
    has_served: AtomicBool,
    created: Instant,
    /// Cancelled when it must complete its requests and end.
    ends: CancellationToken,
    /// Cancelled when it must end immediately, for a new connection.
    evicted: CancellationToken,
    /// The watch events that it has not written yet.
    unsent_events: Arc<UnsentEvents>,
}

/// The place of one connection among the open ones, which is free again when this is dropped.
#[derive(Debug)]
pub(in crate::server) struct ConnectionSlot {
    connections: Arc<Connections>,
    number: u64,
    connection: Arc<Connection>,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    /// Creates an empty set of at most `max` connections, which wait while `memory` is full.
    pub(in crate::server) fn new(max: usize, memory: &Arc<ServerMemory>) -> Arc<Self> {
        let max = max.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            max,
            permits: Arc::new(Semaphore::new(max)),
            open: Mutex::default(),
            created: Instant::now(),
            memory: Arc::clone(memory),
            warnings: LogInterval::new(WARNING_INTERVAL),
        })
    }

    /// Returns a slot for a new connection, which ends when `stop` is cancelled. Waits a little if memory is full. At the maximum,
    /// closes idle connections. Returns `None` if none is idle, and logs that at most once a second.
    pub(in crate::server) async fn slot(
        self: &Arc<Self>,
        stop: &CancellationToken,
    ) -> Option<ConnectionSlot> {
        if timeout(FULL_PAUSE_MAX, self.memory.until_not_full())
            .await
            .is_err()
        {
            tracing::debug!("connection accepted although memory is full");
        }
        self.memory.count_allocated(CONNECTION_BYTES);
        let permits = || Arc::clone(&self.permits);
        let permit = match permits().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) if self.evict_idle() => {
                // Each evicted connection releases its permit as soon as its task runs.
                let permit = permits().acquire_owned().await;
                permit.expect("the semaphore is never closed")
            }
            Err(_) => {
                self.warn_of_refusal();
                return None;
            }
        };
        let connection = Arc::new(Connection {
            idle_since_ms: AtomicU64::new(elapsed_ms(self.created)),
            has_served: AtomicBool::new(false),
            created: self.created,
            ends: stop.child_token(),
            evicted: CancellationToken::new(),
            unsent_events: Arc::default(),
        });
        let mut open = self.open.lock();
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, Arc::clone(&connection));
        Some(ConnectionSlot {
            connections: Arc::clone(self),
            number,
            connection,
            _permit: permit,
        })
    }

    /// Closes some of the idle connections: first those without any request, and of these the ones that have been idle
    /// for the longest time. Returns false if there are none.
    fn evict_idle(&self) -> bool {
        let mut open = self.open.lock();
        let mut idle: Vec<(bool, u64, u64)> = open
            .idle_for(EVICTABLE_AFTER, self.created)
            .map(|(number, since, connection)| {
                let has_served = connection.has_served.load(Ordering::Relaxed);
                (has_served, since, number)
            })
            .collect();
        let count = (1 + self.max / EVICTED_PART).min(idle.len());
        if count == 0 {
            return false;
        }
        idle.select_nth_unstable(count - 1);
        for (_, _, number) in &idle[..count] {
            if let Some(connection) = open.by_number.remove(number) {
                connection.evicted.cancel();
            }
        }
        true
    }

    /// Closes the connections that have been open for a second without any request, and ends those that have been idle for ten
    /// seconds. Returns how many.
    pub(in crate::server) fn release_idle(&self) -> usize {
        let open = self.open.lock();
        let ten_seconds = u64::try_from(IDLE_MAX_IF_SCARCE.as_millis()).unwrap_or(u64::MAX);
        let latest = elapsed_ms(self.created).saturating_sub(ten_seconds);
        let mut count = 0;
        for (_, since, connection) in open.idle_for(EVICTABLE_AFTER, self.created) {
            let token = match connection.has_served.load(Ordering::Relaxed) {
                false => &connection.evicted,
                true if since <= latest => &connection.ends,
                true => continue,
            };
            count += usize::from(!token.is_cancelled());
            token.cancel();
        }
        count
    }

    /// Ends connections that have been idle for 90 seconds, until `stop` is cancelled.
    pub(in crate::server) async fn end_idle(self: Arc<Self>, stop: CancellationToken) {
        let mut checks = interval(IDLE_CHECK_PERIOD);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(checks.tick()).await.is_some() {
            let open = self.open.lock();
            for (_, _, connection) in open.idle_for(IDLE_MAX, self.created) {
                connection.ends.cancel();
            }
        }
    }

    fn warn_of_refusal(&self) {
        if let Some(suppressed) = self.warnings.next() {
            tracing::warn!(
                max = self.max,
                suppressed,
                "connection refused: --max-connections (or the limit of open files) is reached, and no connection is idle"
            );
        }
    }
}

impl Open {
    /// Returns the number, the start of the idle time and the state of each connection that has been idle for `time`.
    fn idle_for(
        &self,
        time: Duration,
        created: Instant,
    ) -> impl Iterator<Item = (u64, u64, &Arc<Connection>)> {
        let now = elapsed_ms(created);
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.by_number
            .iter()
            .filter_map(move |(number, connection)| {
                let since = connection.idle_since_ms.load(Ordering::Relaxed);
                (since != BUSY && now.saturating_sub(since) >= time)
                    .then_some((*number, since, connection))
            })
    }
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(BUSY - 1)
}

impl Connection {
    /// Records that a request is in progress.
    pub(in crate::server) fn set_busy(&self) {
        self.idle_since_ms.store(BUSY, Ordering::Relaxed);
        self.has_served.store(true, Ordering::Relaxed);
    }

    /// Records that no request is in progress any more.
    pub(in crate::server) fn set_idle(&self) {
        let now = elapsed_ms(self.created);
        self.idle_since_ms.store(now, Ordering::Relaxed);
    }

    /// Returns the time since when no request has been in progress; `None` if one is.
    pub(in crate::server) fn idle_for(&self) -> Option<Duration> {
        let since = self.idle_since_ms.load(Ordering::Relaxed);
        let idle = elapsed_ms(self.created).saturating_sub(since);
        (since != BUSY).then(|| Duration::from_millis(idle))
    }

    /// Returns true if a request is in progress.
    pub(in crate::server) fn is_busy(&self) -> bool {
        self.idle_since_ms.load(Ordering::Relaxed) == BUSY
    }

    /// Returns the token that is cancelled when the connection must complete its requests and end: at shutdown, or
    /// because it is idle.
    pub(in crate::server) fn ends(&self) -> &CancellationToken {
        &self.ends
    }

    /// Returns the watch events that it has not written yet.
    pub(in crate::server) fn unsent_events(&self) -> &Arc<UnsentEvents> {
        &self.unsent_events
    }

    /// Returns the token that is cancelled when the connection must end immediately.
    pub(in crate::server) fn evicted(&self) -> &CancellationToken {
        &self.evicted
    }
}

impl ConnectionSlot {
    pub(in crate::server) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.open.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;
    use crate::tasks::Tasks;

    impl ConnectionSlot {
        fn is_evicted(&self) -> bool {
            self.connection.evicted.is_cancelled()
        }
    }

    async fn full(max: usize) -> (Arc<Connections>, CancellationToken, Vec<ConnectionSlot>) {
        let memory = Arc::default();
        let (connections, stop) = (Connections::new(max, &memory), CancellationToken::new());
        let mut slots = Vec::new();
        for _ in 0..max {
            slots.push(connections.slot(&stop).await.expect("a free slot"));
            advance(Duration::from_millis(1)).await;
        }
        (connections, stop, slots)
    }

    /// With a limit of 256 open files, 239 idle connections shut all other clients out.
    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_is_closed_for_a_new_one() {
        let (connections, stop, mut slots) = full(4).await;
        assert!(connections.slot(&stop).await.is_none(), "all are new");
        // 0 and 1 have had a request, and 0 still has it; 2 has been idle for a longer time than 3.
        slots[0].connection.set_busy();
        slots[1].connection.set_busy();
        slots[1].connection.set_idle();
        advance(EVICTABLE_AFTER).await;
        for expected in [2, 3, 1] {
            let mut next = Box::pin(connections.slot(&stop));
            let waits = timeout(Duration::from_millis(1), &mut next).await;
            waits.expect_err("no slot is free before the evicted connection has ended");
            let position = slots.iter().position(ConnectionSlot::is_evicted);
            let ended = slots.remove(position.expect("one is evicted"));
            assert_eq!(ended.number, expected);
            drop(ended);
            let new = next.await.expect("the slot of the evicted connection");
            new.connection.set_busy();
            slots.push(new);
        }
        assert!(connections.slot(&stop).await.is_none(), "all are busy");
    }

    #[tokio::test(start_paused = true)]
    async fn if_memory_is_scarce_unused_connections_end_after_a_second_and_idle_ones_after_ten() {
        let (connections, _stop, slots) = full(4).await;
        assert_eq!(connections.release_idle(), 0, "all are new");
        slots[0].connection.set_busy();
        slots[1].connection.set_busy();
        slots[1].connection.set_idle();
        advance(EVICTABLE_AFTER).await;
        assert_eq!(connections.release_idle(), 2);
        assert!(
            slots
                .iter()
                .map(ConnectionSlot::is_evicted)
                .eq([false, false, true, true])
        );
        advance(IDLE_MAX_IF_SCARCE).await;
        assert_eq!(connections.release_idle(), 1);
        let ended = slots.iter().map(|slot| slot.connection.ends.is_cancelled());
        assert!(ended.eq([false, true, false, false]));
        assert_eq!(connections.release_idle(), 0, "once");
    }

    /// A burst of connections between two measurements took more memory than was left.
    #[tokio::test(start_paused = true)]
    async fn connections_wait_while_memory_is_full() {
        let memory = ServerMemory::new(Some(100 << 20));
        let (connections, stop) = (Connections::new(1000, &memory), CancellationToken::new());
        let begun = Instant::now();
        let mut slots = Vec::new();
        memory.record(94 << 20);
        for _ in 0..(1 << 20) / CONNECTION_BYTES {
            slots.push(connections.slot(&stop).await);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        slots.push(connections.slot(&stop).await);
        assert_eq!(begun.elapsed(), FULL_PAUSE_MAX, "the rest is taken");
        assert!(slots.iter().all(Option::is_some));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_ends_after_90_seconds() {
        let (connections, stop, slots) = full(3).await;
        let tasks = Tasks::new();
        let checks = tasks.spawn("idle", Arc::clone(&connections).end_idle(stop.clone()));
        slots[0].connection.set_busy();
        advance(IDLE_MAX / 2).await;
        slots[1].connection.set_busy();
        slots[1].connection.set_idle();
        let ended = || slots.iter().map(|slot| slot.connection.ends.is_cancelled());
        tokio::time::sleep(IDLE_MAX / 2 + IDLE_CHECK_PERIOD).await;
        assert!(ended().eq([false, false, true]));
        tokio::time::sleep(IDLE_MAX).await;
        assert!(ended().eq([false, true, true]), "a busy connection stays");
        stop.cancel();
        checks.await.expect("no panic");
        assert!(slots[0].connection.ends.is_cancelled(), "the server stops");
    }
}
