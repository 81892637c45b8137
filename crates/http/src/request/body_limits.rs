//! Limits of request bodies: how many bodies of a user are being received, how much memory the decoded bodies of all
//! requests take together, and how many processors the work on large bodies uses.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::available_parallelism;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::HttpError;
use watchet_api::{MemoryReservation, MemoryUse, ServerMemory};
use watchet_schema::OBJECT_BYTES_MAX;

/// The estimated memory in bytes that the decoded bodies of all requests may take together, with the objects that they
/// change. Defaults, validation and managed fields
/// take up to three times as much.
const DECODED_TOTAL_BYTES_MAX: usize = 64 << 20;

/// With a memory limit, the decoded bodies take at most this part of it, unless a single one is larger.
const DECODED_DIVISOR: usize = 16;

/// A request whose body and object take more memory than this in bytes is processed on threads for blocking work. Smaller
/// ones take less time than an async worker may be occupied.
pub(crate) const LARGE_BYTES_MIN: usize = 1 << 20;

/// The bodies of one user that may be incomplete at the same time. A connection sends a body with its head, so that only
/// slow or stalled clients have several: as many as writes may be in flight.
const RECEIVING_MAX: usize = 200;

/// The bytes of incomplete bodies of one user together.
const RECEIVING_BYTES_MAX: usize = 64 << 20;

/// The large bodies of one user that may be decoded or wait for memory, in which they are served in order.
const LARGE_MAX: usize = 32;

/// The unit of the permits for memory.
const PERMIT_BYTES: usize = 1 << 10;

const _: () = assert!(OBJECT_BYTES_MAX <= DECODED_TOTAL_BYTES_MAX);

/// The limits that the bodies of all requests share.
#[derive(Debug)]
pub(crate) struct BodyLimits {
    receiving: Arc<Receiving>,
    /// The permits for decoded bodies, and how many there are.
    decoded: Arc<Semaphore>,
    decoded_max: usize,
    memory: Arc<ServerMemory>,
    /// Half of the processors, at least one: the permits of work on large bodies.
    pub(crate) processors: Arc<Semaphore>,
}

impl BodyLimits {
    /// Creates the limits of a server with this memory.
    pub(crate) fn new(memory: &Arc<ServerMemory>) -> Self {
        let decoded = memory
            .limit()
            .map_or(usize::MAX, |limit| limit / DECODED_DIVISOR);
        let decoded_max = decoded.min(DECODED_TOTAL_BYTES_MAX) / PERMIT_BYTES;
        let processors = available_parallelism().map_or(1, |count| count.get() / 2);
        Self {
            receiving: Arc::default(),
            decoded: Arc::new(Semaphore::new(decoded_max)),
            decoded_max,
            memory: Arc::clone(memory),
            processors: Arc::new(Semaphore::new(processors.max(1))),
        }
    }

    /// Counts a body of `user` that begins to arrive, until the result is dropped.
    ///
    /// # Errors
    /// 429 if too many bodies of this user are incomplete, or memory is scarce.
    pub(crate) fn receive(&self, user: &str) -> Result<ReceivedBody, HttpError> {
        let mut users = self.receiving.0.lock();
        let load = users.entry(user.to_owned()).or_default();
        if load.bodies >= RECEIVING_MAX {
            return Err(HttpError::TooManyBodies);
        }
        load.bodies += 1;
        Ok(ReceivedBody {
            receiving: Arc::clone(&self.receiving),
            user: user.to_owned(),
            bytes: 0,
            is_large: false,
            memory: self.memory.reserve(MemoryUse::Write, 0, false)?,
        })
    }

    /// Waits until `bytes` of memory are available for a decoded body; the limit counts if `bytes` is more.
    ///
    /// # Errors
    /// 429 if memory is scarce.
    pub(crate) async fn decoded(&self, bytes: usize) -> Result<DecodedPermit, HttpError> {
        let permits = (bytes / PERMIT_BYTES).min(self.decoded_max);
        let permits = u32::try_from(permits).expect("the limit has fewer units");
        let permit = Arc::clone(&self.decoded).acquire_many_owned(permits).await;
        Ok(DecodedPermit {
            _permit: permit.expect("the semaphore is never closed"),
            _memory: self.memory.reserve(MemoryUse::Write, bytes, false)?,
        })
    }
}

/// The memory of a decoded body, until this is dropped.
#[derive(Debug)]
pub(crate) struct DecodedPermit {
    _permit: OwnedSemaphorePermit,
    _memory: MemoryReservation,
}

/// The incomplete bodies by user.
#[derive(Debug, Default)]
struct Receiving(Mutex<HashMap<String, ReceivingLoad>>);

/// The incomplete bodies of a user.
#[derive(Debug, Default)]
struct ReceivingLoad {
    bodies: usize,
    bytes: usize,
    large: usize,
}

/// A body that counts as incomplete until this is dropped.
#[derive(Debug)]
pub(crate) struct ReceivedBody {
    receiving: Arc<Receiving>,
    user: String,
    bytes: usize,
    is_large: bool,
    memory: MemoryReservation,
}

impl ReceivedBody {
    /// Counts `bytes` that have arrived.
    ///
    /// # Errors
    /// 429 if the total size of the incomplete bodies of the user is too large, or memory is scarce.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), HttpError> {
        self.memory.grow(bytes)?;
        let mut users = self.receiving.0.lock();
        let load = users.entry(self.user.clone()).or_default();
        if load.bytes + bytes > RECEIVING_BYTES_MAX {
            return Err(HttpError::TooManyBodies);
        }
        load.bytes += bytes;
        self.bytes += bytes;
        Ok(())
    }

    /// Counts the body as large: it is complete, and is decoded once it has memory.
    ///
    /// # Errors
    /// 429 if the user has too many large bodies.
    pub(crate) fn set_large(&mut self) -> Result<(), HttpError> {
        let mut users = self.receiving.0.lock();
        let load = users.entry(self.user.clone()).or_default();
        if load.large >= LARGE_MAX {
            return Err(HttpError::TooManyBodies);
        }
        load.large += 1;
        self.is_large = true;
        Ok(())
    }
}

impl Drop for ReceivedBody {
    fn drop(&mut self) {
        let mut users = self.receiving.0.lock();
        if let Some(load) = users.get_mut(&self.user) {
            load.bodies -= 1;
            load.bytes -= self.bytes;
            load.large -= usize::from(self.is_large);
            if load.bodies == 0 {
                users.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_bodies_are_limited_by_user() {
        let limits = BodyLimits::new(&Arc::default());
        let mut bodies: Vec<_> = (0..RECEIVING_MAX)
            .map(|_| limits.receive("ann").unwrap())
            .collect();
        assert!(matches!(
            limits.receive("ann"),
            Err(HttpError::TooManyBodies)
        ));
        let mut other = limits.receive("bob").unwrap();
        bodies.pop();
        bodies.push(limits.receive("ann").unwrap());

        bodies[0].add(RECEIVING_BYTES_MAX).unwrap();
        assert!(matches!(bodies[1].add(1), Err(HttpError::TooManyBodies)));
        other.add(1).unwrap();
        bodies.remove(0);
        bodies[0].add(1).unwrap();
        for body in &mut bodies[..LARGE_MAX] {
            body.set_large().unwrap();
        }
        let refused = bodies[LARGE_MAX].set_large();
        assert!(matches!(refused, Err(HttpError::TooManyBodies)));
        drop((bodies, other));
        assert!(limits.receiving.0.lock().is_empty());
    }

    /// Bodies within all other limits took more memory than the server has.
    #[tokio::test]
    async fn large_bodies_are_refused_when_memory_is_scarce() {
        const LIMIT: usize = 128 << 20;
        let memory = ServerMemory::new(Some(LIMIT));
        let limits = BodyLimits::new(&memory);
        memory.record(LIMIT / 100 * 91);
        let mut body = limits.receive("ann").unwrap();
        body.add(3 << 20).unwrap();
        let refused = limits.decoded(4 << 20).await.unwrap_err().status();
        assert_eq!((refused.code, &*refused.reason), (429, "TooManyRequests"));
        let mut other = limits.receive("bob").unwrap();
        other.add(64 << 10).unwrap();
        let refused = other.add(3 << 20);
        assert!(matches!(refused, Err(HttpError::MemoryPressure(_))));
        drop((body, other));
        limits.decoded(3 << 20).await.unwrap();
        assert_eq!(memory.stats().reserved, 0);
    }

    /// One at a time, if each takes more than the limit of all.
    #[tokio::test]
    async fn few_bodies_are_decoded_together_if_the_memory_limit_is_low() {
        let limits = BodyLimits::new(&ServerMemory::new(Some(64 << 20)));
        let first = limits.decoded(5 << 20).await.unwrap();
        let mut second = Box::pin(limits.decoded(1 << 20));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(Future::poll(second.as_mut(), &mut cx).is_pending());
        drop(first);
        second.await.unwrap();
    }
}
