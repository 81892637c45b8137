//! Tests of the process: its output, its authentication, invalid flags, and its end. Other modules test the API.

mod access;
mod configuration;
mod connections;
mod console;
mod crash;
mod history;
mod lifetime;
mod limits;
mod open_files;
mod service_manager;
mod shutdown;
mod storage_outage;
