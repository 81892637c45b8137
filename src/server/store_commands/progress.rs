//! Progress of long work, on stderr.

use std::io::{self, Write as _};
use std::time::Duration;

use tokio::time::Instant;

/// The time between two lines; shorter work prints none.
const PERIOD: Duration = Duration::from_secs(2);

/// Prints a line from time to time.
pub(super) struct Progress {
    doing: &'static str,
    last: Instant,
}

impl Progress {
    /// Creates the progress of something, such as `reading`.
    pub(super) fn new(doing: &'static str) -> Self {
        Self {
            doing,
            last: Instant::now(),
        }
    }

    /// Prints that `count` of `what` are done, unless a line was printed recently.
    pub(super) fn report(&mut self, what: &str, count: u64) {
        if self.last.elapsed() < PERIOD {
            return;
        }
        self.last = Instant::now();
        // If stderr is closed, the line is lost.
        let _printed = writeln!(io::stderr(), "{}: {count} {what}", self.doing);
    }
}
