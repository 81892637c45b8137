//! What the command line of `bench` says, as clap reads it. What the values mean together is checked
//! where they are used.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::churn::mix::Mix;

/// The loads.
#[derive(Debug, Subcommand)]
pub(super) enum Load {
    /// Create objects
    Fill(FillArgs),
    /// Get objects that `fill` made, one request each
    Get(GetArgs),
    /// List a resource again and again
    List(ListArgs),
    /// Watch with many clients while objects change, and count what arrives
    ///
    /// Fails when an event is lost, told twice or out of order, when a watch ends early and when a
    /// write fails.
    Watch(WatchArgs),
    /// Let many clients open a resource at the same moment, each over a connection of its own
    ///
    /// What happens when a server comes back and all of its informers do. Nothing may change the
    /// objects meanwhile: a client that is not told exactly of what one list had before fails the run.
    Storm(StormArgs),
    /// Create, update, patch, delete, get, list and watch at the same time
    ///
    /// Fails when a watcher is told of a change twice, out of order or not at all, when it ends in
    /// another state than a list shows, and when a read does not show what its client wrote before. It
    /// uses the namespace bench-churn and deletes what config maps an earlier run left in there.
    Churn(ChurnArgs),
    /// Measure the least that such work can cost: a bare write loop, plain HTTP/1.1
    ///
    /// Starts a process of its own that only writes the same bytes to the same number of sockets,
    /// and puts the same load on it. What another server needs more than that is its own doing.
    #[command(subcommand)]
    Floor(FloorLoad),
}

/// What the floor is measured for.
#[derive(Debug, Subcommand)]
pub(super) enum FloorLoad {
    /// The floor of `bench watch`
    Watch(FloorWatchArgs),
    /// The floor of `bench list`
    List(FloorListArgs),
    /// The process that the other two start
    #[command(hide = true)]
    Serve(FloorServeArgs),
}

/// Where the requests go.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Target")]
pub(super) struct TargetArgs {
    /// Kubeconfig of the server [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    pub kubeconfig: Option<PathBuf>,
    /// Its context to use [default: the current one]
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

/// The version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Protocol {
    /// HTTP/1.1
    #[value(name = "1.1")]
    Http1,
    /// HTTP/2
    #[value(name = "2")]
    Http2,
}

/// How objects are written in answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Encoding {
    /// JSON
    #[default]
    Json,
    /// Kubernetes' protobuf
    Protobuf,
}

/// What is measured beside the requests, and how the result is told.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Report")]
pub(super) struct ReportArgs {
    /// Measure CPU and memory of this process, the server on this machine
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Print only this value of the report, e.g. latency_us_last.p99 (may be repeated)
    #[arg(long, value_name = "KEY", conflicts_with = "json")]
    pub print: Vec<String>,
    /// Also write a page with plots of latencies and throughput
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The resources that are used as load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Resource {
    /// core/v1 ConfigMap
    Configmaps,
    /// core/v1 Pod
    Pods,
}

#[derive(Debug, Args)]
pub(super) struct FillArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub objects: ObjectArgs,
    /// Bytes of JSON of each
    #[arg(long, value_name = "BYTES", default_value = "1024")]
    pub size: usize,
    /// Connections that write at the same time
    #[arg(long, value_name = "N", default_value = "16")]
    pub connections: NonZeroUsize,
    /// Label of every object (may be repeated)
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// Spread pods over this many nodes, node-0 and so on, by spec.nodeName
    #[arg(long, value_name = "N", default_value = "1000")]
    pub nodes: NonZeroU32,
}

/// Which objects `fill` makes, and `get` asks for.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Objects")]
pub(super) struct ObjectArgs {
    /// What they are
    #[arg(value_enum)]
    pub resource: Resource,
    /// How many there are: bench-0 and so on
    #[arg(long, value_name = "N", default_value = "1000")]
    pub count: NonZeroU32,
    /// Their namespace
    #[arg(long, value_name = "NAME", default_value = "bench")]
    pub namespace: String,
    /// Spread them over this many namespaces, named as the one with -0 and so on behind
    #[arg(long, value_name = "N", default_value = "1")]
    pub namespaces: NonZeroU32,
}

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub objects: ObjectArgs,
    /// How many requests to send
    #[arg(long, value_name = "N", default_value = "10000")]
    pub requests: NonZeroU32,
    /// Connections that ask at the same time
    #[arg(long, value_name = "N", default_value = "4")]
    pub connections: NonZeroUsize,
    /// As in the API: unset is the newest, 0 is whatever the server has at hand
    #[arg(long, value_name = "RV")]
    pub resource_version: Option<String>,
    #[command(flatten)]
    pub answers: AnswerArgs,
}

/// What answers are to be.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Requests")]
pub(super) struct AnswerArgs {
    #[arg(long, value_enum, value_name = "ENCODING", hide_possible_values = true, default_value_t = Encoding::Json,
        help = "Encoding of what is read, json or protobuf; an answer in another is a failure")]
    pub accept: Encoding,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub query: ListQueryArgs,
    #[command(flatten)]
    pub answers: AnswerArgs,
}

/// Which objects of the server are read.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Objects")]
pub(super) struct SelectionArgs {
    /// What they are
    #[arg(value_enum)]
    pub resource: Resource,
    /// Only this namespace [default: all]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// As in the API: unset is the newest, 0 is whatever the server has at hand
    #[arg(long, value_name = "RV")]
    pub resource_version: Option<String>,
    /// As kubectl's
    #[arg(long, value_name = "SELECTOR")]
    pub label_selector: Option<String>,
    /// As kubectl's
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,
}

/// The requests of `list`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Requests")]
pub(super) struct ListQueryArgs {
    /// Ask for a first page of this many objects
    #[arg(long, value_name = "N")]
    pub limit: Option<NonZeroU32>,
    /// How many to send
    #[arg(long, value_name = "N", default_value = "10")]
    pub requests: NonZeroU32,
    /// Connections that ask at the same time
    #[arg(long, value_name = "N", default_value = "1")]
    pub connections: NonZeroUsize,
    // Last: its heading would hold for what follows.
    #[command(flatten)]
    pub selection: SelectionArgs,
}

#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub load: WatchLoadArgs,
    #[command(flatten)]
    pub answers: AnswerArgs,
}

/// The watchers and the writes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct WatchLoadArgs {
    /// How many watch
    #[arg(long, value_name = "N", default_value = "100")]
    pub watchers: NonZeroU32,
    /// Connections that they share [default: one each; HTTP/1.1 cannot share]
    #[arg(long, value_name = "N")]
    pub connections: Option<NonZeroU32>,
    /// How many changes to write; with 0 the watches are only opened and measured
    #[arg(long, value_name = "N", default_value = "500")]
    pub events: u32,
    /// Changes a second; 0 is as fast as they are acknowledged
    #[arg(long, value_name = "N", default_value = "50")]
    pub rate: f64,
    /// Connections that write at the same time
    #[arg(long, value_name = "N", default_value = "1")]
    pub writers: NonZeroU32,
    /// Bytes of JSON of each object
    #[arg(long, value_name = "BYTES", default_value = "1024")]
    pub size: usize,
    /// Who is told of a change
    #[arg(long, value_enum, default_value_t = Mode::Broadcast)]
    pub mode: Mode,
    /// Seconds to wait for events after the last write
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    pub patience: f64,
}

/// Who is told of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// Every watcher: they watch all config maps
    Broadcast,
    /// One watcher: each watches the pods of one node (spec.nodeName)
    Selective,
}

#[derive(Debug, Args)]
pub(super) struct StormArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub selection: SelectionArgs,
    #[command(flatten)]
    pub load: StormLoadArgs,
    #[command(flatten)]
    pub answers: AnswerArgs,
}

/// The clients of a storm.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct StormLoadArgs {
    /// How many clients
    #[arg(long, value_name = "N", default_value = "50")]
    pub clients: NonZeroU32,
    /// What each of them asks for
    #[arg(long, value_enum, default_value_t = Opening::WatchList)]
    pub by: Opening,
    /// Seconds that they may take
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    pub patience: f64,
}

/// How a client comes to know the state of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Opening {
    /// A watch that begins with the state (sendInitialEvents), until the bookmark behind it
    WatchList,
    /// A list, until its last byte
    List,
}

#[derive(Debug, Args)]
pub(super) struct ChurnArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub load: ChurnLoadArgs,
    #[command(flatten)]
    pub answers: AnswerArgs,
}

/// Who does what in a churn.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct ChurnLoadArgs {
    /// Connections that send requests at the same time, each to config maps of its own
    #[arg(long, value_name = "N", default_value = "16")]
    pub workers: NonZeroU32,
    /// How many watch all of it
    #[arg(long, value_name = "N", default_value = "20")]
    pub watchers: u32,
    /// How many config maps there are at most
    #[arg(long, value_name = "N", default_value = "1000")]
    pub objects: NonZeroU32,
    /// Bytes of JSON of each
    #[arg(long, value_name = "BYTES", default_value = "1024")]
    pub size: usize,
    /// How often which request is sent; what is to be changed and is not there is created
    #[arg(
        long,
        value_name = "VERB=WEIGHT,...",
        default_value = "update=40,patch=20,delete=20,get=15,list=5"
    )]
    pub mix: Mix,
    /// How long requests are sent
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub seconds: f64,
    /// How many requests are sent, instead
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub operations: Option<NonZeroU32>,
    /// Requests a second; 0 is as fast as they are answered
    #[arg(long, value_name = "N", default_value = "0")]
    pub rate: f64,
    /// Every watcher leaves its watch after this many events and resumes where it was; 0 is never
    #[arg(long, value_name = "N", default_value = "2000")]
    pub resume: u32,
    /// Send the same requests as a run that had this seed [default: another each time]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Seconds to wait for events after the last request
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    pub patience: f64,
}

#[derive(Debug, Args)]
pub(super) struct FloorWatchArgs {
    #[command(flatten)]
    pub report: FloorReportArgs,
    #[command(flatten)]
    pub load: WatchLoadArgs,
}

#[derive(Debug, Args)]
pub(super) struct FloorListArgs {
    #[command(flatten)]
    pub report: FloorReportArgs,
    #[command(flatten)]
    pub serve: FloorServeArgs,
    /// How many to send
    #[arg(long, value_name = "N", default_value = "10")]
    pub requests: NonZeroU32,
    /// Connections that ask at the same time
    #[arg(long, value_name = "N", default_value = "1")]
    pub connections: NonZeroUsize,
}

/// As [`ReportArgs`], of a process that need not be named.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Report")]
pub(super) struct FloorReportArgs {
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Print only this value of the report, e.g. latency_us_last.p99 (may be repeated)
    #[arg(long, value_name = "KEY", conflicts_with = "json")]
    pub print: Vec<String>,
    /// Also write a page with plots of latencies and throughput
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What the floor's process lists.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct FloorServeArgs {
    /// How many objects a list has
    #[arg(long, value_name = "N", default_value = "0")]
    pub count: u32,
    /// Bytes of JSON of each
    #[arg(long, value_name = "BYTES", default_value = "1024")]
    pub size: usize,
}

fn label(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    match key {
        "" => Err("must be KEY=VALUE"),
        key => Ok((key.to_owned(), value.to_owned())),
    }
}
