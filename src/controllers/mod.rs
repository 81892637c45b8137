//! Controllers: the loops inside of the server that finish what a request begins, each by itself and
//! by the registry's verbs alone, as a client would. None is in the path of a read, none is asked by a
//! write, and what one does can also be done by somebody else outside.
//!
//! ```text
//!  cache of a resource ─watch─▶ Follower ─▶ controller: which keys? ─▶ WorkQueue
//!                                                                         │
//!            registry: get, patch, delete ◀── reconcile(key) ◀── a few at a time
//! ```
//!
//! # Several servers on one storage
//!
//! Each runs its controllers and there is no leader: what one decides holds only for the very object that
//! it looked at (uid and version go with every delete and every patch), so of two that do the same the
//! second finds it done, and goes on from there.

mod follower;
mod frame;
mod garbage;
mod namespace;
mod queue;
mod selection;

use std::sync::Arc;

pub use selection::{Selection, UnknownController};

use self::frame::Controller;
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::tasks::Tasks;

/// Starts the controllers of `selection` over `registry`, each as a task of `tasks`. They end when the
/// group does; what they do is counted in `metrics`.
pub fn spawn(
    registry: &Arc<Registry>,
    tasks: &Tasks,
    selection: &Selection,
    metrics: &Arc<Metrics>,
) {
    let start = Start {
        registry,
        tasks,
        selection,
        metrics,
    };
    start.controller(namespace::NamespaceController::new);
    start.controller(garbage::GarbageCollector::new);
}

/// What a controller is started with.
struct Start<'a> {
    registry: &'a Arc<Registry>,
    tasks: &'a Tasks,
    selection: &'a Selection,
    metrics: &'a Arc<Metrics>,
}

impl Start<'_> {
    fn controller<C: Controller>(&self, new: impl FnOnce(Arc<Registry>, &Metrics) -> C) {
        if self.selection.has(C::NAME) {
            let controller = Arc::new(new(self.registry.clone(), self.metrics));
            let run = frame::run(controller, self.tasks.token());
            self.tasks.spawn(C::NAME, run);
        }
    }
}

#[cfg(test)]
mod tests;
