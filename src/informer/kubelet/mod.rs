//! How a kubelet hears of its pods: not by a queue of changes but by whole sets, from several sources, of
//! which one is the API server. What is done with the pods is the kubelet's business.
//!
//! ```text
//!  Reflector ─▶ UndeltaStore ─push all─▶┐
//!  another source: files, a test ──────▶┤ Mux ─▶ PodConfig: what changed? ─▶ updates
//! ```

mod api_server;
mod mux;
mod pod_config;

pub use api_server::{api_server_source, pods_of_node};
pub use mux::{Merger, Mux, MuxClosed, MuxSource};
pub use pod_config::{PodConfig, PodOperation, PodUpdate, Rejected};
