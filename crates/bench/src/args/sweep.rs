//! The arguments of `bench sweep`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::common::{Resource, TargetArgs};
use crate::encoding::Encoding;

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Process of the server on this machine
    #[arg(long, value_name = "PID")]
    pub pid: u32,
    /// Kubeconfig of a second server on this machine, to compare with
    #[arg(long, value_name = "FILE", requires = "against_pid")]
    pub against: Option<PathBuf>,
    /// Process of the second server
    #[arg(long, value_name = "PID", requires = "against")]
    pub against_pid: Option<u32>,
    #[command(flatten)]
    pub load: SweepLoadArgs,
    /// Form of the table
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TableForm::Text)]
    pub output: TableForm,
}

/// The rows of a sweep and their size.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct SweepLoadArgs {
    /// Measure only this resource (may be repeated)
    #[arg(long, value_enum, value_name = "RESOURCE")]
    pub resource: Vec<Resource>,
    /// Measure only this verb, named as in the table (may be repeated)
    #[arg(long, value_name = "VERB")]
    pub verb: Vec<String>,
    /// Measure only this encoding of responses (may be repeated)
    #[arg(long, value_enum, value_name = "ENCODING")]
    pub accept: Vec<Encoding>,
    /// Objects of each resource that the reads find
    #[arg(long, value_name = "N", default_value = "1000")]
    pub objects: NonZeroU32,
    /// Number of requests of each row, in percent of the full number
    #[arg(long, value_name = "PERCENT", default_value = "100")]
    pub scale: NonZeroU32,
    /// List rows whose ratio is less than this as to be looked at
    #[arg(long, value_name = "RATIO", default_value = "3")]
    pub goal: f64,
}

/// The form of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableForm {
    /// Columns of text
    Text,
    /// Markdown
    Markdown,
}
