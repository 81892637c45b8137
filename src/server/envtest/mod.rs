//! The programs that controller-runtime's envtest runs: called as `kube-apiserver` or as `etcd`,
//! this program accepts their flags. `assets` creates a directory with such links.

pub(super) mod assets;
pub(super) mod attached;
mod command_line;
pub(super) mod etcd;
pub(super) mod kube_apiserver;
pub(super) mod store;

use std::ffi::OsStr;
use std::path::Path;

const KUBE_APISERVER: &str = "kube-apiserver";
const ETCD: &str = "etcd";

/// The program as which the process was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// `watchet`, or any other name.
    Watchet,
    /// `kube-apiserver`
    KubeApiserver,
    /// `etcd`
    Etcd,
}

impl Program {
    /// Returns the program of this `argv[0]`.
    pub(super) fn called(name: &OsStr) -> Self {
        match Path::new(name).file_name().and_then(OsStr::to_str) {
            Some(KUBE_APISERVER) => Self::KubeApiserver,
            Some(ETCD) => Self::Etcd,
            _ => Self::Watchet,
        }
    }

    /// Returns the name for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Watchet => "watchet",
            Self::KubeApiserver => KUBE_APISERVER,
            Self::Etcd => ETCD,
        }
    }
}

/// Logs each flag that was given and has no effect.
fn log_ignored(names: &[&str]) {
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
