//! Limits how often one warning is logged: a flood of connections must not become a flood of log lines.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The minimum time between two warnings.
const INTERVAL: Duration = Duration::from_secs(1);

/// The state of one kind of warning.
#[derive(Debug, Default)]
pub(in crate::server) struct WarningInterval(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    latest: Option<Instant>,
    suppressed: u64,
}

impl WarningInterval {
    /// Returns the number of warnings suppressed since the previous one if this one is to be logged, at most once a second.
    pub(in crate::server) fn next(&self) -> Option<u64> {
        let mut state = self.0.lock();
        if state.latest.is_some_and(|at| at.elapsed() < INTERVAL) {
            state.suppressed += 1;
            return None;
        }
        state.latest = Some(Instant::now());
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_warning_a_second() {
        let warnings = WarningInterval::default();
        assert_eq!(
            [warnings.next(), warnings.next(), warnings.next()],
            [Some(0), None, None]
        );
        advance(INTERVAL).await;
        assert_eq!([warnings.next(), warnings.next()], [Some(2), None]);
    }
}
