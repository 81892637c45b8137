//! Tests of the simulated etcd cluster: the storage tests over it, a comparison with a real etcd, its faults, its planted
//! bugs, and its determinism.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by a panic, in its helpers too"
)]

// The storage tests name the root package, whose modules they find here.
extern crate self as watchet;

mod api {
    pub(crate) use watchet_api::*;
}
mod bugs;
mod determinism;
mod differential;
mod faults;
mod harness;
mod random_client;
mod storage;
mod tasks {
    pub(crate) use watchet_tasks::Tasks;
}
mod watches;
