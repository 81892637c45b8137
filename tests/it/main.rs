//! The one integration test binary: a module per room. It holds no test itself.

mod harness;
mod kubectl;
mod serve;
mod storage;
mod tidy;
