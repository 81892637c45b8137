//! The arguments of `bench write`.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::{Args, ValueEnum};

use super::common::{ReportArgs, Resource, ResponseArgs, TargetArgs};

/// A kind of write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WriteVerb {
    /// POST of a new object
    Create,
    /// PUT of the whole object with its resourceVersion
    Update,
    /// PATCH with a JSON patch (RFC 6902) of an annotation
    JsonPatch,
    /// PATCH with a JSON merge patch (RFC 7386) of an annotation
    MergePatch,
    /// PATCH with a strategic merge patch of an annotation; not for custom resources
    StrategicPatch,
    /// Server-side apply of the whole object
    Apply,
    /// DELETE of an object
    Delete,
    /// DELETE of all objects of a namespace; each request has a namespace of its own
    Deletecollection,
}

impl WriteVerb {
    /// All verbs.
    pub(crate) const ALL: [Self; 8] = [
        Self::Create,
        Self::Update,
        Self::JsonPatch,
        Self::MergePatch,
        Self::StrategicPatch,
        Self::Apply,
        Self::Delete,
        Self::Deletecollection,
    ];

    /// Returns the name on the command line and in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::JsonPatch => "json-patch",
            Self::MergePatch => "merge-patch",
            Self::StrategicPatch => "strategic-patch",
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::Deletecollection => "deletecollection",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub load: WriteLoadArgs,
    #[command(flatten)]
    pub responses: ResponseArgs,
}

/// The requests of `write`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct WriteLoadArgs {
    /// Resource of the objects
    #[arg(value_enum)]
    pub resource: Resource,
    /// Kind of write
    #[arg(long, value_enum, value_name = "VERB")]
    pub verb: WriteVerb,
    /// Number of requests
    #[arg(long, value_name = "N", default_value = "1000")]
    pub requests: NonZeroU32,
    /// Requests per second; 0 is as fast as they are answered
    #[arg(long, value_name = "N", default_value = "0")]
    pub rate: f64,
    /// Connections that send requests concurrently
    #[arg(long, value_name = "N", default_value = "4")]
    pub connections: NonZeroUsize,
    /// Number of objects that are changed in turn, or that each deletecollection deletes
    #[arg(long, value_name = "N", default_value = "100")]
    pub objects: NonZeroU32,
    /// Size of each object in bytes of JSON
    #[arg(long, value_name = "BYTES", default_value = "1024")]
    pub size: usize,
    /// Namespace of the objects; those of deletecollection have -0, -1, ... appended
    #[arg(long, value_name = "NAME", default_value = "bench-write")]
    pub namespace: String,
}
