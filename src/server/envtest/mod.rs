//! The programs that controller-runtime's envtest runs: called as `kube-apiserver` or as `etcd`,
//! this program accepts their flags. `assets` creates a directory with such links.

// In reading order: what the programs share, the programs.
mod command_line;
mod etcd_flags;
mod kube_apiserver_flags;
mod program;
pub(super) mod store;

pub(super) mod assets;
pub(super) mod etcd;
pub(super) mod etcd_storage;
pub(super) mod kube_apiserver;

pub(super) use program::Program;
