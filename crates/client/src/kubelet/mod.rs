//! The pod sources of a kubelet: it receives complete sets of pods instead of single changes, from
//! several sources, one of which is the API server.
//!
//! ```text
//!  Reflector ─▶ UndeltaStore ─push all─▶┐
//!  another source: files, a test ──────▶┤ Mux ─▶ PodConfig: differences ─▶ updates
//! ```

mod api_server;
mod mux;
mod pod_config;

pub use api_server::{api_server_source, pods_of_node};
pub use mux::{Merger, Mux, MuxClosed, MuxSource};
pub use pod_config::{PodConfig, PodOperation, PodUpdate, Rejected};
