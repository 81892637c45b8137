//! What ends the process: SIGINT, SIGTERM, and the end of the process that started it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::server::config::lifetime::SupervisingProcess;
use crate::server::process::supervising_process::ProcessWatch;

/// Receives the signals that end the process.
#[derive(Debug)]
pub(in crate::server) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// SIGHUP, if it ends the process in order; otherwise it has the effect that the starting process has chosen.
    hangup: Option<Signal>,
    supervising: Option<ProcessWatch>,
}

/// Why the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum EndReason {
    /// A signal.
    Signal(EndSignal),
    /// The process of `--exit-with-parent` has ended.
    ParentEnded,
}

impl std::fmt::Display for EndReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Signal(signal) => signal.fmt(f),
            Self::ParentEnded => f.write_str("end of the process of --exit-with-parent"),
        }
    }
}

/// A signal that ends the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum EndSignal {
    /// SIGINT
    Interrupt,
    /// SIGTERM
    Terminate,
    /// SIGHUP: the terminal was closed.
    Hangup,
}

impl EndSignal {
    /// Returns the exit code that a shell reports for a process killed by the signal.
    pub(in crate::server) fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 128 + 2,
            Self::Terminate => 128 + 15,
            Self::Hangup => 128 + 1,
        }
    }
}

impl std::fmt::Display for EndSignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
        })
    }
}

impl Signals {
    /// Installs the handlers; from now on the signals no longer kill the process. Also watches the process of
    /// `--exit-with-parent`, if it is set.
    ///
    /// # Errors
    /// The system rejects a handler.
    pub(in crate::server) fn listen(supervising: Option<SupervisingProcess>) -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: None,
            supervising: supervising.map(ProcessWatch::start).transpose()?,
        })
    }

    /// Also receives SIGHUP, for a command that has to clean up when its terminal is closed.
    ///
    /// # Errors
    /// The system rejects the handler.
    pub(in crate::server) fn with_hangup(self) -> io::Result<Self> {
        let hangup = Some(signal(SignalKind::hangup())?);
        Ok(Self { hangup, ..self })
    }

    /// Waits for a reason to end. Cancel safe.
    pub(in crate::server) async fn end_reason(&mut self) -> EndReason {
        let ended = async {
            match &self.supervising {
                Some(process) => process.ended().await,
                None => std::future::pending().await,
            }
        };
        // A signal comes first, so that the log has the signal if both are true.
        tokio::select! {
            biased;
            signal = received(&mut self.terminate, &mut self.interrupt, &mut self.hangup) => {
                EndReason::Signal(signal)
            }
            () = ended => EndReason::ParentEnded,
        }
    }

    /// Waits for the next signal. Cancel safe.
    pub(in crate::server) async fn next(&mut self) -> EndSignal {
        received(&mut self.terminate, &mut self.interrupt, &mut self.hangup).await
    }
}

/// Waits for a signal. Cancel safe.
async fn received(
    terminate: &mut Signal,
    interrupt: &mut Signal,
    hangup: &mut Option<Signal>,
) -> EndSignal {
    let hangup = async {
        match hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    // All have the same meaning, so the order does not matter.
    tokio::select! {
        biased;
        Some(()) = terminate.recv() => EndSignal::Terminate,
        Some(()) = interrupt.recv() => EndSignal::Interrupt,
        Some(()) = hangup => EndSignal::Hangup,
        else => std::future::pending().await,
    }
}
