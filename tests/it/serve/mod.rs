//! The process as its operator sees it: its output, its authentication, the flags that it rejects, and its end. Other
//! modules test the API.

mod access;
mod configuration;
mod connections;
mod crash;
mod history;
mod open_files;
mod shutdown;
