//! The names as which this program is called.

use std::ffi::OsStr;
use std::path::Path;

/// The name of kube-apiserver.
pub(super) const KUBE_APISERVER: &str = "kube-apiserver";
/// The name of etcd.
pub(super) const ETCD: &str = "etcd";

/// The program as which the process was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Program {
    /// `watchet`, or any other name.
    Watchet,
    /// `kube-apiserver`
    KubeApiserver,
    /// `etcd`
    Etcd,
}

impl Program {
    /// Returns the program of this `argv[0]`.
    pub(in crate::server) fn called(name: &OsStr) -> Self {
        match Path::new(name).file_name().and_then(OsStr::to_str) {
            Some(KUBE_APISERVER) => Self::KubeApiserver,
            Some(ETCD) => Self::Etcd,
            _ => Self::Watchet,
        }
    }

    /// Returns the name for messages.
    pub(in crate::server) fn name(self) -> &'static str {
        match self {
            Self::Watchet => "watchet",
            Self::KubeApiserver => KUBE_APISERVER,
            Self::Etcd => ETCD,
        }
    }
}

/// Logs each flag that was given and has no effect.
pub(super) fn log_ignored(names: &[&str]) {
    for name in names {
        tracing::info!(flag = format_args!("--{name}"), "flag has no effect");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_last_part_of_the_path() {
        for (name, expected) in [
            ("kube-apiserver", Program::KubeApiserver),
            ("/a/b/kube-apiserver", Program::KubeApiserver),
            ("./etcd", Program::Etcd),
            ("watchet", Program::Watchet),
            ("/etcd/", Program::Etcd),
            ("/etcd/watchet", Program::Watchet),
            ("my-etcd", Program::Watchet),
            ("", Program::Watchet),
        ] {
            assert_eq!(Program::called(OsStr::new(name)), expected, "{name}");
        }
    }
}
