//! `bench floor`: the same load on a child process that does the minimum of work. Its server is in
//! `floor/server.rs`.

mod server;

use std::io::{self, BufRead as _, BufReader};
use std::num::{NonZeroU32, NonZeroUsize};
use std::process::{Child, Command, Stdio};

use super::args::{FloorServeArgs, ListQueryArgs, Protocol, Resource, SelectionArgs, TargetArgs};

/// Why the floor's process failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FloorError {
    #[error("cannot start the floor's process: {0}")]
    Start(io::Error),
    #[error("the floor's process did not print its address, but {0:?}")]
    Address(String),
    #[error("cannot serve: {0}")]
    Serve(io::Error),
}

/// The floor's process, killed when dropped.
#[derive(Debug)]
pub(super) struct Floor {
    child: Child,
    url: String,
}

impl Floor {
    /// Starts a process that lists `count` objects of `size` bytes.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn start(count: u32, size: usize) -> Result<Self, FloorError> {
        let program = std::env::current_exe().map_err(FloorError::Start)?;
        let mut child = Command::new(program)
            .args(["bench", "floor", "serve"])
            .args(["--count", &count.to_string(), "--size", &size.to_string()])
            // The child exits when this pipe closes, however this process ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(FloorError::Start)?;
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        let read = BufReader::new(stdout).read_line(&mut line);
        let floor = Self {
            child,
            url: line.trim().to_owned(),
        };
        read.map_err(FloorError::Start)?;
        match floor.url.starts_with("http://") {
            true => Ok(floor),
            false => Err(FloorError::Address(line)),
        }
    }

    /// Returns the process ID.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the arguments that select the process as the target.
    pub(super) fn target_args(&self) -> TargetArgs {
        TargetArgs {
            kubeconfig: None,
            context: None,
            server: Some(self.url.clone()),
            token: None,
            insecure: false,
            http: Protocol::Http1,
        }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // These fail only if the child has exited.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns the list request whose response the floor's process sends.
pub(super) fn list_query(requests: NonZeroU32, connections: NonZeroUsize) -> ListQueryArgs {
    let selection = SelectionArgs {
        resource: Resource::Configmaps,
        namespace: None,
        resource_version: None,
        label_selector: None,
        field_selector: None,
    };
    ListQueryArgs {
        selection,
        limit: None,
        all_pages: false,
        requests,
        connections,
    }
}

/// Runs the floor's process: prints its address and serves until stdin closes.
///
/// # Errors
/// It cannot listen.
pub(super) fn serve(args: &FloorServeArgs) -> Result<(), FloorError> {
    server::serve(args.count, args.size).map_err(FloorError::Serve)
}
