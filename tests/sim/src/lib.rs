//! Deterministic simulation of watchet: servers, storage, network and clients run in one thread, under virtual time, and
//! one seed decides everything, so that a failure can be repeated exactly.

pub mod bugs;
pub mod check;
mod client;
mod determinism;
pub mod etcd;
pub mod network;
pub mod real;
mod server;
mod world;

pub use world::{Fault, Report, run, run_traced};
