//! The integration tests, one binary: the real store, the real server, real clients.

mod compose;
mod harness;
mod serve;
mod storage;
mod tidy;
