//! Runs the command in the arguments.

use std::path::PathBuf;

use clap::ArgMatches;

use super::error::StoreError;
use super::{backup, copy, local};
use crate::server::config::store_args;

/// Runs a command of `watchet store`.
///
/// # Errors
/// The command failed.
pub(in crate::server) async fn run(matches: &ArgMatches) -> Result<(), StoreError> {
    let (name, matches) = matches.subcommand().unwrap_or(("", matches));
    let flags = store_args::flags(matches);
    let data_dir = PathBuf::from(&flags.data_dir.text);
    match name {
        "check" => local::check(&data_dir),
        "backup" => backup::run(matches, &data_dir).await,
        "restore" => local::restore(matches, &data_dir),
        "compact" => local::compact(&data_dir),
        "export" => copy::export(matches, &flags, &data_dir).await,
        _ => copy::import(matches, &flags, &data_dir).await,
    }
}
