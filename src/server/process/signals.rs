//! SIGINT and SIGTERM.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives the signals that end the process.
#[derive(Debug)]
pub(in crate::server) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// A signal that ends the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum EndSignal {
    /// SIGINT
    Interrupt,
    /// SIGTERM
    Terminate,
}

impl EndSignal {
    /// Returns the exit code that a shell reports for a process killed by the signal.
    pub(in crate::server) fn exit_code(self) -> u8 {
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
    /// Installs the handlers; from now on the signals no longer kill the process.
    ///
    /// # Errors
    /// The system rejects a handler.
    pub(in crate::server) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal. Cancel safe.
    pub(in crate::server) async fn next(&mut self) -> EndSignal {
        // Both have the same meaning, so the order does not matter.
        tokio::select! {
            biased;
            Some(()) = self.terminate.recv() => EndSignal::Terminate,
            Some(()) = self.interrupt.recv() => EndSignal::Interrupt,
            else => std::future::pending().await,
        }
    }
}
