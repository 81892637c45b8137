//! Raises the limit of open files. Each connection takes one, and many systems start programs with a soft limit of 1,024 or
//! fewer.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of open files that are not available to connections: those of the store, of etcd, of webhooks, of logs.
const RESERVED: u64 = 64;

/// Returns the number of connections that the limit of open files allows.
pub(in crate::server) fn connections_max() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let connections = files.saturating_sub(RESERVED).max(files / 2);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

/// Raises the soft limit of open files of this process to the hard limit.
pub(in crate::server) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(
            %error,
            soft = limit.current,
            hard = limit.maximum,
            "cannot raise the limit of open files, which limits the number of connections"
        );
    }
}
