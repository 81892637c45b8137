//! What the command line of `tail` says, as clap reads it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The arguments.
#[derive(Debug, Clone, Args)]
pub(super) struct TailArgs {
    #[arg(
        value_name = "RESOURCE",
        help = "What to follow, as kubectl names it: po, pods, deployments.apps, foos.v1.example.com, cm/settings"
    )]
    pub resource: String,
    /// Kubeconfig of the server [default: $KUBECONFIG, else ~/.kube/config, else the pod's account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Its context to use [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace [default: the context's]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only objects with these labels, e.g. app=web,tier!=db
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Only objects with these fields, e.g. spec.nodeName=node-1
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,
    /// wide: all changes in full, the version, and who wrote it; json: an object a line
    #[arg(
        short,
        long,
        value_name = "FORM",
        value_enum,
        hide_possible_values = true
    )]
    pub output: Option<Form>,
}

impl TailArgs {
    /// The resource, and the one object of it that is meant, if one is named.
    pub(super) fn named(&self) -> (&str, Option<&str>) {
        match self.resource.split_once('/') {
            Some((resource, name)) => (resource, Some(name)),
            None => (&self.resource, None),
        }
    }

    /// Which fields the objects have that are meant.
    pub(super) fn fields(&self) -> Option<String> {
        let name = self.named().1.map(|name| format!("metadata.name={name}"));
        let selectors = [self.field_selector.clone(), name];
        let selectors: Vec<_> = selectors.into_iter().flatten().collect();
        (!selectors.is_empty()).then(|| selectors.join(","))
    }
}

/// How a change is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Form {
    /// What fits on a line
    #[default]
    #[value(skip)]
    Short,
    /// Everything
    Wide,
    /// For programs
    Json,
}
