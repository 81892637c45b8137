//! `ServerMemory`: the memory limit of a server, how much of it is used, and the reservations of requests that need much memory.
//!
//! A monitor measures the used memory and calls [`ServerMemory::record`]. The other parts of the server read the pressure and
//! use less: the cache of encodings and the histories of the watch caches shrink, and lists and watches are refused. Between two
//! measurements, what allocates memory for clients counts it with [`ServerMemory::count_allocated`], and waits when no memory is
//! left ([`ServerMemory::until_not_full`]), so that no burst exceeds the limit.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};

/// How close the used memory is to the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryPressure {
    /// Less than 70 % of the limit is used, or there is no limit.
    Low,
    /// From 70 %: the cache of encodings shrinks.
    Moderate,
    /// From 80 %: the histories of the watch caches shrink too.
    High,
    /// From 90 %: new lists and watches are refused too, and responses that their clients do not read are aborted.
    Critical,
}

/// A level is left when the used memory is this part of the limit below its threshold, so that it does not change with each
/// sample.
const HYSTERESIS_PERCENT: usize = 5;

/// A request that needs at most this many bytes is never refused.
const SMALL_REQUEST_BYTES: usize = 64 << 10;

/// From this part of the limit on, large responses and new connections wait, and large request bodies are refused.
const FULL_PERCENT: usize = 95;

/// From this part of the limit on, small responses, such as single events, wait too.
const EXHAUSTED_PERCENT: usize = 98;

/// The parts of the limit that the history of one resource may take at [`MemoryPressure::High`] and at
/// [`MemoryPressure::Critical`].
const HISTORY_DIVISOR_HIGH: usize = 32;
const HISTORY_DIVISOR_CRITICAL: usize = 64;

/// What a request needs memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryUse {
    /// A list, whose response is in memory in part.
    List,
    /// A watch that begins.
    Watch,
    /// The body of a write, and what it is decoded to.
    Write,
    /// The recording of a CPU profile of the server.
    Profile,
}

impl MemoryUse {
    /// Returns the part of the limit below which a request must fit. Writes have a reserve that lists and watches cannot take.
    fn ceiling_percent(self) -> usize {
        match self {
            Self::List | Self::Watch | Self::Profile => {
                MemoryPressure::Critical.begins_at_percent()
            }
            Self::Write => FULL_PERCENT,
        }
    }
}

/// The memory limit of a server and how much of it is used.
#[derive(Debug)]
pub struct ServerMemory {
    limit: Option<usize>,
    used: AtomicUsize,
    /// What was allocated since the last sample.
    allocated: AtomicUsize,
    reserved: AtomicUsize,
    /// Notified by each sample at which a response may go on.
    not_full: Notify,
    pressure: watch::Sender<MemoryPressure>,
    refused_lists: AtomicU64,
    refused_watches: AtomicU64,
    refused_writes: AtomicU64,
    history_bytes_dropped: AtomicU64,
    responses_aborted: AtomicU64,
}

/// The counters of a [`ServerMemory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerMemoryStats {
    /// The limit in bytes, if there is one.
    pub limit: Option<usize>,
    /// The used memory in bytes at the last sample.
    pub used: usize,
    /// The bytes that requests in flight have reserved.
    pub reserved: usize,
    /// The present pressure.
    pub pressure: MemoryPressure,
    /// How many lists were refused.
    pub refused_lists: u64,
    /// How many watches were refused.
    pub refused_watches: u64,
    /// How many writes were refused.
    pub refused_writes: u64,
    /// The bytes of events that histories dropped before their time.
    pub history_bytes_dropped: u64,
    /// How many responses were aborted because their clients did not read.
    pub responses_aborted: u64,
}

/// A request was refused because the server has too little memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct MemoryRefusal {
    request: MemoryUse,
    bytes: usize,
    used: usize,
    limit: usize,
}

impl fmt::Display for MemoryRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, limit, kib) = (self.used >> 20, self.limit >> 20, self.bytes >> 10);
        let remedy = match self.request {
            MemoryUse::List | MemoryUse::Watch => {
                "retry later, list in smaller pages (limit=), or raise --memory-limit"
            }
            MemoryUse::Write | MemoryUse::Profile => "retry later, or raise --memory-limit",
        };
        write!(
            f,
            "the server uses {used} MiB of {limit} MiB of memory (--memory-limit minus headroom); this request needs about \
             {kib} KiB more: {remedy}"
        )
    }
}

/// Memory that a request has reserved, until this is dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    memory: Arc<ServerMemory>,
    request: MemoryUse,
    bytes: usize,
}

impl MemoryPressure {
    /// Returns the name for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Moderate => "moderate",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// Returns the percentage of the limit at which this level begins.
    fn begins_at_percent(self) -> usize {
        match self {
            Self::Low => 0,
            Self::Moderate => 70,
            Self::High => 80,
            Self::Critical => 90,
        }
    }

    /// Returns the level that follows this one when `used` of `limit` bytes are used.
    fn next(self, used: usize, limit: usize) -> Self {
        let levels = [Self::Critical, Self::High, Self::Moderate];
        let reached = |level: &Self| {
            let hysteresis = if *level <= self {
                HYSTERESIS_PERCENT
            } else {
                0
            };
            used >= percent(limit, level.begins_at_percent() - hysteresis)
        };
        levels.into_iter().find(reached).unwrap_or(Self::Low)
    }
}

/// Returns a part of `bytes`, without overflow.
fn percent(bytes: usize, percent: usize) -> usize {
    bytes / 100 * percent
}

/// Memories are equal if they have the same limit: the rest changes with each sample.
impl PartialEq for ServerMemory {
    fn eq(&self, other: &Self) -> bool {
        self.limit == other.limit
    }
}

impl Eq for ServerMemory {}

impl Default for ServerMemory {
    fn default() -> Self {
        Self {
            limit: None,
            used: AtomicUsize::new(0),
            allocated: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            not_full: Notify::new(),
            pressure: watch::Sender::new(MemoryPressure::Low),
            refused_lists: AtomicU64::new(0),
            refused_watches: AtomicU64::new(0),
            refused_writes: AtomicU64::new(0),
            history_bytes_dropped: AtomicU64::new(0),
            responses_aborted: AtomicU64::new(0),
        }
    }
}

impl ServerMemory {
    /// Creates the memory of a server with a limit of `limit` bytes; `None` is no limit.
    pub fn new(limit: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            ..Self::default()
        })
    }

    /// Returns the limit in bytes, if there is one.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Returns the present pressure.
    pub fn pressure(&self) -> MemoryPressure {
        *self.pressure.borrow()
    }

    /// Returns a receiver of each change of the pressure.
    pub fn subscribe(&self) -> watch::Receiver<MemoryPressure> {
        self.pressure.subscribe()
    }

    /// Records that `used` bytes are used. Returns the new level if it changes.
    pub fn record(&self, used: usize) -> Option<MemoryPressure> {
        self.used.store(used, Ordering::Relaxed);
        self.allocated.store(0, Ordering::Relaxed);
        let limit = self.limit?;
        if !self.is_exhausted() {
            self.not_full.notify_waiters();
        }
        let next = self.pressure().next(used, limit);
        let changed = self.pressure.send_if_modified(|pressure| {
            let changed = *pressure != next;
            *pressure = next;
            changed
        });
        changed.then_some(next)
    }

    /// Returns how many bytes must be released until the pressure is no longer critical.
    pub fn excess(&self) -> usize {
        let Some(limit) = self.limit else { return 0 };
        let until = MemoryPressure::Critical.begins_at_percent() - HYSTERESIS_PERCENT;
        let used = self.used.load(Ordering::Relaxed);
        used.saturating_sub(percent(limit, until))
    }

    /// Returns the maximum bytes of the history of a resource, of which `configured` are configured.
    pub fn history_bytes_max(&self, configured: usize) -> usize {
        let Some(limit) = self.limit else {
            return configured;
        };
        match self.pressure() {
            MemoryPressure::Low | MemoryPressure::Moderate => configured,
            MemoryPressure::High => configured.min(limit / HISTORY_DIVISOR_HIGH),
            MemoryPressure::Critical => configured.min(limit / HISTORY_DIVISOR_CRITICAL),
        }
    }

    /// Counts `bytes` of events that a history dropped because of the pressure.
    pub fn count_history_dropped(&self, bytes: usize) {
        self.history_bytes_dropped
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts responses that were aborted because their clients did not read.
    pub fn count_responses_aborted(&self, responses: usize) {
        self.responses_aborted
            .fetch_add(responses as u64, Ordering::Relaxed);
    }

    /// Counts `bytes` that were allocated for a client, until the next sample includes them.
    pub fn count_allocated(&self, bytes: usize) {
        if self.limit.is_some() {
            self.allocated.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Returns true if so much memory is used, or was allocated since the last sample, that large responses have to wait.
    pub fn is_full(&self) -> bool {
        self.reaches(FULL_PERCENT)
    }

    /// Returns true if all responses have to wait.
    pub fn is_exhausted(&self) -> bool {
        self.reaches(EXHAUSTED_PERCENT)
    }

    fn reaches(&self, part: usize) -> bool {
        self.limit
            .is_some_and(|limit| self.present() >= percent(limit, part))
    }

    /// Returns the used memory, with what was allocated since the last sample.
    fn present(&self) -> usize {
        self.used.load(Ordering::Relaxed) + self.allocated.load(Ordering::Relaxed)
    }

    /// Waits until [`Self::is_full`] is false.
    pub async fn until_not_full(&self) {
        self.until_not(Self::is_full).await;
    }

    /// Waits until [`Self::is_exhausted`] is false.
    pub async fn until_not_exhausted(&self) {
        self.until_not(Self::is_exhausted).await;
    }

    async fn until_not(&self, waits: fn(&Self) -> bool) {
        loop {
            // Created before the check, so that no notification is missed.
            let notified = self.not_full.notified();
            if !waits(self) {
                return;
            }
            notified.await;
        }
    }

    /// Reserves `bytes` for a request. A small request and one that `is_exempt` always get them.
    ///
    /// # Errors
    /// The bytes do not fit below the ceiling of this use, together with the used memory and with what others have reserved.
    pub fn reserve(
        self: &Arc<Self>,
        request: MemoryUse,
        bytes: usize,
        is_exempt: bool,
    ) -> Result<MemoryReservation, MemoryRefusal> {
        let mut reservation = MemoryReservation {
            memory: Arc::clone(self),
            request,
            bytes: 0,
        };
        let grown = reservation.grow(bytes);
        match grown {
            Err(refusal) if !is_exempt => {
                self.count_refused(request);
                Err(refusal)
            }
            Err(_) | Ok(()) => Ok(reservation),
        }
    }

    fn count_refused(&self, request: MemoryUse) {
        let refused = match request {
            MemoryUse::List => &self.refused_lists,
            MemoryUse::Watch => &self.refused_watches,
            MemoryUse::Write => &self.refused_writes,
            MemoryUse::Profile => return,
        };
        refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters.
    pub fn stats(&self) -> ServerMemoryStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerMemoryStats {
            limit: self.limit,
            used: self.used.load(Ordering::Relaxed),
            reserved: self.reserved.load(Ordering::Relaxed),
            pressure: self.pressure(),
            refused_lists: count(&self.refused_lists),
            refused_watches: count(&self.refused_watches),
            refused_writes: count(&self.refused_writes),
            history_bytes_dropped: count(&self.history_bytes_dropped),
            responses_aborted: count(&self.responses_aborted),
        }
    }
}

impl MemoryReservation {
    /// Reserves `bytes` more. A reservation that stays small always gets them.
    ///
    /// # Errors
    /// They do not fit. They are reserved nevertheless, until this is dropped.
    pub fn grow(&mut self, bytes: usize) -> Result<(), MemoryRefusal> {
        self.bytes += bytes;
        let memory = &self.memory;
        let reserved = memory.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Some(limit) = memory.limit else {
            return Ok(());
        };
        let used = memory.present();
        let is_critical = memory.pressure() == MemoryPressure::Critical;
        let is_refused = is_critical && self.request != MemoryUse::Write;
        let fits = used + reserved < percent(limit, self.request.ceiling_percent());
        if fits && !is_refused || self.bytes <= SMALL_REQUEST_BYTES {
            return Ok(());
        }
        Err(MemoryRefusal {
            request: self.request,
            bytes: self.bytes,
            used,
            limit,
        })
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.memory
            .reserved
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
