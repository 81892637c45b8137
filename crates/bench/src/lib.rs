//! `watchet bench`: a load generator for any Kubernetes API server, its report, and the comparison
//! of two reports. It is a client, independent of the server's code: it uses `watchet_client` for
//! the kubeconfig.
//!
//! # Structure
//!
//! ```text
//! arguments -> Target -> connections, one task each -> counters -> Report -> table, JSON or page
//!                                 ▲
//!              Pace: the schedule of requests (watch and churn only; the other loads send the next
//!              request when the response arrives)
//! ```
//!
//! Each connection has its own socket and is read by one task, however many watches it carries.
//! Events are not queued: a watcher keeps one bit per event of the run and its last version, from
//! which lost, duplicate and reordered events follow. A churn has no predefined events: they are
//! compared with a log of the requests.
//!
//! The floor is a child process that implements the minimum of HTTP/1.1 for the same load generator
//! and only writes the same bytes to the same number of sockets.

// In reading order: arguments, target, requests, responses, measurements, report, loads.
mod args;
mod target;

mod client;
mod mark;
mod objects;
mod pace;

mod decode;
mod encoding;
mod frames;
mod items;

mod latency;
mod latency_timeline;
mod meter;
mod process;
mod progress;

mod compare;
mod metadata;
mod metric;
mod page;
mod report;
mod server_info;

mod churn;
mod error;
mod fill;
mod floor;
mod read;
mod requests;
mod run;
mod storm;
mod sweep;
mod watch;
mod write;

pub use run::{command, main};
