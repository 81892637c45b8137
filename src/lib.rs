#![doc = include_str!("ARCHITECTURE.md")]

// In reading order: API types, schemas, reflector, storage, watch cache, admission, managed fields,
// registry, controllers, HTTP, load generator, client library, server process, server for tests.
pub mod api;
pub mod schema;

pub mod reflector;
pub mod storage;

pub mod cacher;

pub mod admission;
pub mod managed;

pub mod apiextensions;
pub mod builtin;
pub mod registry;
pub mod services;

pub mod controllers;

pub mod http;

pub mod bench;

pub mod informer;
pub mod tail;

pub mod server;
pub mod testing;

#[cfg(test)]
mod seeds;

pub mod metrics;
pub mod tasks;
pub mod x509;
