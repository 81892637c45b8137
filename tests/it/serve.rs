//! The process as its operator meets it: what it writes, whom it lets in, what it refuses, how it
//! ends. What the API answers is other modules' matter.

mod access;
mod configuration;
mod crash;
mod history;
mod shutdown;
