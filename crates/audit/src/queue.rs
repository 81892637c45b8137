//! `Queue`: the lines that are not written yet, bounded by number and by bytes.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The maximum number of lines, as upstream.
const LINES_MAX: usize = 10_000;

/// The maximum number of bytes: events with objects are large.
const BYTES_MAX: usize = 64 << 20;

/// Lines that wait for the writer.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<QueuedLines>,
    /// Notified when the first line arrives.
    arrived: Notify,
}

/// Lines in one allocation, and their number.
#[derive(Debug, Default)]
pub(crate) struct QueuedLines {
    pub(crate) lines: Vec<u8>,
    pub(crate) count: usize,
}

impl Queue {
    /// Adds a line; returns false if the queue is full.
    pub(crate) fn push(&self, line: &[u8]) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.count >= LINES_MAX || waiting.lines.len() + line.len() > BYTES_MAX {
            return false;
        }
        waiting.lines.extend_from_slice(line);
        waiting.count += 1;
        let is_first = waiting.count == 1;
        drop(waiting);
        if is_first {
            self.arrived.notify_one();
        }
        true
    }

    /// Waits until there is a line, possibly one that was taken meanwhile. Cancel safe.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Takes all lines.
    pub(crate) fn take(&self) -> QueuedLines {
        std::mem::take(&mut self.waiting.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_bytes_are_bounded() {
        let queue = Queue::default();
        assert!((0..LINES_MAX).all(|_| queue.push(b"{}\n")));
        assert!(!queue.push(b"{}\n"));
        assert_eq!(queue.take().count, LINES_MAX);
        let half = vec![b'x'; BYTES_MAX / 2];
        assert!(queue.push(&half) && queue.push(&half));
        assert!(!queue.push(b"x"));
    }
}
