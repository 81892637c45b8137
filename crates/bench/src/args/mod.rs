//! The command line of `watchet bench`. Combinations of values are validated where they are used.

mod common;
mod compare;
mod fill;
mod sweep;
mod write;

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::churn::mix::Mix;
pub(super) use super::encoding::Encoding;
pub(super) use common::{GeneratorArgs, Protocol, ReportArgs, Resource, ResponseArgs, TargetArgs};
pub(super) use compare::CompareArgs;
pub(super) use fill::{ClearArgs, FillArgs, ObjectArgs};
pub(super) use sweep::{SweepArgs, TableForm};
pub(super) use write::{WriteArgs, WriteLoadArgs, WriteVerb};

/// The kinds of load.
#[derive(Debug, Subcommand)]
pub(super) enum Load {
    /// Create objects
    Fill(FillArgs),
    /// Delete objects created by `fill`; those that do not exist are counted
    Clear(ClearArgs),
    /// Get single objects created by `fill`
    Get(GetArgs),
    /// List a resource repeatedly
    List(ListArgs),
    /// Create, update, patch, apply or delete objects, one verb per run
    ///
    /// Fails if a response or a final list does not have the version and content that was written.
    /// Deletes the objects that earlier runs have left in its namespaces, and its own at the end.
    /// With --accept protobuf, creates and updates are sent in protobuf too, as Go clients do.
    Write(WriteArgs),
    /// Change objects while many clients watch, and count the received events
    ///
    /// Fails if an event is lost, duplicated or out of order, if a watch ends early, or if a write
    /// fails.
    Watch(WatchArgs),
    /// Open a list or watch from many clients at the same moment, each over its own connection
    ///
    /// Simulates informers after a server restart. Nothing else may change the objects during the
    /// run: it fails if a client does not receive exactly the objects of a previous list.
    Storm(StormArgs),
    /// Create, update, patch, delete, get, list and watch concurrently
    ///
    /// Fails if a watcher receives a change twice, out of order or not at all, if its final state
    /// differs from a list, or if a read does not return what its client wrote before. Uses the
    /// namespace bench-churn and deletes config maps of earlier runs in it.
    Churn(ChurnArgs),
    /// Measure the CPU time of a server per request, for every verb, encoding and kind of resource
    ///
    /// With --against, also that of a second server, row by row in turn; the rows with the lowest
    /// ratio come first. Creates objects in namespaces named bench-... on both servers.
    Sweep(SweepArgs),
    /// Compare two reports of the same load, of two servers or two commits
    ///
    /// Prints each value of both, their ratio, and whether the second one is better. A difference in
    /// the parameters or the machines is a warning.
    Compare(CompareArgs),
    /// Measure the minimum cost of such a load: a bare write loop over plain HTTP/1.1
    ///
    /// Starts a separate process that only writes the same bytes to the same number of sockets, and
    /// puts the same load on it. The difference to another server is the cost of that server.
    #[command(subcommand)]
    Floor(FloorLoad),
}

/// The loads with a measurable floor.
#[derive(Debug, Subcommand)]
pub(super) enum FloorLoad {
    /// The floor of `bench watch`
    Watch(FloorWatchArgs),
    /// The floor of `bench list`
    List(FloorListArgs),
    /// The server process of the other two
    #[command(hide = true)]
    Serve(FloorServeArgs),
}

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub objects: ObjectArgs,
    /// Number of requests
    #[arg(long, value_name = "N", default_value = "10000")]
    pub requests: NonZeroU32,
    /// Connections that send requests concurrently
    #[arg(long, value_name = "N", default_value = "4")]
    pub connections: NonZeroUsize,
    /// resourceVersion parameter: unset for the most recent state, 0 for any state
    #[arg(long, value_name = "RV")]
    pub resource_version: Option<String>,
    #[command(flatten)]
    pub responses: ResponseArgs,
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
    pub responses: ResponseArgs,
}

/// The selected objects.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Objects")]
pub(super) struct SelectionArgs {
    /// Resource of the objects
    #[arg(value_enum)]
    pub resource: Resource,
    /// Namespace [default: all namespaces]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// resourceVersion parameter: unset for the most recent state, 0 for any state
    #[arg(long, value_name = "RV")]
    pub resource_version: Option<String>,
    /// Label selector, as in kubectl
    #[arg(long, value_name = "SELECTOR")]
    pub label_selector: Option<String>,
    /// Field selector, as in kubectl
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,
}

/// The requests of `list`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Requests")]
pub(super) struct ListQueryArgs {
    /// Maximum number of objects in a response; only the first page is requested
    #[arg(long, value_name = "N")]
    pub limit: Option<NonZeroU32>,
    /// Continue until the last page, as a part of the same request
    #[arg(long)]
    pub all_pages: bool,
    /// Number of requests
    #[arg(long, value_name = "N", default_value = "10")]
    pub requests: NonZeroU32,
    /// Connections that send requests concurrently
    #[arg(long, value_name = "N", default_value = "1")]
    pub connections: NonZeroUsize,
    // Last, because its help heading applies to the arguments that follow.
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
    pub responses: ResponseArgs,
}

/// The watchers and writers of `watch`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct WatchLoadArgs {
    /// Number of watchers
    #[arg(long, value_name = "N", default_value = "100")]
    pub watchers: NonZeroU32,
    /// Number of connections that the watchers share [default: one per watcher; HTTP/1.1 cannot
    /// share]
    #[arg(long, value_name = "N")]
    pub connections: Option<NonZeroU32>,
    /// Number of changes to write; 0 only opens and measures the watches
    #[arg(long, value_name = "N", default_value = "500")]
    pub events: u32,
    /// Changes per second; 0 is as fast as they are acknowledged
    #[arg(long, value_name = "N", default_value = "50")]
    pub rate: f64,
    /// Connections that write concurrently
    #[arg(long, value_name = "N", default_value = "1")]
    pub writers: NonZeroU32,
    /// Size of each object in bytes of JSON
    #[arg(long, value_name = "BYTES", default_value = "1024")]
    pub size: usize,
    /// Which watchers receive a change
    #[arg(long, value_enum, default_value_t = Mode::Broadcast)]
    pub mode: Mode,
    /// Resource of the objects [default: configmaps, or pods with --mode selective]
    #[arg(long, value_enum, value_name = "RESOURCE")]
    pub resource: Option<Resource>,
    /// Seconds to hold the open watches before the first write
    #[arg(long, value_name = "SECONDS", default_value = "0")]
    pub hold: f64,
    /// Seconds to wait for events after the last write
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    pub timeout: f64,
}

/// Which watchers receive a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// All watchers: they watch one namespace
    Broadcast,
    /// One watcher: each watches the objects of one node (spec.nodeName)
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
    pub responses: ResponseArgs,
}

/// The clients of a storm.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct StormLoadArgs {
    /// Number of clients
    #[arg(long, value_name = "N", default_value = "50")]
    pub clients: NonZeroU32,
    /// Request that each client sends
    #[arg(long, value_enum, default_value_t = OpenRequest::WatchList)]
    pub by: OpenRequest,
    /// Time limit in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    pub timeout: f64,
}

/// The request that initializes a client's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OpenRequest {
    /// A watch with sendInitialEvents, until the bookmark that ends the initial events
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
    pub responses: ResponseArgs,
}

/// The workers and watchers of `churn`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct ChurnLoadArgs {
    /// Connections that send requests concurrently, each for its own config maps
    #[arg(long, value_name = "N", default_value = "16")]
    pub workers: NonZeroU32,
    /// Number of clients that watch all objects
    #[arg(long, value_name = "N", default_value = "20")]
    pub watchers: u32,
    /// Maximum number of config maps
    #[arg(long, value_name = "N", default_value = "1000")]
    pub objects: NonZeroU32,
    /// Size of each object in bytes of JSON
    #[arg(long, value_name = "BYTES", default_value = "1024")]
    pub size: usize,
    /// Relative weights of the requests; an update, patch or delete of an absent object creates it
    #[arg(
        long,
        value_name = "VERB=WEIGHT,...",
        default_value = "update=40,patch=20,delete=20,get=15,list=5"
    )]
    pub mix: Mix,
    /// Duration of the requests in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub seconds: f64,
    /// Number of requests, instead of a duration
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub operations: Option<NonZeroU32>,
    /// Requests per second; 0 is as fast as they are answered
    #[arg(long, value_name = "N", default_value = "0")]
    pub rate: f64,
    /// Number of events after which a watcher reconnects and resumes; 0 is never
    #[arg(long, value_name = "N", default_value = "2000")]
    pub resume: u32,
    /// Seed of the request sequence, to repeat a run [default: random]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Seconds to wait for events after the last request
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    pub timeout: f64,
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
    /// Number of requests
    #[arg(long, value_name = "N", default_value = "10")]
    pub requests: NonZeroU32,
    /// Connections that send requests concurrently
    #[arg(long, value_name = "N", default_value = "1")]
    pub connections: NonZeroUsize,
}

/// [`ReportArgs`] without the process, which is the floor's.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Report")]
pub(super) struct FloorReportArgs {
    #[command(flatten)]
    pub generator: GeneratorArgs,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Print only this value of the report, e.g. latency_us_last.p99 (may be repeated)
    #[arg(long, value_name = "KEY", conflicts_with = "json")]
    pub print: Vec<String>,
    /// Also write an HTML page with the result and plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The objects that the floor's process lists.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct FloorServeArgs {
    /// Number of objects in a list
    #[arg(long, value_name = "N", default_value = "0")]
    pub count: u32,
    /// Size of each object in bytes of JSON
    #[arg(long, value_name = "BYTES", default_value = "1024")]
    pub size: usize,
}
