//! `watchet demo`: writes to a Kubernetes API server as controllers, a scheduler and kubelets do, and watches it with three
//! clients, one of which reads slowly. The caller starts the server and passes its kubeconfig.
//!
//! ```text
//! STAGES ─▶ Engine ─changes─▶ Cluster ─▶ RestClient ─▶ server ─▶ demo-informer
//!  (table)  (seed)            (tasks)                         ├─▶ demo-dashboard
//!                                                             └─▶ demo-slow-reader ─▶ ThrottledStream
//! ```
//!
//! A table of stages defines how pods change, as in [kwok](https://kwok.sigs.k8s.io/docs/user/stages-configuration/).

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
