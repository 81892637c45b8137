//! `--output json`, the option of the commands that otherwise print text for people.

use clap::ValueEnum;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// One JSON object, or one per line
    Json,
}
