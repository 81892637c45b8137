//! The arguments of `bench fill` and `bench clear`.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::Args;

use super::common::{ReportArgs, Resource, TargetArgs};

#[derive(Debug, Args)]
pub(crate) struct FillArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub objects: ObjectArgs,
    /// Size of each object in bytes of JSON
    #[arg(long, value_name = "BYTES", default_value = "1024")]
    pub size: usize,
    /// Requests per second; 0 is as fast as they are answered
    #[arg(long, value_name = "N", default_value = "0")]
    pub rate: f64,
    /// Connections that write concurrently
    #[arg(long, value_name = "N", default_value = "16")]
    pub connections: NonZeroUsize,
    /// Label of all objects (may be repeated)
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// Number of nodes (node-0, node-1, ...) to spread pods over by spec.nodeName
    #[arg(long, value_name = "N", default_value = "1000")]
    pub nodes: NonZeroU32,
}

/// The objects that `fill` creates and `get` reads.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Objects")]
pub(crate) struct ObjectArgs {
    /// Resource of the objects
    #[arg(value_enum)]
    pub resource: Resource,
    /// Number of objects, named bench-0, bench-1, ...
    #[arg(long, value_name = "N", default_value = "1000")]
    pub count: NonZeroU32,
    /// Namespace of the objects
    #[arg(long, value_name = "NAME", default_value = "bench")]
    pub namespace: String,
    /// Number of namespaces to spread the objects over, with -0, -1, ... appended to the name
    #[arg(long, value_name = "N", default_value = "1")]
    pub namespaces: NonZeroU32,
}

#[derive(Debug, Args)]
pub(crate) struct ClearArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub objects: ObjectArgs,
    /// Connections that delete concurrently
    #[arg(long, value_name = "N", default_value = "16")]
    pub connections: NonZeroUsize,
}

fn label(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    match key {
        "" => Err("must be KEY=VALUE"),
        key => Ok((key.to_owned(), value.to_owned())),
    }
}
