//! `watchet bench`: the load generator and its report, against any Kubernetes API server. It is a
//! client: it knows the words of `api`, and of `informer` what a kubeconfig says; it knows nothing of how a
//! server works, and it measures from outside.
//!
//! # Shape
//!
//! ```text
//! arguments -> Target -> connections, one task each -> what they counted -> Report -> table or JSON
//!                                 ▲
//!              Pace: when the next request is due (watch and churn only; other loads ask as fast as
//!              they are answered)
//! ```
//!
//! A connection is a socket of its own and is read by one task, however many watches it carries.
//! Nothing is queued for an event: a watcher keeps a bit for each event of the run and its last
//! version, and what is lost, told twice or out of order falls out of these. In a churn, where nobody
//! knows the events before, they are held to a log of what was sent.
//!
//! The floor is a child process that speaks just enough HTTP/1.1 to be measured by the same code and
//! does nothing but write the same bytes to the same number of sockets.

// In reading order: what is asked for, where it goes, what is sent, what is measured, the loads.
mod args;
mod target;

mod client;
mod mark;
mod objects;
mod pace;

mod decode;
mod frames;

mod latency;
mod page;
mod process;
mod progress;
mod report;

mod churn;
mod fill;
mod floor;
mod read;
mod requests;
mod run;
mod storm;
mod watch;

pub use run::{command, main};
