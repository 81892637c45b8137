//! The arguments of `bench compare`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Report of --json, the baseline
    #[arg(value_name = "A.json")]
    pub a: PathBuf,
    /// Report of --json, compared with the baseline
    #[arg(value_name = "B.json")]
    pub b: PathBuf,
    /// Name of the first report [default: its file name]
    #[arg(long, value_name = "NAME")]
    pub name_a: Option<String>,
    /// Name of the second report [default: its file name]
    #[arg(long, value_name = "NAME")]
    pub name_b: Option<String>,
    /// Also write an HTML page with the values and plots of both
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
