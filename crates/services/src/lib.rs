//! Allocation of cluster IPs and node ports: chooses the values of a service, and claims and releases them. `claims`
//! implements the protocol of claims.
//!
//! # Beside a kube-apiserver
//!
//! The allocators of a kube-apiserver on the same etcd use the same claims of addresses. Upstream stores node ports as
//! one bitmap (`/registry/ranges/servicenodeports`), which this crate does not read. Upstream repairs the bitmap from
//! the services every three minutes, so two servers can allocate the same port only if both do so before a repair.

// In reading order.
mod strategy;

mod allocation;

mod claims;

mod families;
mod ranges;
pub mod spec;

pub use ranges::ServiceRanges;
pub use strategy::ServiceStrategy;
