//! The arguments that several loads have: the server, the report, the resource and the encoding of
//! responses.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::encoding::Encoding;

/// The server and how to reach it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Target")]
pub(crate) struct TargetArgs {
    /// Kubeconfig of the server [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    pub kubeconfig: Option<PathBuf>,
    /// Context to use [default: the current context]
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    pub context: Option<String>,
    /// URL of the server, instead of a kubeconfig; http:// is not encrypted
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// Bearer token
    #[arg(long, value_name = "TOKEN", requires = "server")]
    pub token: Option<String>,
    /// Do not verify the server's certificate
    #[arg(long, requires = "server")]
    pub insecure: bool,
    #[arg(long, value_name = "VERSION", value_enum, hide_possible_values = true, default_value_t = Protocol::Http2,
        help = "HTTP/1.1 (1.1) or HTTP/2 (2), on all connections")]
    pub http: Protocol,
}

/// HTTP versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// HTTP/1.1
    #[value(name = "1.1")]
    Http1,
    /// HTTP/2
    #[value(name = "2")]
    Http2,
}

/// What is measured besides requests, and the form of the report.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Report")]
pub(crate) struct ReportArgs {
    /// Measure CPU and memory of this process, the server on this machine
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    #[command(flatten)]
    pub generator: GeneratorArgs,
    /// Print the report as JSON, which `bench compare` reads
    #[arg(long)]
    pub json: bool,
    /// Print only this value of the report, e.g. latency_us_last.p99 (may be repeated)
    #[arg(long, value_name = "KEY", conflicts_with = "json")]
    pub print: Vec<String>,
    /// Also write an HTML page with the result and plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The load generator itself.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GeneratorArgs {
    /// Threads of the load generator [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Do not fail if the load generator is the bottleneck: rates are then lower bounds of the
    /// server's, and latencies upper bounds
    #[arg(long)]
    pub saturate: bool,
}

/// The resources used as load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Resource {
    /// core/v1 ConfigMap
    Configmaps,
    /// core/v1 Pod
    Pods,
    /// A custom resource with a schema and validation rules in CEL; `bench` creates its definition
    Widgets,
    /// A custom resource whose version v2 is converted by a webhook, which `bench` runs
    Gadgets,
}

/// The encoding of responses.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Requests")]
pub(crate) struct ResponseArgs {
    #[arg(long, value_enum, value_name = "ENCODING", hide_possible_values = true, default_value_t = Encoding::Json,
        help = "Encoding of responses: json, protobuf, table, metadata or metadata-protobuf; a response in another one is a failure")]
    pub accept: Encoding,
}
