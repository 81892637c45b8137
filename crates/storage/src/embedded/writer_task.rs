//! The writer as a task of the thread of a simulation.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use watchet_tasks::Tasks;

use super::operation::Op;
use super::writer::WriterThread;

/// The longest time that the writer waits for the simulated disk before a batch.
const LATENCY_MAX_US: u64 = 4_000;

/// A writer that is a task.
pub(super) struct WriterTask(Arc<Mutex<Option<Box<WriterThread>>>>);

impl std::fmt::Debug for WriterTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WriterTask")
    }
}

impl WriterTask {
    /// Spawns the task. Before each batch it waits for as long as a disk may need, which `random` decides.
    pub(super) fn spawn(
        mut writer: WriterThread,
        mut queue: mpsc::Receiver<Op>,
        tasks: &Tasks,
        mut random: fastrand::Rng,
    ) -> Self {
        writer.begin();
        let shared = Arc::new(Mutex::new(Some(Box::new(writer))));
        let task = Self(shared.clone());
        let run = async move {
            while let Some(first) = queue.recv().await {
                tokio::time::sleep(Duration::from_micros(random.u64(..LATENCY_MAX_US))).await;
                match &mut *shared.lock() {
                    Some(writer) => writer.batch_of(first, &mut queue),
                    None => break,
                }
            }
        };
        drop(tasks.spawn("simulated-writer", run));
        task
    }

    /// Ends the writer. Operations that wait are not executed.
    pub(super) fn end(self) {
        if let Some(mut writer) = self.0.lock().take() {
            writer.end();
        }
    }
}
