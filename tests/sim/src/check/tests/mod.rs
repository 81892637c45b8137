//! Tests of the oracle: histories of a correct implementation pass, and each fault is found as the violation of its property.

mod builder;
mod faults;
mod generated;
mod model_server;
mod model_watch;
mod mutations;
mod operations;
mod watches;
