//! `watchet demo`: writes to a Kubernetes API server as schedulers and kubelets would, and watches it with three clients, of
//! which one reads slowly. It does not start the server: the caller does, and passes its kubeconfig.
//!
//! ```text
//! STAGES ─▶ Engine ─changes─▶ Cluster ─▶ RestClient ─▶ server ─▶ demo-informer
//!  (table)  (seed)            (tasks)                         ├─▶ demo-dashboard
//!                                                             └─▶ demo-slow-reader ─▶ ThrottledStream
//! ```
//!
//! The pods change by the table of stages, as in [kwok](https://kwok.sigs.k8s.io/docs/user/stages-configuration/).

mod args;
mod cluster;
mod engine;
mod error;
mod guide;
mod objects;
mod pod;
mod progress;
mod simulation;
mod stage;
mod status;
mod throttle;
mod watchers;

pub use args::{DemoOptions, command};
pub use error::DemoError;
pub use guide::Guide;
pub use simulation::Simulation;
