//! SIGINT and SIGTERM. What they mean to whatever is going on is said in `run`.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask the process to end.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndSignal {
    /// SIGINT
    Interrupt,
    /// SIGTERM
    Terminate,
}

impl EndSignal {
    /// What a shell reports of a process that the signal killed.
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 128 + 2,
            Self::Terminate => 128 + 15,
        }
    }
}

impl std::fmt::Display for EndSignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        })
    }
}

impl Signals {
    /// From now on they no longer kill the process.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next signal. Cancel safe.
    pub(super) async fn next(&mut self) -> EndSignal {
        // Both mean the same, so the order decides nothing.
        tokio::select! {
            biased;
            Some(()) = self.terminate.recv() => EndSignal::Terminate,
            Some(()) = self.interrupt.recv() => EndSignal::Interrupt,
            else => std::future::pending().await,
        }
    }
}
