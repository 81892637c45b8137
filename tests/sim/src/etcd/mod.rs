//! A simulated etcd cluster that serves the gRPC API over byte streams, under virtual time and from one seed.
//!
//! # Model
//!
//! There is one log, which is never wrong: an entry is committed once, and every member applies the same entries in the
//! same order. A member differs from the others by its position in the log (`state`), by whether its process runs, and
//! by which members it reaches (`election`). Requests take the paths of etcd: a write is proposed and answered after its
//! member has applied it, a linearizable read waits for the leader's confirmation (`proposals`), and watches are synced,
//! catch up or wait for space in their stream (`watchers`). The state machine reads no clock and has no task; one task
//! wakes it when something is due.
//!
//! # Not simulated
//!
//! Authentication, learners, changes of the membership, defragmentation, hashes, snapshots over the API, and
//! `RangeStream` of etcd 3.7: these calls return `Unimplemented`. A request is never delivered twice (see
//! [`RequestFault`]).

mod apply;
mod cluster;
mod config;
mod election;
mod errors;
mod faults;
mod kv_service;
mod lease_clock;
mod lease_service;
mod leases;
mod maintenance_service;
mod member;
mod pending;
mod position;
mod proposals;
mod random;
mod read;
mod serve;
mod services;
mod shared;
mod state;
mod store;
mod suspension;
mod ticker;
mod transaction;
mod validate;
mod watch_service;
mod watchers;
mod writes;

pub use self::cluster::{Cluster, Snapshot};
pub use self::config::{Config, Observer, PlantedBug};
pub use self::faults::{FaultRates, Loss, RequestFault};
pub use self::member::MemberState;
