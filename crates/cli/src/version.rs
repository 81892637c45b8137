//! `watchet version`: the version of the program.

use clap::Args;
use serde_json::json;

use super::error::CliError;
use super::{output, table};
use crate::output_format::OutputFormat;

/// What is known about the build.
#[derive(Debug, Clone)]
pub struct Build {
    /// The version of the program.
    pub version: &'static str,
    /// The commit; empty if it is unknown.
    pub commit: &'static str,
    /// The version of Kubernetes whose API is served: `v1.36`.
    pub kubernetes: String,
    /// The optional features of the build.
    pub features: Vec<&'static str>,
}

/// The arguments.
#[derive(Debug, Clone, Args)]
pub(crate) struct VersionArgs {
    /// Output format: json
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        hide_possible_values = true
    )]
    output: Option<OutputFormat>,
}

/// Runs the command.
pub(crate) fn run(args: &VersionArgs, build: &Build) -> Result<(), CliError> {
    output::print(&text(args.output, build))
}

fn text(form: Option<OutputFormat>, build: &Build) -> String {
    if form == Some(OutputFormat::Json) {
        let document = json!({
            "version": build.version,
            "commit": build.commit,
            "kubernetes": build.kubernetes,
            "features": build.features,
        });
        return format!("{document}\n");
    }
    let commit = match build.commit {
        "" => "unknown",
        commit => commit,
    };
    let features = match build.features.as_slice() {
        [] => "none".to_owned(),
        features => features.join(", "),
    };
    let line = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
    table::aligned(&[
        line("watchet", build.version),
        line("commit", commit),
        line("Kubernetes API", &build.kubernetes),
        line("features", &features),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_printed_as_text_and_json() {
        let build = Build {
            version: "0.1.0",
            commit: "",
            kubernetes: "v1.36".to_owned(),
            features: vec!["etcd"],
        };
        assert_eq!(
            text(None, &build),
            "watchet          0.1.0\ncommit           unknown\nKubernetes API   v1.36\nfeatures         etcd\n"
        );
        let json: serde_json::Value =
            serde_json::from_str(&text(Some(OutputFormat::Json), &build)).unwrap();
        assert_eq!(json["features"], json!(["etcd"]));
    }
}
