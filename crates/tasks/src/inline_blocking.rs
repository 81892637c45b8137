//! Runs blocking work inline, so that a simulation has one thread and a deterministic order of events.

use std::cell::Cell;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(false) };
}

/// Makes [`spawn_blocking`](super::Tasks::spawn_blocking), when it is called on this thread, run the work in an async task
/// instead of on a thread for blocking work. For simulations: the order in which threads complete is not deterministic.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// watchet_tasks::run_blocking_work_inline();
/// let work = || std::thread::current().id();
/// let thread = watchet_tasks::Tasks::new().spawn_blocking("list", work).await.unwrap();
/// assert_eq!(thread, std::thread::current().id());
/// # }
/// ```
pub fn run_blocking_work_inline() {
    ENABLED.set(true);
}

/// Returns true if blocking work runs inline on this thread.
pub(crate) fn is_enabled() -> bool {
    ENABLED.get()
}
