//! How the writer and the checkpointer run: as threads, or in the thread of a simulation.

#[cfg(feature = "simulation")]
use super::writer_task::WriterTask;

/// What runs the writer. It ends when the store is dropped.
#[derive(Debug)]
pub(super) enum Writer {
    /// A separate thread, because it blocks on the disk and has to flush after the runtime has shut
    /// down.
    Thread(std::thread::JoinHandle<()>),
    /// A task.
    #[cfg(feature = "simulation")]
    Task(WriterTask),
}

impl Writer {
    /// Waits for the end of the writer, after its queue was closed.
    pub(super) fn join(self) -> std::thread::Result<()> {
        match self {
            Self::Thread(thread) => thread.join(),
            #[cfg(feature = "simulation")]
            Self::Task(task) => {
                task.end();
                Ok(())
            }
        }
    }
}

/// How the threads of the writer and of the checkpointer run.
pub(super) enum Threads {
    /// As threads.
    Spawned,
    /// In the calling thread, at times that the random numbers decide.
    #[cfg(feature = "simulation")]
    Simulated(fastrand::Rng),
}
