//! Waits for the end of the process that started the server, so that a test runner that is killed leaves no server behind.
//!
//! The kernel's `PR_SET_PDEATHSIG` is not used: it sends its signal when the thread that started the server ends, even if
//! the parent continues.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, getppid, test_kill_process};

use crate::server::config::lifetime::SupervisingProcess;

/// The pause between checks whether the process exists, where the kernel cannot report its end.
const POLL_PERIOD: Duration = Duration::from_millis(100);

/// The process whose end also ends the server.
#[derive(Debug)]
pub(in crate::server) struct ProcessWatch {
    target: Target,
    /// Readable once the process has ended.
    #[cfg(target_os = "linux")]
    handle: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

#[derive(Debug, Clone, Copy)]
enum Target {
    /// The parent, which had this ID; another process becomes the parent when it ends.
    Parent(Option<Pid>),
    Other(Pid),
    Ended,
}

impl Target {
    fn of(process: SupervisingProcess) -> Self {
        match process {
            SupervisingProcess::Parent => Self::Parent(getppid()),
            SupervisingProcess::Id(id) => {
                let id = i32::try_from(id.get()).ok().and_then(Pid::from_raw);
                id.map_or(Self::Ended, Self::Other)
            }
        }
    }

    fn has_ended(self) -> bool {
        match self {
            Self::Parent(parent) => getppid() != parent,
            // A process of another user exists too, but must not be signalled.
            Self::Other(id) => test_kill_process(id) == Err(rustix::io::Errno::SRCH),
            Self::Ended => true,
        }
    }
}

impl ProcessWatch {
    /// Watches `process` from now on. Must be called in a Tokio runtime.
    ///
    /// # Errors
    /// The runtime cannot wait for the handle of the process.
    pub(in crate::server) fn start(process: SupervisingProcess) -> io::Result<Self> {
        Self::start_with(Target::of(process))
    }

    #[cfg(target_os = "linux")]
    fn start_with(mut target: Target) -> io::Result<Self> {
        use rustix::process::{PidfdFlags, pidfd_open};

        let opened = match target {
            Target::Parent(Some(id)) | Target::Other(id) => {
                Some(pidfd_open(id, PidfdFlags::empty()))
            }
            // A parent outside of the PID namespace of the server has no ID.
            Target::Parent(None) | Target::Ended => None,
        };
        let handle = match opened {
            Some(Err(rustix::io::Errno::SRCH)) => {
                target = Target::Ended;
                None
            }
            // A kernel before 5.3 or a sandbox has no such call.
            Some(Err(_)) | None => None,
            Some(Ok(handle)) => Some(readable(handle)?),
        };
        // The parent may have ended, and its ID be reused, before the handle was opened.
        if matches!(target, Target::Parent(_)) && target.has_ended() {
            target = Target::Ended;
        }
        Ok(Self { target, handle })
    }

    #[cfg(not(target_os = "linux"))]
    fn start_with(target: Target) -> io::Result<Self> {
        Ok(Self { target })
    }

    /// Waits until the process has ended. Cancel safe.
    pub(in crate::server) async fn ended(&self) {
        #[cfg(target_os = "linux")]
        if let (Some(handle), false) = (&self.handle, matches!(self.target, Target::Ended))
            && handle.readable().await.is_ok()
        {
            return;
        }
        self.poll_until_ended().await;
    }

    async fn poll_until_ended(&self) {
        while !self.target.has_ended() {
            tokio::time::sleep(POLL_PERIOD).await;
        }
    }
}

#[cfg(target_os = "linux")]
#[allow(
    deprecated,
    reason = "the function without `unsafe` is deprecated for types that do not own their descriptor; OwnedFd does"
)]
fn readable(
    handle: std::os::fd::OwnedFd,
) -> io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    tokio::io::unix::AsyncFd::with_interest(handle, tokio::io::Interest::READABLE)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::process::{Child, Command};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn sleeping() -> (Child, SupervisingProcess) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = NonZeroU32::new(child.id()).unwrap();
        (child, SupervisingProcess::Id(id))
    }

    async fn has_ended(watch: &ProcessWatch, is_polled: bool) -> bool {
        let ended = async {
            match is_polled {
                true => watch.poll_until_ended().await,
                false => watch.ended().await,
            }
        };
        timeout(Duration::from_millis(300), ended).await.is_ok()
    }

    #[tokio::test]
    async fn end_of_a_process_is_reported_with_and_without_a_handle() {
        for is_polled in [false, true] {
            let (mut child, process) = sleeping();
            let watch = ProcessWatch::start(process).unwrap();
            assert!(!has_ended(&watch, is_polled).await);
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(has_ended(&watch, is_polled).await);
        }
    }

    #[tokio::test]
    async fn a_process_that_has_ended_before_is_reported() {
        let (mut child, process) = sleeping();
        child.kill().unwrap();
        child.wait().unwrap();
        let watch = ProcessWatch::start(process).unwrap();
        assert!(has_ended(&watch, false).await);
    }

    #[tokio::test]
    async fn a_parent_that_has_changed_has_ended() {
        let watch = ProcessWatch::start_with(Target::Parent(Pid::from_raw(i32::MAX))).unwrap();
        assert!(has_ended(&watch, false).await);
        let parent = ProcessWatch::start(SupervisingProcess::Parent).unwrap();
        assert!(!has_ended(&parent, false).await);
        assert!(!has_ended(&parent, true).await);
    }
}
