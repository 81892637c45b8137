//! Raises the limit of open files. Each connection takes one, and many systems start programs with a soft limit of 1,024 or
//! fewer, so that a few hundred idle clients would shut out all others.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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
