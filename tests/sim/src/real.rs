//! Real faults on real processes: three etcd members and two servers on this machine, with proxies between them, under the
//! load and the checks of the simulation.

mod cluster;
mod other_clients;
mod process;
mod proxy;
mod run;
mod scenarios;

use std::path::PathBuf;
use std::time::Duration;

pub use run::{Row, run_scenario};
pub use scenarios::Scenario;

/// What the scenarios run.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The program `watchet`.
    pub watchet: PathBuf,
    /// The program `etcd`.
    pub etcd: PathBuf,
    /// The informer in Go, `tests/go/faultinformer`.
    pub go_informer: PathBuf,
    /// The program `kubectl`.
    pub kubectl: PathBuf,
    /// How long the clients run before and after the fault.
    pub margin: Duration,
    /// The directory of data and logs.
    pub directory: PathBuf,
}
