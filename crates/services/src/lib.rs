//! Allocation of cluster IPs and node ports: chooses the values of a service, and claims and releases them. `claims`
//! implements the protocol of claims.
//!
//! # Beside a kube-apiserver
//!
//! The allocators of a kube-apiserver on the same etcd use the same claims of addresses. Upstream stores node ports as
//! one bitmap (`/registry/ranges/servicenodeports`). If it exists, a claim of a port here also sets the bit of the port, and
//! its release clears it: see `port_bitmap`. Upstream repairs the bitmap from the services every three minutes.

// In reading order.
mod strategy;

mod allocation;

mod claims;

mod families;
mod port_bitmap;
mod ranges;
pub mod spec;

pub use ranges::ServiceRanges;
pub use strategy::ServiceStrategy;
