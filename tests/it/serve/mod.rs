//! Tests of the process: its output, its authentication, invalid flags, and its end. Other modules test the API.

mod access;
mod configuration;
mod connections;
mod crash;
mod history;
mod limits;
mod open_files;
mod shutdown;
mod storage_outage;
